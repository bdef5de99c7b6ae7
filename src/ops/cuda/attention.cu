/* attention.cu - computes attention. If osh_attention_is_fused is true for the dtype and the sizes
 * of the heads, attention_fused.cuh computes the attention. Otherwise this file computes it, in
 * chunks of queries. For a chunk, this file computes the scores with all keys up to the last query
 * of the chunk. Then it computes the softmax of each row of scores in place, and the sum over v.
 *
 *   in[0] q [N, H*Dh]     in[1] k [N, K*Dh]     in[2] v [N, K*Dh]     out [N, H*Dh]
 *   scores [samples, heads, chunk, ld] in f32, in scratch of at most 128 MiB
 *
 *   q k^T          product with f32 sums, stored in f32
 *   softmax        s is the score times `scale`; the result is e^(s - max) / sum, rounded to the
 *                  dtype of q, and 0 for masked keys.
 *                  In the op attention_sinks, the sum includes e^(sink - max). A row of results
 *                  overwrites the beginning of its row of scores.
 *   P v            product with f32 sums, stored into out
 *
 * A pass computes consecutive samples of equal length, some heads of these samples, and one chunk
 * of queries. The size of a chunk depends only on the length of the sample. The algorithm of the
 * matrix products must also depend only on the length. Otherwise a result would depend on the other
 * samples and heads of the pass.
 *
 * A matrix product has three indices: sample, kv head, and query head in the group of the kv head.
 * One call of osh_cuda_gemm computes a batch: the products for all values of one of these indices.
 * This index is the kv head or the query head, whichever has more values. For short samples it may
 * be the sample, and the call then uses the algorithm of a single product.
 *
 * Shapes: N tokens of the batch, H heads, K kv heads, Dh head_dim, ld elements from row to row of
 * scores. */
#include "ops/cuda/attention.cuh"
#include "ops/cuda/attention_fused.cuh"
#include "ops/cuda/pack.cuh"

/* QUERIES: largest number of queries of a chunk.
 * SHORT: samples of at most SHORT tokens share a batch of matrix products. */
enum { QUERIES = 512, SHORT = 256 };

typedef struct attention_job {
    osh_device *d;
    const osh_op_args *a;
    const osh_attention_attr *at;
    osh_dtype dt;
    int64_t group;   // number of query heads that share a kv head
    int64_t row, T;  // row: first row of the samples; T: tokens of each sample
    float *scores;
} attention_job;

/* One pass:
 * sample, n_samples: first sample, and number of samples.
 * head, n_kv, n_heads: first head, number of kv heads, and number of query heads of each kv head.
 * pos, n: position of the first query, and number of queries.
 * key, n_keys: position of the first key, and number of keys.
 * ld: number of elements from row to row of scores. */
typedef struct attention_pass {
    int64_t sample, n_samples, head, n_kv, n_heads, pos, n, key, n_keys, ld;
} attention_pass;

/* Returns the number of queries of a chunk, for a sample of T tokens. This is QUERIES, or fewer if
 * the scores of one head would need too much memory. */
static int64_t attention_chunk(int64_t T)
{
    int64_t most = (int64_t)OSH_ATTENTION_SCORES / (osh_attention_row(T) * (int64_t)sizeof(float));
    return most < 1 ? 1 : osh_min64(most, osh_min64(T, QUERIES));
}

/* Computes the softmax of scores [rows, ld] in place. Columns are the keys [key, key + n_keys) of
 * the sample; row r is query pos + r % n. A team of TEAM threads computes a row. The probabilities
 * have the type T, and overwrite the scores from the beginning of the row. So in each step of the
 * last loop the team reads a range of scores before it overwrites any of them. */
template <class T, int TEAM>
static __global__ void softmax_kernel(float *scores, attention_pass p, int64_t rows,
                                      osh_attention_attr at, float scale, sink_weights sinks)
{
    const int N = osh_cu_pack<float>::N, TEAMS = 256 / TEAM;
    __shared__ float shared[8];
    int64_t lane = threadIdx.x % TEAM;

    for (int64_t r = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM; r < rows;
         r += (int64_t)gridDim.x * TEAMS) {
        int64_t query = p.pos + r % p.n, hi = query + 1 - p.key, lo = first_key(at, query) - p.key;
        float softcap = (float)at.softcap;
        float *row = scores + r * p.ld, max = -INFINITY, sum = 0;
        T *to = reinterpret_cast<T *>(row);
        for (int64_t j = lo / N * N + lane * N; j < hi; j += TEAM * N) {
            osh_cu_pack<float> s = osh_cu_pack_load(row + j);
            for (int k = 0; k < N; k++) {
                s.v[k] = __fmul_rn(s.v[k], scale);
                if (softcap > 0) osh_cu_softcap(&s.v[k], softcap);
                if (j + k >= lo && j + k < hi) max = fmaxf(max, s.v[k]);
            }
            osh_cu_pack_store(row + j, s);
        }
        max = osh_cu_team_max<TEAM>(max, shared);
        for (int64_t j = lo / N * N + lane * N; j < hi; j += TEAM * N) {
            osh_cu_pack<float> s = osh_cu_pack_load(row + j);
            for (int k = 0; k < N; k++)
                if (j + k >= lo && j + k < hi) sum += expf(s.v[k] - max);
        }
        sum = osh_cu_team_sum<TEAM>(sum, shared);
        if (sinks.w) sum += expf(sink_of<T>(sinks, p.head + r / p.n % (p.n_kv * p.n_heads)) - max);
        for (int64_t first = 0; first < p.n_keys; first += TEAM * N) {
            int64_t j = first + lane * N;
            osh_cu_pack<float> s = {};
            if (j < p.n_keys) s = osh_cu_pack_load(row + j);
            osh_cu_team_sync<TEAM>();
            for (int k = 0; k < N && j < p.n_keys; k++) {
                bool seen = j + k >= lo && j + k < hi;
                osh_cu_store(to + j + k, seen ? expf(s.v[k] - max) / sum : 0.0f);
            }
        }
    }
}

