/* peak.c - measures the speed of matrix products and of memory on all threads at once, and the
 * speed of the op `attention`. Each measurement repeats its work until the given seconds are
 * over. */
#include "ops/peak.h"
#include "base/isa.h"
#include "base/rng.h"
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/cpu/pairs_ops.h"
#include "math/tile.h"
#include "ops/kernel.h"

#include <string.h>

/* SIDE: number of rows and of columns of the matrices. Three f32 matrices have 7 MB. The blocks
 * that a kernel reads together fit in any L2 cache.
 * COLS: number of columns of `b` that are packed together. */
enum { SIDE = 768, COLS = 96 };
/* Bytes that each thread reads or copies. MEMORY_BYTES are more than the caches have. FEW_BYTES are
 * for a short measurement. */
static const size_t MEMORY_BYTES = (size_t)96 << 20, FEW_BYTES = (size_t)8 << 20;

typedef struct peak_worker {
    osh_tensor *a, *b, *c;  // matrices of a product c = a b^T; own
    float *packed;          // packed columns of b, [COLS / 16][SIDE][16]; own
    unsigned char *from, *to; // own: n_bytes each
    size_t n_bytes;
    double done, seconds;
    uint64_t sum; // sum of the words that were read; without it, the compiler might drop the reads
} peak_worker;

typedef enum { READ, COPY, PRODUCT, TILES } peak_kind;
typedef struct peak_job {
    peak_worker *workers;
    peak_kind kind;
    double seconds;
} peak_job;

