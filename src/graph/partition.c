/* partition.c - cuts the graph at sequential targets, as LLM Compressor's topological_partition
 * does. With the decoder layers as targets:
 *
 *   nodes   embed | norm q k v rope .. add | norm q k v .. add | norm lm_head
 *   parts   [ 0  ] [         1            ] [        2                     ]
 *
 * A part is a subgraph. Part 0 has the nodes before the first target. Part 1 begins at the first
 * target. From then on, a target begins a new part if the current part already has per_subgraph
 * targets. A node outside of all targets belongs to the part of the last target before it. If a
 * target is inside of another target, only the outermost one counts. A part is a range of nodes,
 * because nodes are in execution order. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/near.h"

void osh_partition_free(osh_ctx *cx, osh_partition *p)
{
    if (!p) return;
    for (int i = 0; i < p->n; i++) {
        osh_free(cx, p->parts[i].name);
        osh_free(cx, p->parts[i].live_in);
        osh_free(cx, p->parts[i].live_out);
    }
    osh_free(cx, p->parts);
    osh_free(cx, p);
}

/* Returns a hint for a message about an unknown target: the class or name of a module that is
 * similar to `text`. Returns "" if no class or name is similar. */
static const char *partition_near(osh_near *near, const osh_graph *g, const char *text)
{
    osh_near_init(near, text);
    for (int i = 0; i < g->n_modules && strncmp(text, "re:", 3); i++) {
        osh_near_see(near, g->modules[i].cls);
        osh_near_see(near, g->modules[i].name);
    }
    return osh_near_hint(near, "");
}

/* Sets hit[m] to true if a target matches module m. */
static osh_status match_modules(osh_ctx *cx, bool *hit, const osh_graph *g,
                                const char *const *targets, size_t n)
{
    osh_status rc = OSH_OK;
    osh_matcher *m = NULL; // own
    osh_near near;
    // targets are matched one by one, because each target must match a module
    for (size_t t = 0; t < n; t++) {
        bool any = false;
        OSH_TRY(osh_matcher_new(cx, &m, &targets[t], 1));
        for (int i = 0; i < g->n_modules; i++) {
            int64_t which = -1;
            OSH_TRY(osh_matcher_find(cx, &which, m, g->modules[i].name, g->modules[i].cls));
            if (which < 0) continue;
            any = hit[i] = true;
        }
        if (!any)
            OSH_FAIL(cx, OSH_E_USAGE, "sequential target %s matches no module of the model%s",
                     targets[t], partition_near(&near, g, targets[t]));
        osh_matcher_free(cx, m), m = NULL;
    }
done:
    osh_matcher_free(cx, m);
    return rc;
}

static bool node_is_linear(const osh_node *n)
{
    return !n->original && osh_node_is(n, OSH_OP_LINEAR);
}

static bool module_is_inside(const osh_graph *g, int module, int outer)
{
    while (module >= 0 && module != outer) module = g->modules[module].parent;
    return module == outer;
}

static bool linear_reads(const osh_node *n, int v) { return node_is_linear(n) && n->in[0] == v; }

/* True if the Linears that read v are in several modules that have the same parent module and the
 * same class, such as the experts of a layer. Such modules are independent of each other. */
static bool is_for_experts(const osh_graph *g, int v)
{
    int one = -1;
    for (int i = g->values[v].first_use; i >= 0 && i <= g->values[v].last_use; i++) {
        if (!linear_reads(&g->nodes[i], v)) continue;
        int parent = g->modules[g->nodes[i].module].parent, other = one < 0 ? parent : one;
        if (parent < 0) continue;
        if (parent != other && g->modules[parent].parent == g->modules[other].parent &&
            !strcmp(g->modules[parent].cls, g->modules[other].cls)) return true;
        one = parent;
    }
    return false;
}

/* Raises reach[i] (mark_readers) for the experts that read value v. Then the Linears `gate` and
 * `up` of each expert, which are neighbours in the list of nodes, are in one subgraph. */
