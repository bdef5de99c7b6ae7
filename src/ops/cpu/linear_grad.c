/* linear_grad.c - gradients of the linear layer as products on OpenBLAS, tile by tile: dx in tiles of rows from each
 * sample's first token, dw in blocks of its rows, each the sum over the same tiles in their order. Rough ones of BF16
 * multiply pairs, with dy rounded, where the CPU has bf16 instructions. */
#include "ops/cpu/blas.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "ops/kernel.h"

typedef struct linear_grad_job {
    const osh_grad_args *a;
    const float *dy, *x, *w; // [N, O], [N, I] or NULL, [O, I] or NULL
    uint16_t *rough;         // [N, O] dy in bf16; NULL: f32 throughout
    const osh_tile *tiles;
    int64_t n_tiles, I, O;
} linear_grad_job;

static osh_status dx_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_grad_job *j = user;
    const osh_tile *t = &j->tiles[chunk % j->n_tiles];
    int64_t col = chunk / j->n_tiles * OSH_GEMM_COLS, n = osh_min64(OSH_GEMM_COLS, j->I - col);

    (void)worker;
    if (j->rough) {
        osh_pairs_mat dy = {.p = j->rough + t->row * j->O, .ld = j->O};
        osh_pairs_mat w = {.p = osh_elem(j->a->in[1], col), .ld = j->I};
        float *dx = (float *)j->a->din[0]->data + t->row * j->I + col;
        return osh_pairs_accumulate(cx, dx, j->I, dy, w, (int64_t[]){t->n, n, j->O});
    }
    osh_gemm_nn((osh_into){(float *)j->a->din[0]->data + t->row * j->I + col, j->I, true},
                (osh_mat){j->dy + t->row * j->O, j->O}, (osh_mat){j->w + col, j->I}, (osh_mnk){t->n, n, j->O});
    return OSH_OK;
}

static osh_status dw_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_grad_job *j = user;
    int64_t first = chunk * OSH_GEMM_COLS, m = osh_min64(OSH_GEMM_COLS, j->O - first);
    float *dw = (float *)j->a->din[1]->data + first * j->I;

    osh_status rc = OSH_OK;
    (void)worker;
    for (int64_t k = 0; !rc && k < j->n_tiles; k++) {
        const osh_tile *t = &j->tiles[k];
        if (j->rough) {
            osh_pairs_mat dy = {.p = j->rough + t->row * j->O + first, .ld = j->O, .turned = true};
            osh_pairs_mat x = {.p = osh_elem(j->a->in[0], t->row * j->I), .ld = j->I};
            rc = osh_pairs_accumulate(cx, dw, j->I, dy, x, (int64_t[]){m, j->I, t->n});
            continue;
        }
        osh_gemm_tn((osh_into){dw, j->I, true}, (osh_mat){j->dy + t->row * j->O + first, j->O},
                    (osh_mat){j->x + t->row * j->I, j->I}, (osh_mnk){m, j->I, t->n});
    }
    return rc;
}

enum { ROUGH = 1 << 14 }; // elements of a chunk

static osh_status rough_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_grad_job *j = user;
    int64_t all = osh_tensor_numel(j->a->dout[0]), first = chunk * ROUGH;
    (void)cx, (void)worker;
    osh_from_f32(j->rough + first, OSH_BF16, j->dy + first, osh_min64(ROUGH, all - first));
    return OSH_OK;
}

static void bias_grad(const linear_grad_job *j)
{
    for (int64_t k = 0; k < j->n_tiles; k++)
        for (int64_t o = 0; o < j->O; o++) {
            double sum = 0;
            for (int64_t r = j->tiles[k].row; r < j->tiles[k].row + j->tiles[k].n; r++) sum += j->dy[r * j->O + o];
            osh_grad_add(j->a->din[2], o, sum);
        }
}

osh_status osh_linear_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), I = osh_width(a->in[0]), O = a->in[1]->shape[0], n_tiles = 0;
    osh_tile *tiles = NULL;     // own
    float *x = NULL, *w = NULL; // own: [N, I], [O, I]
    uint16_t *dy = NULL;        // own: [N, O]
    bool rough = a->rough && osh_pairs_take(a->in[0]) && osh_pairs_take(a->in[1]);

    if (!rough) OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, N, OSH_GEMM_ROWS));
    if (!rough && a->din[0]) OSH_TRY(osh_f32_weight(cx, &w, a->in[1], a->in[0]->dtype));
    if (!rough && a->din[1]) OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    if (rough) OSH_NEW(cx, dy, N * O);
    linear_grad_job j = {a, a->dout[0]->data, x, w, dy, tiles, n_tiles, I, O};
    if (rough) OSH_TRY(osh_parallel_for(cx, osh_div_up(N * O, ROUGH), rough_chunk, &j));
    if (a->din[0]) OSH_TRY(osh_parallel_for(cx, osh_div_up(I, OSH_GEMM_COLS) * n_tiles, dx_chunk, &j));
    if (a->din[1]) OSH_TRY(osh_parallel_for(cx, osh_div_up(O, OSH_GEMM_COLS), dw_chunk, &j));
    if (a->din[2]) bias_grad(&j);
done:
    osh_free(cx, dy);
    osh_free(cx, w);
    osh_free(cx, x);
    osh_free(cx, tiles);
    return rc;
}

size_t osh_linear_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                               int n_threads)
{
    (void)attr;
    size_t wide = (size_t)((n_tokens + out_width) * in_width[0]) * sizeof(float);
    int64_t k = out_width > n_tokens ? out_width : n_tokens;
    size_t rough = (size_t)(n_tokens * out_width) * sizeof(uint16_t) +
                   (size_t)n_threads * osh_pairs_accumulate_scratch(in_width[0], k);
    return (wide > rough ? wide : rough) + (size_t)(n_tokens + 1) * sizeof(osh_tile);
}
