/* folds.h - finds the layers that can give factors to the Linears that read their output, for
 * modifiers that are transforms.
 *
 *   input_layernorm ── a ──► q_proj, k_proj, v_proj   norm's weight / s, columns of the three * s
 *   up_proj ── u ──► glu ── f ──► down_proj           rows of up_proj / s, columns of down_proj * s
 *
 * The output of the model stays the same if every reader of the layer's output takes the factors or
 * passes them on. Three ops pass factors on: a scale; a glu, from its input without the activation;
 * and an attention with as many heads of queries as of keys, from its values. Any other reader is
 * an error with its name. */
#ifndef OSH_FOLDS_H
#define OSH_FOLDS_H
#include "rewrite/rewrites.h"

/* Sets `folds` and `folded`. Needs recipe, graph and Linears. */
osh_status osh_plan_folds(osh_ctx *cx, osh_rewrites *p);
void osh_plan_folds_free(osh_ctx *cx, osh_rewrites *p);
/* Return how the factors are folded into the k-th weight that gives factors, and into a weight that
 * takes them. */
osh_fold_rule osh_fold_giving(const osh_rewrites *p, const osh_fold *f, int k);
osh_fold_rule osh_fold_taking(const osh_rewrites *p, const osh_fold *f, int k);
/* Registers the factors in f->s: every weight of the fold that is read from now on has the factors
 * folded in. */
osh_status osh_fold_known(osh_ctx *cx, const osh_rewrites *p, int fold);
/* A weight that is not in memory is read in pieces of this number of bytes. */
enum { OSH_FOLD_PIECE = 1 << 20 };
/* True if the factors are found by a search over the inputs of the Linears. f->value is then the
 * input of the Linears, not the output of the layer. */
bool osh_fold_searches(const osh_rewrites *p, const osh_fold *f);
typedef struct osh_fold_types { // statistics of a fold's value
    const osh_stat_type *channels, *squares; // squares NULL: not collected
} osh_fold_types;
osh_fold_types osh_fold_types_of(const osh_rewrites *p, const osh_fold *f);
/* Describes the Linears that take the factors. Called after the graph is cut. *out: own
 * [f->n_takes]. */
osh_status osh_fold_balance(osh_ctx *cx, osh_balance **out, const osh_rewrites *p,
                            const osh_fold *f);
/* True if the output contains the source tensor with factors folded in. */
static inline bool osh_is_folded(const osh_rewrites *p, int64_t tensor)
{
    return p->folded && p->folded[tensor];
}
#endif
