/* dnnl.c - linear on oneDNN 2.6: one matmul primitive for each tile of 512 rows (from each sample's
 * first token) x 192 columns, straight from and to bf16, f32 inside, bias added before the
 * rounding.
 *
 * oneDNN brings OpenMP. A tile runs on the worker that has it: its team is cut to one thread there,
 * so that our pool alone decides how many run. Below AVX-512 BF16 oneDNN is slower than widening to
 * f32, or has no bf16 product at all. */
#include "ops/cpu/dnnl.h"
#include "base/isa.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/library.h"
#include "ops/kernel.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum { ROWS = 512 };

#define FUNCTIONS(X)                                                                                                   \
    X(engine_create) X(engine_destroy) X(matmul_desc_init) X(memory_create) X(memory_desc_init_by_strides)             \
    X(memory_destroy) X(primitive_create) X(primitive_desc_create) X(primitive_desc_destroy) X(primitive_destroy)      \
    X(primitive_execute) X(set_max_cpu_isa) X(stream_create) X(stream_destroy) X(stream_wait) X(version)
#define POINTER(name) __typeof__(dnnl_##name) *name;
#define SYMBOL(name) {"dnnl_" #name, offsetof(dnnl_lib, name)},
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

typedef struct dnnl_lib { FUNCTIONS(POINTER) } dnnl_lib;
static const osh_symbol symbols[] = {FUNCTIONS(SYMBOL)};

static dnnl_lib lib; // of the process, as oneDNN's own state is
static void (*set_threads)(int); // of the OpenMP that oneDNN was built with; NULL: without
static atomic_bool opened;

static const struct { const char *name; dnnl_cpu_isa_t isa; } sets[OSH_N_ISAS] = {
    [OSH_ISA_GENERIC] = {"sse41", dnnl_cpu_isa_sse41},
    [OSH_ISA_AVX2] = {"avx2", dnnl_cpu_isa_avx2},
    [OSH_ISA_AVX512] = {"avx512_core", dnnl_cpu_isa_avx512_core},
    [OSH_ISA_AVX512_BF16] = {"avx512_core_bf16", dnnl_cpu_isa_avx512_core_bf16},
    [OSH_ISA_AMX] = {"avx512_core_amx", dnnl_cpu_isa_avx512_core_amx},
};

osh_status osh_dnnl_open(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    void *handle;
    if (atomic_load_explicit(&opened, memory_order_acquire)) return OSH_OK;
    pthread_mutex_lock(&lock);
    if (opened) goto done;
    OSH_TRY(osh_library_open(cx, &handle, &lib, "libdnnl.so." TEXT(DNNL_VERSION_MAJOR),
                             "libdnnl" TEXT(DNNL_VERSION_MAJOR), symbols, sizeof symbols / sizeof *symbols));
    void *symbol = dlsym(handle, "omp_set_num_threads");
    memcpy(&set_threads, &symbol, sizeof symbol); // ISO C has no cast from an object pointer to a function
    lib.set_max_cpu_isa(sets[osh_isa_used()].isa);
    atomic_store_explicit(&opened, true, memory_order_release);
done:
    pthread_mutex_unlock(&lock);
    return rc;
}

osh_status osh_dnnl_describe(osh_ctx *cx, char **text)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_dnnl_open(cx));
    const dnnl_version_t *v = lib.version();
    *text = osh_sprintf(cx, "onednn=%d.%d.%d/%s", v->major, v->minor, v->patch, sets[osh_isa_used()].name);
    if (!*text) rc = OSH_E_NOMEM;
done:
    return rc;
}

typedef struct dnnl_job {
    osh_tensor *y;
    const osh_tensor *x, *w, *bias;
    const osh_tile *tiles;
    int64_t n_tiles;
    dnnl_engine_t engine; // own
} dnnl_job;

bool osh_dnnl_fits(const osh_tensor *y, const osh_tensor *x, const osh_tensor *w, const osh_tensor *bias)
{
    if (x->dtype != OSH_BF16 || y->dtype != OSH_BF16 || w->dtype != OSH_BF16) return false;
    if (bias && bias->dtype != OSH_BF16) return false;
    return osh_isa_used() >= OSH_ISA_AVX512_BF16;
}

/* Memory of rows x cols elements at p; stride[] in elements. */
static dnnl_status_t make_memory(dnnl_memory_t *out, dnnl_memory_desc_t *md, dnnl_engine_t engine,
                                 osh_dtype dt, void *p, int64_t rows, int64_t cols,
                                 int64_t row_stride, int64_t col_stride)
{
    dnnl_dims_t dims = {rows, cols}, strides = {row_stride, col_stride};
    dnnl_status_t st = lib.memory_desc_init_by_strides(md, 2, dims, dt == OSH_BF16 ? dnnl_bf16 : dnnl_f32, strides);

    return st == dnnl_success ? lib.memory_create(out, md, engine, p) : st;
}

