/* layer_norm.c - computes y = (x - mean(x)) / sqrt(variance(x) + eps) * w + b for each row, or for
 * each slice of head_dim elements.
 *
 *   in[0] x [N, D]     in[1] w [D] (or [head_dim])     in[2] b like w, optional     out y [N, D]
 *
 * Values are f32 (this file sums in double), and the result is rounded once to the dtype of x, as
 * in torch.nn.LayerNorm. With `offset` 1 the factor is 1 + w, rounded to the dtype of x
 * (transformers' NemotronLayerNorm1P). With `plain` there is neither w nor b (OlmoLayerNorm).
 * Shapes: N tokens of the batch, D elements per token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const osh_field attrs[] = {
    {"eps", OSH_F_FLOAT, offsetof(osh_layer_norm_attr, eps), "1e-5", 0, 1, "added to the variance",
     NULL, NULL},
    {"bias", OSH_F_BOOL, offsetof(osh_layer_norm_attr, bias), "false", 0, 0, "a bias [D] is added",
     NULL, NULL},
    {"head_dim", OSH_F_INT, offsetof(osh_layer_norm_attr, head_dim), "0", 0, 1e6,
     "elements of a normalized slice; 0: the row", NULL, NULL},
    {"offset", OSH_F_FLOAT, offsetof(osh_layer_norm_attr, offset), "0", -1e6, 1e6,
     "added to the weight", NULL, NULL},
    {"plain", OSH_F_BOOL, offsetof(osh_layer_norm_attr, plain), "false", 0, 0,
     "without a weight and a bias", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_layer_norm_attr *at = attr;

    if (at->head_dim && in_width[0] % at->head_dim)
        return osh_fail(cx, OSH_E_FORMAT,
                        "layer_norm: width %lld is not a multiple of head_dim %lld",
                        (long long)in_width[0], (long long)at->head_dim);
    out_width[0] = in_width[0];
    w_shape[0][0] = w_shape[1][0] = at->head_dim ? at->head_dim : in_width[0];
    w_ndim[0] = !at->plain;
    w_ndim[1] = at->bias && !at->plain;
    return OSH_OK;
}

/* Reads the factors of the channels (weight plus offset), [D], in f32. Sets *w to NULL if the op
 * has no weight; every factor is then 1. */
static osh_status norm_factors_read(osh_ctx *cx, float **w, const osh_tensor *weight, int64_t D,
                               const osh_layer_norm_attr *at, osh_dtype dt)
{
    osh_status rc = OSH_OK;

    if (!weight) goto done;
    OSH_TRY(osh_f32_weight(cx, w, weight, dt));
    for (int64_t i = 0; i < D; i++) (*w)[i] = osh_round_to((*w)[i] + (float)at->offset, dt);
done:
    return rc;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_layer_norm_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    int64_t width = osh_width(a->in[0]), D = at->head_dim ? at->head_dim : width,
            N = osh_rows(a->in[0]) * (width / D); // number of slices
    /* own, in f32: x [N, D]; w [D]; b [D]; w or b is NULL if the op has none */
    float *x = NULL, *w = NULL, *b = NULL;

    assert(width % D == 0 && (!a->in[1] || osh_tensor_numel(a->in[1]) == D));
    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(norm_factors_read(cx, &w, a->in[1], D, at, dt));
    if (a->in[2]) OSH_TRY(osh_f32_weight(cx, &b, a->in[2], dt));
    for (int64_t n = 0; n < N; n++) {
        float *row = x + n * D;
        double mean = 0, sum = 0;
        for (int64_t i = 0; i < D; i++) mean += row[i];
        mean /= (double)D;
        for (int64_t i = 0; i < D; i++) sum += (row[i] - mean) * (row[i] - mean);
        double r = 1 / sqrt(sum / (double)D + at->eps);
        for (int64_t i = 0; i < D; i++)
            row[i] = (float)((row[i] - mean) * r * (w ? w[i] : 1) + (b ? b[i] : 0));
    }
    osh_from_f32(a->out[0]->data, dt, x, N * D);
done:
    osh_free(cx, b);
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

/* Computes dx, dw and db. With n = (x - mean) / sqrt(variance + eps) and g = dy (w + offset):
 *
 *   dx = (g - mean(g) - n mean(g n)) / sqrt(variance + eps)
 *   dw = sum over rows of dy n
 *   db = sum over rows of dy */
static osh_status layer_norm_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_layer_norm_attr *at = a->attr;
    const float *dy = a->dout[0]->data;
    int64_t N = osh_rows(a->in[0]), width = osh_width(a->in[0]),
            D = at->head_dim ? at->head_dim : width, n_seqs = 0;
    float *x = NULL, *w = NULL; // own, in f32: x [N, width]; w [D], or NULL if the op has no weight
    double *sums = NULL;        // own [2, D]: dw and db of one sample
    osh_tile *seq = NULL;       // own: for each sample, the range of its rows

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(norm_factors_read(cx, &w, a->in[1], D, at, a->in[0]->dtype));
    OSH_NEW(cx, sums, 2 * D);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++) {
        memset(sums, 0, (size_t)(2 * D) * sizeof *sums);
        for (int64_t row = seq[s].row * width; row < (seq[s].row + seq[s].n) * width; row += D) {
            double mean = 0, square = 0, g1 = 0, gn = 0;
            for (int64_t i = 0; i < D; i++) mean += x[row + i] / (double)D;
            for (int64_t i = 0; i < D; i++) square += (x[row + i] - mean) * (x[row + i] - mean);
            double r = 1 / sqrt(square / (double)D + at->eps);
            for (int64_t i = 0; i < D; i++) {
                double n = (x[row + i] - mean) * r, g = dy[row + i] * (w ? w[i] : 1);
                g1 += g / (double)D, gn += g * n / (double)D;
                sums[i] += dy[row + i] * n, sums[D + i] += dy[row + i];
            }
            for (int64_t i = 0; i < D; i++)
                osh_grad_add(
                    a->din[0], row + i,
                    (dy[row + i] * (w ? w[i] : 1) - g1 - (x[row + i] - mean) * r * gn) * r);
        }
        for (int64_t i = 0; i < D; i++)
            osh_grad_add(a->din[1], i, sums[i]), osh_grad_add(a->din[2], i, sums[D + i]);
    }
done:
    osh_free(cx, seq);
    osh_free(cx, sums);
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

static osh_op_norm layer_norm_rule(const void *attr)
{
    const osh_layer_norm_attr *a = attr;
    return (osh_op_norm){a->offset, a->head_dim};
}

const osh_op osh_op_layer_norm = {
    .name = "layer_norm", .n_in = 1, .n_weights = 2, .n_out = 1, .spreads = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_layer_norm_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_layer_norm_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_layer_norm_cuda)},
    .tol = 1e-12, .scratch = osh_layer_norm_scratch,
    .grad.run = {[OSH_REF] = layer_norm_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_layer_norm_grad_cuda)},
    .grad.arena_bytes = osh_layer_norm_grad_cuda_scratch,
    .traits = OSH_OP_NORM | OSH_OP_CENTRES,
    .norm = layer_norm_rule,
};
