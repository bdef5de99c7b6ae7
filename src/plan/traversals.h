/* traversals.h - the option --pipeline independent: one traversal for each modifier that needs
 * data, in the recipe's order, like LLM Compressor's IndependentPipeline. A traversal runs the
 * model with the changes of earlier traversals: their factors are folded in, and the Linears that
 * they solved are read from the output.
 *
 *   SmoothQuantModifier    traversal 1: factors of all layers
 *   GPTQModifier           traversal 2: Hessians and codes of all layers
 *
 * Each traversal has its own schedule and budget. The subgraphs and the output are the same in all
 * traversals. For display, the plan shows the schedule and the budget of the traversal with the
 * highest peak. Only the peaks are the maximum over all traversals, and the read bytes are the
 * sum. */
#ifndef OSH_TRAVERSALS_H
#define OSH_TRAVERSALS_H
#include "plan/plan.h"

/* Finds the traversals of --pipeline independent and plans the memory of each. If there are none,
 * plans the memory of the run. */
osh_status osh_plan_traversals(osh_ctx *cx, osh_plan *p);
void osh_plan_traversals_free(osh_ctx *cx, osh_plan *p);
#endif
