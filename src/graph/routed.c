/* routed.c - lists, gathers and scatters the rows of a batch that are routed to an expert. The rows
 * keep their order and stay in their sample, so the results do not depend on batches or threads. */
#include "graph/routed.h"

#include "ops/device_ops.h"
#include "ops/kernel.h"

#include <string.h>

int osh_routed_to(const osh_graph *g, int node)
{
    for (const osh_node *n = &g->nodes[node]; n->op->by_rows && n->op->n_out == 1;) {
        const osh_value *v = &g->values[n->out[0]];
        if (v->first_use < 0 || v->first_use != v->last_use) break;
        const osh_node *reader = &g->nodes[v->first_use];
        if (osh_node_is(reader, OSH_OP_COMBINES))
            return reader->in[1] == n->out[0] ? v->first_use : -1;
        n = reader;
    }
    return -1;
}

int osh_routed_from(const osh_graph *g, int value)
{
    while (value >= 0 && g->values[value].producer >= 0) {
        int node = g->values[value].producer;
        const osh_node *n = &g->nodes[node];
        bool follows = n->op->by_rows || osh_node_is(n, OSH_OP_KEEPS_ZEROS);
        if (osh_node_is(n, OSH_OP_PICKS_ROWS)) return node;
        if (!follows || (n->op->n_weights > 1 && n->w[1] >= 0)) return -1;
        value = n->in[0];
    }
    return -1;
}

int osh_routed_route(const osh_graph *g, int from)
{
    const osh_node *n = &g->nodes[from];
    return n->in[osh_node_is(n, OSH_OP_PICKS_ROWS) ? 1 : 2];
}

bool osh_is_by_route(const osh_graph *g, int value) { return osh_routed_from(g, value) >= 0; }

void osh_routed_choose(bool *routed, const osh_graph *g, int first, int n, const bool *run)
{
    for (int i = 0; i < n; i++) {
        int combine = run[i] ? osh_routed_to(g, first + i) - first : -1;
        routed[i] = combine >= 0 && combine < n && run[combine];
    }
}

/* True if the node is a matrix product that the device's kernel for mixtures supports. */
static bool is_product(const osh_graph *g, const osh_node *n)
{
    return osh_node_is(n, OSH_OP_LINEAR) && n->w[1] < 0 && !n->original &&
           g->weights[n->w[0]].dtype == g->dtype;
}

/* True if the nodes [first, first + OSH_EXPERT_NODES) are one expert, and the device's kernel for
 * mixtures supports it. */
static bool is_expert(const osh_graph *g, int first)
{
    const osh_node *n = &g->nodes[first], *glu = &n[OSH_EXPERT_GLU], *down = &n[OSH_EXPERT_DOWN];
    const osh_node *combine = &n[OSH_EXPERT_COMBINE];
    if (!is_product(g, n) || !is_product(g, &n[OSH_EXPERT_UP]) || !is_product(g, down))
        return false;
    if (!osh_node_is(glu, OSH_OP_GLU) || !osh_node_is(combine, OSH_OP_COMBINES) ||
        combine->original)
        return false;
    bool reads = glu->in[0] == n->out[0] && glu->in[1] == n[OSH_EXPERT_UP].out[0];
    /* true if the node of `up` comes before the node of `gate` */
    bool other = glu->in[1] == n->out[0] && glu->in[0] == n[OSH_EXPERT_UP].out[0];
    return (reads || other) && n->in[0] == n[OSH_EXPERT_UP].in[0] && down->in[0] == glu->out[0] &&
           combine->in[1] == down->out[0] &&
           osh_mixture_takes(g->dtype, g->values[n->in[0]].width,
                                  g->values[glu->out[0]].width);
}

int osh_expert_first(const osh_graph *g, int first)
{
    return first + osh_node_is(&g->nodes[first], OSH_OP_PICKS_ROWS);
}

/* True if node `first` is the routed_rows node of the expert that follows. Only gate and up of this
 * expert may read the output of node `first`. */
static bool picks_for_expert(const osh_graph *g, int first)
{
    const osh_node *pick = &g->nodes[first], *n = pick + 1, *combine = &n[OSH_EXPERT_COMBINE];
    const osh_value *v = &g->values[pick->out[0]];
    return n->in[0] == pick->out[0] && v->first_use == first + 1 + OSH_EXPERT_GATE &&
           v->last_use == first + 1 + OSH_EXPERT_UP && pick->in[1] == combine->in[2] &&
           ((const osh_moe_combine_attr *)pick->attr)->expert ==
               ((const osh_moe_combine_attr *)combine->attr)->expert;
}

/* True if the experts that begin at nodes a and b can run together: they have the same router
 * output, and equal widths and attributes. */
