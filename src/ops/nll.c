/* nll.c - computes the negative log-likelihood of each next token: -log softmax(x W^T)[target].
 *
 *   in[0] x [N, D]     in[1] w [V, D]     in[2] targets I32 [N], < 0: the row has no target
 *   out nll F32 [N], 0 for a row without target
 *
 * The logits are rounded to the dtype of x, like the output of lm_head. Log-softmax is f32, as in
 * transformers' ForCausalLMLoss, which computes it after .float(). The kernels never have all
 * logits in memory at once. attr is an osh_vocab_attr, or NULL. It has the bias of lm_head, and the
 * rule that divides and caps logits. Shapes: N tokens of the batch, D elements per token, V
 * vocabulary size. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <math.h>

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_dtype dt = a->in[0]->dtype;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), V = a->in[1]->shape[0];
    const osh_vocab_attr *at = a->attr;
    const int32_t *target = a->in[2]->data; // token ids, [N]; < 0: the row has no target
    /* own, in f32: x [N, D], w [V, D], bias [V] and logit [V]. nll: view of the output */
    float *x = NULL, *w = NULL, *bias = NULL, *logit = NULL, *nll = a->out[0]->data;

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_weight(cx, &w, a->in[1], dt));
    if (at && at->bias[0]) OSH_TRY(osh_f32_weight(cx, &bias, at->bias[0], dt));
    OSH_NEW(cx, logit, V);
    for (int64_t n = 0; n < N; n++) {
        double max = -INFINITY, sum = 0;
        nll[n] = 0;
        if (target[n] < 0) continue;
        for (int64_t v = 0; v < V; v++) {
            double dot = bias ? bias[v] : 0;
            for (int64_t i = 0; i < D; i++) dot += (double)x[n * D + i] * w[v * D + i];
            logit[v] = osh_logit_of((float)dot, at ? &at->rule[0] : NULL, dt);
            max = fmax(max, logit[v]);
        }
        for (int64_t v = 0; v < V; v++) sum += exp(logit[v] - max);
        nll[n] = (float)(max + log(sum) - logit[target[n]]);
    }
done:
    osh_free(cx, logit);
    osh_free(cx, bias);
    osh_free(cx, w);
    osh_free(cx, x);
    return rc;
}

/* Computes the gradient of x, the only input with a gradient: dx = dnll (p - [v == target]) W.
 * Before the product with W, dnll (p - [v == target]) is multiplied by the derivative of the logits
 * rule. */
static osh_status nll_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    return osh_logits_grad_ref(cx, a, false);
}

const osh_op osh_op_nll = {
    .name = "nll", .n_in = 3, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_nll_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_nll_cuda)},
    .tol = 1e-12, .scratch = osh_nll_scratch,
    .grad.run = {[OSH_REF] = nll_grad_ref, [OSH_CPU] = osh_nll_grad_cpu},
    .grad.scratch = osh_nll_grad_scratch,
    .arena_bytes = OSH_CUDA_FN(osh_nll_cuda_scratch),
};
