/* eval_gpu.c - runs the passes of an evaluation on a GPU, and computes the scores there. Between
 * subgraphs the values of a batch are stored in one block: on the GPU if all batches fit there,
 * else in host memory. All values of a batch are read before new values overwrite them. */
#include "eval/eval_gpu.h"

#include <stdio.h>
#include <string.h>

#include "eval/eval_weights.h"
#include "eval/share.h"
#include "gpu/gpu.h"
#include "graph/device_peaks.h"
#include "budget/cost.h"
#include "plan/plan.h"
#include "plan/rank_gpu.h"

typedef struct side { // one of the two models that are evaluated
    const osh_forward *f; // view
    /* input: bytes of the widest rounded input of a Linear in a batch, in GPU memory.
     * copied: bytes of the widest rounded value in a batch, in host memory.
     * 0: no such value is rounded. */
    int64_t input, copied;
    int64_t row;          // largest number of bytes that are stored for a token between subgraphs
    /* Blocks for values that are stored between subgraphs, in host memory (own) or in the GPU's
     * arena (views). */
    char **rest;          // own [batches]
    bool *now;            // own [graph values]: true for values that are now stored
    bool rounds;          // true if the scheme rounds activations, KV caches or outputs
    bool inputs;          // true if the scheme rounds inputs of Linears
} side;

struct osh_eval_gpu {
    const osh_eval_options *o; // view
    const osh_dataset *d;      // view
    side side[2];              // [0]: the model; [1]: the reference model
    int n_sides;
    const osh_device_kind *kind;
    osh_device *device;        // own
    int64_t *batch_at;         // own [n_batches + 1]: index of the first sample of each batch
    int64_t n_batches, batch_tokens;
    int64_t passing; // largest number of bytes of GPU memory for running or scoring a batch
    bool rest_on_gpu;
    osh_eval_weights *weights; // own
    /* True if the next step's weights are prefetched, because they fit in the GPU's memory. */
    bool ahead;
    bool direct; // true if cuFile is used, because its buffer fits in the GPU's memory
    char *input;               // view of the arena: block for a rounded input
    osh_tensor *stage;         // own: host copy of a rounded input
};

static int64_t arena_gross(int64_t n) { return (int64_t)osh_arena_gross((size_t)n); }

static int64_t batch_tokens_of(const osh_eval_gpu *c, int64_t b)
{
    return c->d->offsets[c->batch_at[b + 1]] - c->d->offsets[c->batch_at[b]];
}

/* True if this rank runs batch b. */
static bool batch_is_mine(const osh_eval_gpu *c, int64_t b)
{
    return osh_deal_owner(c->o->ranks, b) == osh_ranks_me(c->o->ranks);
}

static int64_t graph_value_bytes(const osh_graph *g, int v)
{
    return (int64_t)osh_value_bytes(g, v);
}

/* ---- memory ---- */

static osh_exec_span side_span(const side *s, const osh_forward_part *p)
{
    osh_exec_span span = osh_forward_span(p);
    if (s->inputs) span.routed = NULL; // the hook rounds whole inputs, so experts run on all tokens
    return span;
}

typedef struct counting { // state while the GPU memory for a model is counted
    osh_eval_gpu *c;
    side *s;
    osh_device_peaks *peaks; // own
    int64_t width; // bytes per token of the widest input of a node with weights
} counting;

static osh_status side_count_batches(osh_ctx *cx, const counting *k, const osh_forward_part *part)
{
    osh_status rc = OSH_OK;
    int64_t last = -1;
    osh_eval_gpu *c = k->c;
    osh_exec_span span = side_span(k->s, part);
    OSH_TRY(osh_device_peaks_walk(cx, k->peaks, &span, &(osh_exec_brought){.in = k->s->now}));
    for (int64_t b = 0; b < c->n_batches; b++) {
        size_t peak = 0, left = 0;
        if (batch_tokens_of(c, b) == last) continue;
        last = batch_tokens_of(c, b);
        OSH_TRY(osh_device_peaks_at(cx, &peak, &left, k->peaks, last));
        max_into(&c->passing, (int64_t)peak);
    }
done:
    return rc;
}

