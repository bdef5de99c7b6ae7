/* owl.h - OWL: how much of each decoder layer becomes 0, by its outliers (Yin et al., "Outlier Weighed Layerwise
 * Sparsity (OWL): A Missing Secret Sauce for Pruning LLMs to High Sparsity", arXiv 2310.05175), as
 * llmcompressor/modifiers/pruning/sparsegpt/sgpt_base.py defines it. Of all Linears of a layer, W [O, I] each,
 *
 *   a_j = sum over samples of sqrt(sum over its tokens of x_j^2)     s_ij = |W_ij| a_j
 *   D = the share of all s of the layer above owl_m mean(s)          d = 2 owl_lmbda (D - min D) / (max D - min D)
 *   sparsity of the layer = sparsity + mean(d) - d
 *
 * min, max and mean over the layers. It is measured on the model as it is. */
#ifndef OSH_EVAL_OWL_H
#define OSH_EVAL_OWL_H
#include "base/profile.h"
#include "modifiers/prune.h"
#include "plan/plan.h"

typedef struct osh_owl_measure osh_owl_measure;
/* p: planned with opt->measure; it and owl stay while this lives. */
osh_status osh_owl_open(osh_ctx *cx, osh_owl_measure **out, const osh_plan *p, const osh_owl *owl);
void osh_owl_close(osh_ctx *cx, osh_owl_measure *m);
osh_status osh_owl_bytes(osh_ctx *cx, int64_t *peak, const osh_owl_measure *m); // gross, that osh_owl_run takes
/* Sparsities of all decoder layers, in the model's order; views. */
osh_status osh_owl_run(osh_ctx *cx, const osh_layer_share **shares, int *n, osh_owl_measure *m, osh_progress *pr);
#endif
