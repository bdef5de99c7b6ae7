/* gptq_pull.c - computes values of codes, and rows of G = (w^ - w) H. The reference versions of the
 * steps in gptq_refine.h need these functions. */
#include "solver/gptq_refine.h"
#include "ops/kernel.h"

double osh_refine_value(const osh_gptq_refine_args *a, float q, float s, float z)
{
    return osh_round_to(osh_round_to(q - z, a->rule.dtype) * s, a->rule.dtype);
}

void osh_refine_pull(double *g, const osh_refine_row *r, int64_t row)
{
    const osh_gptq_refine_args *a = r->a;
    const double *q = r->q + row * a->I, *w = r->w + row * a->I;
    for (int64_t j = 0; j < a->I; j++) g[j] = 0;
    for (int64_t i = 0; i < a->I; i++) {
        double e = osh_refine_value(a, (float)q[i], r->s[i / a->group], r->z[i / a->group]) - w[i];
        for (int64_t j = 0; j < a->I; j++) g[j] += e * a->h[i * a->I + j];
    }
}
