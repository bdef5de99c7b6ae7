/* dnnl.c - products on oneDNN 2.6, straight from bf16, f32 inside: one matmul primitive a tile.
 *
 *   linear    512 rows (from each sample's first token) x 192 columns of y, bias added before the rounding. Of w with
 *             up to 192 rows y is dense, and oneDNN compiles code for each number of rows (200 KiB and, with AMX, 9
 *             million instructions): there the last tile is its multiple of 64, then the rest, so that samples of all
 *             lengths have 71 numbers, not 512
 *   hessian   in dnnl_hessian.c
 *
 * oneDNN brings OpenMP. A tile runs on the worker that has it: its team is cut to one thread there,
 * so that our pool alone decides how many run. Below AVX-512 BF16 oneDNN is slower than widening to
 * f32, or has no bf16 product at all. */
#include "ops/cpu/dnnl.h"
#include "base/isa.h"
#include "ops/cpu/gemm.h"
#include "base/library.h"
#include "ops/kernel.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>
#include <string.h>

enum { ROWS = 512, EVEN = 64 };

#define FUNCTIONS(X)                                                                                                   \
    X(engine_create) X(get_effective_cpu_isa)                                                                          \
    X(matmul_desc_init) X(memory_create) X(memory_desc_init_by_strides) X(memory_destroy)                              \
    X(post_ops_append_sum) X(post_ops_create) X(post_ops_destroy) X(primitive_attr_create) X(primitive_attr_destroy)   \
    X(primitive_attr_set_post_ops) X(primitive_create) X(primitive_desc_create) X(primitive_desc_destroy)              \
    X(primitive_destroy) X(primitive_execute) X(set_max_cpu_isa) X(stream_create) X(stream_destroy) X(stream_wait)     \
    X(version)
#define POINTER(name) __typeof__(dnnl_##name) *name;
#define SYMBOL(name) {"dnnl_" #name, offsetof(dnnl_lib, name)},
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

typedef struct dnnl_lib { FUNCTIONS(POINTER) } dnnl_lib;
static const osh_symbol symbols[] = {FUNCTIONS(SYMBOL)};

static dnnl_lib lib; // of the process, as oneDNN's own state is
static dnnl_engine_t engine;     // own
static void (*set_threads)(int); // of the OpenMP that oneDNN was built with; NULL: without
static osh_once_state once = OSH_ONCE;

static const struct { const char *name; dnnl_cpu_isa_t isa; } sets[OSH_N_ISAS] = {
    [OSH_ISA_GENERIC] = {"sse41", dnnl_cpu_isa_sse41},
    [OSH_ISA_AVX2] = {"avx2", dnnl_cpu_isa_avx2},
    [OSH_ISA_AVX512] = {"avx512_core", dnnl_cpu_isa_avx512_core},
    [OSH_ISA_AVX512_BF16] = {"avx512_core_bf16", dnnl_cpu_isa_avx512_core_bf16},
    [OSH_ISA_AMX] = {"avx512_core_amx", dnnl_cpu_isa_avx512_core_amx},
};

static osh_status open_dnnl(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    void *handle;
    static const osh_library library = {.sonames = {"libdnnl.so." TEXT(DNNL_VERSION_MAJOR)}, .use = "matrix products",
                                        .package = "libdnnl" TEXT(DNNL_VERSION_MAJOR), .symbols = symbols,
                                        .n = sizeof symbols / sizeof *symbols};
    OSH_TRY(osh_library_open(cx, &handle, &lib, &library));
    void *symbol = dlsym(handle, "omp_set_num_threads");
    memcpy(&set_threads, &symbol, sizeof symbol); // ISO C has no cast from an object pointer to a function
    lib.set_max_cpu_isa(sets[osh_isa_used()].isa);
    if (lib.engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        OSH_FAIL(cx, OSH_E_INTERNAL, "oneDNN gives no engine for this CPU");
    osh_mem_tune_calls(); // its scratch, for each product
done:
    return rc;
}

osh_status osh_dnnl_open(osh_ctx *cx) { return osh_once(cx, &once, open_dnnl); }

osh_status osh_dnnl_describe(osh_ctx *cx, char **text)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_dnnl_open(cx));
    const dnnl_version_t *v = lib.version();
    dnnl_cpu_isa_t uses = lib.get_effective_cpu_isa(); // finds out by itself what the CPU has
    const char *name = "other";
    for (int i = 0; i < OSH_N_ISAS; i++)
        if (sets[i].isa == uses) name = sets[i].name;
    *text = osh_sprintf(cx, "onednn=%d.%d.%d/%s", v->major, v->minor, v->patch, name);
    if (!*text) rc = OSH_E_NOMEM;
