/* experts.h - removes the experts that a recipe names. The files of the checkpoint stay the same,
 * but the program then reads the checkpoint without these experts. The other parts of the plan are
 * made after this change. The kept experts get new numbers. The router then has only the rows of
 * the kept experts, and config.json has their number. The run and `oneshot verify` read the changed
 * checkpoint. So does a modifier that quantizes after the pruning. */
#ifndef OSH_PLAN_EXPERTS_H
#define OSH_PLAN_EXPERTS_H
#include "rewrite/rewrites.h"

typedef struct osh_expert_layer {
    char *name;        // own: name of the module with the experts, such as "model.layers.0.mlp"
    char *router;      // own: name of the router, such as "model.layers.0.mlp.gate"
    /* Indices of two graph values. logits: output of the router. route: for each token, the factor
     * of each expert's output. */
    int logits, route;
    int *kept;         // own [n_kept]: old numbers of the kept experts, ascending
} osh_expert_layer;

struct osh_experts {
    osh_expert_layer *layers; // own
    /* n: number of layers with experts.
     * n_all, n_kept: number of experts of each layer before and after the removal. */
    int n, n_all, n_kept;
    /* True if the kept experts are chosen. If false, `kept` lists the first n_kept experts, which
     * is enough to compute sizes. */
    bool known;
    const char **dropped; // own [n_dropped]: names of the removed tensors; the strings are views
    int n_dropped;
    /* For each virtual tensor of a router: the source tensor, and the list of the rows of this
     * source tensor that are kept. (A virtual tensor is computed when it is read.) */
    struct osh_kept_rows *rows; // own
};
/* Removes from the checkpoint of `in` the experts that the recipe names. Needs in->recipe and
 * in->graph, and may replace the graph. Removes no experts if the option `measure` is true. */
osh_status osh_plan_experts(osh_ctx *cx, osh_rewrites *p, osh_inputs *in);
/* Sets *out (own) to a list with the number of experts that each decoder layer keeps. The number is
 * -1 if the layer keeps all experts. Sets *out to NULL if the recipe removes no experts. */
osh_status osh_experts_left(osh_ctx *cx, int **out, const osh_rewrites *p);
/* Frees the lists of experts of p. */
void osh_plan_experts_free(osh_ctx *cx, osh_rewrites *p);
/* Prints a map from layers to lists of kept experts. *out (own): the text, which is valid YAML and
 * valid JSON. */
osh_status osh_experts_print(osh_ctx *cx, char **out, const osh_experts *x);
/* Returns the name (view) of the output file that lists the kept experts, or NULL if there is
 * none. */
const char *osh_experts_file(const osh_rewrites *p);
/* True if the tensor is virtual: a router's tensor without the rows of the removed experts. */
static inline bool osh_is_cut_router(const osh_rewrites *p, int64_t tensor)
{
    return p->experts && p->in->ck->tensors[tensor].shard < 0;
}
#endif
