/* logits_grad.c - implements the reference kernel for the gradients of kl and nll with respect to
 * x, the input of lm_head. (kl and nll are two losses of a model's logits.)
 *
 *   z = x W^T + bias
 *   l = rule(z)
 *   p = softmax(l)
 *   dl_v = g (p_v - r_v)               for kl; r: softmax of the reference model's logits
 *   dl_v = g (p_v - [v == target])     for nll
 *   dz_v = dl_v rule'(z_v)
 *   dx = dz W
 *
 * g: the element of dout[0] for the row. Rows with g = 0 are skipped. rule: divides and caps logits
 * (osh_logits_rule). */
#include "ops/kernel.h"

#include <math.h>

typedef struct lm_head {
    float *w, *bias; // own, in f32: weight [V, D], bias [V]; bias is NULL if there is none
} lm_head;

/* Computes the probabilities p [V] for one row x [D]. Also computes slope [V], the derivative of
 * the logits rule, unless `slope` is NULL. size: {V, D}. */
static void logits_row_softmax(double *p, double *slope, const float *x, const lm_head *head,
                               const int64_t *size, const osh_logits_rule *rule)
{
    double max = -INFINITY, sum = 0, divide = rule && rule->divide > 0 ? rule->divide : 1;
    double cap = rule && rule->cap > 0 ? rule->cap : 0;

    for (int64_t v = 0; v < size[0]; v++) {
        double z = head->bias ? head->bias[v] : 0;
        for (int64_t i = 0; i < size[1]; i++) z += (double)x[i] * head->w[v * size[1] + i];
        double t = cap > 0 ? tanh(z / divide / cap) : 0;
        p[v] = cap > 0 ? cap * t : z / divide;
        if (slope) slope[v] = (1 - t * t) / divide;
        max = fmax(max, p[v]);
    }
    for (int64_t v = 0; v < size[0]; v++) sum += p[v] = exp(p[v] - max);
    for (int64_t v = 0; v < size[0]; v++) p[v] /= sum;
}

static osh_status lm_head_copy(osh_ctx *cx, lm_head *h, const osh_grad_args *a, int side)
{
    const osh_vocab_attr *at = a->attr;
    osh_dtype dt = a->in[2 * side]->dtype;
    osh_status rc = osh_f32_weight(cx, &h->w, a->in[2 * side + 1], dt);
    if (!rc && at && at->bias[side]) rc = osh_f32_weight(cx, &h->bias, at->bias[side], dt);
    return rc;
}

static void lm_head_free(osh_ctx *cx, lm_head *h)
{
    osh_free(cx, h->bias);
    osh_free(cx, h->w);
}

osh_status osh_logits_grad_ref(osh_ctx *cx, const osh_grad_args *a, bool kl)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), V = a->in[1]->shape[0], D = osh_width(a->in[0]),
            D2 = kl ? osh_width(a->in[2]) : 0;
    const osh_vocab_attr *at = a->attr;
    const float *g = a->dout[0]->data;
    // own, in f32: x [N, D] of the model, and x2 [N, D2] of the reference model (NULL for nll)
    float *x = NULL, *x2 = NULL;
    lm_head of = {NULL}, of2 = {NULL}; // own: lm_head of both models, in f32
    double *p = NULL; // own [3, V]: p and slope of the model, then r of the reference model

    OSH_NEW(cx, p, 3 * V);
    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(lm_head_copy(cx, &of, a, 0));
    if (kl) OSH_TRY(osh_f32_copy(cx, &x2, a->in[2]));
    if (kl) OSH_TRY(lm_head_copy(cx, &of2, a, 1));
    for (int64_t n = 0; n < N; n++) {
        int32_t target = kl ? 0 : ((const int32_t *)a->in[2]->data)[n];
        if (g[n] == 0 || target < 0) continue;
        logits_row_softmax(p, p + V, x + n * D, &of, (int64_t[]){V, D}, at ? &at->rule[0] : NULL);
        if (kl)
            logits_row_softmax(p + 2 * V, NULL, x2 + n * D2, &of2, (int64_t[]){V, D2},
                               at ? &at->rule[1] : NULL);
        for (int64_t v = 0; v < V; v++)
            p[v] = g[n] * (p[v] - (kl ? p[2 * V + v] : v == target)) * p[V + v];
        for (int64_t i = 0; i < D; i++) {
            double sum = 0;
            for (int64_t v = 0; v < V; v++) sum += p[v] * of.w[v * D + i];
            osh_grad_add(a->din[0], n * D + i, sum);
        }
    }
done:
    lm_head_free(cx, &of2);
    osh_free(cx, x2);
    lm_head_free(cx, &of);
    osh_free(cx, x);
    osh_free(cx, p);
    return rc;
}