template <class T>
static void attention_softmax(const attention_job *j, const attention_pass *p, float scale)
{
    const osh_tensor *w = j->a->in[3];
    sink_weights sinks = {w ? w->data : NULL, w ? w->dtype : OSH_F32};
    int64_t rows = p->n_samples * p->n_kv * p->n_heads * p->n;

    if (p->n_keys <= 1024)
        OSH_LAUNCH((softmax_kernel<T, 32>), osh_cu_grid(j->d, rows, 8), 256, 0,
                   osh_cuda_stream(j->d), j->scores, *p, rows, *j->at, scale, sinks);
    else
        OSH_LAUNCH((softmax_kernel<T, 256>), osh_cu_grid(j->d, rows, 1), 256, 0,
                   osh_cuda_stream(j->d), j->scores, *p, rows, *j->at, scale, sinks);
}

/* Strides in elements. by[0]: from sample to sample. by[1]: from kv head to kv head. by[2]: from
 * query head to query head in a group. */
typedef struct strides { int64_t by[3]; } strides;

static osh_cuda_mat strides_part(const osh_cuda_mat *whole, const strides *s, const int64_t *index,
                                 int batch)
{
    osh_cuda_mat m = *whole;
    int64_t first = index[0] * s->by[0] + index[1] * s->by[1] + index[2] * s->by[2];

    m.data = static_cast<char *>(whole->data) + first * (int64_t)osh_dtype_bytes(whole->dtype);
    m.stride = s->by[batch];
    return m;
}

/* Computes the matrix products C [n, nk[0]] = A op(B) for every sample, kv head and head of the
 * pass. nk[1] is the number of terms of a sum. `mat` (matrices) and `s` (strides) contain C, A and
 * B in this order. */
static osh_status attention_products(osh_ctx *cx, const attention_job *j, const attention_pass *p,
                                     const osh_cuda_mat *mat, const strides *s, const int64_t nk[2])
{
    osh_status rc = OSH_OK;
    int64_t count[3] = {p->n_samples, p->n_kv, p->n_heads}, index[3];
    /* A batch over samples needs heads that begin at multiples of 16 bytes. Otherwise the alignment
     * would depend on the head, and the algorithm depends on the alignment. */
    bool shared = j->T <= SHORT && j->at->head_dim * (int64_t)osh_dtype_bytes(j->dt) % 16 == 0;
    int batch = count[1] >= count[2] ? 1 : 2;
    if (shared && count[0] >= count[batch]) batch = 0;
    int64_t n_batch = count[batch];

    count[batch] = 1;
    for (index[0] = 0; index[0] < count[0]; index[0]++)
        for (index[1] = 0; index[1] < count[1]; index[1]++)
            for (index[2] = 0; index[2] < count[2]; index[2]++) {
                osh_cuda_mat c = strides_part(&mat[0], &s[0], index, batch),
                             x = strides_part(&mat[1], &s[1], index, batch);
                osh_cuda_mat y = strides_part(&mat[2], &s[2], index, batch);
                OSH_TRY(osh_cuda_gemm(cx, j->d, {&c, &x, &y, p->n, nk[0], nk[1], n_batch, 1, 0,
                                                 shared ? 1 : 0}));
            }
done:
    return rc;
}

