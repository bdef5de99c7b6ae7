/* traversals.h - implements `--pipeline independent`, like LLM Compressor's IndependentPipeline.
 * Each modifier that needs data gets one traversal (a forward computation of all samples), in the
 * order of the recipe. A traversal runs the model with the changes of earlier traversals. The
 * factors of these traversals are folded in, and the Linears that they solved are read from the
 * output.
 *
 *   SmoothQuantModifier    traversal 1 computes the factors of all layers
 *   GPTQModifier           traversal 2 computes the Hessians and codes of all layers
 *
 * Each traversal has its own schedule and budget. All traversals have the same subgraphs and write
 * to the same output. The plan shows the schedule and the budget of the traversal with the highest
 * peak. But the plan's peaks are the maximum over all traversals, and its read bytes are the sum
 * over all traversals. */
#ifndef OSH_TRAVERSALS_H
#define OSH_TRAVERSALS_H
#include "plan/plan.h"

/* For `--pipeline independent`, finds the traversals and plans the memory of each of them. Does
 * nothing for the other pipelines, and if there are fewer than two traversals. p->n_traversals is
 * then 0, and the caller plans the memory of the run. */
osh_status osh_plan_traversals(osh_ctx *cx, osh_plan *p);
void osh_plan_traversals_free(osh_ctx *cx, osh_plan *p);
#endif
