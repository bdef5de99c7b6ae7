/* linear.c - computes y = x W^T + b.
 *
 *   in[0] x [N, I]     in[1] w [O, I]     in[2] b [O], optional     out y [N, O]
 *
 * Products and sums are f32, as in torch.nn.Linear (addmm). (The reference kernel sums in double.)
 * The result is rounded only once, to the dtype of x, after the bias is added. Products of BF16
 * values are exact in f32. Shapes: N tokens of the batch, I in_features, O out_features. */
#include "base/checked.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>

static const osh_field attrs[] = {
    {"out_features", OSH_F_INT, offsetof(osh_linear_attr, out_features), "0", 0, 1e9,
     "O; 0: the width that the template gives to the output", NULL, NULL},
    {"bias", OSH_F_BOOL, offsetof(osh_linear_attr, bias), "false", 0, 0, "a bias [O] is added",
     NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_linear_attr *at = attr;
    int64_t O = at->out_features ? at->out_features : out_width[0];

    if (O <= 0)
        return osh_fail(cx, OSH_E_FORMAT,
                        "linear: no output width given, want out_features or a weight shape");
    out_width[0] = O;
    w_shape[0][0] = O;
    w_shape[0][1] = in_width[0];
    w_ndim[0] = 2;
    w_shape[1][0] = O;
    w_ndim[1] = at->bias ? 1 : 0;
    return OSH_OK;
}

/* Returns sum + the dot product of the rows x [I] and w [I]. */
OSH_RANGES_CHECKED static double linear_add_products(double sum, const float *x, const float *w,
                                                     int64_t I)
{
    for (int64_t i = 0; i < I; i++) sum += (double)x[i] * w[i];
    return sum;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *y = a->out[0];
    osh_dtype dt = a->in[0]->dtype;
    int64_t N = osh_rows(a->in[0]), I = osh_width(a->in[0]), O = a->in[1]->shape[0];
    // own, in f32: x [N, I]; w [O, I]; b [O], NULL if there is no bias; row [O]: one row of y
    float *x = NULL, *w = NULL, *b = NULL, *row = NULL;

    assert(a->in[1]->shape[1] == I && osh_width(y) == O);
    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_weight(cx, &w, a->in[1], dt));
    if (a->in[2]) OSH_TRY(osh_f32_weight(cx, &b, a->in[2], dt));
    OSH_NEW(cx, row, O);
    osh_check_range(x, (size_t)(N * I) * sizeof *x);
    osh_check_range(w, (size_t)(O * I) * sizeof *w);
    for (int64_t n = 0; n < N; n++) {
        for (int64_t o = 0; o < O; o++) {
            row[o] = (float)linear_add_products(b ? b[o] : 0, x + n * I, w + o * I, I);
        }
        osh_from_f32(osh_elem(y, n * O), y->dtype, row, O);
    }
done:
    osh_free(cx, row);
    osh_free(cx, b);
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

/* Computes three gradients. dw and db are summed sample by sample.
 *
 *   dx = dy W
 *   dw = dy^T x
 *   db = sum over rows of dy */
static osh_status linear_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const float *dy = a->dout[0]->data;
    int64_t N = osh_rows(a->in[0]), I = osh_width(a->in[0]), O = a->in[1]->shape[0], n_seqs = 0;
    float *x = NULL, *w = NULL; // own, in f32: x [N, I]; w [O, I]
    osh_tile *seq = NULL;       // own: for each sample, the range of its rows

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_weight(cx, &w, a->in[1], a->in[0]->dtype));
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < I; i++) {
            double sum = 0;
            for (int64_t o = 0; o < O; o++) sum += (double)dy[n * O + o] * w[o * I + i];
            osh_grad_add(a->din[0], n * I + i, sum);
        }
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t o = 0; o < O; o++)
            for (int64_t i = -1; i < I; i++) { // i = -1 computes the gradient of the bias
                double sum = 0;
                for (int64_t n = seq[s].row; n < seq[s].row + seq[s].n; n++)
                    sum += (double)dy[n * O + o] * (i < 0 ? 1 : x[n * I + i]);
                osh_grad_add(a->din[i < 0 ? 2 : 1], i < 0 ? o : o * I + i, sum);
            }
done:
    osh_free(cx, seq);
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

const osh_op osh_op_linear = {
    .name = "linear", .n_in = 1, .n_weights = 2, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_linear_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_linear_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_linear_cuda)},
    .tol = 1e-11, .scratch = osh_linear_scratch, .arena_bytes = osh_linear_cuda_scratch,
    .grad.writes = true, .by_rows = true, .spreads = 1,
    .grad.run = {[OSH_REF] = linear_grad_ref, [OSH_CPU] = osh_linear_grad_cpu,
             [OSH_CUDA] = OSH_CUDA_GRAD(osh_linear_grad_cuda)},
    .grad.scratch = osh_linear_grad_scratch, .grad.arena_bytes = osh_linear_grad_cuda_scratch,
    .traits = OSH_OP_LINEAR | OSH_OP_COLUMNS,
    .flops = osh_product_flops,
};
