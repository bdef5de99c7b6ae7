/* attention_grad.cu - computes the gradient of attention in f32. Loops run over the samples, over
 * chunks of queries of a sample, and over the heads of a group (the heads that share a kv head).
 * Each matrix product is a batch over all kv heads. The scores and the probabilities p of the
 * forward pass are computed again:
 *
 *   dp = dy v^T
 *   ds = p (dp - rowsum(p dp)) slope
 *   dq += ds k
 *   dk += ds^T q
 *   dv += p^T dy
 *
 * slope is the derivative of a score with respect to the product q k. A row in which a sink has
 * probability p_s adds -p_s rowsum(p dp) to the gradient of the sink. The gradients of q, k and v
 * in a sample depend only on that sample. The gradient of a sink is a sum over all rows of the
 * batch. */
#include "ops/cuda/attention.cuh"
#include "ops/cuda/sums.cuh"

typedef struct attention_back {
    osh_device *d;
    const osh_grad_args *a;
    const osh_attention_attr *at;
    float *wide[3];            // q, k and v in f32; views of the inputs if these are F32, else own
    /* Both are own and have the shape [kv heads, queries of a chunk, ld].
     * p: probabilities.
     * ds: gradients of the products q k. */
    float *p, *ds;
    float *to_sink;            // gradient of each head's sink in each row, [rows, heads]; own
    int64_t group, q_width, kv_width;
} attention_back;

/* One pass computes the queries [pos, pos + n) with the keys [key, key + n_keys). These are
 * positions in the sample whose first row is `row`. `head` is the number of the query head in each
 * group. `ld`: number of elements from row to row, in p and in ds. */
typedef struct back_pass {
    int64_t row, pos, n, key, n_keys, ld, head, group, heads, n_kv;
} back_pass;

typedef struct back_rows {
    float *p, *ds;  // p and ds of attention_back, [kv heads, n, ld]; views
    /* Gradient of each head's sink in each row, [rows, heads]; NULL: not computed. */
    float *to_sink; // view
} back_rows;

/* Computes, row by row, the probabilities and the gradients of the products q k^T. On entry, p has
 * the products q k^T, and ds has dp. On return, p has the probabilities, and ds has the gradients.
 * p and ds of masked keys become 0. A team of TEAM threads computes a row. */
template <class T, int TEAM>
static __global__ void attention_back_kernel(back_rows b, back_pass s, osh_attention_attr at,
                                             float scale, sink_weights sinks)
{
    const int TEAMS = 256 / TEAM;
    __shared__ float shared[8];
    int64_t lane = threadIdx.x % TEAM, rows = s.n_kv * s.n;
    float cap = (float)at.softcap;

    for (int64_t r = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM; r < rows;
         r += (int64_t)gridDim.x * TEAMS) {
        int64_t query = s.pos + r % s.n, head = r / s.n * s.group + s.head;
        int64_t hi = query + 1 - s.key, lo = first_key(at, query) - s.key;
        float *pr = b.p + r * s.ld, *dr = b.ds + r * s.ld, max = -INFINITY, sum = 0, dot = 0;
        for (int64_t j = lo + lane; j < hi; j += TEAM) {
            pr[j] *= scale;
            if (cap > 0) pr[j] = cap * tanhf(pr[j] / cap);
            max = fmaxf(max, pr[j]);
        }
        max = osh_cu_team_max<TEAM>(max, shared);
        float sink = sinks.w ? sink_of<T>(sinks, head) : -INFINITY;
        max = fmaxf(max, sink);
        for (int64_t j = lo + lane; j < hi; j += TEAM) {
            float e = expf(pr[j] - max);
            sum += e, dot += e * dr[j];
        }
        float beside = sinks.w ? expf(sink - max) : 0;
        sum = osh_cu_team_sum<TEAM>(sum, shared) + beside;
        float mean = osh_cu_team_sum<TEAM>(dot, shared) / sum;
        if (b.to_sink && !lane) b.to_sink[(s.row + query) * s.heads + head] = -beside / sum * mean;
        for (int64_t j = lane; j < s.n_keys; j += TEAM) {
            bool seen = j >= lo && j < hi;
            float t = seen && cap > 0 ? pr[j] / cap : 0, share = seen ? expf(pr[j] - max) / sum : 0;
            dr[j] = seen ? share * (dr[j] - mean) * scale * (1 - t * t) : 0;
            pr[j] = share;
        }
    }
}

