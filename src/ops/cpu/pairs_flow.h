/* pairs_flow.h - multiplies with pairs.h and rounds the products to BF16 block by block. While the
 * tiles multiply for a block, the vector units finish the previous block.
 *
 *   flow: add block 0   tiles 0
 *         add block 1   tiles 1, rows of block 0 are finished between them
 *         end                    rows of block 1
 */
#ifndef OSH_PAIRS_FLOW_H
#define OSH_PAIRS_FLOW_H
#include "math/pairs.h"
#include "math/span.h"

enum { OSH_FLOW_COLS = 2 * OSH_PAIRS_SIDE };

typedef struct osh_flow_block { // all pointers are views
    osh_pairs_a a;
    int64_t m;             // number of rows, at most OSH_PAIRS_BAND
    osh_pairs_b b, up;     // at most two panels each; up.n is 0: y = a b; else y = act(a b) (a up)
    uint16_t *y;           // [m, n]; rows begin ld elements apart
    int64_t ld, n;
    const float *bias[2];  // [n], or NULL for none: for b, for up
    osh_act_kind act;      // not OSH_ACT_GELU
} osh_flow_block;

typedef struct osh_flow {
    /* Index: [this block, previous block][b, up]. */
    _Alignas(64) float sums[2][2][OSH_PAIRS_BAND * OSH_FLOW_COLS];
    osh_flow_block before;
    bool has_before, bad;  // bad: a value of act(a b) (a up) is not finite
    int turn;
} osh_flow;

/* Begins a flow on this thread. */
static inline void osh_flow_begin(osh_flow *f)
{
    f->has_before = f->bad = false, f->turn = 0;
    osh_pairs_begin();
}
/* Multiplies for a block. Its rows may not be written before the next call. */
void osh_flow_add(osh_flow *f, const osh_flow_block *block);
/* Finishes the last block and ends the flow. */
void osh_flow_end(osh_flow *f);
#endif
