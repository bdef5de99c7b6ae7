/* files.cu - reads files into GPU memory.
 *
 *   the disk ──cuFile──► slot of the stage ──► destination    if there is a stage
 *   the disk ──pread──► page-locked piece ──► destination     if there is none, or if cuFile fails
 *
 * Alignment: cuFile bypasses the host only if file offset, size and GPU address are multiples of 4
 * KiB. Otherwise it reads through buffers of its own. But a tensor may begin at any byte of a file,
 * and blocks of the arena begin at multiples of 512 bytes. So cuFile reads whole blocks of 4 KiB
 * into a slot of the stage (a buffer in GPU memory), and a copy inside the GPU moves the requested
 * bytes to their destination. */
#include "gpu/state.h"

extern "C" {
#include "base/cufile.h"
}
#include <stdio.h>

static_assert(OSH_GPU_STAGE == OSH_GPU_SLOTS * OSH_GPU_SLOT + 2 * OSH_BLOCK_BYTES,
              "slots, alignment, verdict");

struct osh_device_file {
    osh_gpu *c;     // the open GPU; view
    osh_file *f;    // view: the file
    void *handle;   // handle of cuFile; NULL: the host reads the file; own
    /* True: cuFile has failed, and the host reads the rest of the file. c->d->lock protects this
     * member. */
    bool refused;
};

/* ---- choice between cuFile and the host ---- */
static bool gpu_files_direct(osh_ctx *cx, int ordinal, const char *wish, bool room)
{
    char why[256] = "";
    size_t ignored = 0;
    bool asked = wish && !strcmp(wish, "true");
    if (!wish || !strcmp(wish, "false")) return false;
    if (osh_gpu_free_bytes(cx, &ignored, ordinal)) { // this call fails if the GPU cannot be used
        osh_error_clear(cx);
        // the error is dropped here, because it is reported when the caller opens the GPU
        return false;
    }
    if (!room)
        snprintf(why, sizeof why, "the GPU's memory has no %d MiB for it", OSH_GPU_STAGE >> 20);
    else if (!asked && !osh_cufile_has_module())
        snprintf(why, sizeof why, "the kernel has no module nvidia-fs");
    else if (osh_cufile_open(cx, why, sizeof why) && !osh_cufile_has_module())
        osh_log(cx, OSH_LOG_WARN,
                "the kernel has no module nvidia-fs: cuFile itself may copy through host"
                " memory");
    if (why[0])
        osh_log(cx, asked ? OSH_LOG_WARN : OSH_LOG_INFO,
                "files are read to the GPU through page-locked host memory,"
                " not by cuFile: %s",
                why);
    return !why[0];
}

static osh_status gpu_stage_open(osh_ctx *cx, osh_device *d, const char *wish)
{
    osh_status rc = OSH_OK;
    osh_gpu_stage *s = &osh_gpu_of(d)->stage;
    char why[128];
    s->asked = !strcmp(wish, "true");
    // OSH_LIFE_SHORT puts the block at the end of the arena
    s->block = (char *)osh_device_alloc(cx, d, OSH_GPU_STAGE, OSH_LIFE_SHORT);
    if (!s->block) OSH_TRY(OSH_E_NOMEM);
    s->base = (char *)osh_file_align(s->block);
    s->verdict = (int64_t *)(s->base + OSH_GPU_SLOTS * OSH_GPU_SLOT);
    for (int i = 0; i < OSH_GPU_SLOTS; i++)
        OSH_CUDA(cx, cudaEventCreateWithFlags(&s->slots[i].copied, cudaEventDisableTiming));
    if (int64_t code = osh_cufile_lock(s->base, OSH_GPU_SLOTS * OSH_GPU_SLOT))
        osh_log(cx, OSH_LOG_INFO, "cuFileBufRegister: %s: cuFile reads through its own buffers",
                osh_cufile_text(code, why, sizeof why));
    else s->locked = true;
done:
    return rc;
}