static void mark_experts(int *reach, const osh_graph *g, int v)
{
    for (int i = g->values[v].first_use, end; i <= g->values[v].last_use; i = end + 1) {
        end = i;
        while (linear_reads(&g->nodes[i], v) && end < g->values[v].last_use &&
               (linear_reads(&g->nodes[end + 1], v) || g->nodes[end + 1].original)) end++;
        while (end > i && !linear_reads(&g->nodes[end], v)) end--;
        if (end > reach[i]) reach[i] = end;
    }
}

/* Makes sure that all Linears that read value v get into one subgraph. For this, raises reach[i],
 * the index of the last node that must be in one subgraph with node i. If other nodes are between
 * these Linears, all nodes of the smallest module that contains the Linears are in one subgraph.
 * For experts, only `gate` and `up` of each expert stay together. */
static void mark_readers(int *reach, const osh_graph *g, int v)
{
    int first = -1, last = -1, n = 0, others = 0, between = 0, common = -1;
    for (int i = g->values[v].first_use; i >= 0 && i <= g->values[v].last_use; i++) {
        bool reads = linear_reads(&g->nodes[i], v);
        others += n && !reads && !g->nodes[i].original;
        if (!reads) continue;
        if (n++ == 0) first = i, common = g->nodes[i].module;
        while (common >= 0 && !module_is_inside(g, g->nodes[i].module, common))
            common = g->modules[common].parent;
        last = i, between = others;
    }
    if (n < 2) return;
    if (between && is_for_experts(g, v)) {
        mark_experts(reach, g, v);
        return;
    }
    if (between) {
        while (first > 0 && module_is_inside(g, g->nodes[first - 1].module, common)) first--;
        while (last + 1 < g->n_nodes && module_is_inside(g, g->nodes[last + 1].module, common))
            last++;
    }
    if (last > reach[first]) reach[first] = last;
}

/* Sets unit[i] to the target (a module) that contains node i, or to -1 if no target contains it. If
 * several nodes must be in one subgraph, all of them get the target of the first of them that is
 * inside a target. */
static void mark_units(int *unit, int *reach, const osh_graph *g, const bool *hit)
{
    for (int i = 0; i < g->n_nodes; i++) {
        unit[i] = -1, reach[i] = i;
        for (int m = g->nodes[i].module; m >= 0; m = g->modules[m].parent)
            if (hit[m]) unit[i] = m; // ends with the outermost target
    }
    for (int v = 0; v < g->n_values; v++) mark_readers(reach, g, v);
    for (int i = 0; g->joined && i < g->n_nodes; i++)
        if (g->joined[i] > reach[i]) reach[i] = g->joined[i];
    for (int i = 0, end; i < g->n_nodes; i = end + 1) {
        int module = -1;
        end = reach[i];
        for (int j = i; j <= end; j++) { // ranges [i, reach[i]] that overlap become one
            if (reach[j] > end) end = reach[j];
            if (module < 0) module = unit[j];
        }
        for (int j = i; end > i && j <= end; j++) unit[j] = module;
    }
    // a node of the original model belongs to the target of its counterpart, the next node
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].original) unit[i] = unit[i + 1];
}

/* Shrinks the allocation of a list to n items. A deep model has many subgraphs with few live values
 * each, so this saves much memory. */
static osh_status list_shrink(osh_ctx *cx, int **list, int n)
{
    int *p = osh_realloc(cx, *list, (size_t)(n > 0 ? n : 1) * sizeof *p);
    if (!p) return OSH_E_NOMEM;
    *list = p;
    return OSH_OK;
}

typedef struct alive { // values that exist after a subgraph and that later nodes read
    int *v; // own [values]: indices of the values; the first n are used
    int n;
} alive;

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Sets live_in and live_out of a subgraph. Adds the values that the subgraph makes to *a, and
 * removes values that no later node reads. The time depends only on the number of live values, and
 * not on the size of the model. */
