/* bench.c - measures the peak speeds of this machine (`oneshot bench`), with the code and the
 * libraries that a run uses. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/buf.h"
#include "base/file.h"
#include "gpu/gpu.h"
#include "ops/device_ops.h"
#include "ops/peak.h"
#include "plan/plan.h"

/* BLOCK: number of bytes of a block.
 * N_BLOCKS: number of blocks in the file for the disk (256 MiB).
 * FEW_BLOCKS: number of blocks for a short measurement (OSH_PEAK_SHORT). */
enum { BLOCK = 4 << 20, N_BLOCKS = 64, FEW_BLOCKS = 4 };

/* Matrix multiplications of a decoder layer of SmolLM2-135M. */
static const struct {
    const char *name, *key;
    osh_peak_shape shape;
} shapes[] = {
    {"q, o", "linear_576_576", {OSH_PEAK_LINEAR, 576, 576}},
    {"k, v", "linear_576_192", {OSH_PEAK_LINEAR, 576, 192}},
    {"gate, up, glu", "gated_576_1536", {OSH_PEAK_GATED, 576, 1536}},
    {"down", "linear_1536_576", {OSH_PEAK_LINEAR, 1536, 576}},
    {"Hessian of 576", "hessian_576", {OSH_PEAK_HESSIAN, 576, 0}},
    {"Hessian of 1536", "hessian_1536", {OSH_PEAK_HESSIAN, 1536, 0}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };
/* Operations per second of AMX tiles alone (`tiles`) and of each shape (`of`); 0: not measured. */
typedef struct shape_rates { double tiles, of[N_SHAPES]; } shape_rates;

typedef struct peaks { // peak speeds; numbers are operations or bytes per second, 0: not measured
    double f32, bf16, attention, read, copy, disk_read, disk_write;
    bool direct; // true if the disk was read and written without the page cache
    char *isa;   // own
    double gpu_f32, gpu_bf16, gpu_attention, gpu_copy, gpu_put;
    /* Bytes per second from the disk to the GPU: through page-locked memory, and by cuFile. */
    double gpu_file, gpu_cufile;
    /* Bytes per second from the disk to page-locked memory: by one thread, and by all threads. */
    double pinned, pinned_all;
    char *gpu;                     // own: name of the GPU; NULL: not measured
    shape_rates shapes;
} peaks;

static int64_t blocks_of(double seconds)
{
    return seconds < OSH_PEAK_SHORT ? FEW_BLOCKS : N_BLOCKS;
}

/* Returns the number of bytes that a measurement copies to the GPU, or inside the GPU's memory. */
static size_t copied_bytes(double seconds) { return (size_t)(blocks_of(seconds) * BLOCK); }

/* Opens a temporary file without a name in dir, with O_DIRECT if the file system supports it. Sets
 * *direct to true if the file has O_DIRECT. */
static osh_status open_scratch(osh_ctx *cx, int *fd, bool *direct, const char *dir)
{
    *direct = true;
    *fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (*fd < 0) *direct = false, *fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return *fd < 0 ? osh_fail(cx, OSH_E_IO, "%s: cannot make a file: %m", dir) : OSH_OK;
}

static osh_status measure_disk(osh_ctx *cx, peaks *p, const char *dir, double seconds)
{
    osh_status rc = OSH_OK;
    int fd = -1;         // own
    void *block = NULL;  // own
    void *aligned;       // view
    int64_t n = 0, n_blocks = blocks_of(seconds);

    block = osh_calloc(cx, 1, BLOCK + 4096);
    if (!block) OSH_TRY(OSH_E_NOMEM);
    // O_DIRECT needs memory that is aligned to 4096 bytes
    aligned = (char *)block + (4096 - (uintptr_t)block % 4096);
    memset(aligned, 0x5a, BLOCK);
    OSH_TRY(open_scratch(cx, &fd, &p->direct, dir));
    double begin = osh_now();
    for (int64_t i = 0; i < n_blocks; i++)
        if (pwrite(fd, aligned, BLOCK, i * BLOCK) != BLOCK)
            OSH_FAIL(cx, OSH_E_IO, "%s: cannot write: %m", dir);
    if (fdatasync(fd)) OSH_FAIL(cx, OSH_E_IO, "%s: cannot write: %m", dir);
    p->disk_write = (double)n_blocks * BLOCK / (osh_now() - begin);
    begin = osh_now();
    do {
        if (pread(fd, aligned, BLOCK, n % n_blocks * BLOCK) != BLOCK)
            OSH_FAIL(cx, OSH_E_IO, "%s: cannot read: %m", dir);
    } while (++n < n_blocks || osh_now() - begin < seconds);
    p->disk_read = (double)n * BLOCK / (osh_now() - begin);
done:
    if (fd >= 0) close(fd);
    osh_free(cx, block);
    return rc;
}

typedef struct gpu_reads {
    osh_device *d;   // view
    osh_file *f;     // view: a file that has n_blocks blocks of BLOCK bytes
    int64_t n_blocks;
    char *to;        // view: BLOCK bytes of GPU memory
    double seconds;
} gpu_reads;

static osh_status measure_reads(osh_ctx *cx, double *rate, const gpu_reads *r)
{
    osh_status rc = OSH_OK;
    const osh_device_files *files = r->d->type->files;
    osh_device_file *f = NULL; // own
    int64_t n = 0;
    OSH_TRY(files->open(cx, &f, r->d, r->f));
    double begin = osh_now();
    do {
        OSH_TRY(files->read(cx, f, r->to, BLOCK, n % r->n_blocks * BLOCK, false));
        // waits until the copies to the GPU are complete
        if (n % r->n_blocks == r->n_blocks - 1) OSH_TRY(r->d->type->sync(cx, r->d));
    } while (++n % r->n_blocks || osh_now() - begin < r->seconds);
    *rate = (double)n * BLOCK / (osh_now() - begin);
done:
    files->close(cx, f);
    return rc;
}

typedef struct pinned_reads {
    osh_file *f; // view: a file that has blocks of BLOCK bytes
    char *to;    // view: page-locked memory, one block for each worker
} pinned_reads;

static osh_status pinned_read_block(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const pinned_reads *r = user;
    char *to = r->to + (size_t)worker * BLOCK;
    int fd = osh_file_direct_fd(r->f);
    if (fd < 0) return osh_file_pread(cx, r->f, to, BLOCK, chunk * BLOCK);
    return pread(fd, to, BLOCK, chunk * BLOCK) == BLOCK
               ? OSH_OK
               : osh_fail(cx, OSH_E_IO, "%s: cannot read: %m", osh_file_path(r->f));
}

/* Measures reads from the disk to page-locked memory, by one thread and by all --num-workers
 * threads. A run uses these threads to read values for a GPU. */
static osh_status measure_pinned(osh_ctx *cx, peaks *p, osh_device *d, osh_file *f, double seconds)
{
    osh_status rc = OSH_OK;
    const char *why = NULL;
    size_t n = (size_t)osh_threads(cx) * BLOCK;
    int64_t n_blocks = blocks_of(seconds);
    char *room = osh_alloc(cx, n + 4096); // own
    pinned_reads r = {.f = f};
    if (!room) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a block of a file for each thread");
    r.to = room + (4096 - (uintptr_t)room % 4096);
    OSH_TRY(d->type->pinned->lock(cx, d, &why, r.to, n));
    if (why) {
        osh_log(cx, OSH_LOG_WARN, "%zu bytes of host memory cannot be page-locked (%s)", n, why);
        goto done;
    }
    for (int all = 0; all < 2; all++) {
        double begin = osh_now();
        int64_t blocks = 0;
        for (; !blocks || osh_now() - begin < seconds; blocks += n_blocks) {
            if (all) OSH_TRY(osh_parallel_for(cx, n_blocks, pinned_read_block, &r));
            for (int64_t i = 0; !all && i < n_blocks; i++) OSH_TRY(pinned_read_block(cx, &r, i, 0));
        }
        *(all ? &p->pinned_all : &p->pinned) = (double)blocks * BLOCK / (osh_now() - begin);
    }
done:
    if (r.to && !why && !rc) d->type->pinned->unlock(cx, d, r.to);
    osh_free(cx, room);
    return rc;
}

/* Measures reads from a file in opt->dir to the GPU: through page-locked memory and by cuFile. The
 * name of the file is removed before the reads. */
static osh_status measure_gpu_reads(osh_ctx *cx, peaks *p, osh_device *d, int ordinal,
                                    const osh_bench_options *opt)
{
    osh_status rc = OSH_OK;
    osh_device_counters c;
    gpu_reads r = {.d = d, .n_blocks = blocks_of(opt->seconds), .seconds = opt->seconds};
    char *path = osh_sprintf(cx, "%s/oneshot-bench-%d", opt->dir, (int)getpid()); // own
    char *block = osh_alloc(cx, BLOCK); // own
    if (!path || !block) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a block of a file");
    memset(block, 0x5a, BLOCK);
    OSH_TRY(osh_file_create_exclusive(cx, &r.f, path));
    unlink(path);
    for (int64_t i = 0; i < r.n_blocks; i++)
        OSH_TRY(osh_file_pwrite(cx, r.f, block, BLOCK, i * BLOCK));
    OSH_TRY(osh_file_sync(cx, r.f));
    osh_file_use_direct(r.f);
    if (!(r.to = osh_device_alloc(cx, d, BLOCK, OSH_LIFE_LONG))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(measure_pinned(cx, p, d, r.f, opt->seconds));
    OSH_TRY(measure_reads(cx, &p->gpu_file, &r));
    if (!d->type->files->direct(cx, ordinal, "true", true)) goto done;
    OSH_TRY(d->type->files->stage_open(cx, d, "true"));
    OSH_TRY(measure_reads(cx, &p->gpu_cufile, &r));
    OSH_TRY(d->type->count(cx, d, &c));
    // cuFile has no speed if it was not used; a message has given the reason
    if (c.detours[OSH_DETOUR_FILE]) p->gpu_cufile = 0;
done:
    if (r.to) osh_device_free(d, r.to);
    osh_file_close(cx, r.f);
    osh_free(cx, block);
    osh_free(cx, path);
    return rc;
}

static osh_status measure_gpu(osh_ctx *cx, peaks *p, const osh_bench_options *opt)
{
    osh_status rc = OSH_OK;
    const osh_device_kind *kind;
    osh_device *d = NULL; // own
    int ordinal = 0;
    int64_t tokens = opt->side < 2048 ? opt->side : 2048, samples = 2 * opt->side / tokens;
    size_t matrix = osh_arena_gross((size_t)(opt->side * opt->side) * sizeof(float)),
           copied = osh_arena_gross(copied_bytes(opt->seconds));
    size_t most = 3 * matrix > 2 * copied ? 3 * matrix : 2 * copied,
           attended = osh_peak_attention_bytes(samples, tokens);

    OSH_TRY(osh_device_find(cx, &kind, &ordinal, opt->device));
    if (most < kind->stage + 2 * BLOCK) most = kind->stage + 2 * BLOCK;
    if (most < attended) most = attended;
    OSH_TRY(osh_device_open(cx, &d, kind, ordinal, kind->workspace + most));
    const osh_device_speed *speed = osh_device_ops_of(d)->speed;
    p->gpu = osh_strdup(cx, d->text);
    if (!p->gpu) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(speed->product(cx, &p->gpu_f32, d, OSH_F32, opt->side, opt->seconds));
    OSH_TRY(speed->product(cx, &p->gpu_bf16, d, OSH_BF16, opt->side, opt->seconds));
    OSH_TRY(speed->attention(cx, &p->gpu_attention, d, samples, tokens, opt->seconds));
    OSH_TRY(speed->copies(cx, &p->gpu_copy, &p->gpu_put, d, copied_bytes(opt->seconds),
                         opt->seconds));
    if (opt->dir) OSH_TRY(measure_gpu_reads(cx, p, d, ordinal, opt));
done:
    osh_device_close(cx, d);
    return rc;
}

static osh_status measure_shapes(osh_ctx *cx, shape_rates *r, double seconds)
{
    osh_status rc = osh_peak_tiles(cx, &r->tiles, seconds);
    for (int i = 0; i < N_SHAPES && (!rc || rc == OSH_E_UNSUPPORTED); i++)
        rc = osh_peak_of_shape(cx, &r->of[i], &shapes[i].shape, seconds);
    return rc == OSH_E_UNSUPPORTED ? OSH_OK : rc;
}

static osh_status shapes_as_text(osh_ctx *cx, osh_buf *b, const shape_rates *r)
{
    osh_status rc = OSH_OK;
    double n = 1e9 * osh_threads(cx);
    if (r->tiles > 0)
        OSH_TRY(osh_buf_printf(
            cx, b, "AMX tiles       %10.1f GFLOP/s  %8.1f a thread, panels from the second cache\n",
            r->tiles / 1e9, r->tiles / n));
    for (int i = 0; i < N_SHAPES; i++)
        if (r->of[i] > 0)
            OSH_TRY(osh_buf_printf(
                cx, b, "%-15s %10.1f GFLOP/s  %8.1f a thread, 512 tokens of SmolLM2-135M\n",
                shapes[i].name, r->of[i] / 1e9, r->of[i] / n));
done:
    return rc;
}

static osh_status shapes_as_json(osh_ctx *cx, osh_buf *b, const shape_rates *r)
{
    osh_status rc = OSH_OK;
    if (r->tiles > 0) OSH_TRY(osh_buf_printf(cx, b, ", \"amx_tiles_flops\": %.4g", r->tiles));
    for (int i = 0; i < N_SHAPES; i++)
        if (r->of[i] > 0)
            OSH_TRY(osh_buf_printf(cx, b, ", \"%s_flops\": %.4g", shapes[i].key, r->of[i]));
done:
    return rc;
}

static osh_status peaks_as_text(osh_ctx *cx, osh_buf *b, const peaks *p)
{
    osh_status rc = OSH_OK;
    int n = osh_threads(cx);
    double f32 = p->f32 / 1e9, bf16 = p->bf16 / 1e9;
    OSH_TRY(osh_buf_printf(cx, b, "%d threads, %s\n", n, p->isa));
    OSH_TRY(
        osh_buf_printf(cx, b, "f32 products    %10.1f GFLOP/s  %8.1f a thread\n", f32, f32 / n));
    if (bf16 > 0)
        OSH_TRY(osh_buf_printf(cx, b, "bf16 products   %10.1f GFLOP/s  %8.1f a thread\n", bf16,
                               bf16 / n));
    else OSH_TRY(osh_buf_printf(cx, b, "bf16 products       as f32\n"));
    OSH_TRY(osh_buf_printf(
        cx, b, "attention       %10.1f GFLOP/s  %8.1f a thread, %.2f of products of f32\n",
        p->attention / 1e9, p->attention / 1e9 / n, p->attention / p->f32));
    OSH_TRY(shapes_as_text(cx, b, &p->shapes));
    OSH_TRY(osh_buf_printf(cx, b, "memory read     %10.2f GB/s\n", p->read / 1e9));
    OSH_TRY(osh_buf_printf(cx, b, "memory copy     %10.2f GB/s\n", p->copy / 1e9));
    if (p->disk_read > 0) {
        const char *how = p->direct ? "O_DIRECT" : "page cache: this file system has no O_DIRECT";
        OSH_TRY(
            osh_buf_printf(cx, b, "disk read       %10.3f GB/s     %s\n", p->disk_read / 1e9, how));
        OSH_TRY(osh_buf_printf(cx, b, "disk write      %10.3f GB/s     and fdatasync\n",
                               p->disk_write / 1e9));
    }
    if (p->gpu) {
        OSH_TRY(osh_buf_printf(cx, b, "%s\n", p->gpu));
        OSH_TRY(osh_buf_printf(cx, b, "f32 products    %10.3f TFLOP/s\n", p->gpu_f32 / 1e12));
        OSH_TRY(osh_buf_printf(cx, b, "bf16 products   %10.3f TFLOP/s\n", p->gpu_bf16 / 1e12));
        OSH_TRY(osh_buf_printf(cx, b, "attention       %10.3f TFLOP/s  %.2f of products of bf16\n",
                               p->gpu_attention / 1e12, p->gpu_attention / p->gpu_bf16));
        OSH_TRY(osh_buf_printf(cx, b, "memory copy     %10.2f GB/s     inside the GPU\n",
                               p->gpu_copy / 1e9));
        OSH_TRY(osh_buf_printf(cx, b, "host to GPU     %10.2f GB/s     page-locked\n",
                               p->gpu_put / 1e9));
        if (p->pinned > 0)
            OSH_TRY(osh_buf_printf(cx, b,
                                   "disk to pinned  %10.3f GB/s     page-locked memory of the "
                                   "host, one reader; %d: %.3f GB/s\n",
                                   p->pinned / 1e9, n, p->pinned_all / 1e9));
        if (p->gpu_file > 0)
            OSH_TRY(osh_buf_printf(
                cx, b, "disk to GPU     %10.3f GB/s     through page-locked memory of the host\n",
                p->gpu_file / 1e9));
        if (p->gpu_cufile > 0)
            OSH_TRY(osh_buf_printf(cx, b, "disk to GPU     %10.3f GB/s     by cuFile\n",
                                   p->gpu_cufile / 1e9));
    }
done:
    return rc;
}

static osh_status peaks_as_json(osh_ctx *cx, osh_buf *b, const peaks *p)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(
        cx, b,
        "{\"threads\": %d, \"isa\": \"%s\", \"f32_flops\": %.4g, \"bf16_flops\": %.4g, "
        "\"attention_flops\": %.4g, \"memory_read_bytes\": %.4g, \"memory_copy_bytes\": %.4g",
        osh_threads(cx), p->isa, p->f32, p->bf16 > 0 ? p->bf16 : p->f32, p->attention, p->read,
        p->copy));
    OSH_TRY(shapes_as_json(cx, b, &p->shapes));
    if (p->disk_read > 0)
        OSH_TRY(osh_buf_printf(
            cx, b, ", \"disk_read_bytes\": %.4g, \"disk_write_bytes\": %.4g, \"direct\": %s",
            p->disk_read, p->disk_write, p->direct ? "true" : "false"));
    if (p->gpu)
        OSH_TRY(osh_buf_printf(
            cx, b,
            ", \"gpu\": \"%s\", \"gpu_f32_flops\": %.4g, \"gpu_bf16_flops\": %.4g, "
            "\"gpu_attention_flops\": %.4g, \"gpu_copy_bytes\": %.4g, \"gpu_put_bytes\": %.4g",
            p->gpu, p->gpu_f32, p->gpu_bf16, p->gpu_attention, p->gpu_copy, p->gpu_put));
    if (p->pinned > 0)
        OSH_TRY(osh_buf_printf(
            cx, b, ", \"disk_to_pinned_bytes\": %.4g, \"disk_to_pinned_all_bytes\": %.4g",
            p->pinned, p->pinned_all));
    if (p->gpu_file > 0)
        OSH_TRY(osh_buf_printf(cx, b, ", \"disk_to_gpu_bytes\": %.4g", p->gpu_file));
    if (p->gpu_cufile > 0)
        OSH_TRY(osh_buf_printf(cx, b, ", \"disk_to_gpu_by_cufile_bytes\": %.4g", p->gpu_cufile));
    OSH_TRY(osh_buf_printf(cx, b, "}\n"));
done:
    return rc;
}

