/* folds.h - finds the folds of transforms. (A transform is a modifier that changes weights before
 * they are quantized.) A fold divides the weights of a layer, the smooth layer, by factors. The
 * Linears that read the output of this layer are the balance layers. The fold multiplies their
 * weights by the same factors.
 *
 *   input_layernorm ── a ──► q_proj, k_proj, v_proj
 *     divides the weight of input_layernorm by s
 *     multiplies the columns of q_proj, k_proj and v_proj by s
 *   up_proj ── u ──► glu ── f ──► down_proj
 *     divides the rows of up_proj by s
 *     multiplies the columns of down_proj by s
 *
 * The output of the model stays the same if every op that reads the smooth layer's output is a
 * balance layer, or passes the factors on to its own output. Three ops pass factors on: a scale; a
 * glu, for its input without the activation; and an attention, for its values, if it has as many
 * heads of queries as of keys. Any other op is an error that names the module of the op. */
#ifndef OSH_FOLDS_H
#define OSH_FOLDS_H
#include "rewrite/rewrites.h"

/* Sets p->folds and p->folded. Needs the recipe, the graph and the list of Linears. */
osh_status osh_plan_folds(osh_ctx *cx, osh_rewrites *p);
/* Frees the folds of p. */
void osh_plan_folds_free(osh_ctx *cx, osh_rewrites *p);
/* osh_fold_giving describes how a fold changes weight f->gives[k], which is divided by factors.
 * osh_fold_taking describes how it changes weight f->takes[k], which is multiplied by factors. */
osh_fold_rule osh_fold_giving(const osh_rewrites *p, const osh_fold *f, int k);
osh_fold_rule osh_fold_taking(const osh_rewrites *p, const osh_fold *f, int k);
/* Registers the factors f->s of fold number `fold` with the checkpoint. From then on, every read of
 * a weight of the fold returns the weight with the factors folded in. */
osh_status osh_fold_known(osh_ctx *cx, const osh_rewrites *p, int fold);
/* Computing factors may need a weight that is not in memory. The weight is then read in pieces of
 * this number of bytes. */
enum { OSH_FOLD_PIECE = 1 << 20 };
/* True if a search finds the factors of the fold. The search reads the input of the balance layers,
 * so f->value is then this input and not the output of the smooth layer. */
bool osh_fold_searches(const osh_rewrites *p, const osh_fold *f);
/* Returns the number of points that the search for factors tries, or 0 if there is no search. */
int osh_fold_search_points(const osh_rewrites *p, const osh_fold *f);
/* types of the statistics from which the factors of a fold are computed */
typedef struct osh_fold_types {
    /* channels: a statistic of each channel.
     * squares: the Hessian, which a search needs; NULL: there is no search. */
    const osh_stat_type *channels, *squares;
} osh_fold_types;
/* Returns the statistics that the fold needs. */
osh_fold_types osh_fold_types_of(const osh_rewrites *p, const osh_fold *f);
/* Sets *out (own [f->n_takes]) to a description of each balance layer of the fold. Must be called
 * after the graph is cut into subgraphs. */
osh_status osh_fold_balance(osh_ctx *cx, osh_balance **out, const osh_rewrites *p,
                            const osh_fold *f);
/* True if factors are folded into the source tensor, or if the tensor is rotated. */
static inline bool osh_is_folded(const osh_rewrites *p, int64_t tensor)
{
    return p->folded && p->folded[tensor];
}
#endif
