/* attention.cu - attention: by attention_fused.cuh where that fits dtype and heads, else by chunks of queries of one
 * sample: scores of a chunk against the keys up to its last query, softmax row by row in their place, sum over v.
 *
 *   in[0] q [N, H*Dh]     in[1] k [N, K*Dh]     in[2] v [N, K*Dh]     out [N, H*Dh]
 *   scores [samples, heads, chunk, ld] in f32, in scratch of at most 128 MiB
 *
 *   q k^T          product with f32 sums, stored in f32
 *   softmax        times scale, e^(s - max) / sum, which has the head's e^(sink - max) in attention_sinks, rounded to
 *                  the dtype of q, each row over its own beginning; what is hidden becomes 0
 *   P v            product with f32 sums, stored into out
 *
 * One pass takes some samples of equal length that stand behind each other, some of their heads, and one chunk of their
 * queries. The chunk depends on the length of the sample alone, and so must the algorithm of its products, or a result
 * would depend on what shares the pass. The products run over three indices: sample, kv head, head of its group. The
 * batch of osh_cuda_gemm is the longer one of the last two; where samples are short the longest of all three, with the
 * algorithm of a single product. */
#include "ops/cuda/attention.cuh"
#include "ops/cuda/attention_fused.cuh"
#include "ops/cuda/pack.cuh"

enum { QUERIES = 512, SHORT = 256 }; // tokens: of a chunk; of a sample that shares its products with others

typedef struct attention_job {
    osh_device *d;
    const osh_op_args *a;
    const osh_attention_attr *at;
    osh_dtype dt;
    int64_t group;   // query heads of a kv head
    int64_t row, T;  // first row and length of the samples at hand
    float *scores;
} attention_job;

/* One pass: samples [sample, + n_samples), heads [head, + n_kv * n_heads), queries [pos, + n), keys [key, + n_keys). */
typedef struct attention_pass {
    int64_t sample, n_samples, head, n_kv, n_heads, pos, n, key, n_keys, ld;
} attention_pass;


/* Queries of a chunk, where a sample has T tokens: QUERIES, fewer where one head of them would be too large. */
static int64_t chunk_of(int64_t T)
{
    int64_t most = (int64_t)OSH_ATTENTION_SCORES / (osh_attention_row(T) * (int64_t)sizeof(float));
    return most < 1 ? 1 : osh_min64(most, osh_min64(T, QUERIES));
}

/* Scores of `rows` rows: [rows, ld], keys [0, n_keys) from `key` of the sample; row r is query pos + r % n. A team of
 * TEAM threads to a row, which T overwrites from its beginning: a round stores over what it or one before has read. */
