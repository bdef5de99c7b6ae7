/* back.c - computes the gradients of a loss L, from the last node of a range back to the first. For
 * a node out = f(in), the backward step computes dL/din from dL/dout. If several nodes read a
 * value, the gradients from these nodes are added. After the backward step of the node that made a
 * value, the value and its gradient are freed. If the batch is on a device, all values and
 * gradients are in device memory. */
#include "graph/back.h"
#include "graph/picked.h"

#include <string.h>

static bool back_runs(const osh_back *k, int node) { return !k->run || k->run[node - k->first]; }

static bool wants_weight(const osh_back *k, const osh_node *n)
{
    for (int i = 0; i < n->op->n_weights; i++)
        if (n->w[i] >= 0 && k->weights[n->w[i]]) return true;
    return false;
}

static bool is_seen(const osh_back *k, int v) { return k->seen && k->seen[v]; }

/* True if the caller wants a gradient that is computed from the gradient of the output of node
 * `n`. */
static bool leads_to_wanted(const osh_back *k, const osh_node *n, const bool *needs)
{
    bool on = wants_weight(k, n);
    for (int m = 0; m < n->op->n_in; m++) on |= needs[n->in[m]];
    return on;
}

/* Finds the values whose gradients the backward pass computes.
 * needs [values]: set to true if the caller wants the gradient of the value, or a gradient that is
 * computed from it.
 * made [values]: set to true if a node of the range makes the value. */
static void find_needs(bool *needs, bool *made, const osh_back *k)
{
    memcpy(needs, k->in, (size_t)k->g->n_values * sizeof *needs);
    for (int i = k->first; i < k->first + k->n; i++) {
        const osh_node *n = &k->g->nodes[i];
        bool need = leads_to_wanted(k, n, needs);
        for (int m = 0; back_runs(k, i) && m < n->op->n_out; m++)
            needs[n->out[m]] = need || is_seen(k, n->out[m]), made[n->out[m]] = true;
    }
}

static osh_status needs_new(osh_ctx *cx, bool **needs, bool **made, const osh_back *k)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, *needs, k->g->n_values);
    OSH_NEW(cx, *made, k->g->n_values);
    find_needs(*needs, *made, k);
done:
    return rc;
}

osh_status osh_back_check(osh_ctx *cx, const osh_back *k)
{
    osh_status rc = OSH_OK;
    bool *needs = NULL, *made = NULL; // own
    OSH_TRY(needs_new(cx, &needs, &made, k));
    for (int i = k->first; i < k->first + k->n; i++) {
        const osh_node *n = &k->g->nodes[i];
        if (back_runs(k, i) && leads_to_wanted(k, n, needs) &&
            (!osh_op_has_grad(n->op, k->on_device) || n->op->n_out != 1))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %s has no gradient%s",
                     k->g->modules[n->module].name, n->op->name,
                     k->on_device ? " on a device" : "");
    }
done:
    osh_free(cx, needs);
    osh_free(cx, made);
    return rc;
}

typedef struct back_pass { // state of the backward pass of one batch
    const osh_back *k;    // view
    const osh_weights *w; // view
    const bool *needs;    // view [values]: true if dv[v] is needed (find_needs)
    osh_batch *b;         // view
    osh_tensor **dv;      // own [values]: dL/dv of each value v; NULL: none
} back_pass;

/* True if no other input of node `n` reads the same value as input m. */
static bool is_single(const osh_node *n, int m)
{
    int times = 0;
    for (int i = 0; i < n->op->n_in; i++) times += n->in[i] == n->in[m];
    return times == 1;
}

/* True if the gradient of input 0 of `n` can overwrite the gradient of the output, because the op
 * computes gradients in place. */
static bool reuses_gradient(const osh_back *k, const osh_node *n)
{
    const osh_value *v = k->g->values;
    return n->op->grad.in_place && !k->on_device && is_single(n, 0) &&
           v[n->in[0]].width == v[n->out[0]].width;
}

/* Sets two groups of members of *a: the input values of node `n`, and the tensors to which its op
 * adds the gradients of the inputs. Allocates the gradient tensors that do not exist yet. */
static osh_status values_begin(osh_ctx *cx, const back_pass *y, const osh_node *n, osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_batch *b = y->b;
    for (int m = 0; m < n->op->n_in; m++) {
        int v = n->in[m];
        a->in[m] = b->values[v];
        if (!y->needs[v]) continue;
        bool is_new = !y->dv[v];
        if (is_new && m == 0 && reuses_gradient(y->k, n))
            y->dv[v] = y->dv[n->out[0]], y->dv[n->out[0]] = NULL;
        else if (is_new)
            OSH_TRY(osh_tensor_new_on(cx, &y->dv[v], (osh_where){b->device, OSH_LIFE_SHORT},
                                      OSH_F32, 2,
                                      (int64_t[]){b->n_tokens, y->k->g->values[v].width}));
        a->din[m] = y->dv[v];
        if (is_new && is_single(n, m)) a->fresh |= 1u << m;
        else if (is_new) OSH_TRY(osh_tensor_zero(cx, y->dv[v]));
    }
done:
    return rc;
}

