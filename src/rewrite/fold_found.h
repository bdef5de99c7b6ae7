/* fold_found.h - declares a mapping for one smooth layer. folds.c finds mappings, and fold_add.c
 * adds their folds. */
#ifndef OSH_FOLD_FOUND_H
#define OSH_FOLD_FOUND_H
#include "match/lookup.h"
#include "rewrite/folds.h"

#include <string.h>

typedef struct osh_found { // a mapping for one smooth layer
    const osh_modifier *m;
    /* modifier: index of the modifier in the recipe.
     * smooth: index of the smooth layer's module among the graph's modules. */
    int modifier, smooth;
    int *takes, n_takes;   // own [n_takes]: modules of the balance layers
    /* The lists below are made once and serve all mappings. */
    /* own [modules]: for each module, a span of indices that contains all modules inside of it */
    osh_span *inside;
    int *n_users;          // own [source tensors]: number of nodes whose weight is the tensor
    bool *hits;            // own [modules]: true if the module matches a target of the mapping
} osh_found;

static inline const osh_node *osh_found_node(const osh_rewrites *p, int module)
{
    return &p->in->graph->nodes[p->in->graph->modules[module].node];
}

/* True if the node is the op of its module. Other nodes only read a parameter of the module. They
 * cannot be balance layers, because balance layers are modules. */
static inline bool osh_found_is_op(const osh_graph *g, const osh_node *n)
{
    return g->modules[n->module].node == n - g->nodes;
}

static inline bool osh_found_is_router(const char *cls) { return strstr(cls, "Router") != NULL; }

/* True if the node reads the elements of the value. The op `zeros` does not: it reads only the
 * shape. */
bool osh_found_reads(const osh_node *n, int value);
/* True if the node passes factors on. Then, if channels of its input `value` are multiplied by
 * factors, the channels of its output are multiplied by the same factors. */
bool osh_found_passes_on(const osh_node *n, int value);
/* Adds the fold of a mapping, unless the modifier ignores or skips the mapping. Fails if the
 * mapping would change values that other layers read. */
osh_status osh_found_take_up(osh_ctx *cx, osh_rewrites *p, const osh_found *f);
#endif