done:
    return rc;
}

bool osh_dnnl_fits(const osh_tensor *y, const osh_tensor *x, const osh_tensor *w, const osh_tensor *bias)
{
    if (y->dtype != OSH_BF16 || w->dtype != OSH_BF16 || (bias && bias->dtype != OSH_BF16)) return false;
    return osh_dnnl_takes(x);
}

bool osh_dnnl_takes(const osh_tensor *x)
{
    return x->dtype == OSH_BF16 && osh_isa_used() >= OSH_ISA_AVX512_BF16;
}

static dnnl_status_t make_memory(dnnl_memory_t *out, dnnl_memory_desc_t *md, const osh_dnnl_mat *m, int64_t rows,
                                 int64_t cols)
{
    dnnl_dims_t dims = {rows, cols}, strides = {m->row, m->col};
    dnnl_data_type_t dt = m->dtype == OSH_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_status_t st = lib.memory_desc_init_by_strides(md, 2, dims, dt, strides);

    return st == dnnl_success ? lib.memory_create(out, md, engine, m->p) : st;
}

/* The result is added to what is there. */
static dnnl_status_t make_sum(dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t ops = NULL; // own
    dnnl_status_t st = lib.primitive_attr_create(attr);

    if (!st) st = lib.post_ops_create(&ops);
    if (!st) st = lib.post_ops_append_sum(ops, 1);
    if (!st) st = lib.primitive_attr_set_post_ops(*attr, ops); // copies
    if (ops) lib.post_ops_destroy(ops);
    return st;
}

static dnnl_status_t execute(dnnl_primitive_t matmul, const dnnl_exec_arg_t *args, int n_args)
{
    dnnl_stream_t stream = NULL; // own
    dnnl_status_t st = lib.stream_create(&stream, engine, dnnl_stream_default_flags);

    if (st == dnnl_success) st = lib.primitive_execute(matmul, stream, n_args, args);
    if (st == dnnl_success) st = lib.stream_wait(stream);
    if (stream) lib.stream_destroy(stream);
    return st;
}

/* + bias [n] (or NULL), or += without a bias. oneDNN keeps compiled primitives of a shape, so making one is cheap. */
static osh_status product(osh_ctx *cx, osh_dnnl_mat c, osh_dnnl_mat a, osh_dnnl_mat b, const osh_dnnl_mat *bias,
                          int64_t m, int64_t n, int64_t k, bool add)
{
    dnnl_memory_t mem[4] = {0}; // own: a, b, c, bias
    dnnl_memory_desc_t md[4];
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;    // own
    dnnl_primitive_desc_t pd = NULL;      // own
    dnnl_primitive_t matmul = NULL;       // own
    dnnl_status_t st;

    if (set_threads) set_threads(1); // of this thread's teams
    st = make_memory(&mem[0], &md[0], &a, m, k);
    if (!st) st = make_memory(&mem[1], &md[1], &b, k, n);
    if (!st) st = make_memory(&mem[2], &md[2], &c, m, n);
    if (!st && bias) st = make_memory(&mem[3], &md[3], bias, 1, n);
    if (!st && add) st = make_sum(&attr);
    if (!st) st = lib.matmul_desc_init(&desc, &md[0], &md[1], bias ? &md[3] : NULL, &md[2]);
    if (!st) st = lib.primitive_desc_create(&pd, &desc, attr, engine, NULL);
    if (!st) st = lib.primitive_create(&matmul, pd);
    if (!st) {
        dnnl_exec_arg_t args[4] = {
            {DNNL_ARG_SRC, mem[0]}, {DNNL_ARG_WEIGHTS, mem[1]}, {DNNL_ARG_DST, mem[2]}, {DNNL_ARG_BIAS, mem[3]}};
        st = execute(matmul, args, bias ? 4 : 3);
    }
    if (matmul) lib.primitive_destroy(matmul);
    if (pd) lib.primitive_desc_destroy(pd);
    if (attr) lib.primitive_attr_destroy(attr);
    for (int i = 0; i < 4; i++)
        if (mem[i]) lib.memory_destroy(mem[i]);
    if (st == dnnl_success) return OSH_OK;
    return osh_fail(cx, st == dnnl_out_of_memory ? OSH_E_NOMEM : OSH_E_INTERNAL,
                    "oneDNN's %s matmul failed with status %d", osh_dtype_name(a.dtype), (int)st);
}

