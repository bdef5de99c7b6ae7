/* traversals.h - --pipeline independent: one traversal for each modifier that wants data, in the
 * recipe's order, like LLM Compressor's IndependentPipeline. A traversal sees the model that the
 * earlier ones left: their factors are folded in, their Linears are read from the output.
 *
 *   SmoothQuantModifier    traversal 1: factors of all layers
 *   GPTQModifier           traversal 2: Hessians and codes of all layers
 *
 * The plan is set to one traversal at a time. Wants of Linears, folds, passes and memory are then
 * those of that traversal; the cut and the output are the same in all. */
#ifndef OSH_TRAVERSALS_H
#define OSH_TRAVERSALS_H
#include "plan/plan.h"

/* Finds the traversals and plans the memory of each; without traversals, plans the memory of the
 * run. The plan is left at the traversal with the highest peak. */
osh_status osh_plan_traversals(osh_ctx *cx, osh_plan *p);
void osh_plan_traverse(osh_plan *p, int traversal); // sets the plan to a traversal
/* Sets the plan to the traversal with the highest peak, and its reads to the sum over all: each
 * reads its weights anew. */
void osh_plan_traversed(osh_plan *p);
void osh_plan_traversals_free(osh_ctx *cx, osh_plan *p);
#endif
