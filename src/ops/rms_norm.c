/* rms_norm.c - y = x / sqrt(mean(x^2) + eps) * w, for each row, or for each slice of head_dim
 * elements.
 *
 *   in[0] x [N, D], may be F32     in[1] w [D] (or [head_dim])     out y [N, D]
 *
 * The mean is f32, as in transformers' LlamaRMSNorm (and Qwen3RMSNorm for q_norm, k_norm). The
 * normalized value is rounded to the dtype of y, then multiplied by w, and the product is rounded
 * again. With `late` (Olmo2RMSNorm), the product is f32 and rounded once. With `offset` 1, the
 * factor is 1 + w (Gemma2RMSNorm). With `plain`, there is no w (Llama4TextL2Norm). The reference
 * kernel sums in double. Shapes: N tokens of the batch, D elements per token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const osh_field attrs[] = {
    {"eps", OSH_F_FLOAT, offsetof(osh_rms_norm_attr, eps), "1e-6", 0, 1, "added to the mean square",
     NULL, NULL},
    {"head_dim", OSH_F_INT, offsetof(osh_rms_norm_attr, head_dim), "0", 0, 1e6,
     "elements of a normalized slice; 0: the row", NULL, NULL},
    {"offset", OSH_F_FLOAT, offsetof(osh_rms_norm_attr, offset), "0", -1e6, 1e6,
     "added to the weight", NULL, NULL},
    {"late", OSH_F_BOOL, offsetof(osh_rms_norm_attr, late), "false", 0, 0,
     "rounded once, after the product with the weight", NULL, NULL},
    {"plain", OSH_F_BOOL, offsetof(osh_rms_norm_attr, plain), "false", 0, 0, "without a weight",
     NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_rms_norm_attr *at = attr;

    if (at->head_dim && in_width[0] % at->head_dim)
        return osh_fail(cx, OSH_E_FORMAT, "rms_norm: width %lld is not a multiple of head_dim %lld",
                        (long long)in_width[0], (long long)at->head_dim);
    out_width[0] = in_width[0];
    w_shape[0][0] = at->head_dim ? at->head_dim : in_width[0];
    w_ndim[0] = !at->plain;
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rms_norm_attr *at = a->attr;
    osh_dtype dt = a->out[0]->dtype;
    int64_t width = osh_width(a->in[0]), D = at->head_dim ? at->head_dim : width;
    int64_t n_slices = osh_rows(a->in[0]) * (width / D);
    float *x = NULL, *w = NULL; // own, in f32: x [n_slices, D]; w [D]

    assert(width % D == 0 && (!a->in[1] || osh_tensor_numel(a->in[1]) == D));
    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    if (a->in[1]) OSH_TRY(osh_f32_weight(cx, &w, a->in[1], dt));
    for (int64_t s = 0; s < n_slices; s++) {
        float *row = x + s * D;
        double sum = 0;
        for (int64_t i = 0; i < D; i++) sum += (double)row[i] * row[i];
        double r = 1 / sqrt(sum / (double)D + at->eps);
        for (int64_t i = 0; i < D; i++)
            row[i] = (w ? w[i] + (float)at->offset : 1) *
                     osh_round_to((float)(row[i] * r), at->late ? OSH_F32 : dt);
    }
    osh_from_f32(a->out[0]->data, dt, x, n_slices * D);
done:
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

/* Computes dx and dw, where y = n f:
 *
 *   n = x / sqrt(mean(x^2) + eps)
 *   f = offset + w
 *   g = dy f
 *   dx = (g - n mean(g n)) / sqrt(mean(x^2) + eps)
 *   dw = sum over rows of dy n */
static osh_status rms_norm_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rms_norm_attr *at = a->attr;
    const float *dy = a->dout[0]->data;
    int64_t N = osh_rows(a->in[0]), width = osh_width(a->in[0]),
            D = at->head_dim ? at->head_dim : width, n_seqs = 0;
    float *x = NULL, *w = NULL; // own, in f32: x [N, width]; w [D]
    double *dw = NULL;          // own [D]: gradient of w for one sample
    osh_tile *seq = NULL;       // own: for each sample, the range of its rows

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    if (a->in[1]) OSH_TRY(osh_f32_weight(cx, &w, a->in[1], a->in[0]->dtype));
    OSH_NEW(cx, dw, D);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++) {
        memset(dw, 0, (size_t)D * sizeof *dw);
        for (int64_t at_x = seq[s].row * width; at_x < (seq[s].row + seq[s].n) * width; at_x += D) {
            double sum = 0, dot = 0;
            for (int64_t i = 0; i < D; i++) sum += (double)x[at_x + i] * x[at_x + i];
            double r = 1 / sqrt(sum / (double)D + at->eps);
            for (int64_t i = 0; i < D; i++)
                dot += dy[at_x + i] * (w ? w[i] + at->offset : 1) * x[at_x + i] * r;
            for (int64_t i = 0; i < D; i++) {
                double n = x[at_x + i] * r, g = dy[at_x + i] * (w ? w[i] + at->offset : 1);
                osh_grad_add(a->din[0], at_x + i, (g - n * dot / (double)D) * r);
                dw[i] += dy[at_x + i] * n;
            }
        }
        for (int64_t i = 0; w && i < D; i++) osh_grad_add(a->din[1], i, dw[i]);
    }
done:
    osh_free(cx, seq);
    osh_free(cx, dw);
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

static osh_op_norm rms_norm_rule(const void *attr)
{
    const osh_rms_norm_attr *a = attr;
    return (osh_op_norm){a->offset, a->head_dim};
}

const osh_op osh_op_rms_norm = {
    .name = "rms_norm", .n_in = 1, .n_weights = 1, .n_out = 1, .spreads = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_rms_norm_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_rms_norm_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_rms_norm_cuda)},
    .tol = 1e-12, .f32_in = 1, .scratch = osh_rms_norm_scratch,
    .grad.writes = true,
    .grad.run = {[OSH_REF] = rms_norm_grad_ref, [OSH_CPU] = osh_rms_norm_grad_cpu,
             [OSH_CUDA] = OSH_CUDA_GRAD(osh_rms_norm_grad_cuda)},
    .grad.arena_bytes = osh_rms_norm_grad_cuda_scratch,
    .traits = OSH_OP_NORM,
    .norm = rms_norm_rule,
};