static osh_status side_count_part(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    counting *k = user;
    side *s = k->s;
    const osh_graph *g = s->f->graph;
    int64_t row = 0;
    p->keep[g->input_ids] = false; // token ids are not kept, because they are read from the data
    osh_exec_span span = side_span(s, p);
    max_into(&k->width, (int64_t)osh_exec_input_bytes(&span));
    OSH_TRY(side_count_batches(cx, k, p));
    for (int v = 0; v < g->n_values; v++) row += p->keep[v] ? graph_value_bytes(g, v) : 0;
    max_into(&s->row, row);
    memcpy(s->now, p->keep, (size_t)g->n_values * sizeof *p->keep);
done:
    return rc;
}

static osh_status side_count(osh_ctx *cx, osh_eval_gpu *c, side *s)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->f->graph;
    counting k = {.c = c, .s = s}; // own
    OSH_TRY(osh_device_peaks_new(cx, &k.peaks, g));
    OSH_NEW(cx, s->now, g->n_values);
    OSH_NEW(cx, s->rest, c->n_batches);
    bool quantizes = !c->o->no_activation_quantization;
    int64_t width = 0;
    for (int v = 0; v < g->n_values; v++)
        if (osh_forward_rounds_value(s->f, v)) max_into(&width, graph_value_bytes(g, v));
    s->inputs = quantizes && osh_forward_rounds_inputs(s->f);
    s->rounds = s->inputs || (quantizes && width);
    OSH_TRY(osh_forward_walk(cx, s->f, &(osh_forward_visitor){side_count_part, &k, false}));
    memset(s->now, 0, (size_t)g->n_values * sizeof *s->now);
    if (s->inputs) s->input = arena_gross(c->batch_tokens * k.width);
    if (quantizes) s->copied = s->input;
    if (quantizes && width) max_into(&s->copied, arena_gross(c->batch_tokens * width));
done:
    osh_device_peaks_free(cx, k.peaks);
    return rc;
}

static int64_t scores_arena_bytes(const osh_eval_gpu *c)
{
    int64_t t = c->batch_tokens, n = arena_gross(4 * t) * (c->n_sides > 1 ? 4 : 2), scratch = 0,
            D[OSH_OP_MAX_IN] = {0};
    osh_tensor some; // stands for a bias, because the op only asks whether a bias exists
    osh_vocab_attr rules = {0};
    for (int k = 0; k < c->n_sides; k++) {
        const osh_graph *g = c->side[k].f->graph;
        D[2 * k] = D[2 * k + 1] = g->values[g->hidden].width;
        if (osh_graph_head_bias(g)) rules.bias[k] = &some;
        n += arena_gross(t * graph_value_bytes(g, g->hidden));
    }
    for (int k = 0; k < c->n_sides; k++) {
        const osh_op *op = k ? &osh_op_kl : &osh_op_nll;
        max_into(&scratch, op->arena_bytes ? (int64_t)op->arena_bytes(&rules, D, 0, t,
                                                                        c->side[k].f->graph->dtype)
                                            : 0);
    }
    return n + scratch;
}

static int64_t rows_rest_bytes(const osh_eval_gpu *c, bool on_gpu)
{
    int64_t sum = 0;
    for (int k = 0; k < c->n_sides; k++)
        for (int64_t b = 0; b < c->n_batches; b++) {
            if (!batch_is_mine(c, b)) continue;
            size_t n = (size_t)(batch_tokens_of(c, b) * c->side[k].row);
            sum += (int64_t)(on_gpu ? osh_arena_gross(n) : osh_mem_gross(n));
        }
    return sum;
}

static int64_t rounded_input_bytes(const osh_eval_gpu *c)
{
    return c->side[0].input > c->side[1].input ? c->side[0].input : c->side[1].input;
}