static osh_status attention_run_pass(osh_ctx *cx, const attention_job *j, const attention_pass *p)
{
    osh_status rc = OSH_OK;
    int64_t Dh = j->at->head_dim, q_width = j->at->n_heads * Dh, kv_width = j->at->n_kv_heads * Dh;
    /* `first`: row of the first sample of the pass.
     * `kv`: first column of the first kv head of the pass. */
    int64_t first = j->row + p->sample * j->T, kv = p->head / j->group * Dh;
    float scale = (float)(j->at->scale > 0 ? j->at->scale : 1 / sqrt((double)Dh));
    strides by_q = {{j->T * q_width, j->group * Dh, Dh}}, by_kv = {{j->T * kv_width, Dh, 0}};
    strides by_s = {{p->n_kv * p->n_heads * p->n * p->ld, p->n_heads * p->n * p->ld, p->n * p->ld}};
    osh_cuda_mat q = {osh_elem(j->a->in[0], (first + p->pos) * q_width + p->head * Dh), q_width, 0,
                      j->dt, false};
    osh_cuda_mat y = {osh_elem(j->a->out[0], (first + p->pos) * q_width + p->head * Dh), q_width, 0,
                      j->dt, false};
    osh_cuda_mat k = {osh_elem(j->a->in[1], (first + p->key) * kv_width + kv), kv_width, 0, j->dt,
                      true};
    osh_cuda_mat v = {osh_elem(j->a->in[2], (first + p->key) * kv_width + kv), kv_width, 0, j->dt,
                      false};
    /* `each`: number of probabilities that fit in the memory of one score. */
    int64_t each = (int64_t)(sizeof(float) / osh_dtype_bytes(j->dt));
    strides by_p = {{each * by_s.by[0], each * by_s.by[1], each * by_s.by[2]}};
    osh_cuda_mat s = {j->scores, p->ld, 0, OSH_F32, false},
                 P = {j->scores, each * p->ld, 0, j->dt, false};
    osh_cuda_mat to_scores[3] = {s, q, k}, to_out[3] = {y, P, v};
    strides scores_by[3] = {by_s, by_q, by_kv}, out_by[3] = {by_q, by_p, by_kv};
    int64_t scores_nk[2] = {p->n_keys, Dh}, out_nk[2] = {Dh, p->n_keys};

    OSH_TRY(attention_products(cx, j, p, to_scores, scores_by, scores_nk));
    OSH_CU_BY_DTYPE(j->dt, T, attention_softmax<T>(j, p, scale));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(attention_products(cx, j, p, to_out, out_by, out_nk));
done:
    return rc;
}

/* Runs one pass for each chunk of queries, for the samples and heads of p. */
static osh_status attention_run_heads(osh_ctx *cx, const attention_job *j, attention_pass *p,
                                      int64_t chunk)
{
    osh_status rc = OSH_OK;
    for (p->pos = 0; p->pos < j->T; p->pos += chunk) {
        p->n = osh_min64(chunk, j->T - p->pos);
        p->key = osh_first_key(j->at, p->pos);
        p->n_keys = p->pos + p->n - p->key;
        p->ld = osh_attention_row(p->n_keys);
        OSH_TRY(attention_run_pass(cx, j, p));
    }
done:
    return rc;
}

/* Runs n_seqs samples of T tokens. A pass computes as many heads as fit in the scratch for scores.
 * If all heads fit, a pass computes several samples. */
static osh_status attention_run_samples(osh_ctx *cx, const attention_job *j, int64_t n_seqs)
{
    osh_status rc = OSH_OK;
    int64_t chunk = attention_chunk(j->T), H = j->at->n_heads;
    /* `n`: number of heads for which the scratch can hold the scores of a chunk. */
    int64_t n = OSH_ATTENTION_SCORES / (chunk * osh_attention_row(j->T) * (int64_t)sizeof(float));
    int64_t heads = osh_min64(n < 1 ? 1 : n, H), samples = n / H < 1 ? 1 : n / H;

    if (heads >= j->group) heads -= heads % j->group;
    for (int64_t sample = 0; sample < n_seqs; sample += samples) {
        attention_pass p = {sample, osh_min64(samples, n_seqs - sample), 0, 1, 0, 0, 0, 0, 0, 0};
        for (p.head = 0; p.head < H; p.head += p.n_kv * p.n_heads) {
            int64_t in_group = j->group - p.head % j->group;
            p.n_kv = heads < j->group ? 1 : osh_min64(heads, H - p.head) / j->group;
            p.n_heads = heads < j->group ? osh_min64(heads, in_group) : j->group;
            OSH_TRY(attention_run_heads(cx, j, &p, chunk));
        }
    }
done:
    return rc;
}

osh_status osh_attention_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = static_cast<const osh_attention_attr *>(a->attr);
    int64_t N = osh_rows(a->in[0]), n_seqs = 0, end = 0;
    osh_tile *seq = NULL; // own: for each sample, the range of its rows
    attention_job j = {a->out[0]->device, a, at, a->in[0]->dtype, at->n_heads / at->n_kv_heads, 0,
                       0, NULL};

    if (!N) return OSH_OK;
    if (!a->in[3] && osh_attention_is_fused(at, j.dt)) return fused_run(cx, a);
    if (a->in[3]) OSH_TRY(osh_cu_readable(cx, a->in[3]->dtype));
    j.scores = static_cast<float *>(osh_device_alloc(cx, j.d, osh_attention_scores_bytes(at, N),
                                                     OSH_LIFE_SHORT));
    if (!j.scores) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N));
    for (int64_t s = 0; s < n_seqs; s = end) {
        for (end = s + 1; end < n_seqs && seq[end].n == seq[s].n;) end++;
        j.row = seq[s].row, j.T = seq[s].n;
        OSH_TRY(attention_run_samples(cx, &j, end - s));
    }
done:
    osh_free(cx, seq);
    osh_device_free(j.d, j.scores);
    return rc;
}
