/* cufile.c - calls NVIDIA's cuFile. The types agree with cuFile's API reference. */
#include "base/cufile.h"
#include "base/library.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

typedef struct outcome { int code, cuda; } outcome; // CUfileError_t
typedef struct descriptor { // CUfileDescr_t
    int type;               // DESCRIPTOR_FD: the handle is a Linux file descriptor
    union { int fd; void *handle; } file;
    const void *fs_ops;
} descriptor;
enum { DESCRIPTOR_FD = 1, FIRST_CODE = 5000 };

static struct {
    outcome (*driver_open)(void);
    outcome (*handle_register)(void **handle, descriptor *d);
    void (*handle_deregister)(void *handle);
    outcome (*buffer_register)(const void *base, size_t n_bytes, int flags);
    outcome (*buffer_deregister)(const void *base);
    ssize_t (*read)(void *handle, void *base, size_t n_bytes, off_t at, off_t to);
} cufile;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool tried, is_open; // protected by `lock`
static char missing[256];   // reason why the library is not open

#define AT(field) offsetof(__typeof__(cufile), field)
static const osh_symbol symbols[] = {
    {"cuFileDriverOpen", AT(driver_open)},         {"cuFileHandleRegister", AT(handle_register)},
    {"cuFileHandleDeregister", AT(handle_deregister)}, {"cuFileBufRegister", AT(buffer_register)},
    {"cuFileBufDeregister", AT(buffer_deregister)}, {"cuFileRead", AT(read)},
};
#undef AT
static const osh_library library = {{"libcufile.so.0"},
                                    "reads from files to the GPU",
                                    "libcufile of the CUDA toolkit",
                                    symbols,
                                    sizeof symbols / sizeof *symbols};

static int64_t cufile_result(outcome r)
{
    return r.code ? -(int64_t)(r.code < 0 ? -r.code : r.code) : 0;
}

static osh_status cufile_library_open(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    void *handle;
    char why[128];
    OSH_TRY(osh_library_open(cx, &handle, &cufile, &library));
    int64_t code = cufile_result(cufile.driver_open());
    if (code)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "cuFileDriverOpen: %s",
                 osh_cufile_text(code, why, sizeof why));
done:
    return rc;
}

bool osh_cufile_open(osh_ctx *cx, char *why, size_t room)
{
    pthread_mutex_lock(&lock);
    if (!tried) {
        tried = true;
        is_open = !cufile_library_open(cx);
        if (!is_open) {
            snprintf(missing, sizeof missing, "%s", osh_error_text(cx));
            osh_error_clear(cx);
        }
    }
    bool yes = is_open;
    snprintf(why, room, "%s", missing);
    pthread_mutex_unlock(&lock);
    return yes;
}

bool osh_cufile_has_module(void)
{
    struct stat st;
    return !stat("/proc/driver/nvidia-fs", &st);
}

int64_t osh_cufile_register(void **handle, int fd)
{
    descriptor d;
    memset(&d, 0, sizeof d);
    d.type = DESCRIPTOR_FD, d.file.fd = fd;
    return cufile_result(cufile.handle_register(handle, &d));
}

void osh_cufile_deregister(void *handle) { cufile.handle_deregister(handle); }
int64_t osh_cufile_lock(void *base, size_t n_bytes)
{
    return cufile_result(cufile.buffer_register(base, n_bytes, 0));
}
void osh_cufile_unlock(void *base) { (void)cufile.buffer_deregister(base); }

int64_t osh_cufile_read(void *handle, void *base, size_t n_bytes, int64_t at, int64_t to)
{
    return cufile.read(handle, base, n_bytes, (off_t)at, (off_t)to);
}

const char *osh_cufile_text(int64_t result, char *to, size_t room)
{
    static const struct { int code; const char *text; } codes[] = {
        {5001, "its driver is not initialised"}, {5007, "this platform is not supported"},
        {5008, "the file system does not support it"}, {5010, "the module nvidia-fs refuses"},
        {5011, "CUDA refuses"}, {5019, "the file was opened with flags that it does not support"},
        {5020, "the file was opened without O_DIRECT"}, {5022, "an argument is invalid"},
        {5023, "the memory is registered already"}, {5025, "permission is missing"},
        {5027, "the file is not registered"}, {5028, "the file is registered already"},
        {5033, "the module nvidia-fs is not set up"}, {5034, "it is switched off"},
        {5036, "memory cannot be pinned"},
    };
    int code = result < -FIRST_CODE ? (int)-result : 0;
    const char *text = "it fails";
    char why[96];
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) text = codes[i].text;
    if (code) snprintf(to, room, "%s (cuFile %d)", text, code);
    else if (result == -1) snprintf(to, room, "%s", strerror_r(errno, why, sizeof why));
    else snprintf(to, room, "it fails (cuFile %lld)", (long long)-result);
    return to;
}
