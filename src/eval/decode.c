/* decode.c - runs a model on one sample in pieces: the prompt, then one token at a time, as with a
 * KV cache. For this, each op must work on every token separately or keep a state. If an op does
 * neither, every piece runs all tokens from the first on. */
#include "eval/decode.h"

#include <string.h>

#include "eval/decode_memory.h"
#include "ops/kernel.h"

struct osh_decode {
    const osh_forward *f; // view
    bool round;
    int64_t n, room;    // n: number of tokens that have run; room: largest possible n
    int32_t *ids;       // own [room]: ids of the tokens
    /* State of each op, such as keys and values. The states are own, too. NULL: there are no
     * states, so each osh_decode_run runs all earlier tokens again. */
    osh_op_past *pasts; // own [nodes]
    /* For longrope: if the sample gets more than long_from tokens, all its tokens run again. 0: the
     * tokens never run again. */
    int64_t long_from;
    /* True for each subgraph whose weights stay in memory; the last element is for the head. */
    bool *stays;        // own [subgraphs + 1]
    osh_weights *kept;  // own: weights of the subgraphs that stay in memory
    osh_tensor *head;   // own: weight of lm_head; NULL: not loaded
    osh_tensor *head_bias; // own: bias of lm_head; NULL: none, or not loaded
    osh_tensor *logits; // own [1, V]
    int64_t read_bytes; // bytes of weights that the last osh_decode_run read and then freed
};

/* ---- states of ops ---- */

typedef struct survey { // state and result of states_visit, which looks at the nodes that run
    int64_t room;
    int without; // index of the first node that has no state and needs earlier tokens; -1: none
    int64_t long_from, bytes;
    osh_op_past *to;   // view: where new states are stored; NULL: states are only counted
} survey;

static size_t node_state_bytes(const osh_graph *g, const osh_node *n, int64_t room)
{
    int64_t width[OSH_OP_MAX_IN] = {0};
    for (int k = 0; k < n->op->n_in; k++) width[k] = g->values[n->in[k]].width;
    return n->op->state ? n->op->state(n->attr, width, room, g->values[n->in[0]].dtype) : 0;
}

static osh_status states_visit(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    survey *s = user;
    const osh_graph *g = p->f->graph;
    for (int i = 0; i < p->s->n_nodes; i++) {
        const osh_node *n = &g->nodes[p->s->first + i];
        if (!p->run[i]) continue;
        if (!n->op->each_token && !n->op->next && s->without < 0) s->without = p->s->first + i;
        size_t bytes = node_state_bytes(g, n, s->room);
        char *state = NULL;
        if (bytes) s->bytes += (int64_t)osh_mem_gross(bytes);
        if (bytes && s->to) OSH_NEW(cx, state, bytes);
        if (s->to) s->to[p->s->first + i] = (osh_op_past){0, s->room, state};
        if (!osh_node_is(n, OSH_OP_ROPE)) continue;
        const osh_rope_attr *at = n->attr;
        if (!at->dynamic && at->long_from) s->long_from = at->long_from;
    }
done:
    return rc;
}

static void states_clear(osh_decode *d)
{
    const osh_graph *g = d->f->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *n = &g->nodes[i];
        if (d->pasts[i].state) memset(d->pasts[i].state, 0, node_state_bytes(g, n, d->room));
    }
}

/* ---- pieces ---- */

typedef struct piece {
    osh_decode *d;               // view
    osh_batch *b;                // own
    osh_forward_rounding r;
    /* Callbacks that round activations; NULL: activations are not rounded. */
    const osh_exec_hooks *hooks; // view
    osh_progress *pr;            // view: progress line; NULL: no progress is shown
} piece;

