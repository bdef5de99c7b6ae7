/* attention.c - computes causal softmax(q k^T scale) v for each head, with an optional sliding
 * window. Several query heads share one kv head (grouped-query attention).
 *
 *   in[0] q [N, H*Dh]     in[1] k [N, K*Dh]     in[2] v [N, K*Dh]     out [N, H*Dh]
 *   head h reads kv head h / (H/K)
 *
 * Query i sees key j of its own sample if j <= i. With a sliding window, i - j must also be below
 * sliding_window. With chunks, i and j must also be in one chunk: j / chunk = i / chunk.
 *
 * Rounding is as in FlashAttention, which transformers' sdpa uses. Scores, mask and softmax are
 * f32. The probabilities are rounded to the dtype of q for the sum over v, and this sum is rounded.
 * With a softcap c (Gemma2's eager_attention_forward), a scaled score s becomes c tanh(s / c), in
 * f32.
 *
 * The op attention_sinks (transformers' GptOssAttention) also has in[3] sinks [H]. The softmax of
 * head h then includes one more score, sinks[h], which is neither scaled nor capped. The
 * probability of the sink is not used for the sum over v. Shapes: N tokens of the batch, H heads, K
 * kv heads, Dh head_dim. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const osh_field attrs[] = {
    {"n_heads", OSH_F_INT, offsetof(osh_attention_attr, n_heads), NULL, 1, 1e6, "H, query heads",
     NULL, NULL},
    {"n_kv_heads", OSH_F_INT, offsetof(osh_attention_attr, n_kv_heads), NULL, 1, 1e6,
     "K, key and value heads", NULL, NULL},
    {"head_dim", OSH_F_INT, offsetof(osh_attention_attr, head_dim), NULL, 1, 1e6, "Dh", NULL, NULL},
    {"sliding_window", OSH_F_INT, offsetof(osh_attention_attr, sliding_window), "0", 0, 1e12,
     "keys a query sees, itself included; 0: all before it", NULL, NULL},
    {"scale", OSH_F_FLOAT, offsetof(osh_attention_attr, scale), "0", 0, 1e6,
     "factor of q k^T; 0: 1 / sqrt(head_dim)", NULL, NULL},
    {"softcap", OSH_F_FLOAT, offsetof(osh_attention_attr, softcap), "0", 0, 1e6,
     "c: a score s becomes c tanh(s / c); 0: none", NULL, NULL},
    {"chunk", OSH_F_INT, offsetof(osh_attention_attr, chunk), "0", 0, 1e12,
     "keys of a chunk; a query sees those of its own; 0: all", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_attention_attr *at = attr;
    int64_t q = at->n_heads * at->head_dim, kv = at->n_kv_heads * at->head_dim;

    (void)w_shape, (void)w_ndim;
    if (at->n_kv_heads <= 0 || at->n_heads % at->n_kv_heads)
        return osh_fail(cx, OSH_E_FORMAT, "attention: %lld heads, want a multiple of %lld kv heads",
                        (long long)at->n_heads, (long long)at->n_kv_heads);
    if (in_width[0] != q || in_width[1] != kv || in_width[2] != kv)
        return osh_fail(cx, OSH_E_FORMAT,
                        "attention: q, k, v have widths %lld, %lld, %lld, want %lld, %lld, %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)in_width[2],
                        (long long)q, (long long)kv, (long long)kv);
    out_width[0] = q;
    return OSH_OK;
}

/* One query (row i of a sample) of one head. All pointers except p and dp are views. */
typedef struct query {
    /* q: the query, [Dh]. dy: gradient of the query's output, [Dh].
     * k, v: keys and values that the head uses, from the sample's first token on. */
    const float *q, *k, *v, *dy;
    /* Gradients of q, k and v, with the strides of q, k and v; NULL: not computed. */
    float *dq, *dk, *dv;
    /* i: position of the query in the sample.
     * kv: number of elements from one row of k or v to the next. */
    int64_t i, kv;
    double *p, *dp; // scratch: p has probabilities, dp their gradients; each [tokens of the sample]
    double sink;                 // score of the head's sink; -INFINITY: no sink
} query;

