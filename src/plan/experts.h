/* experts.h - experts that a recipe leaves out. Before anything else is planned the checkpoint becomes one that has not
 * got them: those that are left are numbered anew, the router has their rows alone, config.json their number. All that
 * reads it, a run, a quantizer behind, verify, sees that model. */
#ifndef OSH_PLAN_EXPERTS_H
#define OSH_PLAN_EXPERTS_H
#include "plan/plan.h"

typedef struct osh_expert_layer {
    char *name;        // own: "model.layers.0.mlp"
    char *router;      // own: "model.layers.0.mlp.gate"
    int logits, route; // values of the whole model: what the router makes of a token, the experts' weights
    int *kept;         // own [n_kept of all]: rising
} osh_expert_layer;

struct osh_experts {
    osh_expert_layer *layers; // own
    int n, n_all, n_kept;     // layers; experts of each, before and after
    bool known;               // kept is; else it is the first ones, for sizes
    const char **dropped; // own, [n_dropped]: views of the source's names
    int n_dropped;
    struct osh_kept_rows *rows; // own: of routers
};
/* Recipe and graph are there; the graph may be another then. With opt->measure nothing is left out. */
osh_status osh_plan_experts(osh_ctx *cx, osh_plan *p);
void osh_plan_experts_free(osh_ctx *cx, osh_plan *p);
/* The experts that are left, by layer: a map of lists, in YAML as in JSON. own */
osh_status osh_experts_print(osh_ctx *cx, char **out, const osh_experts *x);
const char *osh_experts_file(const osh_plan *p); // view: the output's file that gets it; NULL: none
/* A tensor of a router that has lost rows. */
static inline bool osh_is_cut_router(const osh_plan *p, int64_t tensor)
{
    return p->experts && p->ck->tensors[tensor].shard < 0;
}
#endif