struct sink_back {
    const float *to;
    int64_t heads;
    __device__ float operator()(int64_t row, int64_t h) const { return to[row * heads + h]; }
};

template <class T> static void back_launch(const attention_back *j, const back_pass *s)
{
    const osh_tensor *w = j->a->in[3];
    sink_weights sinks = {w ? w->data : NULL, w ? w->dtype : OSH_F32};
    float scale = (float)(j->at->scale > 0 ? j->at->scale : 1 / sqrt((double)j->at->head_dim));
    back_rows b = {j->p, j->ds, j->to_sink};

    if (s->n_keys <= 1024)
        OSH_LAUNCH((attention_back_kernel<T, 32>), osh_cu_grid(j->d, s->n_kv * s->n, 8), 256, 0,
                   osh_cuda_stream(j->d), b, *s, *j->at, scale, sinks);
    else
        OSH_LAUNCH((attention_back_kernel<T, 256>), osh_cu_grid(j->d, s->n_kv * s->n, 1), 256, 0,
                   osh_cuda_stream(j->d), b, *s, *j->at, scale, sinks);
}

static osh_status back_run_pass(osh_ctx *cx, const attention_back *j, const back_pass *s)
{
    osh_status rc = OSH_OK;
    int64_t Dh = j->at->head_dim, K = s->n_kv, q_at = (s->row + s->pos) * j->q_width + s->head * Dh;
    int64_t kv_at = (s->row + s->key) * j->kv_width, by_q = j->group * Dh;
    osh_cuda_mat q = {j->wide[0] + q_at, j->q_width, by_q, OSH_F32, false}, dy = q, dq = q;
    osh_cuda_mat k = {j->wide[1] + kv_at, j->kv_width, Dh, OSH_F32, false},
                 v = k, dk = k, dv = k, kt, vt;
    osh_cuda_mat p = {j->p, s->ld, s->n * s->ld, OSH_F32, false}, ds = p, pt, dst;

    v.data = j->wide[2] + kv_at, ds.data = j->ds;
    dy.data = static_cast<float *>(j->a->dout[0]->data) + q_at;
    kt = k, vt = v, pt = p, dst = ds;
    kt.transposed = vt.transposed = pt.transposed = dst.transposed = true;
    OSH_TRY(osh_cuda_gemm(cx, j->d, {&p, &q, &kt, s->n, s->n_keys, Dh, K, 1, 0}));
    OSH_TRY(osh_cuda_gemm(cx, j->d, {&ds, &dy, &vt, s->n, s->n_keys, Dh, K, 1, 0}));
    OSH_CU_BY_DTYPE(j->a->in[0]->dtype, T, back_launch<T>(j, s));
    OSH_CUDA(cx, cudaGetLastError());
    if (j->a->din[0]) {
        dq.data = static_cast<float *>(j->a->din[0]->data) + q_at;
        OSH_TRY(osh_cuda_gemm(cx, j->d, {&dq, &ds, &k, s->n, Dh, s->n_keys, K, 1, 1}));
    }
    if (j->a->din[1]) {
        dk.data = static_cast<float *>(j->a->din[1]->data) + kv_at;
        OSH_TRY(osh_cuda_gemm(cx, j->d, {&dk, &dst, &q, s->n_keys, Dh, s->n, K, 1, 1}));
    }
    if (j->a->din[2]) {
        dv.data = static_cast<float *>(j->a->din[2]->data) + kv_at;
        OSH_TRY(osh_cuda_gemm(cx, j->d, {&dv, &pt, &dy, s->n_keys, Dh, s->n, K, 1, 1}));
    }
done:
    return rc;
}