/* Sets two groups of members of *a: the weights of node `n`, and tensors for the gradients of the
 * weights. If the caller has storage for a gradient (osh_back.placed), the storage is used.
 * Otherwise the gradient of weight m of the node gets a new tensor in own[m]. */
static osh_status weights_begin(osh_ctx *cx, const back_pass *y, const osh_node *n,
                                osh_grad_args *a, osh_tensor **own)
{
    osh_status rc = OSH_OK;
    const osh_back *k = y->k;
    for (int m = 0; m < n->op->n_weights; m++) {
        const osh_weight *x = n->w[m] < 0 ? NULL : &k->g->weights[n->w[m]];
        int at = n->op->n_in + m;
        if (!x) continue;
        a->in[at] = y->w->w[n->w[m]];
        if (!k->weights[n->w[m]]) continue;
        if (k->placed && k->placed[n->w[m]]) a->din[at] = k->place(k->user, n->w[m]);
        if (!a->din[at]) {
            OSH_TRY(osh_tensor_new_on(cx, &own[m], (osh_where){y->b->device, OSH_LIFE_SHORT},
                                      OSH_F32, x->ndim, x->shape));
            a->din[at] = own[m];
        }
        a->fresh |= 1u << at;
    }
done:
    return rc;
}

static osh_status back_node(osh_ctx *cx, const back_pass *y, int node)
{
    osh_status rc = OSH_OK;
    const osh_back *k = y->k;
    const osh_node *n = &k->g->nodes[node];
    osh_tensor *dw[OSH_OP_MAX_IN] = {NULL}; // own: gradients of the weights of the node
    osh_grad_args a = {
        .dout = {y->dv[n->out[0]]}, .attr = n->attr, .seqs = &y->b->seqs, .rough = k->rough};
    OSH_TRY(osh_check_interrupt(cx));
    OSH_TRY(values_begin(cx, y, n, &a));
    OSH_TRY(weights_begin(cx, y, n, &a, dw));
    OSH_TRY(osh_op_grad(cx, n->op, &a));
    for (int m = 0; m < n->op->n_weights; m++)
        if (a.din[n->op->n_in + m])
            OSH_TRY(k->weight(cx, k->user, n->w[m], a.din[n->op->n_in + m]));
done:
    for (int m = 0; m < n->op->n_weights; m++) osh_tensor_free(cx, dw[m]);
    if (rc && rc != OSH_E_INTERRUPTED)
        osh_note(cx, "computing the gradients of %s", k->g->modules[n->module].name);
    return rc;
}

osh_status osh_back_run(osh_ctx *cx, const osh_back *k, const osh_weights *w, osh_batch *b,
                        osh_tensor **dv)
{
    osh_status rc = OSH_OK;
    bool *needs = NULL, *made = NULL; // own
    OSH_TRY(needs_new(cx, &needs, &made, k));
    const back_pass y = {k, w, needs, b, dv};
    for (int i = k->first + k->n - 1; i >= k->first; i--) {
        const osh_node *n = &k->g->nodes[i];
        if (!back_runs(k, i)) continue;
        for (int m = 0; m < n->op->n_out; m++)
            if (is_seen(k, n->out[m]) && dv[n->out[m]])
                OSH_TRY(k->value(cx, k->user, n->out[m], dv[n->out[m]]));
        if (leads_to_wanted(k, n, needs) && dv[n->out[0]]) OSH_TRY(back_node(cx, &y, i));
        for (int m = 0; m < n->op->n_out; m++) {
            osh_tensor_free(cx, b->values[n->out[m]]), b->values[n->out[m]] = NULL;
            osh_tensor_free(cx, dv[n->out[m]]), dv[n->out[m]] = NULL;
        }
    }
done:
    osh_free(cx, needs);
    osh_free(cx, made);
    return rc;
}

/* ---- count of host bytes ---- */

typedef struct tally {
    const osh_back *k;
    int64_t n_tokens;
    int n_threads;
    size_t live, peak;
    /* needs, made: results of find_needs.
     * has: true if a gradient of the value is counted in `live`. */
    bool *needs, *made, *has; // own [values]
} tally;

static size_t tally_value_gross(const tally *t, int v)
{
    return osh_value_gross(t->k->g, v, t->n_tokens);
}

static size_t tally_gradient_gross(const tally *t, int v)
{
    return osh_tensor_gross((size_t)(t->n_tokens * t->k->g->values[v].width) * sizeof(float));
}