/* Computes y [Dh], the attention output of one query of one head. */
static void attend_ref(const query *r, float *y, const osh_attention_attr *at, osh_dtype dt)
{
    const float *q = r->q, *k = r->k, *v = r->v;
    double *p = r->p;
    int64_t i = r->i, kv = r->kv;
    int64_t Dh = at->head_dim, first = 0;
    float scale = (float)(at->scale > 0 ? at->scale : 1 / sqrt((double)Dh));
    float cap = (float)at->softcap;
    double max = r->sink, sum;

    first = osh_first_key(at, i);
    for (int64_t j = first; j <= i; j++) {
        double dot = 0;
        for (int64_t d = 0; d < Dh; d++) dot += (double)q[d] * k[j * kv + d];
        p[j] = cap > 0 ? cap * tanh(dot * scale / cap) : dot * scale;
        max = fmax(max, p[j]);
    }
    sum = exp(r->sink - max);
    for (int64_t j = first; j <= i; j++) sum += p[j] = exp(p[j] - max);
    for (int64_t j = first; j <= i; j++) p[j] = osh_round_to((float)(p[j] / sum), dt);
    for (int64_t d = 0; d < Dh; d++) {
        double dot = 0;
        for (int64_t j = first; j <= i; j++) dot += p[j] * v[j * kv + d];
        y[d] = (float)dot;
    }
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    int64_t N = osh_rows(a->in[0]), H = at->n_heads, Dh = at->head_dim, kv = at->n_kv_heads * Dh,
            n_seqs = 0;
    // own, in f32: q and the output y [N, H*Dh]; k and v [N, K*Dh]
    float *q = NULL, *k = NULL, *v = NULL, *y = NULL;
    // own, in f32: scores of the sinks, [H]; NULL: the op has no sinks
    float *sinks = NULL;
    double *p = NULL;     // own: scratch [N]
    osh_tile *seq = NULL; // own: for each sample, the range of its rows

    OSH_TRY(osh_f32_copy(cx, &q, a->in[0]));
    OSH_TRY(osh_f32_copy(cx, &k, a->in[1]));
    OSH_TRY(osh_f32_copy(cx, &v, a->in[2]));
    if (a->in[3]) OSH_TRY(osh_f32_weight(cx, &sinks, a->in[3], a->in[0]->dtype));
    OSH_NEW(cx, y, N * H * Dh);
    OSH_NEW(cx, p, N);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t i = 0; i < seq[s].n; i++)
            for (int64_t h = 0; h < H; h++) {
                int64_t at_q = ((seq[s].row + i) * H + h) * Dh;
                int64_t at_kv = seq[s].row * kv + h / (H / at->n_kv_heads) * Dh;
                query r = {.q = q + at_q, .k = k + at_kv, .v = v + at_kv, .i = i, .kv = kv, .p = p,
                           .sink = sinks ? sinks[h] : -INFINITY};
                attend_ref(&r, y + at_q, at, dt);
            }
    osh_from_f32(a->out[0]->data, dt, y, N * H * Dh);
done:
    osh_free(cx, seq);
    osh_free(cx, sinks);
    osh_free(cx, p);
    osh_free(cx, y);
    osh_free(cx, v);
    osh_free(cx, k);
    osh_free(cx, q);
    return rc;
}

/* Adds the gradients of q, k and v for one query of one head. Returns the gradient of the sink's
 * score. With the capped scores s, and p = softmax(s):
 *
 *   dv_j = p_j dy
 *   dp_j = dy v_j
 *   ds_j = p_j (dp_j - sum p dp)
 *
 * The derivative of s with respect to the product q k is `scale`. If s is capped, it is `scale`
 * times 1 - tanh^2. The value vector of a sink is 0, so dp of a sink is 0. */