static dnnl_status_t execute(dnnl_primitive_t matmul, dnnl_engine_t engine, const dnnl_exec_arg_t *args, int n_args)
{
    dnnl_stream_t stream = NULL; // own
    dnnl_status_t st = lib.stream_create(&stream, engine, dnnl_stream_default_flags);

    if (st == dnnl_success) st = lib.primitive_execute(matmul, stream, n_args, args);
    if (st == dnnl_success) st = lib.stream_wait(stream);
    if (stream) lib.stream_destroy(stream);
    return st;
}

/* Tile of y: rows of t, columns [col, col + n). oneDNN keeps compiled primitives of a shape, so making one is cheap. */
static dnnl_status_t run_tile(const dnnl_job *j, const osh_tile *t, int64_t col, int64_t n)
{
    int64_t I = osh_width(j->x), O = j->w->shape[0];
    osh_dtype dt = j->x->dtype;
    dnnl_memory_t mem[4] = {0}; // own: x, w, y, bias
    dnnl_memory_desc_t md[4];
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd = NULL; // own
    dnnl_primitive_t matmul = NULL;  // own
    dnnl_status_t st = make_memory(&mem[0], &md[0], j->engine, dt, osh_elem(j->x, t->row * I), t->n, I, I, 1);

    if (!st) st = make_memory(&mem[1], &md[1], j->engine, dt, osh_elem(j->w, col * I), I, n, 1, I); // w transposed
    if (!st) st = make_memory(&mem[2], &md[2], j->engine, dt, osh_elem(j->y, t->row * O + col), t->n, n, O, 1);
    if (!st && j->bias) st = make_memory(&mem[3], &md[3], j->engine, dt, osh_elem(j->bias, col), 1, n, n, 1);
    if (!st) st = lib.matmul_desc_init(&desc, &md[0], &md[1], j->bias ? &md[3] : NULL, &md[2]);
    if (!st) st = lib.primitive_desc_create(&pd, &desc, NULL, j->engine, NULL);
    if (!st) st = lib.primitive_create(&matmul, pd);
    if (!st) {
        dnnl_exec_arg_t args[4] = {
            {DNNL_ARG_SRC, mem[0]}, {DNNL_ARG_WEIGHTS, mem[1]}, {DNNL_ARG_DST, mem[2]}, {DNNL_ARG_BIAS, mem[3]}};
        st = execute(matmul, j->engine, args, j->bias ? 4 : 3);
    }
    if (matmul) lib.primitive_destroy(matmul);
    if (pd) lib.primitive_desc_destroy(pd);
    for (int i = 0; i < 4; i++)
        if (mem[i]) lib.memory_destroy(mem[i]);
    return st;
}

static osh_status dnnl_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const dnnl_job *j = user;
    int64_t col = chunk / j->n_tiles * OSH_GEMM_COLS, n = osh_min64(OSH_GEMM_COLS, j->w->shape[0] - col);

    (void)worker;
    if (set_threads) set_threads(1); // of this thread's teams
    dnnl_status_t st = run_tile(j, &j->tiles[chunk % j->n_tiles], col, n);
    if (st == dnnl_success) return OSH_OK;
    return osh_fail(cx, st == dnnl_out_of_memory ? OSH_E_NOMEM : OSH_E_INTERNAL,
                    "oneDNN's %s matmul failed with status %d", osh_dtype_name(j->x->dtype),
                    (int)st);
}

static osh_status job_open(osh_ctx *cx, dnnl_job *j)
{
    osh_status rc = OSH_OK;

    OSH_TRY(osh_dnnl_open(cx));
    if (lib.engine_create(&j->engine, dnnl_cpu, 0) != dnnl_success)
        OSH_FAIL(cx, OSH_E_INTERNAL, "oneDNN gives no engine for this CPU");
done:
    return rc;
}

osh_status osh_dnnl_product(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w)
{
    osh_status rc = OSH_OK;
    osh_tile tile = {.n = osh_rows(x)};
    dnnl_job j = {.y = y, .x = x, .w = w};

    OSH_TRY(job_open(cx, &j));
    if (set_threads) set_threads(1);
    if (run_tile(&j, &tile, 0, w->shape[0]) != dnnl_success)
        OSH_FAIL(cx, OSH_E_INTERNAL, "oneDNN's %s matmul failed", osh_dtype_name(x->dtype));
done:
    if (j.engine) lib.engine_destroy(j.engine);
    return rc;
}

osh_status osh_dnnl_linear(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w, const osh_tensor *bias,
                           const osh_seqs *seqs)
{
    osh_status rc = OSH_OK;
    osh_tile *tiles = NULL; // own
    dnnl_job j = {.y = y, .x = x, .w = w, .bias = bias};

    OSH_TRY(osh_tiles_new(cx, &tiles, &j.n_tiles, seqs, osh_rows(x), ROWS));
    j.tiles = tiles;
    OSH_TRY(job_open(cx, &j));
    OSH_TRY(osh_parallel_for(cx, osh_div_up(w->shape[0], OSH_GEMM_COLS) * j.n_tiles, dnnl_chunk, &j));
done:
    if (j.engine) lib.engine_destroy(j.engine);
    osh_free(cx, tiles);
    return rc;
}