int64_t osh_eval_gpu_host_bytes(const osh_eval_gpu *c, bool ahead)
{
    int64_t rounded = 0, read = osh_eval_weights_host_bytes(c->weights), lists = 0;
    for (int k = 0; k < c->n_sides; k++) {
        const osh_graph *g = c->side[k].f->graph;
        max_into(&rounded, 2 * (int64_t)osh_mem_gross((size_t)c->side[k].copied));
        lists += g->n_values * (int64_t)(osh_mem_gross(sizeof(osh_tensor)) + 64) +
                 g->n_weights * (int64_t)(osh_mem_gross(sizeof(osh_tensor)) + 32);
    }
    int64_t scores = 4 * (int64_t)osh_mem_gross((size_t)c->batch_tokens * 4) + c->batch_tokens * 8;
    /* With prefetch, a weight and a rounded input are in host memory at the same time. Without
     * prefetch, only one of the two is in memory at a time. */
    int64_t both = ahead ? read + rounded : read > rounded ? read : rounded;
    return (int64_t)c->kind->host_bytes + lists + both + scores +
           osh_eval_share_bytes(c->o->ranks, c->batch_tokens) +
           (c->rest_on_gpu ? 0 : rows_rest_bytes(c, false));
}

bool osh_eval_gpu_ahead(const osh_eval_gpu *c) { return osh_eval_weights_ahead(c->weights); }
void osh_eval_gpu_not_ahead(osh_eval_gpu *c) { osh_eval_weights_not_ahead(c->weights); }

/* ---- opening and closing ---- */

static osh_status cut_batches(osh_ctx *cx, osh_eval_gpu *c)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, c->batch_at, c->d->n + 1);
    for (int64_t first = 0; first < c->d->n; c->n_batches++) {
        first = c->batch_at[c->n_batches + 1] = osh_batch_end_on_device(c->d, first);
        max_into(&c->batch_tokens, batch_tokens_of(c, c->n_batches));
    }
done:
    return rc;
}

/* Decides which optional blocks the arena (the block of GPU memory) contains. The stored values
 * come first, because copies from and to host memory delay the work. The weights of the next step
 * come second, and the buffer of cuFile comes last. Sets *arena to the size of the arena in bytes.
 * Fails with OSH_E_USAGE if the necessary blocks exceed the budget. */
static osh_status arena_fit(osh_ctx *cx, osh_eval_gpu *c, int ordinal, int64_t *arena)
{
    osh_status rc = OSH_OK;
    int64_t stage = arena_gross((int64_t)c->kind->stage);
    int64_t least = (int64_t)c->kind->workspace + osh_eval_weights_bytes(c->weights, false) +
                    arena_gross(rounded_input_bytes(c)) + c->passing;
    int64_t rest = rows_rest_bytes(c, true), budget = c->o->device_memory;
    int64_t next =
        osh_eval_weights_bytes(c->weights, true) - osh_eval_weights_bytes(c->weights, false);
    size_t free_bytes = 0;
    if (!budget) {
        OSH_TRY(c->kind->type->free_bytes(cx, &free_bytes, ordinal));
        budget = (int64_t)free_bytes - (int64_t)c->kind->reserve;
    }
    if (least > budget && !c->o->device_memory)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "the GPU has %.0fMiB for the run: want at least %.0fMiB",
                 mib_for(budget), mib_for(least));
    if (least > budget)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--device-memory %.0fMiB is too small: want at least --device-memory %.0fMiB",
                 mib_for(budget), mib_for(least));
    c->rest_on_gpu = least + rest <= budget;
    int64_t all = least + (c->rest_on_gpu ? rest : 0);
    c->ahead = all + next <= budget;
    all += c->ahead ? next : 0;
    c->direct = c->kind->type->files->direct(cx, ordinal, c->o->use_gds, all + stage <= budget);
    *arena = c->o->device_memory ? budget : all + (c->direct ? stage : 0);
done:
    return rc;
}

