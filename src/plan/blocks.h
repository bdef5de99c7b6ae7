/* blocks.h - where codes learn from the output of a whole block (learn/block.h): a decoder layer, with all others of
 * its subgraph. What a block reads and puts out are values of the store; what it has to come near to is what the
 * original model makes of its own values, beside the quantized one (osh_graph_add_original). */
#ifndef OSH_BLOCKS_H
#define OSH_BLOCKS_H
#include "learn/block.h"
#include "plan/visit.h"

/* Before the original's values are carried: which Linears learn by block (OSH_STAT_BLOCK in wants), where a modifier
 * says so and nothing is in the way of it. */
osh_status osh_plan_blocks(osh_ctx *cx, osh_plan *p);
/* Which biases learn, of Linears that do: known without a run, too. */
void osh_plan_biases(osh_plan *p);
/* Sets target[v] of what the original model puts out in the places of the range's blocks. */
void osh_block_targets(const osh_plan *p, const osh_range *r, bool *target);
/* Sets mixed[v] of what comes into them in the original model and is still wanted when they learn. */
void osh_block_mixes(const osh_plan *p, const osh_range *r, bool *mixed);

typedef struct osh_block_of { // a range's; its lists are own
    osh_block b;
    bool *run;
    int *values;  // that come in, then those that are compared
    bool *differs; // of those that come in
    int *linears; // that learn, in the order of b.learns
} osh_block_of;
osh_status osh_block_init(osh_ctx *cx, osh_block_of *o, const osh_plan *p, const osh_range *r);
void osh_block_deinit(osh_ctx *cx, osh_block_of *o);
const osh_modifier *osh_block_modifier(const osh_plan *p, const osh_block_of *o); // that all of them have
osh_status osh_block_peak(osh_ctx *cx, int64_t *n_bytes, const osh_plan *p, const osh_range *r);
double osh_block_flops(const osh_plan *p, const osh_linear *l); // of its share
#endif
