/* folds.h - finds folds, for modifiers that are transforms. A fold divides the weights of a layer
 * (smooth layer) by factors, and multiplies the weights of the Linears that read the layer's output
 * (balance layers) by the same factors.
 *
 *   input_layernorm ── a ──► q_proj, k_proj, v_proj   norm's weight / s, columns of the three * s
 *   up_proj ── u ──► glu ── f ──► down_proj           rows of up_proj / s, columns of down_proj * s
 *
 * The output of the model stays the same if every op that reads the layer's output is a balance
 * layer or passes the factors on to its own output. Three ops pass factors on: a scale; a glu, for
 * its input without the activation; and an attention, for its values, if it has as many heads of
 * queries as of keys. Any other op is an error that names the module of the op. */
#ifndef OSH_FOLDS_H
#define OSH_FOLDS_H
#include "rewrite/rewrites.h"

/* Sets p->folds and p->folded. Needs recipe, graph and Linears. */
osh_status osh_plan_folds(osh_ctx *cx, osh_rewrites *p);
void osh_plan_folds_free(osh_ctx *cx, osh_rewrites *p);
/* The next two functions return how the factors of a fold change a weight: osh_fold_giving for the
 * k-th weight that is divided by the factors, osh_fold_taking for the k-th weight that is
 * multiplied by them. */
osh_fold_rule osh_fold_giving(const osh_rewrites *p, const osh_fold *f, int k);
osh_fold_rule osh_fold_taking(const osh_rewrites *p, const osh_fold *f, int k);
/* Registers the factors in f->s. All later reads of the fold's weights return weights with the
 * factors folded in. */
osh_status osh_fold_known(osh_ctx *cx, const osh_rewrites *p, int fold);
/* Number of bytes that are read at a time to compute factors from a weight that is not in
 * memory. */
enum { OSH_FOLD_PIECE = 1 << 20 };
/* True if the factors come from a search over the inputs of the Linears. f->value is then the input
 * of these Linears, and not the output of the smooth layer. */
bool osh_fold_searches(const osh_rewrites *p, const osh_fold *f);
/* Returns the number of points that the search tries; 0: there is no search. */
int osh_fold_search_points(const osh_rewrites *p, const osh_fold *f);
typedef struct osh_fold_types { // types of the statistics from which a fold's factors are computed
    /* channels: statistic of each channel.
     * squares: Hessian for a search, NULL: no search. */
    const osh_stat_type *channels, *squares;
} osh_fold_types;
osh_fold_types osh_fold_types_of(const osh_rewrites *p, const osh_fold *f);
/* Sets *out (own [f->n_takes]) to a description of each balance layer. Called after the graph is
 * cut. */
osh_status osh_fold_balance(osh_ctx *cx, osh_balance **out, const osh_rewrites *p,
                            const osh_fold *f);
/* True if factors are folded into the source tensor, or if it is rotated. */
static inline bool osh_is_folded(const osh_rewrites *p, int64_t tensor)
{
    return p->folded && p->folded[tensor];
}
#endif