static uint64_t sum_words(const unsigned char *p, size_t n)
{
    uint64_t sum[4] = {0}, v[4];
    for (size_t i = 0; i + sizeof v <= n; i += sizeof v) {
        memcpy(v, p + i, sizeof v);
        for (int k = 0; k < 4; k++) sum[k] += v[k];
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* Computes c = a b^T as the op linear does with AVX2: packs COLS columns at a time, and multiplies
 * them by all rows. */
static void peak_by_tiles(const peak_worker *w)
{
    const float *b = w->b->data;
    for (int64_t col = 0; col < SIDE; col += COLS) {
        for (int64_t c = 0; c < COLS; c += OSH_TILE_COLS)
            osh_tile_pack_rows(w->packed + c * SIDE, b + (col + c) * SIDE, SIDE, OSH_TILE_COLS,
                               SIDE);
        osh_tile_product((osh_into){(float *)w->c->data + col, SIDE, false},
                         (osh_tile_a){w->a->data, SIDE, 1},
                         (osh_tile_b){w->packed, OSH_TILE_COLS * SIDE, OSH_TILE_COLS},
                         (osh_mnk){SIDE, COLS, SIDE});
    }
}

static osh_status peak_once(osh_ctx *cx, peak_worker *w, peak_kind kind)
{
    if (kind == READ) w->sum += sum_words(w->from, w->n_bytes);
    if (kind == COPY) memcpy(w->to, w->from, w->n_bytes);
    w->done += kind >= PRODUCT ? 2.0 * SIDE * SIDE * SIDE : (double)w->n_bytes;
    if (kind == TILES) peak_by_tiles(w);
    if (kind != PRODUCT) return OSH_OK;
    if (w->a->dtype == OSH_BF16)
        return osh_pairs_linear(cx, &(osh_op_args){.in = {w->a, w->b}, .out = {w->c}});
    osh_gemm_nt((osh_into){w->c->data, SIDE, false}, (osh_mat){w->a->data, SIDE},
                (osh_mat){w->b->data, SIDE}, (osh_mnk){SIDE, SIDE, SIDE});
    return OSH_OK;
}

/* Runs worker number `chunk` for j->seconds, and measures its speed. A chunk ends only after all
 * threads have begun a chunk. So each thread runs exactly one chunk. */
static osh_status peak_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const peak_job *j = user;
    peak_worker *w = &j->workers[chunk];

    (void)worker;
    OSH_TRY(peak_once(cx, w, j->kind)); // the first call is not measured
    w->done = 0;
    double begin = osh_now();
    do {
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(peak_once(cx, w, j->kind));
    } while (osh_now() - begin < j->seconds);
    w->seconds = osh_now() - begin;
done:
    return rc;
}

static osh_status peak_measure(osh_ctx *cx, double *per_s, peak_worker *workers, peak_kind kind,
                               double seconds)
{
    osh_status rc = OSH_OK;
    peak_job j = {.workers = workers, .kind = kind, .seconds = seconds};

    OSH_TRY(osh_parallel_for(cx, osh_threads(cx), peak_chunk, &j));
    *per_s = 0;
    for (int i = 0; i < osh_threads(cx); i++) *per_s += workers[i].done / workers[i].seconds;
done:
    return rc;
}

static void peak_workers_free(osh_ctx *cx, peak_worker *w)
{
    for (int i = 0; w && i < osh_threads(cx); i++) {
        osh_tensor_free(cx, w[i].a);
        osh_tensor_free(cx, w[i].b);
        osh_tensor_free(cx, w[i].c);
        osh_free(cx, w[i].packed);
        osh_free(cx, w[i].from);
        osh_free(cx, w[i].to);
    }
    osh_free(cx, w);
}

static osh_status peak_fill(osh_ctx *cx, osh_tensor **out, osh_dtype dtype, int64_t rows,
                            int64_t cols)
{
    osh_status rc = OSH_OK;

    OSH_TRY(osh_tensor_new(cx, out, dtype, 2, (int64_t[]){rows, cols}));
    for (int64_t i = 0; i < rows * cols; i++) {
        float f = osh_rng_sym(1, 0, (uint64_t)i);
        osh_from_f32(osh_elem(*out, i), dtype, &f, 1);
    }
done:
    return rc;
}

osh_status osh_peak_product(osh_ctx *cx, double *flops_per_s, osh_dtype dtype, double seconds)
{
    osh_status rc = OSH_OK;
    peak_worker *w = NULL; // own

    if (dtype == OSH_BF16 && osh_isa_used() < OSH_ISA_AVX512_BF16) return OSH_E_UNSUPPORTED;
    OSH_TRY(osh_blas_open(cx));
    OSH_NEW(cx, w, osh_threads(cx));
    for (int i = 0; i < osh_threads(cx); i++) {
        OSH_TRY(peak_fill(cx, &w[i].a, dtype, SIDE, SIDE));
        OSH_TRY(peak_fill(cx, &w[i].b, dtype, SIDE, SIDE));
        OSH_TRY(peak_fill(cx, &w[i].c, dtype, SIDE, SIDE));
        OSH_NEW(cx, w[i].packed, COLS * SIDE);
    }
    OSH_TRY(peak_measure(cx, flops_per_s, w, PRODUCT, seconds));
    if (dtype != OSH_F32 || !osh_tile_used()) goto done;
    double tiles = 0;
    OSH_TRY(peak_measure(cx, &tiles, w, TILES, seconds));
    if (tiles > *flops_per_s) *flops_per_s = tiles;
done:
    peak_workers_free(cx, w);
    return rc;
}

osh_status osh_peak_attention(osh_ctx *cx, double *flops_per_s, double seconds)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr at = {.n_heads = 9, .n_kv_heads = 3, .head_dim = 64};
    const int64_t T = 512, wide = at.n_heads * at.head_dim, narrow = at.n_kv_heads * at.head_dim;
    osh_tensor *q = NULL, *k = NULL, *v = NULL, *out = NULL; // own
    int64_t n = 0;

    OSH_TRY(peak_fill(cx, &q, OSH_BF16, T, wide));
    OSH_TRY(peak_fill(cx, &k, OSH_BF16, T, narrow));
    OSH_TRY(peak_fill(cx, &v, OSH_BF16, T, narrow));
    OSH_TRY(osh_tensor_new(cx, &out, OSH_BF16, 2, (int64_t[]){T, wide}));
    osh_op_args a = {.in = {q, k, v}, .out = {out}, .attr = &at};
    OSH_TRY(osh_attention_cpu(cx, &a)); // the first call is not measured
    double begin = osh_now(), now;
    do OSH_TRY(osh_attention_cpu(cx, &a));
    while (n++, now = osh_now(), now - begin < seconds);
    *flops_per_s = 2.0 * (double)(wide * T * (T + 1)) * (double)n / (now - begin);
done:
    osh_tensor_free(cx, q);
    osh_tensor_free(cx, k);
    osh_tensor_free(cx, v);
    osh_tensor_free(cx, out);
    return rc;
}

osh_status osh_peak_memory(osh_ctx *cx, double *read_per_s, double *copy_per_s, double seconds)
{
    osh_status rc = OSH_OK;
    peak_worker *w = NULL; // own

    OSH_NEW(cx, w, osh_threads(cx));
    for (int i = 0; i < osh_threads(cx); i++) {
        w[i].n_bytes = seconds < OSH_PEAK_SHORT ? FEW_BYTES : MEMORY_BYTES;
        if (!(w[i].from = osh_calloc(cx, 1, w[i].n_bytes))) OSH_TRY(OSH_E_NOMEM);
        if (!(w[i].to = osh_alloc(cx, w[i].n_bytes))) OSH_TRY(OSH_E_NOMEM);
        // Writes to every page. Before its first write, each page is mapped to one common page of
        // zeros, and reading that page would be too fast.
        memset(w[i].from, i + 1, w[i].n_bytes);
    }
    OSH_TRY(peak_measure(cx, read_per_s, w, READ, seconds));
    OSH_TRY(peak_measure(cx, copy_per_s, w, COPY, seconds));
done:
    peak_workers_free(cx, w);
    return rc;
}