static double attend_back_ref(const query *r, const osh_attention_attr *at)
{
    int64_t Dh = at->head_dim, first = 0;
    double scale = at->scale > 0 ? at->scale : 1 / sqrt((double)Dh), max = r->sink, sum, mean = 0;

    first = osh_first_key(at, r->i);
    for (int64_t j = first; j <= r->i; j++) {
        double dot = 0, dp = 0;
        for (int64_t d = 0; d < Dh; d++) {
            dot += (double)r->q[d] * r->k[j * r->kv + d];
            dp += (double)r->dy[d] * r->v[j * r->kv + d];
        }
        r->p[j] = at->softcap > 0 ? at->softcap * tanh(dot * scale / at->softcap) : dot * scale;
        r->dp[j] = dp, max = fmax(max, r->p[j]);
    }
    sum = exp(r->sink - max);
    for (int64_t j = first; j <= r->i; j++) sum += exp(r->p[j] - max);
    for (int64_t j = first; j <= r->i; j++) mean += exp(r->p[j] - max) / sum * r->dp[j];
    for (int64_t j = first; j <= r->i; j++) {
        double t = at->softcap > 0 ? r->p[j] / at->softcap : 0, p = exp(r->p[j] - max) / sum;
        double ds = p * (r->dp[j] - mean) * scale * (1 - t * t);
        for (int64_t d = 0; d < Dh; d++) {
            if (r->dq) r->dq[d] += (float)(ds * r->k[j * r->kv + d]);
            if (r->dk) r->dk[j * r->kv + d] += (float)(ds * r->q[d]);
            if (r->dv) r->dv[j * r->kv + d] += (float)(p * r->dy[d]);
        }
    }
    return -exp(r->sink - max) / sum * mean;
}

static osh_status attention_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = a->attr;
    int64_t N = osh_rows(a->in[0]), H = at->n_heads, Dh = at->head_dim, kv = at->n_kv_heads * Dh,
            n_seqs = 0;
    float *q = NULL, *k = NULL, *v = NULL; // own, in f32: q [N, H*Dh]; k and v [N, K*Dh]
    float *sinks = NULL; // own, in f32: scores of the sinks, [H]; NULL: the op has no sinks
    double *p = NULL;                      // own [2, N]: scratch for p (row 0) and dp (row 1)
    osh_tile *seq = NULL;                  // own: for each sample, the range of its rows
    float *d[3];

    for (int m = 0; m < 3; m++) d[m] = a->din[m] ? a->din[m]->data : NULL;
    OSH_TRY(osh_f32_copy(cx, &q, a->in[0]));
    OSH_TRY(osh_f32_copy(cx, &k, a->in[1]));
    OSH_TRY(osh_f32_copy(cx, &v, a->in[2]));
    if (a->in[3]) OSH_TRY(osh_f32_weight(cx, &sinks, a->in[3], a->in[0]->dtype));
    OSH_NEW(cx, p, 2 * N);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t h = 0; h < H; h++) {
            double to_sink = 0;
            for (int64_t i = 0; i < seq[s].n; i++) {
                int64_t at_q = ((seq[s].row + i) * H + h) * Dh;
                int64_t at_kv = seq[s].row * kv + h / (H / at->n_kv_heads) * Dh;
                query r = {q + at_q, k + at_kv, v + at_kv, (float *)a->dout[0]->data + at_q,
                           d[0] ? d[0] + at_q : NULL, d[1] ? d[1] + at_kv : NULL,
                           d[2] ? d[2] + at_kv : NULL, i, kv, p, p + N,
                           sinks ? sinks[h] : -INFINITY};
                to_sink += attend_back_ref(&r, at);
            }
            osh_grad_add(a->din[3], h, to_sink);
        }
done:
    osh_free(cx, seq);
    osh_free(cx, sinks);
    osh_free(cx, p);
    osh_free(cx, v);
    osh_free(cx, k);
    osh_free(cx, q);
    return rc;
}

/* Returns the size of a sample's state (osh_op_past) in bytes. The state is the KV cache: keys
 * [n_tokens, K*Dh], then values [n_tokens, K*Dh], in dtype `dt`. */
static size_t attention_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                              osh_dtype dt)
{
    (void)attr;
    return (size_t)(2 * n_tokens * in_width[1]) * osh_dtype_bytes(dt);
}

/* Computes attention for the next tokens of a sample that is computed in several calls. Appends
 * the keys and values of these tokens to the state (the KV cache). Then attends to all keys of the
 * state. */