osh_status osh_dnnl_gemm(osh_ctx *cx, osh_dnnl_mat c, osh_dnnl_mat a, osh_dnnl_mat b, int64_t m, int64_t n, int64_t k)
{
    return product(cx, c, a, b, NULL, m, n, k, false);
}

osh_status osh_dnnl_add(osh_ctx *cx, osh_dnnl_mat c, osh_dnnl_mat a, osh_dnnl_mat b, const int64_t size[3])
{
    return product(cx, c, a, b, NULL, size[0], size[1], size[2], true);
}

/* ---- linear ---- */

typedef struct linear_job {
    osh_tensor *y;
    const osh_tensor *x, *w, *bias;
    const osh_tile *tiles;
    int64_t n_tiles;
} linear_job;

/* Tile of y: rows of t, columns [col, col + n). */
static osh_status linear_tile(osh_ctx *cx, const linear_job *j, const osh_tile *t, int64_t col, int64_t n)
{
    int64_t I = osh_width(j->x), O = j->w->shape[0];
    osh_dtype dt = j->x->dtype;
    osh_dnnl_mat x = {osh_elem(j->x, t->row * I), dt, I, 1}, w = {osh_elem(j->w, col * I), dt, 1, I}; // w transposed
    osh_dnnl_mat y = {osh_elem(j->y, t->row * O + col), dt, O, 1}, bias = {NULL, dt, n, 1};

    if (j->bias) bias.p = osh_elem(j->bias, col);
    return product(cx, y, x, w, j->bias ? &bias : NULL, t->n, n, I, false);
}

static osh_status linear_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_job *j = user;
    int64_t col = chunk / j->n_tiles * OSH_GEMM_COLS, n = osh_min64(OSH_GEMM_COLS, j->w->shape[0] - col);

    (void)worker;
    osh_tile t = j->tiles[chunk % j->n_tiles];
    int64_t rest = j->w->shape[0] <= OSH_GEMM_COLS && t.n > EVEN ? t.n % EVEN : 0;
    t.n -= rest;
    osh_status rc = linear_tile(cx, j, &t, col, n);
    if (rc || !rest) return rc;
    t.row += t.n, t.n = rest;
    return linear_tile(cx, j, &t, col, n);
}

osh_status osh_dnnl_product(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w)
{
    osh_tile tile = {.n = osh_rows(x)};
    linear_job j = {.y = y, .x = x, .w = w};
    osh_status rc = osh_dnnl_open(cx);

    return rc ? rc : linear_tile(cx, &j, &tile, 0, w->shape[0]);
}

osh_status osh_dnnl_linear(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w, const osh_tensor *bias,
                           const osh_seqs *seqs)
{
    osh_status rc = OSH_OK;
    osh_tile *tiles = NULL; // own
    linear_job j = {.y = y, .x = x, .w = w, .bias = bias};

    OSH_TRY(osh_dnnl_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &j.n_tiles, seqs, osh_rows(x), ROWS));
    j.tiles = tiles;
    OSH_TRY(osh_parallel_for(cx, osh_div_up(w->shape[0], OSH_GEMM_COLS) * j.n_tiles, linear_chunk, &j));
done:
    osh_free(cx, tiles);
    return rc;
}
