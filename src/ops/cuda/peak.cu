/* peak.cu - measures the speed of the GPU for four kinds of work: products of square matrices,
 * attention, copies inside GPU memory, and copies from page-locked host memory. Each measurement
 * repeats its call until the given seconds are over. The clock rate falls while a GPU gets warm, so
 * a measurement should take several seconds. A shorter measurement gives a speed that is too
 * high. */
#include "ops/cuda/op.cuh"
#include "ops/cuda/sizes.h"

#include "base/rng.h"

/* FILL: number of random elements that the host generates; AT_ONCE: number of calls between two
 * readings of the clock. */
enum { FILL = 1 << 20, AT_ONCE = 4 };

/* Fills t with random values, because the clock rate of a GPU depends on how many bits change. */
static osh_status peak_fill_random(osh_ctx *cx, osh_tensor *t, uint64_t seed)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_tensor_numel(t), have = n < FILL ? n : FILL;
    size_t each = osh_dtype_bytes(t->dtype);
    char *block = NULL; // random values for the first elements of t, at most FILL; own

    block = static_cast<char *>(osh_alloc(cx, (size_t)have * each));
    if (!block) OSH_TRY(OSH_E_NOMEM);
    for (int64_t i = 0; i < have; i++) {
        float f = (float)osh_rng_sym(seed, 0, (uint64_t)i);
        osh_from_f32(block + (size_t)i * each, t->dtype, &f, 1);
    }
    OSH_TRY(osh_tensor_put(cx, t, 0, block, (size_t)have * each));
    for (int64_t more; have < n; have += more) { // each copy doubles the filled part of t
        more = have < n - have ? have : n - have;
        OSH_TRY(t->device->type->copy(cx, t->device, (char *)t->data + (size_t)have * each, t->data,
                                      (size_t)more * each));
    }
done:
    osh_free(cx, block);
    return rc;
}

/* Operation whose speed is measured: attention, a matrix product, or a copy. */
typedef struct gpu_work {
    osh_device *d;
    /* own: the matrices of a product. For copies, `a` is the source and `c` is the destination. */
    osh_tensor *a, *b, *c;
    void *host;            // own: page-locked memory that is copied to c; NULL: a is copied to c
    int64_t side; // number of rows and of columns of the matrices of a product; 0: no product
    /* view: arguments of attention; NULL: another operation is measured. */
    const osh_op_args *attention;
} gpu_work;

static osh_status peak_call(osh_ctx *cx, const gpu_work *w)
{
    if (w->attention) return osh_attention_cuda(cx, w->attention);
    if (w->side) {
        osh_cuda_mat a = {w->a->data, w->side, 0, w->a->dtype, false},
                     b = {w->b->data, w->side, 0, w->b->dtype, true};
        osh_cuda_mat c = {w->c->data, w->side, 0, w->c->dtype, false};
        return osh_cuda_gemm(cx, w->d, {&c, &a, &b, w->side, w->side, w->side, 1, 1, 0});
    }
    if (w->host)
        return w->d->type->put_ahead(cx, w->d, w->c->data, w->host, osh_tensor_bytes(w->c));
    return w->d->type->copy(cx, w->d, w->c->data, w->a->data, osh_tensor_bytes(w->c));
}

/* Measures calls per second for at least `seconds`. The first AT_ONCE calls are not measured. */
static osh_status peak_rate(osh_ctx *cx, double *calls_per_s, const gpu_work *w, double seconds)
{
    osh_status rc = OSH_OK;
    double begin = 0, now = 0;
    // number of measured calls; negative during the first AT_ONCE calls (warm-up)
    int64_t n = -AT_ONCE;

    do {
        for (int i = 0; i < AT_ONCE; i++) OSH_TRY(peak_call(cx, w));
        OSH_TRY(w->d->type->fence(cx, w->d));
        OSH_TRY(w->d->type->sync(cx, w->d));
        now = osh_now(), n += AT_ONCE;
        if (!n) begin = now;
    } while (!n || now - begin < seconds);
    *calls_per_s = (double)n / (now - begin);
done:
    return rc;
}

