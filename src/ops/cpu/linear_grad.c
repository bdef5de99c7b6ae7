/* linear_grad.c - computes the gradients of the linear layer with OpenBLAS. dx is computed in tiles
 * of rows, which are counted from the first token of each sample. Each block of rows of dw is a sum
 * over these tiles, in order. pairs_grad.c rounds dy to BF16, and multiplies BF16 values. It is
 * used instead if the caller sets osh_grad_args.rough, the tensors are BF16, and the CPU has BF16
 * instructions. Shape letters: op.h. */
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/cpu/gemm_linear.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "ops/kernel.h"
#include "tensor/device.h"

typedef struct linear_grad_job {
    const osh_grad_args *a;
    const float *dy, *x, *w; // views, in f32: dy [N, O]; x [N, I] or NULL; w [O, I] or NULL
    const osh_tile *tiles;
    int64_t n_tiles, I, O;
} linear_grad_job;

static osh_status linear_dx_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_grad_job *j = user;
    const osh_tile *t = &j->tiles[chunk % j->n_tiles];
    int64_t col = chunk / j->n_tiles * OSH_GEMM_COLS, n = osh_min64(OSH_GEMM_COLS, j->I - col);

    (void)worker;
    osh_gemm_nn(
        (osh_into){(float *)j->a->din[0]->data + t->row * j->I + col, j->I, !(j->a->fresh & 1)},
        (osh_mat){j->dy + t->row * j->O, j->O}, (osh_mat){j->w + col, j->I},
        (osh_mnk){t->n, n, j->O});
    return OSH_OK;
}

static osh_status linear_dw_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const linear_grad_job *j = user;
    int64_t first = chunk * OSH_GEMM_COLS, m = osh_min64(OSH_GEMM_COLS, j->O - first);
    float *dw = (float *)j->a->din[1]->data + first * j->I;

    (void)cx, (void)worker;
    for (int64_t k = 0; k < j->n_tiles; k++) {
        const osh_tile *t = &j->tiles[k];
        osh_gemm_tn((osh_into){dw, j->I, k > 0 || !(j->a->fresh & 2)},
                    (osh_mat){j->dy + t->row * j->O + first, j->O},
                    (osh_mat){j->x + t->row * j->I, j->I}, (osh_mnk){m, j->I, t->n});
    }
    return OSH_OK;
}

static void bias_grad(const osh_grad_args *a, const osh_tile *tiles, int64_t n_tiles)
{
    const float *dy = a->dout[0]->data;
    int64_t O = a->in[1]->shape[0];
    for (int64_t k = 0; k < n_tiles; k++)
        for (int64_t o = 0; o < O; o++) {
            double sum = 0;
            for (int64_t r = tiles[k].row; r < tiles[k].row + tiles[k].n; r++) sum += dy[r * O + o];
            osh_grad_add(a->din[2], o, sum);
        }
}

static osh_status linear_grad_by_blas(osh_ctx *cx, const osh_grad_args *a, const osh_tile *tiles,
                                      int64_t n_tiles)
{
    osh_status rc = OSH_OK;
    int64_t I = osh_width(a->in[0]), O = a->in[1]->shape[0];
    float *x = NULL, *w = NULL; // own, in f32: x [N, I] and w [O, I]
    OSH_TRY(osh_blas_open(cx));
    if (a->din[0]) OSH_TRY(osh_f32_weight(cx, &w, a->in[1], a->in[0]->dtype));
    if (a->din[1]) OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    linear_grad_job j = {a, a->dout[0]->data, x, w, tiles, n_tiles, I, O};
    if (a->din[0])
        OSH_TRY(osh_parallel_for(cx, osh_div_up(I, OSH_GEMM_COLS) * n_tiles, linear_dx_chunk, &j));
    if (a->din[1]) OSH_TRY(osh_parallel_for(cx, osh_div_up(O, OSH_GEMM_COLS), linear_dw_chunk, &j));
done:
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

osh_status osh_linear_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0;
    osh_tile *tiles = NULL; // own

    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), OSH_GEMM_ROWS));
    // db must be 0 because bias_grad adds to it. dw must be 0 because no product writes dw if there
    // are no tokens.
    for (int k = 1; k < 3; k++)
        if ((a->fresh >> k & 1) && (k == 2 || !n_tiles)) OSH_TRY(osh_tensor_zero(cx, a->din[k]));
    if (a->rough && osh_pairs_take(a->in[0]) && osh_pairs_take(a->in[1]))
        OSH_TRY(osh_pairs_linear_grad(cx, a, tiles, n_tiles));
    else OSH_TRY(linear_grad_by_blas(cx, a, tiles, n_tiles));
    if (a->din[2]) bias_grad(a, tiles, n_tiles);
done:
    osh_free(cx, tiles);
    return rc;
}

size_t osh_linear_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads)
{
    (void)attr;
    size_t wide = (size_t)((n_tokens + out_width) * in_width[0]) * sizeof(float);
    size_t rough = osh_pairs_used()
                       ? osh_pairs_linear_grad_scratch(in_width[0], out_width, n_tokens, n_threads)
                       : 0;
    return (wide > rough ? wide : rough) + (size_t)(n_tokens + 1) * sizeof(osh_tile);
}