static osh_status back_run_sample(osh_ctx *cx, const attention_back *j, int64_t row, int64_t T)
{
    osh_status rc = OSH_OK;
    int64_t chunk = osh_attention_back_chunk(j->at, T);
    back_pass s = {row, 0, 0, 0, 0, 0, 0, j->group, j->at->n_heads, j->at->n_kv_heads};

    for (s.pos = 0; s.pos < T; s.pos += chunk) {
        s.n = osh_min64(chunk, T - s.pos);
        s.key = osh_first_key(j->at, s.pos);
        s.n_keys = s.pos + s.n - s.key;
        s.ld = osh_attention_row(s.n_keys);
        for (s.head = 0; s.head < j->group; s.head++) OSH_TRY(back_run_pass(cx, j, &s));
    }
done:
    return rc;
}

/* Sets j->wide to q, k and v in f32: views of the tensors if these are F32, else copies. All copies
 * are in one allocation *own, which the caller must free. */
static osh_status back_widen(osh_ctx *cx, attention_back *j, float **own)
{
    osh_status rc = OSH_OK;
    size_t n_bytes = 0;
    for (int k = 0; k < 3; k++) {
        j->wide[k] = static_cast<float *>(j->a->in[k]->data);
        n_bytes += (size_t)osh_tensor_numel(j->a->in[k]) * sizeof(float);
    }
    if (j->a->in[0]->dtype == OSH_F32) goto done;
    if (!(*own = static_cast<float *>(osh_device_alloc(cx, j->d, n_bytes, OSH_LIFE_SHORT))))
        OSH_TRY(OSH_E_NOMEM);
    for (int64_t k = 0, at = 0; k < 3; k++) {
        const osh_tensor *t = j->a->in[k];
        j->wide[k] = *own + at, at += osh_tensor_numel(t);
        OSH_TRY(osh_cu_widen(cx, j->d, j->wide[k], {t->data, t->dtype}, osh_tensor_numel(t),
                             t->dtype));
    }
done:
    return rc;
}

osh_status osh_attention_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = static_cast<const osh_attention_attr *>(a->attr);
    int64_t N = osh_rows(a->in[0]), n_seqs = 0;
    size_t n_bytes = osh_attention_back_bytes(at, N),
           sinks = (size_t)(N * at->n_heads) * sizeof(float);
    osh_tile *seq = NULL; // for each sample, the range of its rows; own
    float *wide = NULL;   // own: GPU memory
    attention_back j = {};

    if (!N) return OSH_OK;
    j.d = a->dout[0]->device, j.a = a, j.at = at, j.group = at->n_heads / at->n_kv_heads;
    j.q_width = osh_width(a->in[0]), j.kv_width = osh_width(a->in[1]);
    if (a->in[3]) OSH_TRY(osh_cu_readable(cx, a->in[3]->dtype));
    OSH_TRY(back_widen(cx, &j, &wide));
    j.p = static_cast<float *>(osh_device_alloc(cx, j.d, n_bytes, OSH_LIFE_SHORT));
    j.ds = j.p ? static_cast<float *>(osh_device_alloc(cx, j.d, n_bytes, OSH_LIFE_SHORT)) : NULL;
    if (!j.ds) OSH_TRY(OSH_E_NOMEM);
    if (a->in[3] && a->din[3] &&
        !(j.to_sink = static_cast<float *>(osh_device_alloc(cx, j.d, sinks, OSH_LIFE_SHORT))))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++) OSH_TRY(back_run_sample(cx, &j, seq[s].row, seq[s].n));
    if (j.to_sink) // scratch for the sums is j.p, because the probabilities are no longer used
        OSH_TRY(osh_cu_sums(cx, j.d, static_cast<float *>(a->din[3]->data), {N, at->n_heads, j.p},
                            sink_back{j.to_sink, at->n_heads}));
done:
    osh_free(cx, seq);
    osh_device_free(j.d, j.to_sink);
    osh_device_free(j.d, j.ds);
    osh_device_free(j.d, j.p);
    osh_device_free(j.d, wide);
    return rc;
}