static void back_count_node(tally *t, int node)
{
    const osh_graph *g = t->k->g;
    const osh_node *n = &g->nodes[node];
    int64_t in_width[OSH_OP_MAX_IN] = {0};
    size_t dw = 0;
    if (!leads_to_wanted(t->k, n, t->needs) || !t->has[n->out[0]]) return;
    for (int m = 0; m < n->op->n_in; m++) {
        int v = n->in[m];
        in_width[m] = g->values[v].width;
        if (!t->needs[v] || t->has[v]) continue;
        t->has[v] = true;
        if (m == 0 && reuses_gradient(t->k, n)) t->has[n->out[0]] = false;
        else t->live += tally_gradient_gross(t, v);
    }
    for (int m = 0; m < n->op->n_weights; m++) {
        const osh_weight *x = n->w[m] < 0 ? NULL : &g->weights[n->w[m]];
        if (!x || !t->k->weights[n->w[m]] || (t->k->placed && t->k->placed[n->w[m]])) continue;
        dw += osh_tensor_gross((size_t)(x->shape[0] * (x->ndim > 1 ? x->shape[1] : 1)) *
                               sizeof(float));
    }
    size_t scratch = osh_op_grad_scratch(n->op, n->attr, in_width, g->values[n->out[0]].width,
                                         t->n_tokens, t->n_threads) +
                     8 * osh_mem_gross(0);
    if (t->live + dw + scratch > t->peak) t->peak = t->live + dw + scratch;
}

osh_status osh_back_peak(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                         int64_t n_tokens, int n_threads)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = k->g;
    tally t = {.k = k, .n_tokens = n_tokens, .n_threads = n_threads};
    bool *read = NULL; // own [values]: true if a node of the range reads the value
    OSH_TRY(needs_new(cx, &t.needs, &t.made, k));
    OSH_NEW(cx, t.has, g->n_values);
    OSH_NEW(cx, read, g->n_values);
    for (int i = k->first; i < k->first + k->n; i++)
        for (int m = 0; back_runs(k, i) && m < g->nodes[i].op->n_in; m++)
            read[g->nodes[i].in[m]] = true;
    t.live = 2 * osh_mem_gross((size_t)g->n_values * sizeof(bool)) +
             osh_mem_gross(sizeof(osh_batch)) + osh_batch_lists(g, n_tokens + 1);
    for (int v = 0; v < g->n_values; v++) {
        t.has[v] = leaves[v];
        if (t.made[v] || read[v]) t.live += tally_value_gross(&t, v);
        if (leaves[v]) t.live += tally_gradient_gross(&t, v);
    }
    t.peak = t.live;
    for (int i = k->first + k->n - 1; i >= k->first; i--) {
        const osh_node *n = &g->nodes[i];
        if (!back_runs(k, i)) continue;
        back_count_node(&t, i);
        for (int m = 0; m < n->op->n_out; m++) {
            t.live -= tally_value_gross(&t, n->out[m]);
            if (t.has[n->out[m]]) t.live -= tally_gradient_gross(&t, n->out[m]);
        }
    }
    *peak = t.peak;
done:
    osh_free(cx, read);
    osh_free(cx, t.has);
    osh_free(cx, t.needs);
    osh_free(cx, t.made);
    return rc;
}

/* ---- count of bytes in a device's arena ---- */

enum { WITHOUT_END = 62 }; // the arena has 2^62 bytes, so it is never full

typedef struct placing {
    const osh_back *k;
    int64_t n_tokens;
    osh_arena *arena;      // own
    size_t *value, *grad;  // own [values]: addresses of the values and of their gradients
    /* needs, made: results of find_needs.
     * has: true if the gradient of the value is in the arena.
     * brought: true if the value exists before the first node runs. */
    bool *needs, *made, *has, *brought; // own [values]
    /* Upper bound of the bytes in gaps of the arena. A lookup op allocates rows of its table and
     * frees them. The gaps that they leave may be too small for other blocks. */
    size_t holes;
    size_t peak;
} placing;

static void placing_note_extent(placing *p)
{
    size_t now = osh_arena_extent(p->arena) + p->holes;
    if (now > p->peak) p->peak = now;
}

static void place_value(placing *p, int v)
{
    osh_arena_take(p->arena, &p->value[v], (size_t)p->n_tokens * osh_value_bytes(p->k->g, v),
                   OSH_LIFE_SHORT);
}

static void place_gradient(placing *p, int v)
{
    size_t n = (size_t)(p->n_tokens * p->k->g->values[v].width) * sizeof(float);
    osh_arena_take(p->arena, &p->grad[v], n, OSH_LIFE_SHORT);
    p->has[v] = true;
}

