/* nll.cu - computes nll. A thread block computes one row, and processes the vocabulary block by
 * block.
 *
 *   in[0] x [N, D]
 *   in[1] w [V, D]
 *   in[2] targets I32 [N], < 0: no target
 *   out nll F32 [N]
 *
 * nll = log sum e^logit - logit[target]. The logits are rounded to the dtype of x. The sum of
 * e^(logit - max) of a block is f32; the sums of the blocks are combined in double. A target
 * outside the vocabulary gives NaN. N: tokens of the batch. D: hidden_size. V: size of the
 * vocabulary. */
#include "ops/cuda/vocab.cuh"

typedef struct nll_state { // state of one row (one token) after some blocks of the vocabulary
    osh_vocab_sum s;
    float at_target;
} nll_state;

/* Updates the states of the rows for one block of logits [rows, OSH_VOCAB_COLS]. After the last
 * block, writes nll [rows]. `target`: token ids [rows]. */
template <class T>
static __global__ void nll_kernel(nll_state *state, float *nll, const T *logits,
                                  const int32_t *target, osh_vocab_block b)
{
    __shared__ float shared[8];
    const T *row = logits + (int64_t)blockIdx.x * OSH_VOCAB_COLS;
    int64_t want = target[blockIdx.x];
    int cols = (int)b.cols;

    if (want < 0) {
        if (threadIdx.x == 0) nll[blockIdx.x] = 0;
        return;
    }
    float max = osh_vocab_max(row, cols, shared), sum = osh_vocab_sum_exp(row, cols, max, shared);
    if (threadIdx.x) return;
    nll_state st = state[blockIdx.x];
    double was, is;
    if (!b.first) st.s.sum = 0, st.s.max = -INFINITY, st.s.best = 0, st.at_target = NAN;
    osh_vocab_join(&st.s, max, sum, 0, &was, &is);
    if (want >= b.first && want < b.first + cols) st.at_target = osh_cu_load(row[want - b.first]);
    state[blockIdx.x] = st;
    if (b.last) nll[blockIdx.x] = (float)(osh_vocab_lse(st.s) - (double)st.at_target);
}

typedef struct nll_job {
    const osh_op_args *a;
    osh_vocab_side side;
    nll_state *state; // states of the rows that are computed together, at most OSH_VOCAB_ROWS; own
} nll_job;

static osh_status nll_block(osh_ctx *cx, void *user, const osh_vocab_block *b)
{
    osh_status rc = OSH_OK;
    nll_job *j = static_cast<nll_job *>(user);
    const osh_tensor *x = j->a->in[0];

    OSH_TRY(osh_vocab_logits(cx, &j->side, b));
    OSH_CU_BY_DTYPE(x->dtype, T,
        OSH_LAUNCH(nll_kernel<T>, (unsigned)(b->n_panels * b->n), 256, 0,
                   osh_cuda_stream(x->device), j->state,
                   static_cast<float *>(j->a->out[0]->data) + b->row,
                   static_cast<const T *>(j->side.logits),
                   static_cast<const int32_t *>(j->a->in[2]->data) + b->row, *b));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

static size_t nll_state_bytes(int64_t n_tokens)
{
    return (size_t)osh_min64(n_tokens, OSH_VOCAB_ROWS) * sizeof(nll_state);
}

osh_status osh_nll_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->in[0]->device;
    nll_job j = {a, {NULL, NULL, NULL, NULL, NULL, NULL, {0, 0}}, NULL};

    if (!osh_rows(a->in[0])) return OSH_OK;
    j.state = static_cast<nll_state *>(osh_device_alloc(cx, d, nll_state_bytes(osh_rows(a->in[0])),
                                                        OSH_LIFE_SHORT));
    if (!j.state) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_vocab_open(cx, &j.side, a, 0));
    OSH_TRY(osh_vocab_walk(cx, a, nll_block, &j));
done:
    osh_vocab_close(&j.side);
    osh_device_free(d, j.state);
    return rc;
}

size_t osh_nll_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, osh_dtype dt)
{
    (void)out_width, (void)dt;
    return osh_vocab_bytes(attr, 0, in_width[0], n_tokens) +
           osh_arena_gross(nll_state_bytes(n_tokens));
}