static osh_status attention_next(osh_ctx *cx, const osh_op_args *a)
{
    const osh_op_past *past = a->past;
    osh_op_args all = *a;
    osh_tensor kv[2]; // views: all keys and all values in the state

    for (int k = 0; k < 2; k++) {
        const osh_tensor *x = a->in[1 + k];
        int64_t n = osh_rows(x), shape[2] = {past->n + n, osh_width(x)};
        size_t row = (size_t)shape[1] * osh_dtype_bytes(x->dtype);
        char *state = (char *)past->state + (size_t)k * (size_t)past->room * row;
        assert(shape[0] <= past->room);
        memcpy(state + (size_t)past->n * row, x->data, (size_t)n * row);
        kv[k] = osh_tensor_view(x->dtype, 2, shape, state);
        all.in[1 + k] = &kv[k];
    }
    return osh_attention_cpu(cx, &all);
}

static bool attention_passes_factors(const void *attr, int k)
{
    const osh_attention_attr *a = attr;
    return k == 2 && a->n_heads == a->n_kv_heads;
}

static bool attention_limits(const void *attr, int k)
{
    return k == 0 && ((const osh_attention_attr *)attr)->softcap > 0;
}

/* Returns the number of unmasked pairs (query, key) over all samples.
 * window: number of tokens of a sliding window; 0: no window.
 * chunk: number of tokens of a chunk; 0: no chunks. */
static double attended_pairs(const osh_seqs *d, int64_t window, int64_t chunk)
{
    double sum = 0;
    for (int64_t s = 0; s < d->n; s++) {
        int64_t n = d->offsets[s + 1] - d->offsets[s], rest = chunk ? n % chunk : 0;
        double t = (double)n, w = (double)window, c = (double)chunk, r = (double)rest;
        if (chunk && !window) {
            sum += (t - r) * (c + 1) / 2 + r * (r + 1) / 2;
            continue;
        }
        sum += !window || t <= w ? t * (t + 1) / 2 : w * (w + 1) / 2 + (t - w) * w;
    }
    return sum;
}

static double attention_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                              const osh_op_load *load)
{
    const osh_attention_attr *a = attr;
    (void)in_width, (void)out_width;
    return 4 * (double)a->n_heads * (double)a->head_dim *
           attended_pairs(load->samples, a->sliding_window, a->chunk);
}

const osh_op osh_op_attention = {
    .name = "attention", .n_in = 3, .n_weights = 0, .n_out = 1, .spreads = 5,
    .attrs = attrs, .attr_bytes = sizeof(osh_attention_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_attention_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_attention_cuda)},
    .tol = 1e-11, .scratch = osh_attention_scratch,
    .next = attention_next, .state = attention_state,
    .arena_bytes = osh_attention_cuda_scratch,
    .grad.writes = true,
    .grad.run = {[OSH_REF] = attention_grad_ref, [OSH_CPU] = osh_attention_grad_cpu,
             [OSH_CUDA] = OSH_CUDA_GRAD(osh_attention_grad_cuda)},
    .grad.scratch = osh_attention_grad_scratch,
    .grad.arena_bytes = osh_attention_grad_cuda_scratch,
    .traits = OSH_OP_ATTENDS,
    .flops = attention_flops, .passes_factors = attention_passes_factors,
    .limits = attention_limits,
};

static osh_status attention_sinks_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                        int *w_ndim, const int64_t *in_width, const void *attr)
{
    w_ndim[0] = 1, w_shape[0][0] = ((const osh_attention_attr *)attr)->n_heads;
    return infer(cx, out_width, w_shape, w_ndim, in_width, attr);
}

const osh_op osh_op_attention_sinks = {
    .name = "attention_sinks", .n_in = 3, .n_weights = 1, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_attention_attr), .infer = attention_sinks_infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_attention_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_attention_cuda)},
    .tol = 1e-11, .scratch = osh_attention_scratch,
    .next = attention_next, .state = attention_state,
    .arena_bytes = osh_attention_sinks_cuda_scratch,
    .grad.writes = true,
    .grad.run = {[OSH_REF] = attention_grad_ref, [OSH_CPU] = osh_attention_grad_cpu,
             [OSH_CUDA] = OSH_CUDA_GRAD(osh_attention_grad_cuda)},
    .grad.scratch = osh_attention_grad_scratch,
    .grad.arena_bytes = osh_attention_grad_cuda_scratch,
    .traits = OSH_OP_ATTENDS,
    .flops = attention_flops, .passes_factors = attention_passes_factors,
    .limits = attention_limits,
};
