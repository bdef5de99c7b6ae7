/* owl.h - OWL: chooses the sparsity of each decoder layer by its outliers (Yin et al., "Outlier
 * Weighed Layerwise Sparsity (OWL): A Missing Secret Sauce for Pruning LLMs to High Sparsity",
 * arXiv 2310.05175), as llmcompressor/modifiers/pruning/sparsegpt/sgpt_base.py defines it. For all
 * Linears W [O, I] of a layer:
 *
 *   a_j = sum over samples of sqrt(sum over its tokens of x_j^2)     s_ij = |W_ij| a_j
 *   D = the fraction of all s of the layer that is above owl_m mean(s)
 *   d = 2 owl_lmbda (D - min D) / (max D - min D)
 *   sparsity of the layer = sparsity + mean(d) - d
 *
 * min, max and mean of D and d are over the layers. All values are those of the original model. */
#ifndef OSH_EVAL_OWL_H
#define OSH_EVAL_OWL_H
#include "base/profile.h"
#include "modifiers/prune.h"
#include "plan/plan.h"

typedef struct osh_owl_measure osh_owl_measure;
/* p: a plan made with opt->measure. p and owl must outlive *out (own). */
osh_status osh_owl_open(osh_ctx *cx, osh_owl_measure **out, const osh_plan *p, const osh_owl *owl);
void osh_owl_close(osh_ctx *cx, osh_owl_measure *m);
/* *peak: set to the host bytes, with the allocator's overhead, that osh_owl_run allocates. */
osh_status osh_owl_bytes(osh_ctx *cx, int64_t *peak, const osh_owl_measure *m);
/* *shares [*n] (view: lives as long as m): sparsity of each decoder layer, in the order of the
 * model. */
osh_status osh_owl_run(osh_ctx *cx, const osh_layer_share **shares, int *n, osh_owl_measure *m,
                       osh_progress *pr);
#endif