void osh_gpu_stage_deinit(osh_gpu *c)
{
    osh_gpu_stage *s = &c->stage;
    if (s->locked) osh_cufile_unlock(s->base);
    for (int i = 0; i < OSH_GPU_SLOTS; i++)
        if (s->slots[i].copied) cudaEventDestroy(s->slots[i].copied);
    pthread_cond_destroy(&s->given);
    pthread_mutex_destroy(&s->lock);
}

/* ---- files ---- */

/* Marks the file, so that the host reads it from now on. Logs the reason for the first such file of
 * a GPU. */
static void file_refuse(osh_ctx *cx, osh_device_file *f, osh_log_level level, const char *what,
                        const char *why)
{
    osh_gpu *c = f->c;
    pthread_mutex_lock(&c->d->lock);
    f->refused = true;
    pthread_mutex_unlock(&c->d->lock);
    if (osh_device_detour(c->d, OSH_DETOUR_FILE, 1))
        osh_log(cx, level, "%s: %s: %s: it is read through page-locked host memory",
                osh_file_path(f->f), what, why);
}

/* True if cuFile reads the file, false if the host reads it. */
static bool file_is_direct(osh_device_file *f)
{
    pthread_mutex_lock(&f->c->d->lock);
    bool yes = f->handle && !f->refused;
    pthread_mutex_unlock(&f->c->d->lock);
    return yes;
}

static osh_status gpu_file_open(osh_ctx *cx, osh_device_file **out, osh_device *d, osh_file *f)
{
    osh_status rc = OSH_OK;
    osh_device_file *file = NULL; // own
    char why[128];
    osh_log_level level = osh_gpu_of(d)->stage.asked ? OSH_LOG_WARN : OSH_LOG_INFO;
    OSH_NEW(cx, file, 1);
    file->c = osh_gpu_of(d), file->f = f;
    cudaSetDevice(file->c->ordinal);
    if (file->c->stage.block && osh_file_direct_fd(f) < 0) {
        file_refuse(cx, file, level, "cuFile", "this file system has no O_DIRECT");
    } else if (file->c->stage.block) {
        int64_t code = osh_cufile_register(&file->handle, osh_file_direct_fd(f));
        if (code) file->handle = NULL;
        if (code)
            file_refuse(cx, file, level, "cuFileHandleRegister",
                        osh_cufile_text(code, why, sizeof why));
    }
    *out = file, file = NULL; // passes ownership of `file` to the caller
done:
    osh_free(cx, file);
    return rc;
}

static void gpu_file_distrust(osh_ctx *cx, osh_device_file *f, const char *why)
{
    file_refuse(cx, f, OSH_LOG_WARN, "cuFileRead", why);
}

static void gpu_file_close(osh_ctx *cx, osh_device_file *f)
{
    if (!f) return;
    if (f->handle) osh_cufile_deregister(f->handle);
    osh_free(cx, f);
}

/* ---- reading ---- */
/* Returns the index of a free slot of the stage. Waits until a slot is free. */
static int slot_take(osh_gpu_stage *s)
{
    int i = 0;
    pthread_mutex_lock(&s->lock);
    for (;; i = (i + 1) % OSH_GPU_SLOTS) {
        if (!s->slots[i].taken) break;
        if (i + 1 == OSH_GPU_SLOTS) pthread_cond_wait(&s->given, &s->lock);
    }
    s->slots[i].taken = true;
    pthread_mutex_unlock(&s->lock);
    return i;
}

static void slot_give(osh_gpu_stage *s, int i)
{
    pthread_mutex_lock(&s->lock);
    s->slots[i].taken = false;
    pthread_cond_signal(&s->given);
    pthread_mutex_unlock(&s->lock);
}

/* Reads into a slot the blocks of the file that contain bytes [at, at + n_bytes). Returns false if
 * cuFile failed. In this case the host must read these bytes and all later bytes of the file. */
