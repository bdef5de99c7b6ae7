/* blocks.h - plans which Linears learn by block: their codes are optimized by gradients so that the
 * output of the whole block is close to a target (learn/block.h). A block is all decoder layers of
 * a subgraph. Inputs and outputs of a block are values in the activation store. The target is the
 * output of the block in the original model, whose values are computed in the same run
 * (osh_graph_add_original). */
#ifndef OSH_BLOCKS_H
#define OSH_BLOCKS_H
#include "learn/block.h"
#include "schedule/range.h"

/* Sets OSH_STAT_BLOCK in the wants of Linears that learn by block: those whose modifier asks for
 * it, if nothing prevents it. Must be called before osh_graph_add_original. */
osh_status osh_plan_blocks(osh_ctx *cx, const osh_schedule *p, osh_matching *match);
/* Finds the biases that are learned together with the weights of their Linears. Also called for a
 * plan without a run. */
void osh_plan_biases(const osh_schedule *p, osh_matching *match);
/* Sets target[v] to true for values of the original model with which the outputs of the range's
 * blocks are compared. */
void osh_block_targets(const osh_schedule *p, const osh_range *r, bool *target);
/* Sets mixed[v] to true for values of the original model that are inputs of the blocks and are
 * needed until the blocks have learned. */
void osh_block_mixes(const osh_schedule *p, const osh_range *r, bool *mixed);

typedef struct osh_block_of { // the block of a range; all lists are own
    osh_block b;
    bool *run;
    int *values;  // inputs of the block, then the compared values
    bool *differs; // [inputs]: true if the value differs in the original model
    int *linears; // Linears that learn, in the order of b.learns
} osh_block_of;
osh_status osh_block_init(osh_ctx *cx, osh_block_of *o, const osh_schedule *p, const osh_range *r);
void osh_block_deinit(osh_ctx *cx, osh_block_of *o);
/* Returns the modifier of the Linears of the block that learn; all have the same. */
const osh_modifier *osh_block_modifier(const osh_schedule *p, const osh_block_of *o);
double osh_block_flops(const osh_schedule *p, const osh_linear *l); // floating-point operations to
                                                                    // learn one Linear
#endif
