/* layer_norm.c - y = (x - mean(x)) / sqrt(variance(x) + eps) * w + b, row by row.
 *
 *   in[0] x [N, D]     in[1] w [D]     in[2] b [D], optional     out y [N, D]
 *
 * As in torch.nn.LayerNorm, values are f32 (this file sums in double), and the result is rounded
 * once to the dtype of x. Shapes: N tokens of the batch, D elements per token. */
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
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)cx;
    out_width[0] = w_shape[0][0] = w_shape[1][0] = in_width[0];
    w_ndim[0] = 1;
    w_ndim[1] = ((const osh_layer_norm_attr *)attr)->bias ? 1 : 0;
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_dtype dt = a->in[0]->dtype;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]);
    double eps = ((const osh_layer_norm_attr *)a->attr)->eps;
    float *x = NULL, *w = NULL, *b = NULL; // own, in f32: x [N, D]; w [D]; b [D], or NULL without a
                                           // bias

    assert(osh_tensor_numel(a->in[1]) == D);
    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_weight(cx, &w, a->in[1], dt));
    if (a->in[2]) OSH_TRY(osh_f32_weight(cx, &b, a->in[2], dt));
    for (int64_t n = 0; n < N; n++) {
        float *row = x + n * D;
        double mean = 0, sum = 0;
        for (int64_t i = 0; i < D; i++) mean += row[i];
        mean /= (double)D;
        for (int64_t i = 0; i < D; i++) sum += (row[i] - mean) * (row[i] - mean);
        double r = 1 / sqrt(sum / (double)D + eps);
        for (int64_t i = 0; i < D; i++)
            row[i] = (float)((row[i] - mean) * r * w[i] + (b ? b[i] : 0));
    }
    osh_from_f32(a->out[0]->data, dt, x, N * D);
done:
    osh_free(cx, b);
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

/* Computes dx, dw and db. With n = (x - mean) / sqrt(variance + eps) and g = dy w:
 *
 *   dx = (g - mean(g) - n mean(g n)) / sqrt(variance + eps)
 *   dw = sum over rows of dy n     db = sum over rows of dy */
static osh_status layer_norm_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const float *dy = a->dout[0]->data;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), n_seqs = 0;
    double eps = ((const osh_layer_norm_attr *)a->attr)->eps;
    float *x = NULL, *w = NULL; // own, in f32: x [N, D]; w [D]
    double *sums = NULL;        // dw and db of one sample, [2, D]; own
    osh_tile *seq = NULL;       // the samples, one tile (range of rows) each; own

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_weight(cx, &w, a->in[1], a->in[0]->dtype));
    OSH_NEW(cx, sums, 2 * D);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++) {
        memset(sums, 0, (size_t)(2 * D) * sizeof *sums);
        for (int64_t row = seq[s].row * D; row < (seq[s].row + seq[s].n) * D; row += D) {
            double mean = 0, square = 0, g1 = 0, gn = 0;
            for (int64_t i = 0; i < D; i++) mean += x[row + i] / (double)D;
            for (int64_t i = 0; i < D; i++) square += (x[row + i] - mean) * (x[row + i] - mean);
            double r = 1 / sqrt(square / (double)D + eps);
            for (int64_t i = 0; i < D; i++) {
                double n = (x[row + i] - mean) * r;
                g1 += dy[row + i] * w[i] / (double)D, gn += dy[row + i] * w[i] * n / (double)D;
                sums[i] += dy[row + i] * n, sums[D + i] += dy[row + i];
            }
            for (int64_t i = 0; i < D; i++)
                osh_grad_add(a->din[0], row + i,
                             (dy[row + i] * w[i] - g1 - (x[row + i] - mean) * r * gn) * r);
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

const osh_op osh_op_layer_norm = {
    .name = "layer_norm", .n_in = 1, .n_weights = 2, .n_out = 1, .spreads = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_layer_norm_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_layer_norm_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_layer_norm_cuda)},
    .tol = 1e-12, .scratch = osh_layer_norm_scratch,
    .grad.run = {[OSH_REF] = layer_norm_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_FN(osh_layer_norm_grad_cuda)},
    .grad.scratch_cuda = osh_layer_norm_grad_cuda_scratch,
    .traits = OSH_OP_NORM | OSH_OP_CENTRES,
};
