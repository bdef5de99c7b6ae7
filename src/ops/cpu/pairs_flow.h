/* pairs_flow.h - products on pairs.h that are rounded to BF16 block by block. While the tiles multiply
 * for a block, the vector units finish the block before it.
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

typedef struct osh_flow_block { // views
    osh_pairs_a a;
    int64_t m;             // rows, at most OSH_PAIRS_BAND
    osh_pairs_b b, up;     // at most two panels of each; up.n 0: y = a b, else y = act(a b) (a up)
    uint16_t *y;           // [m, n], rows ld apart
    int64_t ld, n;
    const float *bias[2];  // [n] or NULL: of b, of up
    osh_act_kind act;      // not OSH_ACT_GELU
} osh_flow_block;

typedef struct osh_flow {
    _Alignas(64) float sums[2][2][OSH_PAIRS_BAND * OSH_FLOW_COLS]; // of this block and the one before; of b and up
    osh_flow_block before;
    bool has_before, bad;  // bad: a value of act(a b) (a up) is not finite
    int turn;
} osh_flow;

static inline void osh_flow_begin(osh_flow *f)
{
    f->has_before = f->bad = false, f->turn = 0;
    osh_pairs_begin();
}
void osh_flow_add(osh_flow *f, const osh_flow_block *block);
void osh_flow_end(osh_flow *f);
#endif
