/* vocab.cuh - computes the next-token logits of a model in blocks of rows x vocabulary, for nll and
 * kl.
 *
 *   logits = x W^T + bias     x [N, D]     w [V, D]     bias [V] or none
 *   block [rows, OSH_VOCAB_COLS]
 *
 * A block has the dtype of x, because logits are rounded when they are stored. Without a bias, the
 * matrix product rounds them. With a bias, the product is f32, and the kernel that adds the bias
 * rounds the sum. Rows are cut into panels, and each sample begins a new panel, so that the shape
 * of a product depends only on the sample. Consecutive panels of equal size are one batch of a
 * matrix product. The results of the blocks of a row are combined in the order of the vocabulary,
 * in double. N tokens, D hidden_size, V vocabulary size. */
#ifndef OSH_VOCAB_CUH
#define OSH_VOCAB_CUH
#include "ops/cuda/pack.cuh"
#include "ops/cuda/sizes.h"

typedef struct osh_vocab_side { // the logits of one model
    const osh_tensor *x, *w;
    void *logits; // logits of a block in the dtype of x, [rows, OSH_VOCAB_COLS]; own
    void *copy;   // own [OSH_VOCAB_COLS, D]: rows of w in x's dtype; NULL: w has x's dtype
    float *sums;  // f32 sums of a block, [rows, OSH_VOCAB_COLS]; NULL: no bias; own
    const osh_tensor *bias; // NULL: none; view
    osh_logits_rule rule;
} osh_vocab_side;

/* A block of logits. It has n_panels panels of n rows each, and begins with row `row`. Its columns
 * are the vocabulary entries [first, first + cols). `last`: true if the block has the last
 * vocabulary entries. */
typedef struct osh_vocab_block {
    int64_t row, n_panels, n, first, cols;
    bool last;
} osh_vocab_block;

/* Opens the logits of one model for nll or kl. side: 0 for the model, 1 for the reference model. */
osh_status osh_vocab_open(osh_ctx *cx, osh_vocab_side *s, const osh_op_args *a, int side);
void osh_vocab_close(osh_vocab_side *s);
osh_status osh_vocab_logits(osh_ctx *cx, const osh_vocab_side *s, const osh_vocab_block *b);
/* Calls fn for every block of logits. The blocks of a row are passed in the order of the
 * vocabulary. */
typedef osh_status (*osh_vocab_fn)(osh_ctx *cx, void *user, const osh_vocab_block *b);
osh_status osh_vocab_walk(osh_ctx *cx, const osh_op_args *a, osh_vocab_fn fn, void *user);

/* State of a row after some blocks. `max`: largest logit; `best`: index of the first logit that
 * equals `max`; `sum`: sum of e^(logit - max). */
typedef struct osh_vocab_sum {
    double sum;
    float max;
    int32_t best;
} osh_vocab_sum;

static __device__ inline double osh_vocab_lse(const osh_vocab_sum &s)
{
    return (double)s.max + log(s.sum);
}

/* Adds the results `max`, `sum` and `best` of a block to the state s. The maximum can change. So
 * the old sum is multiplied by the factor `*was`, and the sum of the block by the factor `*is`.
 * Returns both factors. */
static __device__ inline void osh_vocab_join(osh_vocab_sum *s, float max, float sum, int32_t best,
                                             double *was, double *is)
{
    float top = fmaxf(s->max, max);

    *was = exp((double)s->max - top), *is = exp((double)max - top);
    if (max > s->max) s->best = best;
    s->sum = s->sum * *was + sum * *is;
    s->max = top;
}

/* Returns the largest element of `row` [cols] in all 256 threads of the block. */
template <class T>
static __device__ inline float osh_vocab_max(const T *row, int cols, float *shared)
{
    float max = -INFINITY;
    for (int v = (int)threadIdx.x; v < cols; v += 256) max = fmaxf(max, osh_cu_load(row[v]));
    return osh_cu_team_max<256>(max, shared);
}
template <class T>
static __device__ inline float osh_vocab_sum_exp(const T *row, int cols, float max, float *shared)
{
    float sum = 0;
    for (int v = (int)threadIdx.x; v < cols; v += 256) sum += expf(osh_cu_load(row[v]) - max);
    return osh_cu_team_sum<256>(sum, shared);
}
#endif