static osh_status piece_run_part(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    piece *k = user;
    osh_decode *d = k->d;
    osh_exec_span span = osh_forward_span(p);
    bool stays = d->stays[p->index];
    int64_t read = osh_io_counted(cx).read_bytes;
    OSH_TRY(osh_check_interrupt(cx));
    if (stays) p->w = d->kept;
    OSH_TRY(osh_forward_load(cx, p));
    if (!stays) d->read_bytes += osh_io_counted(cx).read_bytes - read;
    k->r.first = p->s->first;
    OSH_TRY(osh_exec_run(cx, &span, p->w, k->b, k->hooks, true));
    if (k->pr) {
        k->pr->step = p->index + 1, k->pr->name = p->s->name, k->pr->finished = true;
        osh_progress_show(cx, k->pr);
    }
done:
    if (stays) p->w = NULL; // d->kept owns the weights
    return rc;
}

static void decode_free_head(osh_ctx *cx, osh_decode *d)
{
    osh_tensor_free(cx, d->head), d->head = NULL;
    osh_tensor_free(cx, d->head_bias), d->head_bias = NULL;
}

/* Computes the logits of the last token of the piece (the tokens of one osh_decode_run). */
static osh_status piece_score(osh_ctx *cx, piece *k, float *logits)
{
    osh_status rc = OSH_OK;
    osh_decode *d = k->d;
    const osh_graph *g = d->f->graph;
    const osh_node *head = &g->nodes[g->head];
    const osh_weight *hw = &g->weights[head->w[0]];
    const osh_tensor *hidden = k->b->values[g->hidden], *x;
    int64_t D = osh_width(hidden), read = osh_io_counted(cx).read_bytes;
    osh_tensor row = osh_tensor_view(hidden->dtype, 2, (int64_t[]){1, D},
                                     osh_elem(hidden, (k->b->n_tokens - 1) * D));
    bool rounded = false, stays = d->stays[d->f->parts->n];

    if (!d->head) OSH_TRY(osh_forward_load_head(cx, &d->head, &d->head_bias, d->f));
    if (!stays) d->read_bytes += osh_io_counted(cx).read_bytes - read;
    if (k->hooks)
        OSH_TRY(osh_forward_round_input(cx, &k->r.copy, &rounded, d->f, g->head, &row));
    x = rounded ? k->r.copy : &row;
    osh_op_args a = {.in = {x, d->head, d->head_bias}, .out = {d->logits}, .attr = head->attr};
    OSH_TRY(osh_op_run(cx, head->op, &a));
    for (int64_t v = 0; v < hw->shape[0]; v++)
        logits[v] = osh_logit_of((float)osh_tensor_at(d->logits, v), &g->logits, g->dtype);
    if (!stays) decode_free_head(cx, d);
done:
    return rc;
}

/* Runs tokens [from, end) and computes the logits of the last token. */
static osh_status piece_run(osh_ctx *cx, osh_decode *d, float *logits, int64_t from, int64_t end,
                            osh_progress *pr)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = d->f->graph;
    int64_t offsets[2] = {0, end - from};
    piece k = {.d = d, .r = {.f = d->f}, .pr = pr};
    osh_exec_hooks hooks = osh_forward_hooks(&k.r);
    if (d->round && osh_forward_may_round(d->f)) k.hooks = &hooks;
    d->read_bytes = 0;
    OSH_TRY(osh_batch_new(cx, &k.b, g, d->ids + from, offsets, 1));
    for (int i = 0; d->pasts && i < g->n_nodes; i++) d->pasts[i].n = from;
    k.b->pasts = d->pasts;
    OSH_TRY(osh_forward_walk(cx, d->f, &(osh_forward_visitor){piece_run_part, &k, false}));
    OSH_TRY(piece_score(cx, &k, logits));
done:
    osh_batch_free(cx, k.b);
    osh_tensor_free(cx, k.r.copy);
    return rc;
}