template <class T, int TEAM>
static __global__ void softmax_kernel(float *scores, attention_pass p, int64_t rows, osh_attention_attr at, float scale,
                                      sink_weights sinks)
{
    const int N = osh_cu_pack<float>::N, TEAMS = 256 / TEAM;
    __shared__ float shared[8];
    int64_t lane = threadIdx.x % TEAM;

    for (int64_t r = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM; r < rows; r += (int64_t)gridDim.x * TEAMS) {
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

template <class T> static void softmax(const attention_job *j, const attention_pass *p, float scale)
{
    const osh_tensor *w = j->a->in[3];
    sink_weights sinks = {w ? w->data : NULL, w ? w->dtype : OSH_F32};
    int64_t rows = p->n_samples * p->n_kv * p->n_heads * p->n;

    if (p->n_keys <= 1024)
        OSH_LAUNCH((softmax_kernel<T, 32>), osh_cu_grid(j->d, rows, 8), 256, 0, osh_cuda_stream(j->d), j->scores, *p,
                   rows, *j->at, scale, sinks);
    else
        OSH_LAUNCH((softmax_kernel<T, 256>), osh_cu_grid(j->d, rows, 1), 256, 0, osh_cuda_stream(j->d), j->scores, *p,
                   rows, *j->at, scale, sinks);
}

/* Elements from one sample, one kv head, one head of a group to the next. */
typedef struct strides { int64_t by[3]; } strides;

static osh_cuda_mat part(const osh_cuda_mat *whole, const strides *s, const int64_t *index, int batch)
{
    osh_cuda_mat m = *whole;
    int64_t first = index[0] * s->by[0] + index[1] * s->by[1] + index[2] * s->by[2];

    m.data = static_cast<char *>(whole->data) + first * (int64_t)osh_dtype_bytes(whole->dtype);
    m.stride = s->by[batch];
    return m;
}

/* C [n, nk[0]] = A op(B), sums of nk[1], for every sample, kv head and head of the pass. */
static osh_status products(osh_ctx *cx, const attention_job *j, const attention_pass *p, const osh_cuda_mat *mat,
                           const strides *s, const int64_t nk[2])
{
    osh_status rc = OSH_OK;
    int64_t count[3] = {p->n_samples, p->n_kv, p->n_heads}, index[3];
    /* Where the heads are not aligned, the algorithm depends on the index. */
    bool shared = j->T <= SHORT && j->at->head_dim * (int64_t)osh_dtype_bytes(j->dt) % 16 == 0;
    int batch = count[1] >= count[2] ? 1 : 2;
    if (shared && count[0] >= count[batch]) batch = 0;
    int64_t n_batch = count[batch];

    count[batch] = 1;
    for (index[0] = 0; index[0] < count[0]; index[0]++)
        for (index[1] = 0; index[1] < count[1]; index[1]++)
            for (index[2] = 0; index[2] < count[2]; index[2]++) {
                osh_cuda_mat c = part(&mat[0], &s[0], index, batch), x = part(&mat[1], &s[1], index, batch);
                osh_cuda_mat y = part(&mat[2], &s[2], index, batch);
                OSH_TRY(osh_cuda_gemm(cx, j->d, {&c, &x, &y, p->n, nk[0], nk[1], n_batch, 1, 0, shared ? 1 : 0}));
            }
done:
    return rc;
}

static osh_status run_pass(osh_ctx *cx, const attention_job *j, const attention_pass *p)
{
    osh_status rc = OSH_OK;
    int64_t Dh = j->at->head_dim, q_width = j->at->n_heads * Dh, kv_width = j->at->n_kv_heads * Dh;
    int64_t first = j->row + p->sample * j->T, kv = p->head / j->group * Dh; // row of the first sample; first kv head
    float scale = (float)(j->at->scale > 0 ? j->at->scale : 1 / sqrt((double)Dh));
    strides by_q = {{j->T * q_width, j->group * Dh, Dh}}, by_kv = {{j->T * kv_width, Dh, 0}};
    strides by_s = {{p->n_kv * p->n_heads * p->n * p->ld, p->n_heads * p->n * p->ld, p->n * p->ld}};
    osh_cuda_mat q = {osh_elem(j->a->in[0], (first + p->pos) * q_width + p->head * Dh), q_width, 0, j->dt, false};
    osh_cuda_mat y = {osh_elem(j->a->out[0], (first + p->pos) * q_width + p->head * Dh), q_width, 0, j->dt, false};
    osh_cuda_mat k = {osh_elem(j->a->in[1], (first + p->key) * kv_width + kv), kv_width, 0, j->dt, true};
    osh_cuda_mat v = {osh_elem(j->a->in[2], (first + p->key) * kv_width + kv), kv_width, 0, j->dt, false};
    int64_t each = (int64_t)(sizeof(float) / osh_dtype_bytes(j->dt)); // probabilities in the place of a score
    strides by_p = {{each * by_s.by[0], each * by_s.by[1], each * by_s.by[2]}};
    osh_cuda_mat s = {j->scores, p->ld, 0, OSH_F32, false}, P = {j->scores, each * p->ld, 0, j->dt, false};
    osh_cuda_mat to_scores[3] = {s, q, k}, to_out[3] = {y, P, v};
    strides scores_by[3] = {by_s, by_q, by_kv}, out_by[3] = {by_q, by_p, by_kv};
    int64_t scores_nk[2] = {p->n_keys, Dh}, out_nk[2] = {Dh, p->n_keys};

    OSH_TRY(products(cx, j, p, to_scores, scores_by, scores_nk));
    OSH_CU_BY_DTYPE(j->dt, T, softmax<T>(j, p, scale));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(products(cx, j, p, to_out, out_by, out_nk));
done:
    return rc;
}

/* All chunks of n_samples samples of length T for the heads of p. */
static osh_status run_heads(osh_ctx *cx, const attention_job *j, attention_pass *p, int64_t chunk)
{
    osh_status rc = OSH_OK;
    for (p->pos = 0; p->pos < j->T; p->pos += chunk) {
        p->n = osh_min64(chunk, j->T - p->pos);
        p->key = osh_first_key(j->at, p->pos);
        p->n_keys = p->pos + p->n - p->key;
        p->ld = osh_attention_row(p->n_keys);
        OSH_TRY(run_pass(cx, j, p));
    }
done:
    return rc;
}

/* n_seqs samples of length T: as many heads at a time as the scores have room for, then as many samples. */
static osh_status run_samples(osh_ctx *cx, const attention_job *j, int64_t n_seqs)
{
    osh_status rc = OSH_OK;
    int64_t chunk = chunk_of(j->T), H = j->at->n_heads; // n: matrices of a chunk that fit
    int64_t n = OSH_ATTENTION_SCORES / (chunk * osh_attention_row(j->T) * (int64_t)sizeof(float));
    int64_t heads = osh_min64(n < 1 ? 1 : n, H), samples = n / H < 1 ? 1 : n / H;

    if (heads >= j->group) heads -= heads % j->group;
    for (int64_t sample = 0; sample < n_seqs; sample += samples) {
        attention_pass p = {sample, osh_min64(samples, n_seqs - sample), 0, 1, 0, 0, 0, 0, 0, 0};
        for (p.head = 0; p.head < H; p.head += p.n_kv * p.n_heads) {
            int64_t in_group = j->group - p.head % j->group;
            p.n_kv = heads < j->group ? 1 : osh_min64(heads, H - p.head) / j->group;
            p.n_heads = heads < j->group ? osh_min64(heads, in_group) : j->group;
            OSH_TRY(run_heads(cx, j, &p, chunk));
        }
    }
done:
    return rc;
}

/* Scores of n_tokens tokens at most, whatever their samples. */
osh_status osh_attention_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = static_cast<const osh_attention_attr *>(a->attr);
    int64_t N = osh_rows(a->in[0]), n_seqs = 0, end = 0;
    osh_tile *seq = NULL; // own: one whole sample each
    attention_job j = {a->out[0]->device, a, at, a->in[0]->dtype, at->n_heads / at->n_kv_heads, 0, 0, NULL};

    if (!N) return OSH_OK;
    if (!a->in[3] && osh_attention_is_fused(at, j.dt)) return fused_run(cx, a);
    if (a->in[3]) OSH_TRY(osh_cu_readable(cx, a->in[3]->dtype));
    j.scores = static_cast<float *>(osh_device_alloc(cx, j.d, osh_attention_scores_bytes(at, N), OSH_LIFE_SHORT));
    if (!j.scores) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N));
    for (int64_t s = 0; s < n_seqs; s = end) {
        for (end = s + 1; end < n_seqs && seq[end].n == seq[s].n;) end++;
        j.row = seq[s].row, j.T = seq[s].n;
        OSH_TRY(run_samples(cx, &j, end - s));
    }
done:
    osh_free(cx, seq);
    osh_device_free(j.d, j.scores);
    return rc;
}
