/* scan_grad.cuh - declares types and functions for the gradients of delta_rule and ssm_scan.
 *
 * The gradients of a token need the states before and after the token. A block goes forward through
 * a sample, and stores the state before every C-th token. Then it goes backward in steps of C
 * tokens. For each step, it computes the C states again, from the stored state. C is the smallest
 * number with C C >= N tokens. The result does not depend on C. A state has `each` elements. */
#ifndef OSH_SCAN_GRAD_CUH
#define OSH_SCAN_GRAD_CUH
#include "ops/cuda/scan.cuh"
#include "ops/cuda/sums.cuh"

typedef struct scan_states {
    /* Scratch of all blocks. A block has C stored states, then C + 1 states of the current step,
     * then the gradient of the state. */
    float *room; // own
    int64_t C, each, block; // block: number of elements of a block's scratch
} scan_states;

typedef struct scan_block { // scratch of one block; views
    float *kept, *now, *grad;
} scan_block;

/* Allocates the states of `blocks` blocks for N tokens. The caller must free s->room. */
static inline osh_status scan_states_new(osh_ctx *cx, scan_states *s, osh_device *d, int64_t N,
                                         int64_t each, int64_t blocks)
{
    s->C = osh_state_span(N), s->each = each, s->block = osh_scan_back_block(s->C, each);
    s->room = static_cast<float *>(
        osh_device_alloc(cx, d, (size_t)(blocks * s->block) * sizeof(float), OSH_LIFE_SHORT));
    return s->room ? OSH_OK : OSH_E_NOMEM;
}

static __device__ inline scan_block scan_block_of(const scan_states &s)
{
    float *at = s.room + (int64_t)blockIdx.x * s.block;
    return {at, at + s.C * s.each, at + (2 * s.C + 1) * s.each};
}

static __device__ inline void scan_copy_state(float *to, const float *from, int64_t each)
{
    for (int64_t i = threadIdx.x; i < each; i += SCAN_THREADS) to[i] = from ? from[i] : 0;
}

/* Computes the gradients of one head for a sample of n tokens. step(t, S, next) computes the state
 * after token t from the state S before it. back(t, S, next) computes the gradients of token t. All
 * threads of the block call the functions; each function begins with a barrier. */
template <class F, class B>
static __device__ inline void scan_back_walk(const scan_states &s, int64_t n, F step, B back)
{
    scan_block b = scan_block_of(s);
    int64_t last = (n - 1) / s.C * s.C; // first token of the last step
    scan_copy_state(b.now, NULL, s.each);
    scan_copy_state(b.grad, NULL, s.each);
    for (int64_t first = 0; first <= last; first += s.C) {
        __syncthreads();
        scan_copy_state(b.kept + first / s.C * s.each, b.now, s.each);
        if (first == last) break;
        for (int64_t i = 0; i < s.C; i++)
            step(first + i, b.now + i * s.each, b.now + (i + 1) * s.each);
        __syncthreads();
        scan_copy_state(b.now, b.now + s.C * s.each, s.each);
    }
    for (int64_t first = last; first >= 0; first -= s.C) {
        int64_t end = first + s.C < n ? s.C : n - first;
        __syncthreads();
        scan_copy_state(b.now, b.kept + first / s.C * s.each, s.each);
        for (int64_t i = 0; i < end; i++)
            step(first + i, b.now + i * s.each, b.now + (i + 1) * s.each);
        for (int64_t i = end - 1; i >= 0; i--)
            back(first + i, b.now + i * s.each, b.now + (i + 1) * s.each);
    }
    __syncthreads();
}

/* A term of the gradient of a weight with one element for each head. terms: [rows, heads, n]. */
struct scan_weight_back {
    const float *terms;
    int64_t heads, n, at;
    __device__ float operator()(int64_t row, int64_t h) const
    {
        return terms[(row * heads + h) * n + at];
    }
};

/* Adds the gradients of n weights, from din[first] on. room: scratch for the sums. */
static inline osh_status scan_back_weights(osh_ctx *cx, const osh_grad_args *a, int first,
                                           scan_weight_back f, float *room)
{
    osh_status rc = OSH_OK;
    for (f.at = 0; f.at < f.n; f.at++) {
        const osh_tensor *to = a->din[first + f.at];
        if (to)
            OSH_TRY(osh_cu_sums(cx, a->dout[0]->device, static_cast<float *>(to->data),
                                {osh_rows(a->in[0]), f.heads, room}, f));
    }
done:
    return rc;
}
#endif