static osh_status arena_take_blocks(osh_ctx *cx, osh_eval_gpu *c)
{
    osh_status rc = OSH_OK;
    size_t steps = (size_t)osh_eval_weights_bytes(c->weights, c->ahead);
    if (c->direct) OSH_TRY(c->kind->type->files->stage_open(cx, c->device, c->o->use_gds));
    /* view: block of the arena for the weights. */
    char *weights = osh_device_alloc(cx, c->device, steps, OSH_LIFE_LONG);
    c->input = osh_device_alloc(cx, c->device, (size_t)rounded_input_bytes(c), OSH_LIFE_LONG);
    if (!weights || !c->input) OSH_TRY(OSH_E_NOMEM);
    osh_eval_weights_place(c->weights, c->device, weights, c->ahead);
    if (c->direct) osh_eval_weights_direct(c->weights);
    for (int k = 0; k < c->n_sides && c->rest_on_gpu; k++)
        for (int64_t b = 0; b < c->n_batches; b++) {
            if (!batch_is_mine(c, b)) continue;
            size_t n = (size_t)(batch_tokens_of(c, b) * c->side[k].row);
            if (!(c->side[k].rest[b] = osh_device_alloc(cx, c->device, n, OSH_LIFE_LONG)))
                OSH_TRY(OSH_E_NOMEM);
        }
done:
    return rc;
}

bool osh_eval_gpu_wanted(const osh_eval_options *o)
{
    return osh_device_is_gpu(o->device);
}

osh_status osh_eval_gpu_open(osh_ctx *cx, osh_eval_gpu **out, const osh_eval_options *o,
                             const osh_forward *f, const osh_forward *ref, const osh_dataset *d)
{
    osh_status rc = OSH_OK;
    osh_eval_gpu *c = NULL; // own
    int64_t arena = 0;
    int ordinal = 0;
    *out = NULL;
    if (!osh_eval_gpu_wanted(o)) goto done;
    int on_host = osh_graph_host_only(f->graph);
    if (on_host >= 0 && osh_device_is_auto(o->device)) goto done;
    if (on_host >= 0)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "the op %s does not run on a GPU in this version: want --device cpu",
                 f->graph->nodes[on_host].op->name);
    OSH_NEW(cx, c, 1);
    OSH_TRY(osh_device_find(cx, &c->kind, &ordinal, o->device));
    OSH_TRY(osh_rank_gpu(cx, &ordinal, o->ranks, c->kind, o->device));
    c->o = o, c->d = d, c->side[0].f = f, c->side[1].f = ref, c->n_sides = ref ? 2 : 1;
    OSH_TRY(cut_batches(cx, c));
    OSH_TRY(osh_eval_weights_new(cx, &c->weights, f, ref));
    for (int k = 0; k < c->n_sides; k++) OSH_TRY(side_count(cx, c, &c->side[k]));
    max_into(&c->passing, scores_arena_bytes(c));
    OSH_TRY(arena_fit(cx, c, ordinal, &arena));
    OSH_TRY(osh_rank_gpu_open(cx, &c->device, o->ranks, c->kind, ordinal, (size_t)arena));
    OSH_TRY(arena_take_blocks(cx, c));
    *out = c, c = NULL; // passes ownership
done:
    osh_eval_gpu_close(cx, c);
    return rc;
}

void osh_eval_gpu_close(osh_ctx *cx, osh_eval_gpu *c)
{
    if (!c) return;
    // the device must still be open: this call ends the thread that copies weights to the device
    osh_eval_weights_free(cx, c->weights);
    for (int k = 0; k < 2; k++) {
        for (int64_t b = 0; b < c->n_batches && c->side[k].rest && !c->rest_on_gpu; b++)
            osh_free(cx, c->side[k].rest[b]);
        osh_free(cx, c->side[k].rest);
        osh_free(cx, c->side[k].now);
    }
    osh_tensor_free(cx, c->stage);
    osh_device_close(cx, c->device); // also frees all blocks of GPU memory
    osh_free(cx, c->batch_at);
    osh_free(cx, c);
}

/* ---- passes ---- */

typedef struct rounding {
    osh_eval_gpu *c;
    const side *s;
    osh_tensor x; // view of c->input
    int first;    // index of the first node of the subgraph
} rounding;

/* A hook that rounds the input of a Linear on the host, so that a GPU and the CPU round alike. If
 * the input is rounded, *x becomes a view of c->input. */
static osh_status side_round_input(osh_ctx *cx, void *user, int node, const osh_tensor **x,
                                   const osh_batch *b)
{
    osh_status rc = OSH_OK;
    rounding *r = user;
    osh_eval_gpu *c = r->c;
    bool rounded = false;
    (void)b;
    OSH_TRY(osh_forward_round_input(cx, &c->stage, &rounded, r->s->f, node, *x));
    if (!rounded) goto done;
    r->x = osh_tensor_view((*x)->dtype, (*x)->ndim, (*x)->shape, c->input);
    r->x.device = c->device;
    OSH_TRY(osh_tensor_copy(cx, &r->x, c->stage));
    *x = &r->x;
done:
    return rc;
}

