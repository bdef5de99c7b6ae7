/* experts.h - experts that a recipe removes. Before anything else is planned the checkpoint is
 * replaced by one without them: the remaining experts are numbered anew, the router keeps their
 * rows only, config.json has their number. All later readers, the run, a later quantizer and
 * verify, see that model. */
#ifndef OSH_PLAN_EXPERTS_H
#define OSH_PLAN_EXPERTS_H
#include "rewrite/rewrites.h"

typedef struct osh_expert_layer {
    char *name;        // own: "model.layers.0.mlp"
    char *router;      // own: "model.layers.0.mlp.gate"
    int logits, route; // values of the whole model: the router's output, the weights of the experts
    int *kept;         // own [n_kept of all]: ascending
} osh_expert_layer;

struct osh_experts {
    osh_expert_layer *layers; // own
    int n, n_all, n_kept;     // layers; experts of each, before and after
    bool known;               // kept is final; else it has the first experts, for sizes
    const char **dropped; // own [n_dropped]: views of the source's names
    int n_dropped;
    struct osh_kept_rows *rows; // own: of routers
};
/* Recipe and graph must be there; the graph may be replaced. With opt->measure no expert is
 * removed. */
osh_status osh_plan_experts(osh_ctx *cx, osh_rewrites *p, osh_inputs *in);
/* Returns in *out (own) how many experts each decoder layer has left, -1: all; NULL: the recipe
 * removes none. */
osh_status osh_experts_left(osh_ctx *cx, int **out, const osh_rewrites *p);
void osh_plan_experts_free(osh_ctx *cx, osh_rewrites *p);
/* Prints the remaining experts by layer: a map of lists, valid as YAML and JSON. *out: own. */
osh_status osh_experts_print(osh_ctx *cx, char **out, const osh_experts *x);
const char *osh_experts_file(const osh_rewrites *p); // view: the output file with that map; NULL: none
/* True if the tensor belongs to a router that has lost rows. */
static inline bool osh_is_cut_router(const osh_rewrites *p, int64_t tensor)
{
    return p->experts && p->in->ck->tensors[tensor].shard < 0;
}
#endif
