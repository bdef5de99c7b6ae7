/* kl.c - computes a KL divergence for each token: kl = sum over v of r log(r / p). p: a model's
 * probabilities of the next token. r: the probabilities of a reference model. Also finds out
 * whether both models have the same most probable token.
 *
 *   in[0] x [N, D]
 *   in[1] w [V, D]
 *   in[2] x_ref [N, D2]
 *   in[3] w_ref [V, D2]
 *   out[0] kl F32 [N]
 *   out[1] same F32 [N]: 1 if both models have the same most probable token (if several
 *                  have the largest logit, the one with the lowest id), else 0
 *
 * The logits of each model are rounded to the compute dtype of that model. All other numbers are
 * f32. attr is an osh_vocab_attr, or NULL. It has the rules for the logits, and the biases of
 * lm_head, for both models. Shapes: N tokens of the batch, V vocabulary size, D and D2 hidden_size
 * of the two models. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <math.h>

typedef struct model_rule {
    const osh_logits_rule *rule; // rule for the logits of a model; NULL: logits are not changed
    const float *bias;           // bias of lm_head, [V]; NULL: none; view
    osh_dtype dt;
} model_rule;

/* Computes the logits [V] of one row x [D]. Returns log(sum(exp(logit))). Sets *best to the index
 * of the largest logit (the first if several are equal). size: {V, D}. */
static double kl_row_logits(float *logit, int64_t *best, const float *x, const float *w,
                            const int64_t *size, const model_rule *m)
{
    int64_t V = size[0], D = size[1];
    double sum = 0;

    *best = 0;
    for (int64_t v = 0; v < V; v++) {
        double dot = m->bias ? m->bias[v] : 0;
        for (int64_t i = 0; i < D; i++) dot += (double)x[i] * w[v * D + i];
        logit[v] = osh_logit_of((float)dot, m->rule, m->dt);
        if (logit[v] > logit[*best]) *best = v;
    }
    for (int64_t v = 0; v < V; v++) sum += exp((double)logit[v] - logit[*best]);
    return logit[*best] + log(sum);
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), V = a->in[1]->shape[0],
            D[2] = {osh_width(a->in[0]), osh_width(a->in[2])}, best[2];
    /* own, in f32: x [N, D], w [V, D] and bias [V] of each of the two models; then logit [2, V] */
    float *x[2] = {0}, *w[2] = {0}, *bias[2] = {0}, *logit = NULL;
    float *kl = a->out[0]->data, *same = a->out[1]->data;
    const osh_vocab_attr *at = a->attr;
    double lse[2];

    OSH_NEW(cx, logit, 2 * V);
    for (int m = 0; m < 2; m++) {
        OSH_TRY(osh_f32_copy(cx, &x[m], a->in[2 * m]));
        OSH_TRY(osh_f32_weight(cx, &w[m], a->in[2 * m + 1], a->in[2 * m]->dtype));
        if (at && at->bias[m])
            OSH_TRY(osh_f32_weight(cx, &bias[m], at->bias[m], a->in[2 * m]->dtype));
    }
    for (int64_t n = 0; n < N; n++) {
        double sum = 0;
        for (int m = 0; m < 2; m++) {
            model_rule rule = {at ? &at->rule[m] : NULL, bias[m], a->in[2 * m]->dtype};
            lse[m] = kl_row_logits(logit + m * V, &best[m], x[m] + n * D[m], w[m],
                                   (int64_t[]){V, D[m]}, &rule);
        }
        for (int64_t v = 0; v < V; v++) {
            double log_p = logit[v] - lse[0], log_r = logit[V + v] - lse[1];
            sum += exp(log_r) * (log_r - log_p);
        }
        kl[n] = (float)sum;
        same[n] = best[0] == best[1];
    }
done:
    for (int m = 0; m < 2; m++) osh_free(cx, bias[m]), osh_free(cx, w[m]), osh_free(cx, x[m]);
    osh_free(cx, logit);
    return rc;
}

/* Computes the gradient of x, the only input with a gradient: dx = dkl (p - r) W. Before the
 * product with W, dkl (p - r) is multiplied by the derivative of the logits rule. */
static osh_status kl_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    return osh_logits_grad_ref(cx, a, true);
}

const osh_op osh_op_kl = {
    .name = "kl", .n_in = 4, .n_weights = 0, .n_out = 2,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_kl_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_kl_cuda)},
    .tol = 1e-9, // the tolerance is large, because kl is a small difference of large numbers
    .scratch = osh_kl_scratch,
    .grad.run = {[OSH_REF] = kl_grad_ref, [OSH_CPU] = osh_kl_grad_cpu,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_kl_grad_cuda)},
    .grad.scratch = osh_kl_grad_scratch,
    .grad.arena_bytes = osh_kl_grad_cuda_scratch,
    .arena_bytes = osh_kl_cuda_scratch,
};

static osh_tensor kl_list(int64_t N)
{
    return (osh_tensor){.dtype = OSH_F32, .ndim = 1, .shape = {N}};
}

size_t osh_kl_sum_lists(int64_t N)
{
    osh_tensor list = kl_list(N);
    return 2 * osh_tensor_gross(osh_tensor_bytes(&list));
}

size_t osh_kl_sum_arena_bytes(int64_t N)
{
    osh_tensor list = kl_list(N);
    return 2 * osh_arena_gross(osh_tensor_bytes(&list));
}

osh_status osh_kl_sum(osh_ctx *cx, double *sum, const osh_op_args *a, int64_t n,
                      const uint8_t *counted)
{
    osh_status rc = OSH_OK;
    osh_op_args with = *a;
    osh_where where = {a->in[0]->device, OSH_LIFE_SHORT};
    osh_tensor *kl = NULL, *same = NULL, *here = NULL; // own
    osh_tensor list = kl_list(osh_rows(a->in[0]));
    OSH_TRY(osh_tensor_new_on(cx, &kl, where, list.dtype, list.ndim, list.shape));
    OSH_TRY(osh_tensor_new_on(cx, &same, where, list.dtype, list.ndim, list.shape));
    with.out[0] = kl, with.out[1] = same;
    OSH_TRY(osh_op_run(cx, &osh_op_kl, &with));
    if (where.d) {
        OSH_TRY(osh_tensor_new(cx, &here, list.dtype, list.ndim, list.shape));
        OSH_TRY(osh_tensor_copy(cx, here, kl));
    }
    for (int64_t i = 0; i < n; i++)
        if (!counted || counted[i]) *sum += ((const float *)(here ? here : kl)->data)[i];
done:
    osh_tensor_free(cx, here);
    osh_tensor_free(cx, same);
    osh_tensor_free(cx, kl);
    return rc;
}