static bool slot_fill(osh_ctx *cx, osh_device_file *f, int slot, size_t n_bytes, int64_t at)
{
    const int64_t block = OSH_BLOCK_BYTES, begin = at / block * block;
    int64_t want = (at + (int64_t)n_bytes - begin + block - 1) / block * block, have = 0;
    char why[128];
    while (begin + have < at + (int64_t)n_bytes) {
        int64_t k = osh_cufile_read(f->handle, f->c->stage.base, (size_t)(want - have),
                                    begin + have, (int64_t)slot * OSH_GPU_SLOT + have);
        if (k < 0)
            return file_refuse(cx, f, OSH_LOG_WARN, "cuFileRead",
                               osh_cufile_text(k, why, sizeof why)),
                   false;
        // true: the slot contains all requested bytes (the last block may be incomplete at the end
        // of the file)
        if (begin + have + k >= at + (int64_t)n_bytes) return true;
        if (k < block)
            return file_refuse(cx, f, OSH_LOG_WARN, "cuFileRead",
                               "cuFile returned less than a block"),
                   false;
        have += k / block * block; // the next read begins at a block boundary
    }
    return true;
}

/* Reads the first bytes of the request `r`, as many as fit in one slot. Copies these bytes to their
 * destination in GPU memory. Sets *n to the number of these bytes. If cuFile fails, *n is 0, and
 * the host must read all bytes of the request. */
static osh_status slot_read(osh_ctx *cx, osh_device_file *f, const osh_gpu_read *r, size_t *n)
{
    osh_status rc = OSH_OK;
    osh_gpu *c = f->c;
    osh_gpu_stage *s = &c->stage;
    cudaStream_t stream = r->ahead ? c->copy : c->compute;
    size_t lead = (size_t)(r->at % OSH_BLOCK_BYTES), room = OSH_GPU_SLOT - lead;
    int slot = slot_take(s);
    *n = r->n_bytes < room ? r->n_bytes : room;
    // waits until the last copy out of the slot is done
    OSH_CUDA(cx, cudaEventSynchronize(s->slots[slot].copied));
    if (!slot_fill(cx, f, slot, *n, r->at)) {
        *n = 0;
        goto done;
    }
    OSH_CUDA(cx, cudaMemcpyAsync(r->to, s->base + (size_t)slot * OSH_GPU_SLOT + lead, *n,
                                 cudaMemcpyDeviceToDevice, stream));
    OSH_CUDA(cx, cudaEventRecord(s->slots[slot].copied, stream));
    pthread_mutex_lock(&c->d->lock);
    c->d->count.file_bytes += (int64_t)*n;
    pthread_mutex_unlock(&c->d->lock);
done:
    slot_give(s, slot);
    return rc;
}

static osh_status gpu_file_read(osh_ctx *cx, osh_device_file *f, void *to, size_t n_bytes,
                                int64_t at, bool ahead)
{
    osh_status rc = OSH_OK;
    osh_gpu_read r = {(char *)to, f->f, n_bytes, at, ahead}; // request for the remaining bytes
    bool direct = file_is_direct(f);
    size_t n = 1;
    cudaSetDevice(f->c->ordinal);
    if (direct && ahead) OSH_TRY(osh_gpu_follow(cx, f->c));
    while (direct && n && r.n_bytes) {
        OSH_TRY(slot_read(cx, f, &r, &n));
        r.to += n, r.at += (int64_t)n, r.n_bytes -= n;
    }
    if (r.n_bytes) OSH_TRY(osh_gpu_put_file(cx, f->c, &r));
done:
    return rc;
}

/* ---- checksums ---- */
static uint64_t *gpu_stage_sums(const osh_device *d)
{
    return (uint64_t *)osh_gpu_of(d)->stage.verdict;
}

const osh_device_files osh_gpu_files = {gpu_files_direct,  gpu_stage_open, gpu_file_open,
                                        gpu_file_close,    gpu_file_read,
                                        gpu_file_distrust, gpu_stage_sums};