static osh_status live_sets(osh_ctx *cx, osh_subgraph *s, const osh_graph *g, alive *a)
{
    osh_status rc = OSH_OK;
    int end = s->first + s->n_nodes, n_came = a->n, n = 0;
    for (int i = s->first; i < end; i++)
        for (int k = 0; k < g->nodes[i].op->n_out; k++)
            if (g->values[g->nodes[i].out[k]].first_use >= 0) a->v[a->n++] = g->nodes[i].out[k];
    if (a->n > n_came) qsort(a->v, (size_t)a->n, sizeof *a->v, by_number);
    OSH_NEW(cx, s->live_in, a->n);
    OSH_NEW(cx, s->live_out, a->n);
    for (int at = 0; at < a->n; at++) {
        int v = a->v[at];
        const osh_value *x = &g->values[v];
        bool read = false;
        for (int i = s->first;
             i < end && !read && x->producer < s->first && x->last_use >= s->first; i++)
            for (int k = 0; k < g->nodes[i].op->n_in && !read; k++) read = g->nodes[i].in[k] == v;
        if (read) s->live_in[s->n_live_in++] = v;
        if (x->last_use < end) continue;
        s->live_out[s->n_live_out++] = v;
        a->v[n++] = v;
    }
    a->n = n;
    OSH_TRY(list_shrink(cx, &s->live_in, s->n_live_in));
    OSH_TRY(list_shrink(cx, &s->live_out, s->n_live_out));
done:
    return rc;
}

typedef struct open_part { // a subgraph whose last node is not known yet
    /* first: index of the first node of the subgraph. n_targets: number of its targets so far. */
    int first, n_targets;
    int module;           // index of the module of its first target; -1: it has no target
} open_part;

static osh_status close_part(osh_ctx *cx, osh_partition *p, const osh_graph *g, const open_part *o,
                             int end, alive *a)
{
    osh_status rc = OSH_OK;
    osh_subgraph *s = &p->parts[p->n++];
    *s = (osh_subgraph){.first = o->first, .n_nodes = end - o->first, .n_targets = o->n_targets};
    s->name =
        osh_strdup(cx, g->modules[o->module >= 0 ? o->module : g->nodes[o->first].module].name);
    if (!s->name) return OSH_E_NOMEM;
    OSH_TRY(live_sets(cx, s, g, a));
done:
    return rc;
}

static osh_status graph_cut(osh_ctx *cx, osh_partition *p, const osh_graph *g, const int *unit,
                      int64_t per_subgraph)
{
    osh_status rc = OSH_OK;
    open_part o = {.module = -1};
    alive a = {0}; // own
    OSH_NEW(cx, a.v, g->n_values);
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].producer < 0 && g->values[v].first_use >= 0) a.v[a.n++] = v;
    for (int i = 0; i < g->n_nodes; i++) {
        if (unit[i] < 0 || (i > 0 && unit[i] == unit[i - 1])) continue; // no target begins here
        if (i > o.first && (o.n_targets == 0 || o.n_targets >= per_subgraph)) {
            OSH_TRY(close_part(cx, p, g, &o, i, &a));
            o = (open_part){.first = i, .module = -1};
        }
        if (o.n_targets++ == 0) o.module = unit[i];
    }
    OSH_TRY(close_part(cx, p, g, &o, g->n_nodes, &a));
done:
    osh_free(cx, a.v);
    return rc;
}

osh_status osh_partition_new(osh_ctx *cx, osh_partition **out, const osh_graph *g,
                             const char *const *targets, size_t n, int64_t per_subgraph)
{
    osh_status rc = OSH_OK;
    const char *layer = g->layer_class;
    osh_partition *p = NULL; // own
    bool *hit = NULL;        // own [n_modules]: true if a target matches the module
    int *unit = NULL, *reach = NULL; // own [n_nodes] each: results of mark_units
    if (per_subgraph < 1)
        OSH_FAIL(cx, OSH_E_USAGE, "sequential targets per subgraph: want at least 1, got %lld",
                 (long long)per_subgraph);
    OSH_NEW(cx, p, 1);
    OSH_NEW(cx, p->parts, g->n_nodes);
    OSH_NEW(cx, hit, g->n_modules);
    OSH_NEW(cx, unit, g->n_nodes);
    OSH_NEW(cx, reach, g->n_nodes);
    OSH_TRY(match_modules(cx, hit, g, n ? targets : &layer, n ? n : 1));
    mark_units(unit, reach, g, hit);
    OSH_TRY(graph_cut(cx, p, g, unit, per_subgraph));
    *out = p, p = NULL; // give
done:
    osh_partition_free(cx, p);
    osh_free(cx, hit);
    osh_free(cx, unit);
    osh_free(cx, reach);
    return rc;
}
