/* blocks.h - plans which Linears learn by block. Learning by block (learn/block.h) optimizes codes
 * by gradients, so that the output of a whole block is close to a target. A block consists of all
 * decoder layers of a subgraph. The inputs and outputs of a block are in the activation store. The
 * target is the output of the block in the original model. The run computes the original model
 * together with the quantized model (osh_graph_add_original). */
#ifndef OSH_BLOCKS_H
#define OSH_BLOCKS_H
#include "learn/block.h"
#include "schedule/range.h"

/* Adds OSH_STAT_BLOCK to the member `wants` of the Linears that learn by block. A Linear learns by
 * block if its modifier asks for it, and if block_hindrance returns no reason against it. Must be
 * called before osh_graph_add_original. */
osh_status osh_plan_blocks(osh_ctx *cx, const osh_schedule *p, osh_matching *match);
/* Finds the biases that are learned together with weights. Sets `out.bias` of each Linear to the
 * source tensor of its bias, or to -1 if the bias is not learned. */
void osh_plan_biases(const osh_schedule *p, osh_matching *match);
/* Finds the targets of the block in range r. Sets target[v] to true for each of them; v is a value
 * of the original model. */
void osh_block_targets(const osh_schedule *p, const osh_range *r, bool *target);
/* With a drop_ratio, learning mixes the inputs of the block with those of the original model. Sets
 * mixed[v] to true for each value v of the original model that the block of range r needs for the
 * mix. */
void osh_block_mixes(const osh_schedule *p, const osh_range *r, bool *mixed);

/* The block of a range: its inputs, outputs and Linears. The struct owns its lists. */
typedef struct osh_block_of {
    osh_block b;
    bool *run;
    int *values;  // graph values: first the inputs of the block, then its outputs
    bool *differs; // [inputs]: true if the input differs from its counterpart in the original model
    int *linears; // indices of the Linears that learn, in the order of b.learns
} osh_block_of;
/* Sets *o to the block of range r. The caller calls osh_block_deinit. */
osh_status osh_block_init(osh_ctx *cx, osh_block_of *o, const osh_schedule *p, const osh_range *r);
void osh_block_deinit(osh_ctx *cx, osh_block_of *o);
/* Returns the modifier of the Linears of the block. All of them have the same modifier. */
const osh_modifier *osh_block_modifier(const osh_schedule *p, const osh_block_of *o);
/* Returns the number of floating-point operations that learning one Linear takes. */
double osh_block_flops(const osh_schedule *p, const osh_linear *l);
#endif
