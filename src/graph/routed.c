/* routed.c - see routed.h. Rows keep their order and stay with their sample: neither batches nor threads show. */
#include "graph/routed.h"

#include "ops/kernel.h"

#include <string.h>

/* Row r of what it makes comes from row r of what it reads. */
static bool is_by_rows(const osh_node *n)
{
    return osh_node_is(n, "linear") || osh_node_is(n, "glu") || osh_node_is(n, "act") || osh_node_is(n, "slice");
}

int osh_routed_to(const osh_graph *g, int node)
{
    for (const osh_node *n = &g->nodes[node]; is_by_rows(n) && n->op->n_out == 1;) {
        const osh_value *v = &g->values[n->out[0]];
        if (v->first_use < 0 || v->first_use != v->last_use) break;
        const osh_node *reader = &g->nodes[v->first_use];
        if (osh_node_is(reader, "moe_combine")) return reader->in[1] == n->out[0] ? v->first_use : -1;
        n = reader;
    }
    return -1;
}

void osh_routed_deinit(osh_ctx *cx, osh_expert_rows *r)
{
    osh_free(cx, r->rows);
    osh_free(cx, r->offsets);
    for (int k = 0; k < OSH_OP_MAX_IN; k++) osh_tensor_free(cx, r->x[k]);
    *r = (osh_expert_rows){0};
}

osh_status osh_routed_begin(osh_ctx *cx, osh_expert_rows *r, const osh_graph *g, int combine, const osh_tensor *route,
                            const osh_seqs *seqs)
{
    osh_status rc = OSH_OK;
    int64_t E = route->shape[1], expert = ((const osh_moe_combine_attr *)g->nodes[combine].attr)->expert;
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

static size_t row_bytes(const osh_tensor *t) { return (size_t)t->shape[1] * osh_dtype_bytes(t->dtype); }

osh_status osh_routed_gather(osh_ctx *cx, osh_expert_rows *r, int k, int value, const osh_tensor *x)
{
    osh_status rc = OSH_OK;
    size_t row = row_bytes(x);
    if (r->x[k] && r->value[k] == value) goto done;
    osh_tensor_free(cx, r->x[k]), r->x[k] = NULL;
    OSH_TRY(osh_tensor_new(cx, &r->x[k], x->dtype, 2, (int64_t[]){r->n, x->shape[1]}));
    for (int64_t i = 0; i < r->n; i++)
        memcpy((char *)r->x[k]->data + (size_t)i * row, (char *)x->data + (size_t)r->rows[i] * row, row);
    r->value[k] = value;
done:
    return rc;
}

void osh_routed_scatter(const osh_expert_rows *r, osh_tensor *to, const osh_tensor *rows)
{
    size_t row = row_bytes(rows);
    for (int64_t i = 0; i < r->n; i++)
        memcpy((char *)to->data + (size_t)r->rows[i] * row, (char *)rows->data + (size_t)i * row, row);
}

size_t osh_routed_bytes(const osh_graph *g, int node, int64_t n_tokens)
{
    const osh_node *n = &g->nodes[node];
    int combine = osh_routed_to(g, node);
    if (combine < 0) return 0;
    size_t row = osh_value_bytes(g, n->in[0]) + osh_value_bytes(g, n->out[0]) +
                 osh_value_bytes(g, g->nodes[combine].in[2]); // and the router's
    return osh_mem_gross((size_t)n_tokens * row) + 4 * osh_mem_gross(sizeof(osh_tensor)) +
           osh_mem_gross((size_t)n_tokens * sizeof(int32_t)) + osh_mem_gross((size_t)(n_tokens + 1) * sizeof(int64_t));
}
