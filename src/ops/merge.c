/* merge.c - merges two states of a statistic (stat.h), which were collected from different samples.
 * Before the call, out[0] is the state of the earlier samples, and out[1] the state of the later
 * samples. After the call, out[0] is the state of all these samples, and out[1] is empty.
 *
 *   merge_lower        out F32 [n, n]: adds the lower triangles; other elements are unchanged
 *   merge_sums         out F32, F64 or I64, any shape: adds the elements
 *   merge_channel_sum  out F32 [2, n]: adds the sums of two states of channel_sum, in double; the
 *                      sums of a state s are s[0] - s[1]
 *   merge_ranges       out F32 [2, n]: takes the smaller minimum and the larger maximum
 *
 * n is the number of columns of the statistic. One thread computes each element, so the result does
 * not depend on the number of threads. */
#include "ops/cuda/channels.h"
#include "ops/kernel.h"

#include <assert.h>
#include <math.h>

/* A chunk of parallel work has SPAN elements, or ROWS rows of a triangle. */
enum { SPAN = 1 << 15, ROWS = 16 };

static void check_states(const osh_op_args *a)
{
    assert(a->out[0]->dtype == a->out[1]->dtype);
    assert(osh_tensor_numel(a->out[0]) == osh_tensor_numel(a->out[1]));
}

/* Number of elements in the body of the loop. With a fixed number, the compiler vectorizes the
 * loop. */
enum { WIDE = 16 };

/* Adds `from` [n] to `to` [n]. Then sets `from` to 0. */
static void f32_merge(float *restrict to, float *restrict from, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDE <= n; i += WIDE) {
        for (int k = 0; k < WIDE; k++) to[i + k] += from[i + k];
        for (int k = 0; k < WIDE; k++) from[i + k] = 0;
    }
    for (; i < n; i++) to[i] += from[i], from[i] = 0;
}

/* ---- merge_lower ---- */

static void triangle_merge_rows(const osh_op_args *a, int64_t row, int64_t end)
{
    int64_t n = a->out[0]->shape[0];
    for (; row < end; row++)
        f32_merge((float *)a->out[0]->data + row * n, (float *)a->out[1]->data + row * n, row + 1);
}

static osh_status triangle_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    (void)cx, (void)worker;
    triangle_merge_rows(a, chunk * ROWS, osh_min64((chunk + 1) * ROWS, a->out[0]->shape[0]));
    return OSH_OK;
}

static osh_status triangle_ref(osh_ctx *cx, const osh_op_args *a)
{
    (void)cx;
    check_states(a);
    triangle_merge_rows(a, 0, a->out[0]->shape[0]);
    return OSH_OK;
}

static osh_status triangle_fast(osh_ctx *cx, const osh_op_args *a)
{
    check_states(a);
    return osh_by_part(cx, a, a->out[0]->shape[0], ROWS, triangle_chunk);
}

const osh_op osh_op_merge_lower = {
    .name = "merge_lower", .n_in = 0, .n_weights = 0, .n_out = 2,
    .run = {[OSH_REF] = triangle_ref, [OSH_CPU] = triangle_fast,
            [OSH_CUDA] = OSH_CUDA_FN(osh_merge_lower_cuda)},
};

/* ---- merge_sums, merge_channel_sum, merge_ranges: element by element ---- */

/* Merges elements i to end - 1 of two states. */
typedef void (*span_fn)(const osh_op_args *a, int64_t i, int64_t end);
typedef struct span_job {
    const osh_op_args *a;
    span_fn merge;
    int64_t n;
} span_job;

static osh_status span_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const span_job *j = user;
    (void)cx, (void)worker;
    j->merge(j->a, chunk * SPAN, osh_min64((chunk + 1) * SPAN, j->n));
    return OSH_OK;
}

static osh_status merge_spans(osh_ctx *cx, const osh_op_args *a, span_fn merge, int64_t n)
{
    span_job j = {a, merge, n};
    check_states(a);
    return osh_parallel_for(cx, osh_div_up(n, SPAN), span_chunk, &j);
}

static void sums_merge(const osh_op_args *a, int64_t i, int64_t end)
{
    void *to = a->out[0]->data, *from = a->out[1]->data;
    osh_dtype dt = a->out[0]->dtype;
    double *d = to, *d1 = from;
    int64_t *k = to, *k1 = from;
    assert(dt == OSH_F32 || dt == OSH_F64 || dt == OSH_I64);
    if (dt == OSH_F32) f32_merge((float *)to + i, (float *)from + i, end - i);
    else if (dt == OSH_F64)
        for (; i < end; i++) d[i] += d1[i], d1[i] = 0;
    else
        for (; i < end; i++) k[i] += k1[i], k1[i] = 0;
}

static void channel_sum_merge(const osh_op_args *a, int64_t i, int64_t end)
{
    int64_t n = a->out[0]->shape[1];
    float *sum = a->out[0]->data, *much = sum + n, *sum1 = a->out[1]->data, *much1 = sum1 + n;
    for (; i < end; i++) {
        double all = ((double)sum[i] - much[i]) + ((double)sum1[i] - much1[i]);
        sum[i] = (float)all, much[i] = (float)(sum[i] - all);
        sum1[i] = much1[i] = 0;
    }
}

static void ranges_merge(const osh_op_args *a, int64_t i, int64_t end)
{
    int64_t n = a->out[0]->shape[1];
    float *lo = a->out[0]->data, *hi = lo + n, *lo1 = a->out[1]->data, *hi1 = lo1 + n;
    for (; i < end; i++) {
        if (lo1[i] < lo[i]) lo[i] = lo1[i];
        if (hi1[i] > hi[i]) hi[i] = hi1[i];
        lo1[i] = INFINITY, hi1[i] = -INFINITY;
    }
}

static osh_status sums_ref(osh_ctx *cx, const osh_op_args *a)
{
    (void)cx;
    check_states(a);
    sums_merge(a, 0, osh_tensor_numel(a->out[0]));
    return OSH_OK;
}

static osh_status sums_fast(osh_ctx *cx, const osh_op_args *a)
{
    return merge_spans(cx, a, sums_merge, osh_tensor_numel(a->out[0]));
}

static osh_status channel_sum_ref(osh_ctx *cx, const osh_op_args *a)
{
    (void)cx;
    check_states(a);
    channel_sum_merge(a, 0, a->out[0]->shape[1]);
    return OSH_OK;
}

static osh_status ranges_ref(osh_ctx *cx, const osh_op_args *a)
{
    (void)cx;
    check_states(a);
    ranges_merge(a, 0, a->out[0]->shape[1]);
    return OSH_OK;
}

const osh_op osh_op_merge_sums = {
    .name = "merge_sums", .n_in = 0, .n_weights = 0, .n_out = 2,
    .run = {[OSH_REF] = sums_ref, [OSH_CPU] = sums_fast,
            [OSH_CUDA] = OSH_CUDA_FN(osh_merge_sums_cuda)},
};
const osh_op osh_op_merge_channel_sum = {
    .name = "merge_channel_sum", .n_in = 0, .n_weights = 0, .n_out = 2,
    .run = {[OSH_REF] = channel_sum_ref, [OSH_CUDA] = OSH_CUDA_FN(osh_merge_channel_sum_cuda)},
};
const osh_op osh_op_merge_ranges = {
    .name = "merge_ranges", .n_in = 0, .n_weights = 0, .n_out = 2,
    .run = {[OSH_REF] = ranges_ref},
};