static osh_status peak_product(osh_ctx *cx, double *flops_per_s, osh_device *d, osh_dtype dtype,
                               int64_t side, double seconds)
{
    osh_status rc = OSH_OK;
    int64_t shape[2] = {side, side};
    gpu_work w = {d, NULL, NULL, NULL, NULL, side, NULL}; // own
    double calls = 0;

    OSH_TRY(osh_tensor_new_on(cx, &w.a, osh_where{d, OSH_LIFE_SHORT}, dtype, 2, shape));
    OSH_TRY(osh_tensor_new_on(cx, &w.b, osh_where{d, OSH_LIFE_SHORT}, dtype, 2, shape));
    OSH_TRY(osh_tensor_new_on(cx, &w.c, osh_where{d, OSH_LIFE_SHORT}, dtype, 2, shape));
    OSH_TRY(peak_fill_random(cx, w.a, 1));
    OSH_TRY(peak_fill_random(cx, w.b, 2));
    OSH_TRY(peak_rate(cx, &calls, &w, seconds));
    *flops_per_s = 2.0 * (double)side * (double)side * (double)side * calls;
done:
    osh_tensor_free(cx, w.a);
    osh_tensor_free(cx, w.b);
    osh_tensor_free(cx, w.c);
    return rc;
}

static osh_status peak_attention(osh_ctx *cx, double *flops_per_s, osh_device *d,
                                 int64_t n_samples, int64_t n_tokens, double seconds)
{
    osh_status rc = OSH_OK;
    int64_t width[4], *offsets = NULL; // offsets: first row of each sample, [n_samples + 1]; own
    osh_tensor *t[4] = {NULL};         // q, k, v and the output; own
    osh_seqs seqs = {n_samples, NULL};
    osh_op_args a = {};
    gpu_work w = {d, NULL, NULL, NULL, NULL, 0, &a};
    double calls = 0;

    osh_peak_widths(width);
    offsets = static_cast<int64_t *>(osh_alloc(cx, (size_t)(n_samples + 1) * sizeof *offsets));
    if (!offsets) OSH_TRY(OSH_E_NOMEM);
    for (int64_t i = 0; i <= n_samples; i++) offsets[i] = i * n_tokens;
    for (int i = 0; i < 4; i++) {
        int64_t shape[2] = {n_samples * n_tokens, width[i]};
        OSH_TRY(osh_tensor_new_on(cx, &t[i], osh_where{d, OSH_LIFE_SHORT}, OSH_BF16, 2, shape));
        if (i < 3) OSH_TRY(peak_fill_random(cx, t[i], (uint64_t)i));
    }
    seqs.offsets = offsets;
    a.in[0] = t[0], a.in[1] = t[1], a.in[2] = t[2], a.out[0] = t[3], a.attr = &osh_peak_heads,
    a.seqs = &seqs;
    OSH_TRY(peak_rate(cx, &calls, &w, seconds));
    *flops_per_s =
        2.0 * (double)(width[0] * n_samples) * (double)n_tokens * (double)(n_tokens + 1) * calls;
done:
    for (int i = 0; i < 4; i++) osh_tensor_free(cx, t[i]);
    osh_free(cx, offsets);
    return rc;
}

static osh_status peak_copies(osh_ctx *cx, double *inside_per_s, double *put_per_s, osh_device *d,
                              int64_t n_bytes, double seconds)
{
    osh_status rc = OSH_OK;
    gpu_work w = {d, NULL, NULL, NULL, NULL, 0, NULL}; // own
    double calls = 0;

    OSH_TRY(osh_tensor_new_on(cx, &w.a, osh_where{d, OSH_LIFE_SHORT}, OSH_U8, 1, &n_bytes));
    OSH_TRY(osh_tensor_new_on(cx, &w.c, osh_where{d, OSH_LIFE_SHORT}, OSH_U8, 1, &n_bytes));
    OSH_TRY(osh_tensor_zero(cx, w.a));
    OSH_TRY(peak_rate(cx, &calls, &w, seconds));
    *inside_per_s = calls * (double)n_bytes;
    OSH_TRY(d->type->pinned->alloc(cx, d, &w.host, (size_t)n_bytes));
    OSH_TRY(peak_rate(cx, &calls, &w, seconds));
    *put_per_s = calls * (double)n_bytes;
done:
    d->type->pinned->free(cx, d, w.host);
    osh_tensor_free(cx, w.a);
    osh_tensor_free(cx, w.c);
    return rc;
}

extern const osh_device_speed osh_cuda_speed = {peak_product, peak_attention, peak_copies};
