/* pairs_flow.h - multiplies with math/pairs.h. Rounds the matrix products to BF16, or adds them to
 * a matrix, one block after the other (a flow). With AMX, the vector instructions finish one block
 * (bias, activation, rounding, addition) while the AMX instructions multiply for the next block.
 *
 *   osh_flow_add block 0   multiplies for block 0
 *   osh_flow_add block 1   multiplies for block 1, finishes rows of block 0 in between
 *   osh_flow_end           finishes rows of block 1 */
#ifndef OSH_PAIRS_FLOW_H
#define OSH_PAIRS_FLOW_H
#include "math/pairs.h"
#include "math/span.h"

enum { OSH_FLOW_COLS = 2 * OSH_PAIRS_SIDE };

typedef struct osh_flow_block { // a block of y; all pointers are views
    osh_pairs_a a;
    int64_t m;             // number of rows of a and y, at most OSH_PAIRS_BAND
    /* Right operands of the products. Each has at most two panels.
     *
     *   up.n is 0       y = a b
     *   up.n is not 0   y = act(a b) (a up) */
    osh_pairs_b b, up;
    uint16_t *y;           // output [m, n]; rows are `ld` elements apart
    int64_t ld, n;
    const float *bias[2];  // biases [n] of the products `a b` and `a up`; NULL: no bias
    osh_act_kind act;      // activation of the product `a b`; OSH_ACT_GELU is not supported
    /* added: matrix [m, n] in F32 to which the product `a b` is added. Its rows are also `ld`
     * elements apart. NULL: the output is y.
     * more: row i of `added` has n + i * more columns. */
    float *added;
    int64_t more;
} osh_flow_block;

typedef struct osh_flow {
    /* The products `a b` and `a up` before rounding.
     * First index: `turn` for the current block, `!turn` for the previous block.
     * Second index: 0 for `a b`, 1 for `a up`. */
    _Alignas(64) float sums[2][2][OSH_PAIRS_BAND * OSH_FLOW_COLS];
    osh_flow_block before;
    /* has_before: true if the products of block `before` are computed, but the block is not
     * finished (bias, activation, rounding).
     * bad: true if an element of an output y is not finite. */
    bool has_before, bad;
    int turn;
} osh_flow;

/* Begins a flow on the calling thread. */
static inline void osh_flow_begin(osh_flow *f)
{
    f->has_before = f->bad = false, f->turn = 0;
    osh_pairs_begin();
}
/* Computes the matrix products of one block. All blocks of a flow must have the same kind of
 * output:
 *
 *   y = a b
 *   y = act(a b) (a up)
 *   `added` += a b
 *
 * The next call of osh_flow_add or osh_flow_end completes the output of the block. So its output
 * and biases must stay valid until that call returns. */
void osh_flow_add(osh_flow *f, const osh_flow_block *block);
/* Finishes the last block and ends the flow on the calling thread. */
void osh_flow_end(osh_flow *f);
#endif