osh_status osh_decode_run(osh_ctx *cx, osh_decode *d, float *logits, const int32_t *ids, int64_t n,
                          osh_progress *pr)
{
    osh_status rc = OSH_OK;
    int64_t from = d->pasts ? d->n : 0, end = d->n + n;
    if (end > d->room)
        OSH_FAIL(cx, OSH_E_INTERNAL, "%lld tokens, but there is room for %lld", (long long)end,
                 (long long)d->room);
    memcpy(d->ids + d->n, ids, (size_t)n * sizeof *ids);
    /* with longrope, the frequencies of all tokens change when the sample becomes longer than
     * long_from tokens */
    if (from && d->n <= d->long_from && end > d->long_from) {
        states_clear(d);
        from = 0;
    }
    OSH_TRY(piece_run(cx, d, logits, from, end, pr));
    d->n = end;
done:
    return rc;
}

int64_t osh_decode_read_bytes(const osh_decode *d) { return d->read_bytes; }

int64_t osh_decode_width(const osh_forward *f)
{
    return f->graph->weights[f->graph->nodes[f->graph->head].w[0]].shape[0];
}

/* ---- opening and closing ---- */

static osh_status decode_alloc(osh_ctx *cx, osh_decode *d, survey *s, bool pieces)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = d->f->graph;
    const osh_value *out = &g->values[g->nodes[g->head].out[0]];
    int64_t V = osh_decode_width(d->f);
    OSH_NEW(cx, d->ids, d->room);
    OSH_TRY(osh_tensor_new(cx, &d->logits, out->dtype, 2, (int64_t[]){1, V}));
    OSH_TRY(osh_weights_new(cx, &d->kept, g));
    if (!pieces) goto done;
    OSH_NEW(cx, d->pasts, g->n_nodes);
    s->to = d->pasts;
    OSH_TRY(osh_forward_walk(cx, d->f, &(osh_forward_visitor){states_visit, s, false}));
done:
    return rc;
}

osh_status osh_decode_open(osh_ctx *cx, osh_decode **out, const osh_forward *f,
                           const osh_decode_want *want)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = f->graph;
    osh_decode *d = NULL; // own
    survey s = {.room = want->room, .without = -1};
    OSH_TRY(osh_forward_walk(cx, f, &(osh_forward_visitor){states_visit, &s, false}));
    bool pieces = s.without < 0 && !want->again;
    if (s.without >= 0 && !want->again)
        osh_log(cx, OSH_LOG_WARN,
                "%s (%s) keeps no state: all earlier tokens run again for each new one",
                g->modules[g->nodes[s.without].module].name, g->nodes[s.without].op->name);
    OSH_NEW(cx, d, 1);
    d->f = f, d->room = want->room, d->round = want->round, d->long_from = s.long_from;
    OSH_NEW(cx, d->stays, f->parts->n + 1);
    osh_decode_sizes sizes = {.f = f, .n_first = want->n_prompt, .pieces = pieces};
    if (!pieces) sizes.n_first = want->room;
    else if (want->n_prompt <= s.long_from && want->room > s.long_from)
        sizes.n_first = s.long_from + 1;
    sizes.states = (pieces ? s.bytes : 0) +
                   (int64_t)osh_mem_gross((size_t)g->n_nodes * sizeof *d->pasts) +
                   (int64_t)osh_mem_gross((size_t)d->room * sizeof *d->ids);
    OSH_TRY(osh_decode_fit(cx, d->stays, &sizes, want));
    if (want->least) goto done;
    OSH_TRY(decode_alloc(cx, d, &s, pieces));
    *out = d, d = NULL; // passes ownership
done:
    osh_decode_close(cx, d);
    return rc;
}

void osh_decode_close(osh_ctx *cx, osh_decode *d)
{
    if (!d) return;
    for (int i = 0; d->pasts && i < d->f->graph->n_nodes; i++) osh_free(cx, d->pasts[i].state);
    osh_free(cx, d->pasts);
    osh_free(cx, d->ids);
    osh_free(cx, d->stays);
    osh_weights_free(cx, d->kept);
    decode_free_head(cx, d);
    osh_tensor_free(cx, d->logits);
    osh_free(cx, d);
}
