/* logits_grad.c - the reference kernel for the gradients of kl and nll, the two losses of a model's
 * logits, with respect to x, the input of lm_head.
 *
 *   z = x W^T, l = rule(z), p = softmax(l)
 *   kl    dl_v = g (p_v - r_v)               r: softmax of the reference model's logits
 *   nll   dl_v = g (p_v - [v == target])
 *   dz_v = dl_v rule'(z_v)     dx = dz W
 *
 * g is the element of dout[0] for the row. Rows with g = 0 are skipped. `rule` divides and caps
 * logits (osh_logits_rule). */
#include "ops/kernel.h"

#include <math.h>

/* Computes the probabilities p [V] of one row x [D], and the derivative `slope` [V] of the logits
 * rule. `slope` NULL: not computed. `size` is {V, D}. */
static void logits_row_softmax(double *p, double *slope, const float *x, const float *w,
                               const int64_t *size, const osh_logits_rule *rule)
{
    double max = -INFINITY, sum = 0, divide = rule && rule->divide > 0 ? rule->divide : 1;
    double cap = rule && rule->cap > 0 ? rule->cap : 0;

    for (int64_t v = 0; v < size[0]; v++) {
        double z = 0;
        for (int64_t i = 0; i < size[1]; i++) z += (double)x[i] * w[v * size[1] + i];
        double t = cap > 0 ? tanh(z / divide / cap) : 0;
        p[v] = cap > 0 ? cap * t : z / divide;
        if (slope) slope[v] = (1 - t * t) / divide;
        max = fmax(max, p[v]);
    }
    for (int64_t v = 0; v < size[0]; v++) sum += p[v] = exp(p[v] - max);
    for (int64_t v = 0; v < size[0]; v++) p[v] /= sum;
}

osh_status osh_logits_grad_ref(osh_ctx *cx, const osh_grad_args *a, bool kl)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), V = a->in[1]->shape[0], D = osh_width(a->in[0]),
            D2 = kl ? osh_width(a->in[2]) : 0;
    const osh_vocab_attr *at = a->attr;
    const float *g = a->dout[0]->data;
    float *x = NULL, *w = NULL, *x2 = NULL, *w2 = NULL; // own, in f32: x [N, D] and w [V, D] of the
                                                        // model; x2 [N, D2] and w2 [V, D2] of the
                                                        // reference model for kl, NULL for nll
    double *p = NULL;                                   // p and slope of the model, then r; [3, V],
                                                        // own

    OSH_NEW(cx, p, 3 * V);
    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_weight(cx, &w, a->in[1], a->in[0]->dtype));
    if (kl) OSH_TRY(osh_f32_copy(cx, &x2, a->in[2]));
    if (kl) OSH_TRY(osh_f32_weight(cx, &w2, a->in[3], a->in[2]->dtype));
    for (int64_t n = 0; n < N; n++) {
        int32_t target = kl ? 0 : ((const int32_t *)a->in[2]->data)[n];
        if (g[n] == 0 || target < 0) continue;
        logits_row_softmax(p, p + V, x + n * D, w, (int64_t[]){V, D}, at ? &at->rule[0] : NULL);
        if (kl)
            logits_row_softmax(p + 2 * V, NULL, x2 + n * D2, w2, (int64_t[]){V, D2},
                               at ? &at->rule[1] : NULL);
        for (int64_t v = 0; v < V; v++)
            p[v] = g[n] * (p[v] - (kl ? p[2 * V + v] : v == target)) * p[V + v];
        for (int64_t i = 0; i < D; i++) {
            double sum = 0;
            for (int64_t v = 0; v < V; v++) sum += p[v] * w[v * D + i];
            osh_grad_add(a->din[0], n * D + i, sum);
        }
    }
done:
    osh_free(cx, w2);
    osh_free(cx, x2);
    osh_free(cx, w);
    osh_free(cx, x);
    osh_free(cx, p);
    return rc;
}
