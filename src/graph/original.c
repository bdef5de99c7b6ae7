/* original.c - adds the nodes of the original model to the graph of the quantized model.
 *
 *   h ── norm ── a ── q_proj ── q         the weight of q_proj will change
 *
 *   h ── norm ── a ─┬─ q_proj (original) ── q (original) ── ...
 *                   └─ q_proj ───────────── q ───────────── ...
 *
 * Only q, and values that are computed from q, differ between the models. They exist twice. If a
 * node of the quantized model has index i, its counterpart in the original model has index i - 1.
 * If a value of the quantized model has index i, its counterpart has index i + 1. */
#include "graph/graph.h"

#include <string.h>

typedef struct doubling {
    bool *nodes, *values;  // own: true if the node or value exists twice in the new graph
    /* New index of each node of the old graph. If a node exists twice, this is the index of its
     * quantized copy. The index before this one belongs to the copy for the original model. */
    int *moved;            // view
    /* New index of each value of the old graph. If a value exists twice, this is the index of the
     * quantized value. The value of the original model has the next index. */
    int *moved_value;      // own
    int n_nodes, n_values; // number of nodes and of values in the new graph
} doubling;

static void choose_twice(doubling *d, const osh_graph *g, const bool *changed)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *n = &g->nodes[i];
        d->nodes[i] = changed[i];
        for (int k = 0; k < n->op->n_in; k++) d->nodes[i] |= d->values[n->in[k]];
        for (int k = 0; k < n->op->n_out; k++) d->values[n->out[k]] = d->nodes[i];
    }
    for (int i = 0; i < g->n_nodes; i++) {
        d->moved[i] = d->n_nodes + d->nodes[i];
        d->n_nodes += 1 + d->nodes[i];
    }
    for (int v = 0; v < g->n_values; v++) {
        d->moved_value[v] = d->n_values;
        d->n_values += 1 + d->values[v];
    }
}

static osh_status double_values(osh_ctx *cx, osh_graph *g, const doubling *d)
{
    osh_status rc = OSH_OK;
    osh_value *values = osh_realloc(cx, g->values, (size_t)d->n_values * sizeof *values);
    int n = g->n_values;
    if (!values) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the values of the original model");
    g->values = values, g->n_values = d->n_values;
    /* The values move in descending order of index, so that no value is overwritten before it
     * moves. */
    for (int v = n - 1; v >= 0; v--) {
        osh_value *to = &values[d->moved_value[v]];
        *to = values[v];
        if (!d->values[v]) continue;
        to[1] = *to, to[1].name = NULL;
        to->original = d->moved_value[v] + 1, to[1].quantized = d->moved_value[v];
    }
    for (int v = 0; v < d->n_values; v++) {
        if (values[v].quantized < 0) continue;
        values[v].name = osh_sprintf(cx, "%s (original)", values[v - 1].name);
        if (!values[v].name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of a value");
    }
done:
    return rc;
}

/* Returns a copy of node `n` with indices of values in the new graph. If `original` is true, the
 * copy reads and makes values of the original model. */
static osh_node doubled_node(const doubling *d, const osh_node *n, bool original)
{
    osh_node to = *n;
    to.original = original;
    for (int k = 0; k < n->op->n_in; k++)
        to.in[k] = d->moved_value[n->in[k]] + (original && d->values[n->in[k]]);
    for (int k = 0; k < n->op->n_out; k++) to.out[k] = d->moved_value[n->out[k]] + original;
    return to;
}

osh_status osh_graph_add_original(osh_ctx *cx, osh_graph *g, const bool *changed, int *moved)
{
    osh_status rc = OSH_OK;
    doubling d = {.moved = moved};
    osh_node *nodes = NULL; // own
    OSH_NEW(cx, d.nodes, g->n_nodes);
    OSH_NEW(cx, d.values, g->n_values);
    OSH_NEW(cx, d.moved_value, g->n_values);
    choose_twice(&d, g, changed);
    OSH_NEW(cx, nodes, d.n_nodes);
    OSH_TRY(double_values(cx, g, &d));
    for (int i = 0; i < g->n_nodes; i++) {
        nodes[moved[i]] = doubled_node(&d, &g->nodes[i], false);
        if (d.nodes[i]) nodes[moved[i] - 1] = doubled_node(&d, &g->nodes[i], true);
    }
    osh_free(cx, g->nodes);
    g->nodes = nodes, nodes = NULL; // give
    g->n_nodes = d.n_nodes;
    g->head = moved[g->head];
    g->input_ids = d.moved_value[g->input_ids], g->hidden = d.moved_value[g->hidden];
    for (int m = 0; m < g->n_modules; m++)
        if (g->modules[m].node >= 0) g->modules[m].node = moved[g->modules[m].node];
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op->n_out; k++) g->values[g->nodes[i].out[k]].producer = i;
    osh_graph_link_uses(g);
done:
    osh_free(cx, nodes);
    osh_free(cx, d.nodes);
    osh_free(cx, d.values);
    osh_free(cx, d.moved_value);
    return rc;
}
