/* cufile.cc - emulates libcufile.so. It reads to the GPU's memory through host memory. It accepts
 * only accesses that are fast in the real library: whole blocks of 4 KiB, in the file and on the
 * GPU. A test sets faults with osh_play_fail (play.h):
 *
 *   "cuFileRead" or another call   the call fails; value: code of cuFile, or an errno below 1000
 *   "cuFileRead.short"             a read returns fewer bytes; value: largest number of bytes
 *   "cuFileRead.wrong"             a read returns wrong bytes; value: number of bytes with a wrong
 *                                  bit; -1: all bytes are 0xff */
#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <mutex>
#include <set>

#include "play.h"

struct error { int code, cuda; };
struct descriptor {
    int type;
    union { int fd; void *handle; } file;
    const void *fs_ops;
};
static_assert(sizeof(descriptor) == 24 && sizeof(error) == 8, "NVIDIA's layouts");
struct file { int fd; };
enum { OK, NOT_UP = 5001, INVALID = 5022, TWICE = 5023, NO_MEMORY_OF_GPU = 5029, BLOCK = 4096 };

static std::mutex lock;
static std::set<file *> files;
static std::set<const void *> buffers;
static bool is_up;

extern "C" error cuFileDriverOpen()
{
    if (int e = osh_play_fault("cuFileDriverOpen")) return {e, 0};
    is_up = true;
    return {OK, 0};
}

extern "C" error cuFileHandleRegister(void **handle, descriptor *d)
{
    if (int e = osh_play_fault("cuFileHandleRegister")) return {e, 0};
    if (!is_up) return {NOT_UP, 0};
    if (d->type != 1 || d->fs_ops) return {INVALID, 0};
    std::lock_guard<std::mutex> g(lock);
    file *f = new file{d->file.fd};
    files.insert(f);
    return *handle = f, error{OK, 0};
}

extern "C" void cuFileHandleDeregister(void *handle)
{
    std::lock_guard<std::mutex> g(lock);
    osh_play_fault("cuFileHandleDeregister"); // counts the call
    if (files.erase((file *)handle)) delete (file *)handle;
    else osh_play_fault("cuFileHandleDeregister.unknown");
}

extern "C" error cuFileBufRegister(const void *base, size_t n_bytes, int flags)
{
    if (int e = osh_play_fault("cuFileBufRegister")) return {e, 0};
    if (flags || !osh_play_is_gpu(base, n_bytes)) return {INVALID, 0};
    std::lock_guard<std::mutex> g(lock);
    return {buffers.insert(base).second ? (int)OK : (int)TWICE, 0};
}

extern "C" error cuFileBufDeregister(const void *base)
{
    std::lock_guard<std::mutex> g(lock);
    osh_play_fault("cuFileBufDeregister");
    return {buffers.erase(base) ? (int)OK : (int)INVALID, 0};
}

struct job {
    int fd, why;
    char *to;
    size_t n;
    off_t at;
    int wrong, few; // bytes
    ssize_t got;
};

static void read_now(void *user)
{
    job *j = (job *)user;
    j->got = pread(j->fd, j->to, j->n, j->at), j->why = errno;
    if (j->few && j->got > j->few) j->got = j->few;
    if (j->wrong < 0 && j->got > 0) memset(j->to, 0xff, (size_t)j->got);
    for (int i = 0; i < j->wrong && i < j->got; i++) j->to[i] ^= 1;
}

extern "C" ssize_t cuFileRead(void *handle, void *base, size_t n_bytes, off_t at, off_t to)
{
    int e = osh_play_fault("cuFileRead"), few = osh_play_fault("cuFileRead.short"),
        wrong = osh_play_fault("cuFileRead.wrong");
    job j = {-1, 0, (char *)base + to, n_bytes, at, wrong, few, 0};
    {
        std::lock_guard<std::mutex> g(lock);
        if (!files.count((file *)handle)) return -INVALID;
        j.fd = ((file *)handle)->fd;
    }
    if (e >= 5000) return -e;
    if (e) return errno = e, -1;
    if (n_bytes % BLOCK || at % BLOCK || to % BLOCK || (size_t)base % BLOCK) return -INVALID;
    if (!osh_play_is_gpu(j.to, n_bytes)) return -NO_MEMORY_OF_GPU;
    if (lseek(j.fd, 0, SEEK_END) <= at) return 0;
    osh_play_touch(read_now, &j);
    return errno = j.why, j.got;
}
