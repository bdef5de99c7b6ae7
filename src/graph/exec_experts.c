/* exec_experts.c - runs the experts of a mixture on a device. It lists the rows that the router
 * sends to each expert, and runs the nodes of many experts together. */
#include "graph/exec_job.h"
#include "graph/routed.h"
#include "ops/device_ops.h"
#include "ops/kernel.h"

void osh_exec_drop_routes(osh_ctx *cx, osh_device_routes *r)
{
    osh_tensor_free(cx, r->lists);
    osh_free(cx, r->n);
    *r = (osh_device_routes){0};
}

osh_status osh_exec_routes(osh_ctx *cx, osh_walk *w, int route)
{
    osh_status rc = OSH_OK;
    osh_exec_job *j = w->user;
    osh_device_routes *r = &j->gpu;
    osh_exec_drop_routes(cx, r);
    if (route < 0) return OSH_OK;
    const osh_tensor *weights = j->b->values[route];
    if (!weights) OSH_FAIL(cx, OSH_E_INTERNAL, "value %s is not live", j->g->values[route].name);
    int64_t E = weights->shape[1], n = osh_routes_n(E, j->b->n_tokens);
    r->route = route;
    OSH_TRY(osh_tensor_new_on(cx, &r->lists, (osh_where){j->b->device, OSH_LIFE_SHORT}, OSH_I32, 1,
                              &n));
    OSH_NEW(cx, r->n, E);
    OSH_TRY(osh_device_ops_of(j->b->device)->routes(cx, r->n, r->lists->data, weights));
done:
    return rc;
}

osh_op_rows osh_exec_expert_rows(const osh_exec_job *j, int from)
{
    int64_t expert = ((const osh_moe_combine_attr *)j->g->nodes[from].attr)->expert;
    int64_t E = j->g->values[j->gpu.route].width;
    return (osh_op_rows){(const int32_t *)j->gpu.lists->data + E + expert * j->b->n_tokens,
                         j->gpu.n[expert]};
}

/* Fills *e for the expert whose gate is node `first`: its weights, its rows, and the address of its
 * findings in j->found. n_weights: 3, or 2 if the weight of down is not needed. */
static osh_status list_expert(osh_ctx *cx, osh_mixture_expert *e, const osh_exec_job *j, int first,
                              int n_weights)
{
    osh_status rc = OSH_OK;
    const osh_node *n = &j->g->nodes[first], *glu = &n[OSH_EXPERT_GLU],
                   *combine = &n[OSH_EXPERT_COMBINE];
    // true if the node of `up` is before the node of `gate`
    bool other = glu->in[0] != n[OSH_EXPERT_GATE].out[0];
    const osh_node *of[3] = {&n[other], &n[!other], &n[OSH_EXPERT_DOWN]};
    const osh_tensor *w[3] = {0};
    for (int k = 0; k < n_weights; k++) {
        w[k] = j->w->w[of[k]->w[0]];
        if (!w[k] || w[k]->dtype != j->g->dtype)
            OSH_FAIL(cx, OSH_E_INTERNAL,
                     "%s: weight %s is not loaded, or not in the dtype of the model",
                     j->g->modules[of[k]->module].name, j->g->weights[of[k]->w[0]].name);
    }
    *e = (osh_mixture_expert){.gate = w[0], .up = w[1], .down = w[2],
                           .rows = osh_exec_expert_rows(j, first + OSH_EXPERT_COMBINE),
                           .column = (int32_t)((const osh_moe_combine_attr *)combine->attr)->expert,
                           .found = osh_exec_finding(j, first + OSH_EXPERT_GLU, 0)};
done:
    return rc;
}

