/* folds.h - finds which layers can give factors to the Linears that read their output (modifiers
 * that are transforms).
 *
 *   input_layernorm ── a ──► q_proj, k_proj, v_proj   norm's weight / s, columns of the three * s
 *   up_proj ── u ──► glu ── f ──► down_proj           rows of up_proj / s, columns of down_proj * s
 *
 * The output of the model stays the same if every reader of the layer's output takes the factors or
 * passes them on. Two ops pass them on: the product of a glu, and the values of an attention with
 * as many heads as its keys. Any other reader is an error that names it. */
#ifndef OSH_FOLDS_H
#define OSH_FOLDS_H
#include "rewrite/rewrites.h"

/* Fills folds and folded; needs recipe, graph and Linears. */
osh_status osh_plan_folds(osh_ctx *cx, osh_rewrites *p);
void osh_plan_folds_free(osh_ctx *cx, osh_rewrites *p);
/* Returns how the factors are folded into the k-th weight that gives, or that takes. */
osh_fold_rule osh_fold_giving(const osh_rewrites *p, const osh_fold *f, int k);
osh_fold_rule osh_fold_taking(const osh_rewrites *p, const osh_fold *f, int k);
/* Registers the factors in f->s: weights that are read from now on have them folded in. */
osh_status osh_fold_known(osh_ctx *cx, const osh_rewrites *p, int fold);
/* Bytes of a weight that are read at a time if it is not in memory. */
enum { OSH_FOLD_PIECE = 1 << 20 };
/* True if the factors come from a search over the inputs of the Linears: f->value is then that
 * input, not the layer's output. */
bool osh_fold_searches(const osh_rewrites *p, const osh_fold *f);
typedef struct osh_fold_types { // statistics of the fold's value
    const osh_stat_type *channels, *squares; // squares NULL: not wanted
} osh_fold_types;
osh_fold_types osh_fold_types_of(const osh_rewrites *p, const osh_fold *f);
/* Makes the descriptions of its Linears, in a model that is cut. *out: own [f->n_takes]. */
osh_status osh_fold_balance(osh_ctx *cx, osh_balance **out, const osh_rewrites *p,
                            const osh_fold *f);
/* True if the output has the source tensor with factors folded in. */
static inline bool osh_is_folded(const osh_rewrites *p, int64_t tensor)
{
    return p->folded && p->folded[tensor];
}
#endif
