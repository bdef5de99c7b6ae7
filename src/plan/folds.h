/* folds.h - which layers give factors to the Linears behind them (modifiers that are transforms), as the graph allows
 * it.
 *
 *   input_layernorm ── a ──► q_proj, k_proj, v_proj      the norm's weight / s, column c of the three * s[c]
 *   up_proj ── u ──► glu ── f ──► down_proj              row c of up_proj / s[c], column c of down_proj * s[c]
 *
 * What the model makes stays the same where every reader of the layer's output takes the factors over, or passes them
 * on: the product of a glu, and the values of an attention whose heads are as many as those of its keys. Any other
 * reader is an error that names it. */
#ifndef OSH_FOLDS_H
#define OSH_FOLDS_H
#include "plan/plan.h"

osh_status osh_plan_folds(osh_ctx *cx, osh_plan *p); // fills folds and folded; recipe, graph and Linears are there
void osh_plan_folds_free(osh_ctx *cx, osh_plan *p);
/* How its factors are folded into the k-th weight that gives, or takes. */
osh_fold_rule osh_fold_giving(const osh_plan *p, const osh_fold *f, int k);
osh_fold_rule osh_fold_taking(const osh_plan *p, const osh_fold *f, int k);
/* Its factors stand in s: whoever reads its weights from here on has them folded in. */
osh_status osh_fold_known(osh_ctx *cx, const osh_plan *p, int fold);
enum { OSH_FOLD_PIECE = 1 << 20 }; // bytes of a weight that are read at a time, where memory does not have it
/* Its factors come of a search over what the Linears read: f->value is that, and no longer what the layer makes. */
bool osh_fold_searches(const osh_plan *p, const osh_fold *f);
/* Its Linears, of a model that is cut; own [f->n_takes]. */
osh_status osh_fold_balance(osh_ctx *cx, osh_balance **out, const osh_plan *p, const osh_fold *f);
int64_t osh_fold_seen_bytes(const osh_plan *p, const osh_fold *f); // gross: of what is collected for its factors
/* Bytes (gross) that its factors take while they are made; reads: weights may have to be read for it. */
osh_status osh_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_plan *p, const osh_fold *f, bool reads);
static inline bool osh_fold_in(const osh_fold *f, int subgraph, int n_subgraphs)
{
    return f->subgraph >= subgraph && f->subgraph < subgraph + n_subgraphs;
}
bool osh_folds_known(const osh_plan *p, int subgraph, int n_subgraphs); // all that are in them
/* A tensor of the source that the output has with factors folded in. */
static inline bool osh_is_folded(const osh_plan *p, int64_t tensor) { return p->folded && p->folded[tensor]; }
#endif