osh_status osh_bench(osh_ctx *cx, const osh_bench_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    peaks p = {0};
    osh_buf b;

    osh_buf_init(&b, 4096);
    OSH_TRY(osh_isa_use(cx, opt->isa));
    OSH_TRY(osh_isa_describe(cx, &p.isa));
    OSH_TRY(osh_peak_product(cx, &p.f32, OSH_F32, opt->seconds));
    rc = osh_peak_product(cx, &p.bf16, OSH_BF16, opt->seconds);
    if (rc && rc != OSH_E_UNSUPPORTED) goto done;
    OSH_TRY(osh_peak_attention(cx, &p.attention, opt->seconds));
    /* There are several shapes, so each gets only a quarter of the time. */
    OSH_TRY(measure_shapes(cx, &p.shapes, opt->seconds / 4));
    OSH_TRY(osh_peak_memory(cx, &p.read, &p.copy, opt->seconds));
    if (opt->dir) OSH_TRY(measure_disk(cx, &p, opt->dir, opt->seconds));
    if (opt->device && osh_device_is_gpu(opt->device)) OSH_TRY(measure_gpu(cx, &p, opt));
    OSH_TRY(opt->json ? peaks_as_json(cx, &b, &p) : peaks_as_text(cx, &b, &p));
    sink(user, b.data, b.len);
done:
    osh_free(cx, p.isa);
    osh_free(cx, p.gpu);
    osh_buf_deinit(cx, &b);
    return rc;
}
