/* insert.c - inserts new nodes before or after existing nodes of a graph.
 *
 *   a ── down_proj ── y          "before":   a ── rotate ── a (rotated) ── down_proj ── y
 *                                "after":    a ── down_proj ── y (not rotated) ── rotate ── y */
#include "graph/insert.h"

#include <string.h>

static osh_status value_add(osh_ctx *cx, osh_graph *g, int *index, int like, const char *what)
{
    osh_status rc = OSH_OK;
    osh_value *v = osh_realloc(cx, g->values, (size_t)(g->n_values + 1) * sizeof *v);
    if (!v) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a value");
    g->values = v;
    v[g->n_values] = v[like];
    v[g->n_values].name = osh_sprintf(cx, "%s (%s)", v[like].name, what);
    if (!v[g->n_values].name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of a value");
    *index = g->n_values++;
done:
    return rc;
}

static osh_node node_between(const osh_graph *g, const osh_insertion *by, int in, int out)
{
    osh_node n = {.op = by->op, .module = g->nodes[by->node].module, .attr = by->attr};
    for (int k = 0; k < OSH_OP_MAX_IN; k++) n.in[k] = n.w[k] = -1;
    for (int k = 0; k < OSH_OP_MAX_OUT; k++) n.out[k] = -1;
    n.in[0] = in, n.out[0] = out, n.w[0] = by->weight;
    return n;
}

typedef struct splice {
    osh_graph *g;    // view: the graph
    osh_node *nodes; // own
    int n;
    int *made;       // own [insertions]: index of the value that each new node makes
} splice;

static osh_status insert_before(osh_ctx *cx, splice *s, osh_insertion *list, int i)
{
    osh_status rc = OSH_OK;
    osh_insertion *by = &list[i];
    osh_node *n = &s->g->nodes[by->node];
    if (by->same_as >= 0) {
        s->made[i] = s->made[by->same_as];
    } else {
        OSH_TRY(value_add(cx, s->g, &s->made[i], n->in[by->in], "rotated"));
        s->nodes[s->n++] = node_between(s->g, by, n->in[by->in], s->made[i]);
    }
    n->in[by->in] = s->made[i];
done:
    return rc;
}

static osh_status insert_after(osh_ctx *cx, splice *s, osh_insertion *by)
{
    osh_status rc = OSH_OK;
    osh_node *n = &s->nodes[s->n - 1]; // the existing node, which is the last of s->nodes so far
    int to = n->out[0];
    OSH_TRY(value_add(cx, s->g, &n->out[0], to, "as it comes"));
    s->nodes[s->n] = node_between(s->g, by, n->out[0], to);
    s->n++;
done:
    return rc;
}

osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n)
{
    osh_status rc = OSH_OK;
    splice s = {.g = g};
    int *moved = NULL, at = 0; // moved: own [nodes], new index of each existing node
    OSH_NEW(cx, s.nodes, g->n_nodes + n);
    OSH_NEW(cx, s.made, n);
    OSH_NEW(cx, moved, g->n_nodes);
    for (int i = 0; i < g->n_nodes; i++) {
        int first = at;
        for (; at < n && list[at].node == i; at++)
            if (!list[at].after) OSH_TRY(insert_before(cx, &s, list, at));
        moved[i] = s.n;
        s.nodes[s.n++] = g->nodes[i];
        for (int k = first; k < at; k++)
            if (list[k].after) OSH_TRY(insert_after(cx, &s, &list[k]));
    }
    osh_free(cx, g->nodes);
    g->nodes = s.nodes, s.nodes = NULL; // give
    for (int i = 0; i < n; i++) list[i].attr = NULL; // give
    g->n_nodes = s.n;
    g->head = moved[g->head];
    for (int m = 0; m < g->n_modules; m++)
        if (g->modules[m].node >= 0) g->modules[m].node = moved[g->modules[m].node];
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op->n_out; k++) g->values[g->nodes[i].out[k]].producer = i;
    osh_graph_link_uses(g);
done:
    osh_free(cx, s.nodes); // after a failure, `list` still owns the attributes of the new nodes
    osh_free(cx, s.made);
    osh_free(cx, moved);
    return rc;
}

osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck,
                                int64_t tensor)
{
    osh_status rc = OSH_OK;
    const osh_entry *e = ck->tensors[tensor].e;
    osh_weight *w = osh_realloc(cx, g->weights, (size_t)(g->n_weights + 1) * sizeof *w);
    if (!w) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", e->name);
    g->weights = w;
    w += g->n_weights;
    *w = (osh_weight){.ndim = e->ndim, .dtype = e->dtype, .shape = {e->shape[0], e->shape[1]},
                      .tensor = tensor, .by_rows = OSH_DTYPE_NONE};
    if (!(w->name = osh_strdup(cx, e->name)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", e->name);
    *index = g->n_weights++;
done:
    return rc;
}
