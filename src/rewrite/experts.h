/* experts.h - experts that a recipe removes. The checkpoint is replaced by a view without them
 * before the other parts of the plan are made: the remaining experts are numbered anew, the router
 * keeps only their rows, and config.json has their number. All later readers (the run, a later
 * quantizer, verify) see that model. */
#ifndef OSH_PLAN_EXPERTS_H
#define OSH_PLAN_EXPERTS_H
#include "rewrite/rewrites.h"

typedef struct osh_expert_layer {
    char *name;        // own: such as "model.layers.0.mlp"
    char *router;      // own: such as "model.layers.0.mlp.gate"
    int logits, route; // values of the whole model: output of the router, and weights of the
                       // experts
    int *kept;         // own [n_kept]: numbers of the remaining experts, ascending
} osh_expert_layer;

struct osh_experts {
    osh_expert_layer *layers; // own
    int n, n_all, n_kept;     // n: number of layers; n_all, n_kept: experts of each layer before
                              // and after
    bool known;               // true: `kept` is final; false: `kept` has the first n_kept experts,
                              // which gives the right sizes
    const char **dropped; // own [n_dropped]: views of the names of the tensors that are removed
    int n_dropped;
    struct osh_kept_rows *rows; // own: rows of routers that stay
};
/* Removes the experts. Needs recipe and graph; may replace the graph. If opt->measure is set, no
 * expert is removed. */
osh_status osh_plan_experts(osh_ctx *cx, osh_rewrites *p, osh_inputs *in);
/* Sets *out (own) to the number of remaining experts of each decoder layer; -1: all. *out NULL: the
 * recipe removes no expert. */
osh_status osh_experts_left(osh_ctx *cx, int **out, const osh_rewrites *p);
void osh_plan_experts_free(osh_ctx *cx, osh_rewrites *p);
/* Prints the numbers of the remaining experts of each layer: a map of lists that is valid YAML and
 * JSON. *out: own. */
osh_status osh_experts_print(osh_ctx *cx, char **out, const osh_experts *x);
const char *osh_experts_file(const osh_rewrites *p); // view: name of the output file with this
                                                     // list; NULL: none
/* True if the tensor belongs to a router that has lost rows. */
static inline bool osh_is_cut_router(const osh_rewrites *p, int64_t tensor)
{
    return p->experts && p->in->ck->tensors[tensor].shard < 0;
}
#endif