/* A hook that rounds outputs of Linears, keys, values and queries on the host. */
static osh_status side_round_value(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                                   const osh_batch *b)
{
    rounding *r = user;
    osh_forward_rounding a = {r->s->f, r->c->stage, r->first};
    osh_status rc = osh_forward_round_value(cx, &a, value, b->values[value]);
    (void)x;
    r->c->stage = a.copy;
    return rc;
}

/* Copies values of a batch between the tensor t and the block `rest`, in which they are stored
 * between subgraphs. Copies from t to `rest` if `out` is true; otherwise from `rest` to t. */
static osh_status batch_move_rows(osh_ctx *cx, const osh_eval_gpu *c, osh_tensor *t, char *rest,
                                  bool out)
{
    if (!c->rest_on_gpu)
        return out ? osh_tensor_get(cx, rest, t, 0, osh_tensor_bytes(t))
                   : osh_tensor_put(cx, t, 0, rest, osh_tensor_bytes(t));
    const osh_device_type *type = c->device->type;
    return type->copy(cx, c->device, out ? (void *)rest : t->data, out ? t->data : (void *)rest,
                      osh_tensor_bytes(t));
}

/* Copies the stored values of batch b to new tensors on the GPU. values [graph values]: set to the
 * new tensors, which the caller owns. */
static osh_status batch_bring(osh_ctx *cx, const osh_eval_gpu *c, const side *s, int64_t b,
                              osh_tensor **values)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->f->graph;
    size_t at = 0;
    for (int v = 0; v < g->n_values; v++) {
        if (!s->now[v]) continue;
        OSH_TRY(osh_tensor_new_on(cx, &values[v], (osh_where){c->device, OSH_LIFE_SHORT},
                                  g->values[v].dtype, 2,
                                  (int64_t[]){batch_tokens_of(c, b), g->values[v].width}));
        OSH_TRY(batch_move_rows(cx, c, values[v], s->rest[b] + at, false));
        at += osh_tensor_bytes(values[v]);
    }
done:
    return rc;
}

/* Copies those values v of batch b for which keep[v] is true to s->rest[b], the block in which the
 * batch is stored between subgraphs. */
static osh_status batch_leave(osh_ctx *cx, const osh_eval_gpu *c, side *s, int64_t b,
                              osh_tensor **values, const bool *keep)
{
    osh_status rc = OSH_OK;
    size_t at = 0, n = (size_t)(batch_tokens_of(c, b) * s->row);
    if (!s->rest[b] && !(s->rest[b] = osh_alloc(cx, n ? n : 1))) OSH_TRY(OSH_E_NOMEM);
    for (int v = 0; v < s->f->graph->n_values; v++) {
        if (!keep[v]) continue;
        OSH_TRY(batch_move_rows(cx, c, values[v], s->rest[b] + at, true));
        at += osh_tensor_bytes(values[v]);
    }
done:
    return rc;
}

typedef struct visit { // state while a model runs subgraph by subgraph
    osh_eval_gpu *c;          // view
    side *s;                  // view
    osh_progress *pr;         // view
    /* View of the subgraph that runs. The weights of the subgraph are views of the arena (the block
     * of GPU memory). */
    osh_forward_part *part; // view
} visit;

