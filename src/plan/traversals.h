/* traversals.h - the option --pipeline independent: one traversal for each modifier that needs
 * data, in the recipe's order, like LLM Compressor's IndependentPipeline. A traversal runs the
 * model as the earlier traversals have changed it: their factors are folded in, and the Linears
 * that they have solved are read from the output.
 *
 *   SmoothQuantModifier    traversal 1: factors of all layers
 *   GPTQModifier           traversal 2: Hessians and codes of all layers
 *
 * Each traversal has a schedule and a budget of its own; the cut and the output are the same in
 * all. For display, the plan's own schedule and budget are those of the traversal with the highest
 * peak; their peaks and bytes read are over all traversals. */
#ifndef OSH_TRAVERSALS_H
#define OSH_TRAVERSALS_H
#include "plan/plan.h"

/* Finds the traversals and plans the memory of each. Without traversals, plans the memory of the
 * run. */
osh_status osh_plan_traversals(osh_ctx *cx, osh_plan *p);
void osh_plan_traversals_free(osh_ctx *cx, osh_plan *p);
#endif
