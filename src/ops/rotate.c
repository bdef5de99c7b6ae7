/* rotate.c - computes y = x M for each group x of n channels of a row. M [n, n] is an orthogonal
 * matrix. The op computes the rotations that act while the model runs.
 *
 *   in[0] x [N, D]
 *   in[1] T [n, n] optional, T = M sqrt(n)
 *   out y [N, D], may overwrite x
 *   attribute `transposed`: y = x M^T
 *
 * Products and sums are f64, are divided by sqrt(n), and then rounded, as in compressed-tensors'
 * HadamardTransform. Without T, the attributes describe M. M is then a Hadamard matrix, and its
 * product needs fewer additions than a product with T (tensor/rotation.h). Shapes: N tokens of the
 * batch, D elements per token. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

/* Number of rows of x in a chunk of parallel work. A chunk converts each row of T only once, and
 * uses it for all its rows of x. */
enum { ROWS = 8 };

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_rotate_attr *at = attr;
    if (at->n < 1 || in_width[0] % at->n)
        return osh_fail(cx, OSH_E_FORMAT, "rotate: %lld channels, want a multiple of %lld",
                        (long long)in_width[0], (long long)at->n);
    out_width[0] = in_width[0];
    w_ndim[0] = at->r ? 0 : 2;
    w_shape[0][0] = w_shape[0][1] = at->n;
    return OSH_OK;
}

typedef struct rotate_rows {
    osh_tensor to;       // view: output y, or the F32 gradient [N, D] if `add` is true
    const osh_tensor *x, *T;
    const osh_rotate_attr *at;
    bool transposed, add;
} rotate_rows;

/* Adds the products with row k of T [n, n] to `sum` [n]. After all rows, `sum` is x T, or x T^T if
 * `transposed` is true. */
static void rotate_add_products(double *sum, const double *x, const float *row, int64_t k,
                                int64_t n, bool transposed)
{
    if (!transposed) {
        for (int64_t i = 0; i < n; i++) sum[i] += x[k] * row[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) sum[k] += x[i] * row[i];
}

static void rotate_put_products(const rotate_rows *j, int64_t at, const double *sum, float *y,
                                int64_t n)
{
    double root = sqrt((double)n);
    for (int64_t i = 0; i < n; i++) y[i] = (float)(sum[i] / root);
    if (j->add) for (int64_t i = 0; i < n; i++) ((float *)j->to.data)[at + i] += y[i];
    else osh_from_f32(osh_elem(&j->to, at), j->to.dtype, y, n);
}

static osh_status rotate_dense_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const rotate_rows *j = user;
    int64_t n = j->at->n, D = osh_width(j->x), first = chunk * ROWS,
            rows = osh_min64(osh_rows(j->x) - first, ROWS);
    double *x = osh_alloc(cx, (size_t)(2 * ROWS * n) * sizeof *x), *sum = x + ROWS * n; // own
    float *y = osh_alloc(cx, (size_t)n * sizeof *y);                                    // own: [n]
    (void)worker;
    if (!x || !y) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to rotate by %lld channels", (long long)n);
    for (int64_t c = 0; c < D; c += n) {
        memset(sum, 0, (size_t)(ROWS * n) * sizeof *sum);
        for (int64_t r = 0; r < rows; r++) {
            osh_to_f32(y, osh_elem(j->x, (first + r) * D + c), j->x->dtype, n);
            for (int64_t i = 0; i < n; i++) x[r * n + i] = y[i];
        }
        for (int64_t k = 0; k < n; k++) {
            osh_to_f32(y, osh_elem(j->T, k * n), j->T->dtype, n);
            for (int64_t r = 0; r < rows; r++)
                rotate_add_products(sum + r * n, x + r * n, y, k, n, j->transposed);
        }
        for (int64_t r = 0; r < rows; r++)
            rotate_put_products(j, (first + r) * D + c, sum + r * n, y, n);
    }
done:
    osh_free(cx, x);
    osh_free(cx, y);
    return rc;
}

static osh_status rotate_dense(osh_ctx *cx, rotate_rows *j)
{
    return osh_parallel_for(cx, osh_div_up(osh_rows(j->x), ROWS), rotate_dense_chunk, j);
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    const osh_rotate_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    osh_tensor *y = a->out[0];
    rotate_rows j = {.to = *y, .x = x, .T = a->in[1], .at = at, .transposed = at->transposed};
    assert(at->r || a->in[1]);
    if (!at->r) return rotate_dense(cx, &j);
    if (y->data != x->data) memcpy(y->data, x->data, osh_tensor_bytes(x));
    osh_tensor m = osh_tensor_view(y->dtype, 2, (int64_t[]){osh_rows(y), osh_width(y)}, y->data);
    return osh_rotate_rows(cx, &m, at->r, at->transposed);
}

/* Computes dx = dy M^T, or dx = dy M if the attribute `transposed` is true. */
static osh_status rotate_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rotate_attr *at = a->attr;
    const osh_tensor *dy = a->dout[0];
    float *dx = NULL; // own [N, D]: copy of dy
    rotate_rows j = {.x = dy, .T = a->in[1], .at = at, .transposed = !at->transposed, .add = true};
    if (!a->din[0]) goto done;
    j.to = *a->din[0];
    if (!at->r) {
        rc = rotate_dense(cx, &j);
        goto done;
    }
    OSH_TRY(osh_f32_copy(cx, &dx, dy));
    osh_tensor m = osh_tensor_view(OSH_F32, 2, (int64_t[]){osh_rows(dy), osh_width(dy)}, dx);
    OSH_TRY(osh_rotate_rows(cx, &m, at->r, !at->transposed));
    for (int64_t i = 0; i < osh_tensor_numel(dy); i++) osh_grad_add(a->din[0], i, dx[i]);
done:
    osh_free(cx, dx);
    return rc;
}

static size_t scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads)
{
    const osh_rotate_attr *at = attr;
    (void)in_width, (void)out_width, (void)n_tokens;
    size_t dense = osh_mem_gross((size_t)(2 * ROWS * at->n) * sizeof(double)) +
                   osh_mem_gross((size_t)at->n * sizeof(float));
    return (at->r ? osh_rotation_room(at->r) : dense) * (size_t)n_threads;
}

const osh_op osh_op_rotate = {
    .name = "rotate", .n_in = 1, .n_weights = 1, .n_out = 1, .attr_bytes = sizeof(osh_rotate_attr),
    .each_token = true,
    .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_rotate_cuda)}, .tol = 1e-11,
    .scratch = scratch, .arena_bytes = osh_rotate_cuda_scratch, .spreads = 1,
    .grad.run = {[OSH_REF] = rotate_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_rotate_grad_cuda)},
    .grad.arena_bytes = osh_rotate_grad_cuda_scratch,
    .traits = OSH_OP_ROTATES | OSH_OP_IN_PLACE,
};
