/* linear_grad.c - gradients of the linear layer as products on OpenBLAS, tile by tile: dx in tiles of rows from each
 * sample's first token, dw in blocks of its rows, each the sum over the same tiles in their order. */
#include "ops/cpu/blas.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/kernel.h"

typedef struct linear_grad_job {
    const osh_grad_args *a;
    const float *dy, *x, *w; // [N, O], [N, I] or NULL, [O, I] or NULL
    const osh_tile *tiles;
    int64_t n_tiles, I, O;
} linear_grad_job;

static osh_status dx_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_grad_job *j = user;
    const osh_tile *t = &j->tiles[chunk % j->n_tiles];
    int64_t col = chunk / j->n_tiles * OSH_GEMM_COLS, n = osh_min64(OSH_GEMM_COLS, j->I - col);

    (void)cx, (void)worker;
    osh_gemm_nn((float *)j->a->din[0]->data + t->row * j->I + col, j->I, (osh_mat){j->dy + t->row * j->O, j->O},
                (osh_mat){j->w + col, j->I}, t->n, n, j->O, 1);
    return OSH_OK;
}

static osh_status dw_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_grad_job *j = user;
    int64_t first = chunk * OSH_GEMM_COLS, m = osh_min64(OSH_GEMM_COLS, j->O - first);
    float *dw = (float *)j->a->din[1]->data + first * j->I;

    (void)cx, (void)worker;
    for (int64_t k = 0; k < j->n_tiles; k++) {
        const osh_tile *t = &j->tiles[k];
        osh_gemm_tn(dw, j->I, (osh_mat){j->dy + t->row * j->O + first, j->O}, (osh_mat){j->x + t->row * j->I, j->I}, m,
                    j->I, t->n, 1);
    }
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

    OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, N, OSH_GEMM_ROWS));
    if (a->din[0]) OSH_TRY(osh_f32_weight(cx, &w, a->in[1], a->in[0]->dtype));
    if (a->din[1]) OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    linear_grad_job j = {a, a->dout[0]->data, x, w, tiles, n_tiles, I, O};
    if (w) OSH_TRY(osh_parallel_for(cx, osh_div_up(I, OSH_GEMM_COLS) * n_tiles, dx_chunk, &j));
    if (x) OSH_TRY(osh_parallel_for(cx, osh_div_up(O, OSH_GEMM_COLS), dw_chunk, &j));
    if (a->din[2]) bias_grad(&j);
done:
    osh_free(cx, w);
    osh_free(cx, x);
    osh_free(cx, tiles);
    return rc;
}

size_t osh_linear_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                               int n_threads)
{
    (void)attr, (void)n_threads;
    return (size_t)((n_tokens + out_width) * in_width[0]) * sizeof(float) + (size_t)(n_tokens + 1) * sizeof(osh_tile);
}