static bool is_alike(const osh_graph *g, const osh_node *a, const osh_node *b)
{
    const osh_glu_attr *x = a[OSH_EXPERT_GLU].attr, *y = b[OSH_EXPERT_GLU].attr;
    const osh_node *c = &a[OSH_EXPERT_COMBINE], *d = &b[OSH_EXPERT_COMBINE];
    return c->in[2] == d->in[2] && !strcmp(x->act, y->act) &&
           x->limit == y->limit && x->alpha == y->alpha && x->plus == y->plus &&
           g->values[a->out[0]].width == g->values[b->out[0]].width &&
           ((const osh_moe_combine_attr *)c->attr)->plain ==
               ((const osh_moe_combine_attr *)d->attr)->plain;
}

int osh_mixture_end(const osh_graph *g, int first, int end)
{
    int at = first, skip = osh_expert_first(g, first) - first, each = OSH_EXPERT_NODES + skip;
    for (; at + each <= end && is_expert(g, at + skip); at += each) {
        const osh_node *n = &g->nodes[at];
        int sum = n[skip + OSH_EXPERT_COMBINE].in[0];
        if (osh_expert_first(g, at) - at != skip || (skip && !picks_for_expert(g, at))) break;
        if (at == first) continue;
        if (g->nodes[first].in[0] != n->in[0] ||
            !is_alike(g, &g->nodes[first + skip], n + skip) || sum != n[-1].out[0])
            break;
        /* If another node also reads the sum of the experts so far, the mixture must end here. */
        if (g->values[sum].first_use != g->values[sum].last_use) break;
    }
    return at;
}

void osh_routed_deinit(osh_ctx *cx, osh_expert_rows *r)
{
    osh_free(cx, r->rows);
    osh_free(cx, r->offsets);
    for (int k = 0; k < OSH_OP_MAX_IN; k++) osh_tensor_free(cx, r->x[k]);
    *r = (osh_expert_rows){0};
}

osh_status osh_routed_begin(osh_ctx *cx, osh_expert_rows *r, const osh_graph *g, int combine,
                            const osh_tensor *route, const osh_seqs *seqs)
{
    osh_status rc = OSH_OK;
    int64_t E = route->shape[1],
            expert = ((const osh_moe_combine_attr *)g->nodes[combine].attr)->expert;
    osh_routed_deinit(cx, r);
    r->combine = combine;
    OSH_NEW(cx, r->rows, route->shape[0]);
    OSH_NEW(cx, r->offsets, seqs->n + 1);
    r->seqs = (osh_seqs){seqs->n, r->offsets};
    for (int64_t s = 0; s < seqs->n; s++) {
        for (int64_t t = seqs->offsets[s]; t < seqs->offsets[s + 1]; t++) {
            if (osh_tensor_at(route, t * E + expert) != 0) r->rows[r->n++] = (int32_t)t;
        }
        r->offsets[s + 1] = r->n;
    }
done:
    return rc;
}

static size_t routed_row_bytes(const osh_tensor *t)
{
    return (size_t)t->shape[1] * osh_dtype_bytes(t->dtype);
}

osh_status osh_routed_gather(osh_ctx *cx, osh_expert_rows *r, int k, int value, const osh_tensor *x)
{
    osh_status rc = OSH_OK;
    size_t row = routed_row_bytes(x);
    if (r->x[k] && r->value[k] == value) goto done;
    osh_tensor_free(cx, r->x[k]), r->x[k] = NULL;
    OSH_TRY(osh_tensor_new(cx, &r->x[k], x->dtype, 2, (int64_t[]){r->n, x->shape[1]}));
    for (int64_t i = 0; i < r->n; i++)
        memcpy((char *)r->x[k]->data + (size_t)i * row, (char *)x->data + (size_t)r->rows[i] * row,
               row);
    r->value[k] = value;
done:
    return rc;
}

void osh_routed_scatter(const osh_expert_rows *r, osh_tensor *to, const osh_tensor *rows)
{
    size_t row = routed_row_bytes(rows);
    for (int64_t i = 0; i < r->n; i++)
        memcpy((char *)to->data + (size_t)r->rows[i] * row, (char *)rows->data + (size_t)i * row,
               row);
}

size_t osh_routed_bytes(const osh_graph *g, int node, int64_t n_tokens)
{
    const osh_node *n = &g->nodes[node];
    int combine = osh_routed_to(g, node);
    if (combine < 0) return 0;
    /* bytes per token of the node's input, of its output, and of the router's output */
    size_t row = osh_value_bytes(g, n->in[0]) + osh_value_bytes(g, n->out[0]) +
                 osh_value_bytes(g, g->nodes[combine].in[2]);
    return osh_mem_gross((size_t)n_tokens * row) + 4 * osh_mem_gross(sizeof(osh_tensor)) +
           osh_mem_gross((size_t)n_tokens * sizeof(int32_t)) +
           osh_mem_gross((size_t)(n_tokens + 1) * sizeof(int64_t));
}