/* Allocates all values in the arena, in the order in which the forward pass allocates them. */
static void place_values(placing *p)
{
    const osh_back *k = p->k;
    size_t found = 0;
    place_value(p, k->g->input_ids);
    for (int v = 0; v < k->g->n_values; v++)
        if (p->brought[v]) place_value(p, v);
    osh_arena_take(p->arena, &found, (size_t)k->n * OSH_OP_MAX_OUT * sizeof(int64_t),
                   OSH_LIFE_SHORT);
    for (int i = k->first; i < k->first + k->n; i++)
        for (int m = 0; back_runs(k, i) && m < k->g->nodes[i].op->n_out; m++)
            place_value(p, k->g->nodes[i].out[m]);
    osh_arena_give(p->arena, found);
    for (int i = k->first; i < k->first + k->n; i++) {
        const osh_node *n = &k->g->nodes[i];
        if (back_runs(k, i) && osh_is_picked(k->g, n, 0))
            p->holes += osh_picked_arena_bytes(&k->g->weights[n->w[0]], p->n_tokens);
    }
}

static void back_place_node(placing *p, int node)
{
    const osh_graph *g = p->k->g;
    const osh_node *n = &g->nodes[node];
    int64_t in_width[OSH_OP_MAX_IN] = {0};
    size_t dw[OSH_OP_MAX_IN], scratch = 0, at;
    int n_dw = 0;
    for (int m = 0; m < n->op->n_in; m++) {
        in_width[m] = g->values[n->in[m]].width;
        if (p->needs[n->in[m]] && !p->has[n->in[m]]) place_gradient(p, n->in[m]);
    }
    for (int m = 0; m < n->op->n_weights; m++) {
        const osh_weight *x = n->w[m] < 0 ? NULL : &g->weights[n->w[m]];
        if (!x || !p->k->weights[n->w[m]] || (p->k->placed && p->k->placed[n->w[m]])) continue;
        size_t n_bytes = (size_t)(x->shape[0] * (x->ndim > 1 ? x->shape[1] : 1)) * sizeof(float);
        osh_arena_take(p->arena, &dw[n_dw++], n_bytes, OSH_LIFE_SHORT);
    }
    if (n->op->grad.arena_bytes)
        scratch = n->op->grad.arena_bytes(n->attr, in_width, g->values[n->out[0]].width,
                                           p->n_tokens, g->dtype);
    bool taken = scratch && osh_arena_take(p->arena, &at, scratch, OSH_LIFE_SHORT);
    placing_note_extent(p);
    if (taken) osh_arena_give(p->arena, at);
    while (n_dw) osh_arena_give(p->arena, dw[--n_dw]);
}

static osh_status placing_new(osh_ctx *cx, placing *p, const osh_back *k)
{
    osh_status rc = OSH_OK;
    OSH_TRY(needs_new(cx, &p->needs, &p->made, k));
    OSH_NEW(cx, p->value, k->g->n_values);
    OSH_NEW(cx, p->grad, k->g->n_values);
    OSH_NEW(cx, p->has, k->g->n_values);
    OSH_NEW(cx, p->brought, k->g->n_values);
    OSH_TRY(osh_arena_new(cx, &p->arena, (size_t)1 << WITHOUT_END));
    for (int i = k->first; i < k->first + k->n; i++)
        for (int m = 0; back_runs(k, i) && m < k->g->nodes[i].op->n_in; m++) {
            int v = k->g->nodes[i].in[m];
            p->brought[v] = !p->made[v] && v != k->g->input_ids;
        }
done:
    return rc;
}

osh_status osh_back_peak_on_device(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                                   int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    placing p = {.k = k, .n_tokens = n_tokens}; // own
    size_t left;
    OSH_TRY(placing_new(cx, &p, k));
    OSH_TRY(osh_exec_peak_on_device(cx, &p.peak, &left,
                                    &(osh_exec_span){k->g, k->first, k->n, k->run, NULL},
                                    &(osh_exec_brought){.in = p.brought}, n_tokens));
    place_values(&p);
    for (int v = 0; v < k->g->n_values; v++)
        if (leaves[v]) place_gradient(&p, v);
    placing_note_extent(&p);
    for (int i = k->first + k->n - 1; i >= k->first; i--) {
        const osh_node *n = &k->g->nodes[i];
        if (!back_runs(k, i)) continue;
        if (leads_to_wanted(k, n, p.needs) && p.has[n->out[0]]) back_place_node(&p, i);
        for (int m = 0; m < n->op->n_out; m++) {
            osh_arena_give(p.arena, p.value[n->out[m]]);
            if (p.has[n->out[m]]) osh_arena_give(p.arena, p.grad[n->out[m]]);
        }
    }
    *peak = p.peak;
done:
    osh_arena_free(cx, p.arena);
    osh_free(cx, p.needs);
    osh_free(cx, p.made);
    osh_free(cx, p.value);
    osh_free(cx, p.grad);
    osh_free(cx, p.has);
    osh_free(cx, p.brought);
    return rc;
}
