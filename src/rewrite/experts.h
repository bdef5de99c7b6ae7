/* experts.h - removes the experts that a recipe names. Before the other parts of the plan are made,
 * the view of the checkpoint is changed: the kept experts get new numbers, the router has only the
 * rows of these experts, and config.json has the number of these experts. The run, a quantizer of
 * the same recipe and `oneshot verify` read the changed checkpoint. */
#ifndef OSH_PLAN_EXPERTS_H
#define OSH_PLAN_EXPERTS_H
#include "rewrite/rewrites.h"

typedef struct osh_expert_layer {
    char *name;        // own: such as "model.layers.0.mlp"
    char *router;      // own: such as "model.layers.0.mlp.gate"
    /* Indices of graph values: output of the router, and weights of the experts for each token. */
    int logits, route;
    int *kept;         // own [n_kept]: original numbers of the kept experts, ascending
} osh_expert_layer;

struct osh_experts {
    osh_expert_layer *layers; // own
    /* n: number of layers with experts.
     * n_all, n_kept: number of experts of each layer before and after the removal. */
    int n, n_all, n_kept;
    /* True if `kept` is final. False: `kept` has the first n_kept experts, so only sizes are
     * right. */
    bool known;
    const char **dropped; // own [n_dropped]: views of the names of the removed tensors
    int n_dropped;
    struct osh_kept_rows *rows; // own: states of the virtual tensors of routers
};
/* Removes the experts that the recipe names from the checkpoint of `in`. Needs recipe and graph;
 * may replace the graph. Removes none if opt->measure is set. */
osh_status osh_plan_experts(osh_ctx *cx, osh_rewrites *p, osh_inputs *in);
/* Sets *out (own) to the number of kept experts of each decoder layer; -1: the layer keeps all
 * experts. *out is NULL if the recipe removes no experts. */
osh_status osh_experts_left(osh_ctx *cx, int **out, const osh_rewrites *p);
void osh_plan_experts_free(osh_ctx *cx, osh_rewrites *p);
/* Prints the numbers of the kept experts of each layer, as a map of lists that is valid YAML and
 * JSON. *out: own. */
osh_status osh_experts_print(osh_ctx *cx, char **out, const osh_experts *x);
/* Returns a view: name of the output file with the kept experts; NULL: none. */
const char *osh_experts_file(const osh_rewrites *p);
/* True if the tensor is the virtual tensor of a router that has lost rows. */
static inline bool osh_is_cut_router(const osh_rewrites *p, int64_t tensor)
{
    return p->experts && p->in->ck->tensors[tensor].shard < 0;
}
#endif
