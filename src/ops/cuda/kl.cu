/* kl.cu - computes kl: compares the logits of two models for the same rows. The blocks of the
 * vocabulary are processed one after the other.
 *
 *   in[0] x [N, D]     in[1] w [V, D]     in[2] x_ref [N, D2]     in[3] w_ref [V, D2]
 *   out[0] kl F32 [N]     out[1] same F32 [N]
 *
 * r: logits of the reference model; x: logits of the model; p = softmax(r):
 *
 *   KL = sum_v p_v (r_v - x_v) - lse(r) + lse(x)
 *
 * Each block of the vocabulary updates the state of each row. The state has three numbers for each
 * model (the largest logit, the first index of this logit, and the sum of e^(logit - max)), and the
 * sum of e^(r - max) (r - x). N: tokens of the batch. */
#include "ops/cuda/vocab.cuh"

typedef struct kl_state { // state of one row (one token) after some blocks of the vocabulary
    osh_vocab_sum x, r;
    double diff;
} kl_state;
static_assert(sizeof(kl_state) == OSH_KL_STATE, "the plan counts the states");

/* Returns the index of the first element of row [cols] that equals max. If no element equals max,
 * all elements are NaN, and the function returns 0. */
template <class T>
static __device__ inline int32_t kl_first_equal(const T *row, int cols, float max, float *shared)
{
    int first = cols;
    for (int v = (int)threadIdx.x; v < cols && first == cols; v += 256)
        if (osh_cu_load(row[v]) == max) first = v;
    first = -(int)osh_cu_team_max<256>(-(float)first, shared);
    return first < cols ? first : 0;
}

/* Updates the states of the rows for one block of logits x and r [rows, OSH_VOCAB_COLS]. After the
 * last block, writes kl [rows] and same [rows]. */
template <class T, class R>
static __global__ void kl_kernel(kl_state *state, float *kl, float *same, const T *x, const R *r,
                                 osh_vocab_block b)
{
    __shared__ float shared[8];
    const T *x_row = x + (int64_t)blockIdx.x * OSH_VOCAB_COLS;
    const R *r_row = r + (int64_t)blockIdx.x * OSH_VOCAB_COLS;
    int cols = (int)b.cols;
    float x_max = osh_vocab_max(x_row, cols, shared), r_max = osh_vocab_max(r_row, cols, shared),
          diff = 0;
    float x_sum = osh_vocab_sum_exp(x_row, cols, x_max, shared),
          r_sum = osh_vocab_sum_exp(r_row, cols, r_max, shared);
    int32_t x_best = kl_first_equal(x_row, cols, x_max, shared),
            r_best = kl_first_equal(r_row, cols, r_max, shared);

    for (int v = (int)threadIdx.x; v < cols; v += 256) {
        float lr = osh_cu_load(r_row[v]);
        diff += expf(lr - r_max) * (lr - osh_cu_load(x_row[v]));
    }
    diff = osh_cu_team_sum<256>(diff, shared);
    if (threadIdx.x) return;
    kl_state st = state[blockIdx.x];
    double was, is;
    if (!b.first) {
        st.x.sum = st.r.sum = st.diff = 0;
        st.x.max = st.r.max = -INFINITY;
        st.x.best = st.r.best = 0;
    }
    osh_vocab_join(&st.x, x_max, x_sum, (int32_t)b.first + x_best, &was, &is);
    osh_vocab_join(&st.r, r_max, r_sum, (int32_t)b.first + r_best, &was, &is);
    st.diff = st.diff * was + diff * is;
    state[blockIdx.x] = st;
    if (!b.last) return;
    kl[blockIdx.x] = (float)(st.diff / st.r.sum - osh_vocab_lse(st.r) + osh_vocab_lse(st.x));
    same[blockIdx.x] = st.x.best == st.r.best;
}

typedef struct kl_job {
    const osh_op_args *a;
    osh_vocab_side x, r;
    kl_state *state; // states of the rows that are computed together, at most OSH_VOCAB_ROWS; own
} kl_job;

static osh_status kl_block(osh_ctx *cx, void *user, const osh_vocab_block *b)
{
    osh_status rc = OSH_OK;
    kl_job *j = static_cast<kl_job *>(user);
    float *kl = static_cast<float *>(j->a->out[0]->data) + b->row;
    float *same = static_cast<float *>(j->a->out[1]->data) + b->row;

    OSH_TRY(osh_vocab_logits(cx, &j->x, b));
    OSH_TRY(osh_vocab_logits(cx, &j->r, b));
    OSH_CU_BY_DTYPE(j->x.x->dtype, T, OSH_CU_BY_DTYPE(j->r.x->dtype, R,
        OSH_LAUNCH((kl_kernel<T, R>), (unsigned)(b->n_panels * b->n), 256, 0,
                   osh_cuda_stream(j->x.x->device), j->state, kl, same,
                   static_cast<const T *>(j->x.logits), static_cast<const R *>(j->r.logits), *b)));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_kl_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->in[0]->device;
    kl_job j = {a, {NULL, NULL, NULL, NULL, NULL, NULL, {0, 0}},
                {NULL, NULL, NULL, NULL, NULL, NULL, {0, 0}}, NULL};

    if (!osh_rows(a->in[0])) return OSH_OK;
    j.state = static_cast<kl_state *>(
        osh_device_alloc(cx, d, osh_kl_state_bytes(osh_rows(a->in[0])), OSH_LIFE_SHORT));
    if (!j.state) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_vocab_open(cx, &j.x, a, 0));
    OSH_TRY(osh_vocab_open(cx, &j.r, a, 1));
    OSH_TRY(osh_vocab_walk(cx, a, kl_block, &j));
done:
    osh_vocab_close(&j.r);
    osh_vocab_close(&j.x);
    osh_device_free(d, j.state);
    return rc;
}
