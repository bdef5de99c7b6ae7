/* gaussian_topk.c - computes y = max(x - mean(x) - z std(x), 0), row by row.
 *
 *   in[0] x [N, F]     out y [N, F]     y may overwrite x
 *
 * z is the quantile of the normal distribution at `sparsity`. So in a row with normally distributed
 * elements, the fraction `sparsity` of the elements becomes 0. A sparsity of 0 means y = x. The
 * standard deviation has the divisor F. As in transformers' Gemma3nTextMLP, these numbers are
 * rounded to the dtype of x:
 *
 *   mean(x)
 *   std(x)
 *   z
 *   z std(x)
 *   mean(x) + z std(x)        the cutoff
 *   x - cutoff
 *
 * This file sums in double. Shapes: N tokens of the batch, F intermediate_size. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"
#include "ops/altup.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1024 }; // number of elements that are computed together

static const osh_field attrs[] = {
    {"sparsity", OSH_F_FLOAT, offsetof(osh_gaussian_topk_attr, sparsity), "0", 0, 0.999999,
     "share of elements that become 0", NULL, NULL},
    {0},
};

/* Returns z with P(X <= z) = p for a normal X, by bisection. */
static double normal_quantile(double p)
{
    double low = -8, high = 8;
    for (int i = 0; i < 80; i++) {
        double z = (low + high) / 2;
        if (osh_math_erfc(-z * sqrt(0.5)) / 2 < p) low = z;
        else high = z;
    }
    return (low + high) / 2;
}

/* Returns the sum of a row. If `squares` is true, returns the sum of (x - mean)^2 instead. */
static double row_sum(const osh_tensor *t, int64_t row, double mean, bool squares)
{
    int64_t F = osh_width(t);
    double sum = 0;
    float x[PIECE];
    for (int64_t c = 0; c < F; c += PIECE) {
        int64_t n = osh_min64(PIECE, F - c);
        osh_to_f32(x, osh_elem(t, row * F + c), t->dtype, n);
        for (int64_t i = 0; i < n; i++) sum += squares ? (x[i] - mean) * (x[i] - mean) : x[i];
    }
    return sum;
}

typedef struct topk_job {
    const osh_op_args *a;
    float z;
} topk_job;

static osh_status topk_chunk(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const topk_job *j = user;
    const osh_tensor *t = j->a->in[0];
    osh_dtype dt = t->dtype;
    int64_t F = osh_width(t);
    double mean = row_sum(t, row, 0, false) / (double)F;
    float x[PIECE],
        spread = osh_round_to((float)sqrt(row_sum(t, row, mean, true) / (double)F), dt);
    float cutoff = osh_round_to((float)mean, dt) + osh_round_to(spread * j->z, dt);
    (void)cx, (void)worker;
    cutoff = osh_round_to(cutoff, dt);
    for (int64_t c = 0; c < F; c += PIECE) {
        int64_t n = osh_min64(PIECE, F - c);
        osh_to_f32(x, osh_elem(t, row * F + c), dt, n);
        for (int64_t i = 0; i < n; i++) x[i] = x[i] > cutoff ? x[i] - cutoff : 0;
        osh_from_f32(osh_elem(j->a->out[0], row * F + c), dt, x, n);
    }
    return OSH_OK;
}

static osh_status topk_copy(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const osh_op_args *a = ((const topk_job *)user)->a;
    int64_t F = osh_width(a->in[0]);
    (void)cx, (void)worker;
    memmove(osh_elem(a->out[0], row * F), osh_elem(a->in[0], row * F),
            (size_t)F * osh_dtype_bytes(a->in[0]->dtype));
    return OSH_OK;
}

static osh_status topk_ref(osh_ctx *cx, const osh_op_args *a)
{
    double sparsity = ((const osh_gaussian_topk_attr *)a->attr)->sparsity;
    topk_job j = {.a = a};
    if (sparsity > 0)
        j.z = osh_round_to((float)normal_quantile((float)sparsity), a->in[0]->dtype);
    return osh_parallel_for(cx, osh_rows(a->in[0]), sparsity > 0 ? topk_chunk : topk_copy, &j);
}

static bool topk_limits(const void *attr, int k)
{
    (void)attr, (void)k;
    return true;
}

const osh_op osh_op_gaussian_topk = {
    .name = "gaussian_topk", .n_in = 1, .n_out = 1, .infer = osh_infer_same, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_gaussian_topk_attr),
    .run = {[OSH_REF] = topk_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
    .limits = topk_limits,
};