static osh_status side_run_batch(osh_ctx *cx, const visit *v, int64_t b)
{
    osh_status rc = OSH_OK;
    osh_eval_gpu *c = v->c;
    side *s = v->s;
    const osh_graph *g = s->f->graph;
    osh_exec_span span = side_span(s, v->part);
    osh_batch *batch = NULL; // own
    rounding r = {.c = c, .s = s, .first = v->part->s->first};
    osh_exec_hooks hooks = {
        .linear_input = side_round_input, .value = side_round_value, .user = &r};
    int64_t first = c->batch_at[b];
    OSH_TRY(osh_batch_new_on(
        cx, &batch, c->device, g,
        &(osh_batch_rows){s->f->ids ? s->f->ids : c->d->ids, c->d->offsets + first,
                          c->batch_at[b + 1] - first}));
    batch->first_sample = first;
    OSH_TRY(batch_bring(cx, c, s, b, batch->values));
    OSH_TRY(osh_exec_run(cx, &span, v->part->w, batch, s->rounds ? &hooks : NULL, true));
    OSH_TRY(batch_leave(cx, c, s, b, batch->values, v->part->keep));
done:
    osh_batch_free(cx, batch);
    return rc;
}

static osh_status side_run_part(osh_ctx *cx, void *user, osh_forward_part *part)
{
    osh_status rc = OSH_OK;
    visit *v = user;
    osh_eval_gpu *c = v->c;
    side *s = v->s;
    osh_progress *pr = v->pr;
    const osh_graph *g = s->f->graph;
    osh_exec_span span = side_span(s, part);
    double work = osh_cost_of_nodes(&span, c->d), all = (double)c->d->offsets[c->d->n];
    v->part = part, part->keep[g->input_ids] = false;
    osh_ranks_phase(c->o->ranks, "forward", part->s->name);
    OSH_TRY(osh_weights_new(cx, &part->w, g));
    part->w->rows = osh_source_checkpoint(s->f->source);
    OSH_TRY(osh_eval_weights_next(cx, c->weights, part->w));
    pr->step++, pr->name = part->s->name, pr->phase = "forward", pr->total = c->n_batches;
    for (int64_t b = 0; b < c->n_batches; b++) {
        double n = (double)batch_tokens_of(c, b);
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_ranks_hear(cx, c->o->ranks));
        if (batch_is_mine(c, b)) OSH_TRY(side_run_batch(cx, v, b));
        pr->done = b + 1, pr->work_done += work * n / all, pr->finished = b + 1 == c->n_batches;
        osh_forward_rate(pr, all, s->f->begun);
        osh_progress_show(cx, pr);
    }
    pr->finished = false;
    memcpy(s->now, part->keep, (size_t)g->n_values * sizeof *part->keep);
    // the prediction does not count `stage` while the next subgraph reads its weights
    osh_tensor_free(cx, c->stage), c->stage = NULL;
done:
    return rc;
}

osh_status osh_eval_gpu_run(osh_ctx *cx, osh_eval_gpu *c, osh_progress *pr)
{
    osh_status rc = OSH_OK;
    osh_device_counters counted;
    osh_log(cx, OSH_LOG_DEBUG,
            "values between subgraphs are %s; the next subgraph's weights are %s",
            c->rest_on_gpu ? "on the GPU" : "in host memory",
            osh_eval_gpu_ahead(c) ? "read ahead" : "not read ahead");
    for (int k = c->n_sides - 1; k >= 0; k--) {
        visit v = {.c = c, .s = &c->side[k], .pr = pr};
        OSH_TRY(osh_forward_walk(cx, v.s->f, &(osh_forward_visitor){side_run_part, &v, false}));
    }
    OSH_TRY(osh_eval_weights_next(cx, c->weights, NULL));
    OSH_TRY(c->kind->type->count(cx, c->device, &counted));
    if (c->direct)
        osh_log(cx, OSH_LOG_DEBUG, "cuFile read %lld bytes of weights",
                (long long)counted.file_bytes);
done:
    return rc;
}

/* ---- scores ---- */

int64_t osh_eval_gpu_batches(const osh_eval_gpu *c) { return c->n_batches; }

void osh_eval_gpu_batch(const osh_eval_gpu *c, int64_t b, int64_t *first, int64_t *n)
{
    *first = c->batch_at[b], *n = c->batch_at[b + 1] - c->batch_at[b];
}

