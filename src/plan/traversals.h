/* traversals.h - --pipeline independent: one traversal for each modifier that wants data, in the recipe's order, as LLM
 * Compressor's IndependentPipeline has it. Each sees the model as the ones before left it: their factors are folded in,
 * their Linears are read from the output.
 *
 *   SmoothQuantModifier, GPTQModifier    1: factors of all layers    2: Hessians and codes of all layers
 *
 * The plan is set to one of them at a time: what its Linears want, which factors are made, passes and memory are then
 * that traversal's. All else (the cut, the output) is the same in all. */
#ifndef OSH_TRAVERSALS_H
#define OSH_TRAVERSALS_H
#include "plan/plan.h"

/* Finds them and plans the memory of each; without them, of the run. It is set to the one with the highest peak. */
osh_status osh_plan_traversals(osh_ctx *cx, osh_plan *p);
void osh_plan_traverse(osh_plan *p, int traversal); // sets the plan to one
/* Sets it to the one with the highest peak, with the needs of all: each reads its weights anew. */
void osh_plan_traversed(osh_plan *p);
void osh_plan_traversals_free(osh_ctx *cx, osh_plan *p);
/* The Linear is done in an earlier traversal than the one that the plan is set to, and this one sees it. */
static inline bool osh_is_done_before(const osh_plan *p, const osh_linear *l)
{
    return p->n_traversals && l->traversal >= 0 && l->traversal < p->traversal && osh_linear_propagates(p, l);
}
#endif