osh_status osh_exec_mixture(osh_ctx *cx, osh_walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    const osh_exec_job *j = w->user;
    const osh_node *n = &j->g->nodes[first], *last = &j->g->nodes[end - 1];
    int gate = osh_expert_first(j->g, first), each = OSH_EXPERT_NODES + gate - first;
    int n_experts = (end - first) / each;
    osh_mixture_expert *experts = NULL; // own
    OSH_TRY(osh_check_interrupt(cx));
    OSH_NEW(cx, experts, n_experts);
    for (int e = 0; e < n_experts; e++)
        OSH_TRY(list_expert(cx, &experts[e], j, gate + e * each, 3));
    OSH_TRY(osh_exec_make_value(cx, j, last->out[0], j->b->n_tokens));
    osh_mixture m = {.experts = experts, .n_experts = n_experts,
                          .x = j->b->values[n->in[0]], .route = j->b->values[j->gpu.route],
                          .sum = j->b->values[j->g->nodes[gate + OSH_EXPERT_COMBINE].in[0]],
                          .out = j->b->values[last->out[0]],
                          .glu = j->g->nodes[gate + OSH_EXPERT_GLU].attr,
                          .plain = ((const osh_moe_combine_attr *)last->attr)->plain};
    if (!m.x || !m.sum) OSH_FAIL(cx, OSH_E_INTERNAL, "an input of the experts is not live");
    OSH_TRY(osh_device_ops_of(j->b->device)->mixture(cx, &m));
    osh_op_args made = {.out = {m.out}};
    if (j->check) OSH_TRY(osh_exec_check_finite(cx, w, end - 1, 0, &made));
done:
    if (rc && rc != OSH_E_INTERRUPTED)
        osh_note(cx, "running experts from %s on", j->g->modules[n->module].name);
    osh_free(cx, experts);
    return rc;
}

/* Computes the activations of n experts, and writes them to f [N, F]. Together, these experts have
 * at most as many rows as the batch. Calls the hook for the input and the activations of each
 * expert. gate: index of the first gate. */
static osh_status observe_round(osh_ctx *cx, const osh_walk *w, const osh_mixture_expert *experts,
                                int n, int gate, osh_tensor *f)
{
    osh_status rc = OSH_OK;
    const osh_exec_job *j = w->user;
    const osh_tensor *x = j->b->values[j->g->nodes[gate - 1].in[0]];
    int64_t F = f->shape[1], row = 0;
    if (!x) OSH_FAIL(cx, OSH_E_INTERNAL, "an input of the experts is not live");
    osh_mixture m = {.experts = experts, .n_experts = n, .x = x, .out = f,
                     .glu = j->g->nodes[gate + OSH_EXPERT_GLU].attr};
    OSH_TRY(osh_device_ops_of(j->b->device)->mixture(cx, &m));
    for (int e = 0; e < n; e++) {
        const osh_node *of = &j->g->nodes[gate + e * (OSH_EXPERT_NODES + 1)];
        osh_op_rows together = {NULL, experts[e].rows.n};
        osh_tensor part = osh_tensor_view(f->dtype, 2, (int64_t[]){together.n, F},
                                          osh_elem(f, row * F));
        part.device = f->device, row += together.n;
        const int32_t *tokens = experts[e].rows.at;
        OSH_TRY(osh_exec_tell_rows(cx, j, of->in[0], x, &experts[e].rows, tokens));
        OSH_TRY(osh_exec_tell_rows(cx, j, of[OSH_EXPERT_GLU].out[0], &part, &together, tokens));
    }
done:
    return rc;
}

osh_status osh_exec_observed(osh_ctx *cx, osh_walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    const osh_exec_job *j = w->user;
    int gate = first + 1, each = OSH_EXPERT_NODES + 1, n = (end - first) / each;
    int glu = j->g->nodes[gate + OSH_EXPERT_GLU].out[0];
    osh_mixture_expert *experts = NULL; // own
    /* own: activations of some experts, which together have at most n_tokens rows */
    osh_tensor *f = NULL;
    OSH_NEW(cx, experts, n);
    for (int e = 0; e < n; e++)
        OSH_TRY(list_expert(cx, &experts[e], j, gate + e * each, 2));
    OSH_TRY(osh_tensor_new_on(cx, &f, (osh_where){j->b->device, OSH_LIFE_SHORT}, j->g->dtype, 2,
                              (int64_t[]){j->b->n_tokens, j->g->values[glu].width}));
    for (int e = 0, to; e < n; e = to) {
        int64_t rows = 0;
        for (to = e; to < n && rows + experts[to].rows.n <= j->b->n_tokens; to++)
            rows += experts[to].rows.n;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(observe_round(cx, w, experts + e, to - e, gate + e * each, f));
    }
done:
    if (rc && rc != OSH_E_INTERRUPTED)
        osh_note(cx, "running experts from %s on", j->g->modules[j->g->nodes[gate].module].name);
    osh_tensor_free(cx, f);
    osh_free(cx, experts);
    return rc;
}