osh_status osh_eval_gpu_hidden(osh_ctx *cx, osh_tensor **out, osh_eval_gpu *c, int64_t b)
{
    osh_status rc = OSH_OK;
    const side *s = &c->side[0];
    const osh_graph *g = s->f->graph;
    osh_tensor **values = NULL; // own
    OSH_NEW(cx, values, g->n_values);
    OSH_TRY(batch_bring(cx, c, s, b, values));
    OSH_TRY(osh_tensor_new(cx, out, g->values[g->hidden].dtype, 2, values[g->hidden]->shape));
    OSH_TRY(osh_tensor_copy(cx, *out, values[g->hidden]));
done:
    for (int v = 0; values && v < g->n_values; v++) osh_tensor_free(cx, values[v]);
    osh_free(cx, values);
    return rc;
}

osh_status osh_eval_gpu_score(osh_ctx *cx, osh_eval_gpu *c, int64_t b, const osh_tensor *targets,
                              osh_tensor *const out[4])
{
    osh_status rc = OSH_OK;
    osh_tensor **values[2] = {NULL, NULL}, *x[2] = {NULL, NULL},
               *to[4] = {NULL, NULL, NULL, NULL}; // own
    const int64_t *at = c->d->offsets + c->batch_at[b];
    osh_seqs seqs = {c->batch_at[b + 1] - c->batch_at[b], NULL};
    int64_t *offsets = NULL; // own
    OSH_NEW(cx, offsets, seqs.n + 1);
    for (int64_t i = 0; i <= seqs.n; i++) offsets[i] = at[i] - at[0];
    seqs.offsets = offsets;
    for (int k = 0; k < c->n_sides; k++) {
        const osh_graph *g = c->side[k].f->graph;
        OSH_NEW(cx, values[k], g->n_values);
        // after the last subgraph only `hidden` is stored
        OSH_TRY(batch_bring(cx, c, &c->side[k], b, values[k]));
        x[k] = values[k][g->hidden], values[k][g->hidden] = NULL;
    }
    for (int i = 0; i < 2 * c->n_sides; i++)
        OSH_TRY(osh_tensor_new_on(cx, &to[i], (osh_where){c->device, OSH_LIFE_SHORT},
                                  i ? OSH_F32 : OSH_I32, 1, (int64_t[]){batch_tokens_of(c, b)}));
    OSH_TRY(osh_tensor_copy(cx, to[0], targets));
    const osh_tensor *head[2] = {NULL, NULL};
    osh_vocab_attr rules = {0};
    for (int k = 0; k < c->n_sides; k++) {
        const osh_forward *f = c->side[k].f;
        head[k] = osh_eval_weights_head(c->weights, f, osh_graph_head(f->graph));
        rules.rule[k] = f->graph->logits;
        rules.bias[k] = osh_eval_weights_head(c->weights, f, osh_graph_head_bias(f->graph));
    }
    osh_op_args a = {.in = {x[0], head[0], to[0]}, .out = {to[1]}, .attr = &rules, .seqs = &seqs};
    OSH_TRY(osh_op_run(cx, &osh_op_nll, &a));
    osh_op_args k = {
        .in = {x[0], head[0], x[1], head[1]}, .out = {to[2], to[3]}, .attr = &rules, .seqs = &seqs};
    if (c->n_sides > 1) OSH_TRY(osh_op_run(cx, &osh_op_kl, &k));
    for (int i = 1; i < 2 * c->n_sides; i++) OSH_TRY(osh_tensor_copy(cx, out[i - 1], to[i]));
    // to[1] has the NLL of the model, which is now also in out[0], so the NLL of the reference may
    // overwrite to[1]
    if (c->n_sides > 1) {
        osh_vocab_attr own = {{rules.rule[1]}, {rules.bias[1]}};
        osh_op_args n = {.in = {x[1], head[1], to[0]}, .out = {to[1]}, .attr = &own, .seqs = &seqs};
        OSH_TRY(osh_op_run(cx, &osh_op_nll, &n));
        OSH_TRY(osh_tensor_copy(cx, out[3], to[1]));
    }
done:
    for (int s = 0; s < 2; s++) {
        for (int v = 0; values[s] && v < c->side[s].f->graph->n_values; v++)
            osh_tensor_free(cx, values[s][v]);
        osh_free(cx, values[s]);
        osh_tensor_free(cx, x[s]);
    }
    for (int i = 0; i < 4; i++) osh_tensor_free(cx, to[i]);
    osh_free(cx, offsets);
    return rc;
}
