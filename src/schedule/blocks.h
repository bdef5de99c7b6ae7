/* blocks.h - plans which Linears learn by block: gradients optimize their codes so that the output
 * of a whole block is close to a target (learn/block.h). A block consists of all decoder layers of
 * a subgraph. The activation store has the inputs and outputs of a block. The target is the output
 * of the block in the original model. The run computes the original model together with the
 * quantized model (osh_graph_add_original). */
#ifndef OSH_BLOCKS_H
#define OSH_BLOCKS_H
#include "learn/block.h"
#include "schedule/range.h"

/* Adds OSH_STAT_BLOCK to the member `wants` of the Linears that learn by block. A Linear learns by
 * block if its modifier asks for it and block_hindrance finds no reason against it. Must be called
 * before osh_graph_add_original. */
osh_status osh_plan_blocks(osh_ctx *cx, const osh_schedule *p, osh_matching *match);
/* Finds the biases that are learned together with the weights of their Linears. Sets `out.bias` of
 * each Linear to the tensor of its bias, or to -1 if no bias is learned. */
void osh_plan_biases(const osh_schedule *p, osh_matching *match);
/* Sets target[v] to true for each value v of the original model that is a target of the block in
 * range r. */
void osh_block_targets(const osh_schedule *p, const osh_range *r, bool *target);
/* Sets mixed[v] to true for each value v of the original model that is mixed with an input of the
 * block in range r (drop_ratio). Learning needs such values in addition to the inputs of the
 * quantized model. */
void osh_block_mixes(const osh_schedule *p, const osh_range *r, bool *mixed);

/* The inputs, outputs and Linears of the block in a range. The struct owns its lists. */
typedef struct osh_block_of {
    osh_block b;
    bool *run;
    int *values;  // inputs of the block, then the outputs that are compared with targets
    bool *differs; // [inputs]: true if the input differs from the input in the original model
    int *linears; // indices of the Linears that learn, in the order of b.learns
} osh_block_of;
osh_status osh_block_init(osh_ctx *cx, osh_block_of *o, const osh_schedule *p, const osh_range *r);
void osh_block_deinit(osh_ctx *cx, osh_block_of *o);
/* Returns the modifier of the Linears that learn. All Linears of a block have the same modifier. */
const osh_modifier *osh_block_modifier(const osh_schedule *p, const osh_block_of *o);
/* Returns the number of floating-point operations for learning one Linear. */
double osh_block_flops(const osh_schedule *p, const osh_linear *l);
#endif
