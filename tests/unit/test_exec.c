/* test_exec.c - runs ranges of nodes. Tests which values are live after a run, and how hooks are
 * called. If the nodes run in several ranges, the values must be the same as in one run. */
#include "tiny_model.h"
#include "graph/device_peaks.h"
#include "graph/routed.h"

typedef tiny_model model;

static int logits_of(const osh_graph *g)
{
    return g->nodes[g->head].out[0];
}

/* Computes the logits (bf16) of samples [first, first + n) in one run. Returns the batch (own). */
static osh_batch *whole(model *m, int first, int n)
{
    osh_batch *b = NULL;
    bool *keep = calloc((size_t)m->g->n_values, sizeof *keep);
    keep[logits_of(m->g)] = true;
    tiny_check(m->cx, osh_weights_load(m->cx, m->w, m->g, m->ck, 0, m->g->n_nodes));
    tiny_check(m->cx, osh_batch_new(m->cx, &b, m->g, m->t.ids, m->t.offsets + first, n));
    tiny_check(m->cx, osh_exec_run(m->cx, &(osh_exec_span){m->g, 0, m->g->n_nodes, NULL, keep},
                                   m->w, b, NULL, true));
    free(keep);
    return b;
}

/* Computes the logits subgraph by subgraph: loads and releases weights, and keeps only values that
 * later subgraphs read. Returns the batch (own). */
static osh_batch *in_parts(model *m, const char *target, int first, int n)
{
    osh_partition *p = NULL;
    osh_batch *b = NULL;
    bool *keep = calloc((size_t)m->g->n_values, sizeof *keep);
    osh_weights_release(m->cx, m->w, m->g, 0, m->g->n_nodes);
    tiny_check(m->cx, osh_partition_new(m->cx, &p, m->g, &target, 1, 1));
    tiny_check(m->cx, osh_batch_new(m->cx, &b, m->g, m->t.ids, m->t.offsets + first, n));
    for (int s = 0; s < p->n; s++) {
        const osh_subgraph *part = &p->parts[s];
        for (int v = 0; v < m->g->n_values; v++) keep[v] = v == logits_of(m->g);
        for (int i = 0; i < part->n_live_out; i++) keep[part->live_out[i]] = true;
        tiny_check(m->cx, osh_weights_load(m->cx, m->w, m->g, m->ck, part->first, part->n_nodes));
        tiny_check(m->cx, osh_exec_run(
                              m->cx, &(osh_exec_span){m->g, part->first, part->n_nodes, NULL, keep},
                              m->w, b, NULL, true));
        osh_weights_release(m->cx, m->w, m->g, part->first, part->n_nodes);
        int live = 0;
        for (int v = 0; v < m->g->n_values; v++) live += b->values[v] != NULL;
        assert_int_equal(live, s + 1 < p->n ? part->n_live_out : 1);
    }
    for (int i = 0; i < m->w->n; i++) assert_null(m->w->w[i]);
    osh_partition_free(m->cx, p);
    free(keep);
    return b;
}

static void assert_same(model *m, const osh_batch *a, const osh_batch *b)
{
    const osh_tensor *x = a->values[logits_of(m->g)], *y = b->values[logits_of(m->g)];
    assert_int_equal(osh_tensor_bytes(x), osh_tensor_bytes(y));
    assert_memory_equal(x->data, y->data, osh_tensor_bytes(x));
}

static void check_pieces(const char *name, const char *const *targets, size_t n)
{
    model m;
    tiny_model_open(&m, name, OSH_BF16, 2);
    osh_batch *a = whole(&m, 0, m.t.n_samples);
    for (size_t i = 0; i < n; i++) {
        osh_batch *b = in_parts(&m, targets[i], 0, m.t.n_samples);
        assert_same(&m, a, b);
        osh_batch_free(m.cx, b);
    }
    osh_batch_free(m.cx, a);
    tiny_model_close(&m);
}

static void pieces_are_the_whole(void **state)
{
    static const char *const dense[] = {"Qwen3DecoderLayer", "Linear", "Qwen3MLP", "re:.*"};
    static const char *const moe[] = {"Qwen3MoeDecoderLayer", "Linear", "Qwen3MoeExperts"};
    check_pieces("qwen3_layer_types", dense, 4);
    check_pieces("qwen3_moe", moe, 3);
}

static void check_batches_and_threads(const char *name)
{
    model m, one;
    tiny_model_open(&m, name, OSH_BF16, 2);
    tiny_model_open(&one, name, OSH_BF16, 1);
    osh_batch *a = whole(&m, 0, m.t.n_samples), *b = whole(&one, 0, m.t.n_samples);
    assert_same(&m, a, b);
    const osh_tensor *all = a->values[logits_of(m.g)];
    for (int s = 0; s < m.t.n_samples; s++) { // runs each sample in a batch of its own
        osh_batch *c = whole(&m, s, 1);
        const osh_tensor *x = c->values[logits_of(m.g)];
        const char *at = (const char *)all->data + (size_t)(m.t.offsets[s] * m.g->n_vocab) * 2;
        assert_int_equal(x->shape[0], m.t.offsets[s + 1] - m.t.offsets[s]);
        assert_memory_equal(x->data, at, osh_tensor_bytes(x));
        osh_batch_free(m.cx, c);
    }
    osh_batch_free(m.cx, a);
    osh_batch_free(one.cx, b);
    tiny_model_close(&m);
    tiny_model_close(&one);
}

static void batches_and_threads_do_not_matter(void **state)
{
    check_batches_and_threads("llama_dynamic");
    check_batches_and_threads("qwen3_moe");
}

/* ---- hooks ---- */

typedef struct trace {
    const osh_graph *g;
    int *seen; // own [n_values]: number of calls of the hook for each value
    int n_linear, last_linear;
    bool double_input; // true if the hook doubles the inputs of linears
    osh_tensor *mine;  // own
} trace;

static osh_status on_value(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                           const osh_batch *b)
{
    trace *t = user;
    const osh_value *v = &t->g->values[value];
    assert_int_equal(x->shape[0], b->n_tokens);
    assert_int_equal(x->dtype, v->dtype);
    t->seen[value]++;
    if (strcmp(t->g->nodes[t->last_linear].op->name, "linear") == 0 && t->n_linear)
        /* the hook is called before the nodes that read the value */
        assert_true(v->first_use < 0 || v->first_use > t->last_linear);
    return OSH_OK;
}

static osh_status on_linear(osh_ctx *cx, void *user, int node, const osh_tensor **x,
                            const osh_batch *b)
{
    trace *t = user;
    osh_status rc = OSH_OK;
    assert_string_equal(t->g->nodes[node].op->name, "linear");
    t->n_linear++;
    t->last_linear = node;
    if (!t->double_input) return OSH_OK;
    int64_t n = osh_tensor_numel(*x);
    float *f = malloc((size_t)n * sizeof *f);
    osh_to_f32(f, (*x)->data, (*x)->dtype, n);
    for (int64_t i = 0; i < n; i++) f[i] *= 2;
    osh_tensor_free(cx, t->mine);
    OSH_TRY(osh_tensor_new(cx, &t->mine, (*x)->dtype, (*x)->ndim, (*x)->shape));
    osh_from_f32(t->mine->data, (*x)->dtype, f, n);
    *x = t->mine;
done:
    free(f);
    return rc;
}

static void hooks_are_called_once(void **state)
{
    model m;
    osh_batch *b = NULL;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    trace t = {.g = m.g, .seen = calloc((size_t)m.g->n_values, sizeof(int))};
    osh_exec_hooks hooks = {on_value, on_linear, &t};
    tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, m.g->n_nodes));
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, 2));
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, m.g->n_nodes, NULL, NULL}, m.w, b,
                                  &hooks, true));
    for (int v = 0; v < m.g->n_values; v++) {
        assert_int_equal(t.seen[v], 1);
        assert_non_null(b->values[v]); // `keep` is NULL, so all values are kept
    }
    assert_int_equal(t.n_linear, 2 * 7 + 1);
    osh_batch_free(m.cx, b);
    free(t.seen);
    tiny_model_close(&m);
}

static void linear_input_is_replaced(void **state)
{
    model m;
    osh_batch *b = NULL;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    osh_batch *plain = whole(&m, 0, 1);
    trace t = {.g = m.g, .seen = calloc((size_t)m.g->n_values, sizeof(int)), .double_input = true};
    osh_exec_hooks hooks = {NULL, on_linear, &t};
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, 1));
    int hidden = m.g->nodes[m.g->head].in[0];
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, m.g->head, NULL, NULL}, m.w, b,
                                  NULL, true));
    assert_non_null(b->values[hidden]);
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, m.g->head, 1, NULL, NULL}, m.w, b,
                                  &hooks, true));
    const uint16_t *x = plain->values[logits_of(m.g)]->data, *y = b->values[logits_of(m.g)]->data;
    int64_t n = osh_tensor_numel(b->values[logits_of(m.g)]);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal((x[i] & 0x7fff) ? x[i] + 0x80 : x[i], y[i]); // the logits are doubled: the
                                                                      // exponent is larger by 1
    osh_tensor_free(m.cx, t.mine);
    osh_batch_free(m.cx, b);
    osh_batch_free(m.cx, plain);
    free(t.seen);
    tiny_model_close(&m);
}

/* ---- nodes that must run ---- */

static void only_needed_nodes(void **state)
{
    model m;
    osh_batch *b = NULL;
    osh_partition *p = NULL;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    tiny_check(m.cx, osh_partition_new(m.cx, &p, m.g, NULL, 0, 1));
    const osh_subgraph *s = &p->parts[1];
    bool *want = calloc((size_t)m.g->n_values, sizeof *want),
         *run = calloc((size_t)m.g->n_nodes, sizeof *run);

    int down = m.g->modules[osh_graph_module(m.g, "model.layers.0.mlp.down_proj")].node;
    want[m.g->nodes[down].in[0]] =
        true; // the input of down_proj needs all nodes except down_proj and the last add
    osh_exec_needed(run, m.g, s->first, s->n_nodes, want);
    for (int i = 0; i < s->n_nodes; i++) assert_int_equal(run[i], s->first + i < down);

    memset(want, 0, (size_t)m.g->n_values * sizeof *want);
    int q = m.g->modules[osh_graph_module(m.g, "model.layers.0.self_attn.q_proj")].node;
    want[m.g->nodes[q].in[0]] = true; // the input of q needs only the norm
    osh_exec_needed(run, m.g, s->first, s->n_nodes, want);
    for (int i = 0; i < s->n_nodes; i++) assert_int_equal(run[i], s->first + i < q);
    assert_int_equal(q - s->first, 1);

    memset(want, 0, (size_t)m.g->n_values * sizeof *want);
    want[s->live_in[0]] = true; // an input of the subgraph needs no node
    osh_exec_needed(run, m.g, s->first, s->n_nodes, want);
    for (int i = 0; i < s->n_nodes; i++) assert_false(run[i]);

    /* The run calls the hook with the input of the subgraph, and computes nothing. */
    trace t = {.g = m.g, .seen = calloc((size_t)m.g->n_values, sizeof(int))};
    osh_exec_hooks hooks = {on_value, on_linear, &t};
    tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, 1));
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, 1));
    tiny_check(m.cx,
               osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, 1, NULL, NULL}, m.w, b, NULL, true));
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, s->first, s->n_nodes, run, want}, m.w,
                                  b, &hooks, true));
    assert_int_equal(t.seen[s->live_in[0]], 1);
    assert_int_equal(t.n_linear, 0);
    assert_non_null(b->values[s->live_in[0]]);
    assert_null(b->values[m.g->input_ids]); // `keep` is false for the token ids
    osh_batch_free(m.cx, b);
    osh_partition_free(m.cx, p);
    free(t.seen);
    free(want);
    free(run);
    tiny_model_close(&m);
}

/* Adds the nodes of the original model to the graph, as if each Linear were quantized. */
static void add_original(model *m)
{
    int *moved = calloc((size_t)m->g->n_nodes, sizeof *moved);
    bool *changed = calloc((size_t)m->g->n_nodes, sizeof *changed);
    for (int i = 0; i < m->g->n_nodes; i++)
        changed[i] = strcmp(m->g->nodes[i].op->name, "linear") == 0;
    tiny_check(m->cx, osh_graph_add_original(m->cx, m->g, changed, moved));
    free(changed), free(moved);
}

typedef struct pairs {
    const osh_graph *g;
    int n; // number of values that were live at the same time as their originals
} pairs;

static osh_status on_pair(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                          const osh_batch *b)
{
    pairs *p = user;
    int original = p->g->values[value].original;
    (void)cx;
    if (original < 0) return OSH_OK;
    assert_ptr_equal(b->values[value], x);
    assert_non_null(b->values[original]);
    assert_int_equal(osh_tensor_bytes(x), osh_tensor_bytes(b->values[original]));
    /* the weights of both models are equal */
    assert_memory_equal(x->data, b->values[original]->data, osh_tensor_bytes(x));
    p->n++;
    return OSH_OK;
}

/* Runs a graph that also has the nodes of the original model, with equal weights. When the hook is
 * called for a value, the same value of the original model must be live and equal, even if `keep`
 * is false for it. */
static void originals_are_beside(void **state)
{
    (void)state;
    model m;
    osh_batch *b = NULL, *plain;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    plain = whole(&m, 0, m.t.n_samples);
    osh_tensor *logits = plain->values[logits_of(m.g)];
    plain->values[logits_of(m.g)] = NULL;
    osh_batch_free(m.cx, plain);
    add_original(&m);
    pairs seen = {.g = m.g};
    osh_exec_hooks hooks = {.value = on_pair, .user = &seen};
    bool *keep = calloc((size_t)m.g->n_values, sizeof *keep),
         *run = calloc((size_t)m.g->n_nodes, sizeof *run);
    int n_originals = 0,
        down = m.g->modules[osh_graph_module(m.g, "model.layers.1.mlp.down_proj")].node;
    for (int v = 0; v < m.g->n_values; v++) n_originals += m.g->values[v].original >= 0;
    keep[logits_of(m.g)] = true;
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, m.t.n_samples));
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, m.g->n_nodes, NULL, keep}, m.w, b,
                                  &hooks, true));
    assert_int_equal(seen.n, n_originals);
    assert_int_equal(osh_tensor_bytes(logits), osh_tensor_bytes(b->values[logits_of(m.g)]));
    assert_memory_equal(logits->data, b->values[logits_of(m.g)]->data, osh_tensor_bytes(logits));
    osh_tensor_free(m.cx, logits);
    osh_batch_free(m.cx, b), b = NULL;

    // the run ends with the value that down_proj reads, in the quantized and in the original model
    int input = m.g->nodes[down].in[0];
    memset(keep, 0, (size_t)m.g->n_values * sizeof *keep);
    keep[input] = keep[m.g->values[input].original] = true;
    osh_exec_needed(run, m.g, 0, m.g->n_nodes, keep);
    assert_false(run[down] || run[down - 1]);
    memset(keep, 0, (size_t)m.g->n_values * sizeof *keep);
    int before = seen.n;
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, m.t.n_samples));
    osh_exec_batch whole = {.n_tokens = b->n_tokens, .n_threads = 1};
    size_t peak = 0;
    tiny_check(m.cx,
               osh_exec_peak(m.cx, &peak, NULL, &(osh_exec_span){m.g, 0, m.g->n_nodes, run, keep},
                             &(osh_exec_brought){.in = keep}, &whole));
    /* `keep` is all false, so no value is live before the run */
    osh_mem_limit(m.cx, OSH_MEM_HOST, osh_mem_used(m.cx, OSH_MEM_HOST) + peak);
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, m.g->n_nodes, run, keep}, m.w, b,
                                  &hooks, true));
    osh_mem_limit(m.cx, OSH_MEM_HOST, 0);
    assert_true(seen.n > before);
    for (int v = 0; v < m.g->n_values; v++) assert_null(b->values[v]);
    osh_batch_free(m.cx, b);
    free(keep), free(run);
    tiny_model_close(&m);
}

/* Checks osh_exec_peak: the predicted bytes must be enough for the run, and not much more than
 * enough. */
static void memory_is_what_was_predicted(void **state)
{
    static const char *const targets[] = {"LlamaDecoderLayer", "Linear", "re:.*",
                                          "Qwen3MoeDecoderLayer", "re:.*"};
    enum { N = sizeof targets / sizeof *targets };
    for (size_t at = 0; at < 3 * N; at++) {
        size_t k = at % N;
        bool joins = at >= 2 * N;
        model m;
        osh_partition *p = NULL;
        osh_batch *b = NULL;
        tiny_model_open(&m, k < 3 ? "llama_yarn" : "qwen3_moe_step", OSH_BF16, 2);
        if (at / N == 1) add_original(&m);
        bool *keep = calloc((size_t)m.g->n_values, sizeof *keep),
             *in = calloc((size_t)m.g->n_values, sizeof *in);
        bool *run = calloc((size_t)m.g->n_nodes, sizeof *run);
        osh_exec_marks marks = {0};
        memset(run, true, (size_t)m.g->n_nodes);
        tiny_check(m.cx, osh_exec_marks_init(m.cx, &marks, m.g));
        tiny_check(m.cx, osh_partition_new(m.cx, &p, m.g, &targets[k], 1, 1));
        tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, m.g->n_nodes));
        tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, m.t.n_samples));
        for (int s = 0; s < p->n; s++) {
            const osh_subgraph *part = &p->parts[s];
            size_t brought = 0, left = 0;
            for (int v = 0; v < m.g->n_values; v++) {
                in[v] = b->values[v] != NULL;
                if (in[v])
                    brought += osh_mem_gross(osh_tensor_bytes(b->values[v])) +
                               osh_mem_gross(sizeof(osh_tensor));
                keep[v] = v == logits_of(m.g);
            }
            for (int i = 0; i < part->n_live_out; i++) keep[part->live_out[i]] = true;
            osh_exec_batch whole = {.n_tokens = b->n_tokens, .n_threads = osh_threads(m.cx)};
            size_t peak = 0;
            osh_exec_span span = {m.g, part->first, part->n_nodes, run, keep, .joins = joins};
            osh_exec_brought here = {.in = in};
            tiny_check(m.cx, osh_exec_peak(m.cx, &peak, &left, &span, &here, &whole));
            size_t again = 0;
            /* The prediction must not depend on the old content of `marks`. */
            whole.marks = &marks;
            tiny_check(m.cx, osh_exec_peak(m.cx, &again, &left, &span, &here, &whole));
            assert_int_equal(again, peak);
            size_t before = osh_mem_used(m.cx, OSH_MEM_HOST) - brought;
            osh_mem_limit(m.cx, OSH_MEM_HOST, before + peak);
            span.run = NULL;
            tiny_check(m.cx, osh_exec_run(m.cx, &span, m.w, b, NULL, true));
            size_t now = osh_mem_used(m.cx, OSH_MEM_HOST) - before;
            osh_mem_limit(m.cx, OSH_MEM_HOST, 0);
            // the arrays of a run and of a batch take at most 16384 bytes
            assert_true(now <= left && left <= now + 16384);
        }
        for (int v = 0; v < m.g->n_values; v++)
            assert_false(marks.here[v] || marks.outer[v] || marks.lane[v]);
        osh_exec_marks_deinit(m.cx, &marks);
        osh_batch_free(m.cx, b);
        osh_partition_free(m.cx, p);
        free(keep), free(in), free(run);
        tiny_model_close(&m);
    }
}

/* ---- nodes that run sample by sample ---- */

typedef struct witness {
    const osh_batch *all; // values of the whole batch, computed node by node
    const bool *seen;
    int n;
} witness;

static osh_status on_seen(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                          const osh_batch *b)
{
    witness *w = user;
    (void)cx;
    if (!w->seen || !w->seen[value]) return OSH_OK;
    assert_int_equal(x->shape[0], b->n_tokens);
    assert_memory_equal(x->data, w->all->values[value]->data, osh_tensor_bytes(x));
    w->n++;
    return OSH_OK;
}

/* Describes batch b for osh_exec_peak, as a plan does. */
static osh_exec_batch batch_of(const osh_batch *b, int n_threads, const bool *seen)
{
    osh_exec_batch e = {.n_tokens = b->n_tokens, .n_threads = n_threads, .seen = seen};
    int64_t lengths[16], n = b->seqs.n;
    assert_true(n <= 16 && osh_exec_by_sample(n, n_threads));
    for (int64_t s = 0; s < n; s++) {
        lengths[s] = b->offsets[s + 1] - b->offsets[s];
        for (int64_t i = s; i > 0 && lengths[i] > lengths[i - 1]; i--) {
            int64_t longer = lengths[i];
            lengths[i] = lengths[i - 1], lengths[i - 1] = longer;
        }
    }
    for (int64_t s = 0; s < n && s < n_threads; s++) e.at_once += lengths[s];
    e.longest = lengths[0];
    return e;
}

/* Runs a batch sample by sample, one sample per thread. The values must be bit for bit those of a
 * run node by node. Hooks must see the whole batch, and the predicted bytes must be enough. */
static void check_by_sample(const char *name, int n_threads, bool original, bool sees)
{
    model m;
    osh_batch *all = NULL, *b = NULL;
    tiny_model_open(&m, name, OSH_BF16, n_threads);
    if (original) add_original(&m);
    bool *keep = calloc((size_t)m.g->n_values, sizeof *keep),
         *seen = calloc((size_t)m.g->n_values, sizeof *seen);
    bool *none = calloc((size_t)m.g->n_values, sizeof *none),
         *run = calloc((size_t)m.g->n_nodes, sizeof *run);
    int n = n_threads * (m.t.n_samples / n_threads), n_seen = 0;
    keep[logits_of(m.g)] = true;
    memset(run, true, (size_t)m.g->n_nodes);
    for (int i = 0; sees && i < m.g->n_nodes; i++)
        if (!strcmp(m.g->nodes[i].op->name, "linear")) seen[m.g->nodes[i].in[0]] = true;
    for (int v = 0; v < m.g->n_values; v++) n_seen += seen[v];
    tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, m.g->n_nodes));
    tiny_check(m.cx, osh_batch_new(m.cx, &all, m.g, m.t.ids, m.t.offsets, n));
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, m.g->n_nodes, NULL, NULL}, m.w,
                                  all, NULL, true));

    witness w = {.all = all, .seen = seen};
    osh_lanes *lanes = NULL;
    size_t before = osh_mem_used(m.cx, OSH_MEM_HOST);
    tiny_check(m.cx, osh_lanes_new(m.cx, &lanes, m.g));
    assert_true(osh_mem_used(m.cx, OSH_MEM_HOST) <= before + osh_lanes_bytes(m.g, n_threads));
    osh_exec_hooks hooks = {.value = on_seen, .user = &w, .lanes = lanes, .seen = seen};
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, n));
    osh_exec_batch e = batch_of(b, n_threads, seen);
    size_t peak = 0;
    osh_exec_span span = {m.g, 0, m.g->n_nodes, run, keep, .joins = true};
    tiny_check(m.cx, osh_exec_peak(m.cx, &peak, NULL, &span, &(osh_exec_brought){.in = none}, &e));
    osh_mem_limit(m.cx, OSH_MEM_HOST, osh_mem_used(m.cx, OSH_MEM_HOST) + peak);
    span.run = NULL;
    tiny_check(m.cx, osh_exec_run(m.cx, &span, m.w, b, &hooks, true));
    osh_mem_limit(m.cx, OSH_MEM_HOST, 0);
    assert_int_equal(w.n, n_seen);
    assert_same(&m, all, b);
    for (int v = 0; v < m.g->n_values; v++) assert_true((b->values[v] != NULL) == keep[v]);
    osh_lanes_free(m.cx, lanes);
    osh_batch_free(m.cx, all);
    osh_batch_free(m.cx, b);
    free(keep), free(seen), free(none), free(run);
    tiny_model_close(&m);
}

static void samples_go_side_by_side(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++)
        for (int sees = 0; sees < 2; sees++) {
            check_by_sample("llama_yarn", n_threads, false, sees);
            check_by_sample("llama_default", n_threads, true, sees);
            check_by_sample("qwen3_moe", n_threads, false, sees);
        }
}

/* ---- failures ---- */

static void nonfinite_is_named(void **state)
{
    model m;
    osh_batch *b = NULL;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, m.g->n_nodes));
    // loads the whole embedding table
    const osh_node *embed = &m.g->nodes[0];
    const osh_weight *table = &m.g->weights[embed->w[0]];
    tiny_check(m.cx,
               osh_checkpoint_load(m.cx, &m.w->w[embed->w[0]], m.ck, table->name, 2, table->shape));
    // changes the row of a token that only sample 2 has
    uint16_t *row = m.w->w[embed->w[0]]->data;
    int32_t id = -1;
    for (int64_t i = m.t.offsets[2]; i < m.t.offsets[3] && id < 0; i++) {
        bool elsewhere = false;
        for (int64_t j = m.t.offsets[1]; j < m.t.offsets[2]; j++)
            elsewhere |= m.t.ids[j] == m.t.ids[i];
        if (!elsewhere) id = m.t.ids[i];
    }
    assert_true(id >= 0);
    row[(int64_t)id * 32 + 5] = 0x7f80;
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets + 1, 2));
    b->first_sample = 10;
    assert_int_equal(
        osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, m.g->n_nodes, NULL, NULL}, m.w, b, NULL, true),
        OSH_E_NUMERIC);
    assert_non_null(strstr(osh_error_text(m.cx), "model.embed_tokens"));
    assert_non_null(strstr(osh_error_text(m.cx), "sample 11"));
    assert_non_null(strstr(osh_error_text(m.cx), "channel 5"));
    osh_batch_free(m.cx, b);
    tiny_model_close(&m);
}

/* `gate`, `up` and `glu` may run as one op, or one by one. In both cases a NaN must be reported
 * with the same module, sample and channel. */
static void nonfinite_of_an_up_is_named(void **state)
{
    (void)state;
    // way 0: two Linears and glu run as three ops; 1: as one kernel; 2: as one kernel, sample by
    // sample
    for (int way = 0; way < 3; way++) {
        model m;
        osh_batch *b = NULL;
        osh_lanes *lanes = NULL;
        tiny_model_open(&m, "llama_default", OSH_BF16, 1);
        tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, m.g->n_nodes));
        const osh_node *up =
            &m.g->nodes[m.g->modules[osh_graph_module(m.g, "model.layers.1.mlp.up_proj")].node];
        const osh_tensor *w = m.w->w[up->w[0]];
        bool *keep = calloc((size_t)m.g->n_values, sizeof *keep);
        keep[logits_of(m.g)] = true;
        for (int64_t i = 0; i < w->shape[1]; i++)
            ((uint16_t *)w->data)[3 * w->shape[1] + i] = 0x7f7f;
        if (way == 2) tiny_check(m.cx, osh_lanes_new(m.cx, &lanes, m.g));
        osh_exec_hooks hooks = {.lanes = lanes};
        tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, 2));
        osh_exec_span span = {m.g, 0, m.g->n_nodes, NULL, keep, .joins = way > 0};
        assert_int_equal(osh_exec_run(m.cx, &span, m.w, b, &hooks, true), OSH_E_NUMERIC);
        const char *text = osh_error_text(m.cx);
        if (!strstr(text, "model.layers.1.mlp.up_proj") ||
            !strstr(text, "sample 0, token 0, channel 3"))
            fail_msg("way %d: %s", way, text);
        osh_batch_free(m.cx, b);
        osh_lanes_free(m.cx, lanes);
        free(keep);
        tiny_model_close(&m);
    }
}

/* Reuses the lists of a batch for another batch: the old values must be freed, no long list may be
 * allocated, and the result must equal that of a new batch. */
static void a_batch_keeps_its_lists(void **state)
{
    model m;
    osh_batch *b = NULL, *own = NULL;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    osh_exec_values all = {0, m.g->n_values};
    osh_exec_span span = {m.g, 0, m.g->n_nodes, NULL, NULL};
    osh_batch_rows rows = {m.t.ids, m.t.offsets + 1, 1};
    tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, m.g->n_nodes));
    size_t none = osh_mem_used(m.cx, OSH_MEM_HOST);
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, 2));
    osh_tensor **values = b->values;
    tiny_check(m.cx, osh_exec_run(m.cx, &span, m.w, b, NULL, true));
    osh_batch_clear(m.cx, b, m.g, all);
    for (int v = 0; v < m.g->n_values; v++) assert_null(b->values[v]);
    assert_int_equal(osh_mem_used(m.cx, OSH_MEM_HOST) - none,
                     osh_mem_gross(sizeof *b) +
                         osh_mem_gross((size_t)m.g->n_values * sizeof *b->values));
    tiny_check(m.cx, osh_batch_again(m.cx, b, m.g, &rows, all));
    assert_ptr_equal(b->values, values);
    tiny_check(m.cx, osh_exec_run(m.cx, &span, m.w, b, NULL, true));
    tiny_check(m.cx, osh_batch_new(m.cx, &own, m.g, rows.ids, rows.offsets, rows.n));
    tiny_check(m.cx, osh_exec_run(m.cx, &span, m.w, own, NULL, true));
    const osh_tensor *x = b->values[logits_of(m.g)], *y = own->values[logits_of(m.g)];
    assert_int_equal(osh_tensor_bytes(x), osh_tensor_bytes(y));
    assert_memory_equal(x->data, y->data, osh_tensor_bytes(x));
    osh_batch_clear(m.cx, NULL, m.g, all);
    osh_batch_free(m.cx, own), osh_batch_free(m.cx, b);
    tiny_model_close(&m);
}

/* Sets an element of a tensor to NaN. */
static void weight_spoil(model *m, const char *name, int64_t element)
{
    char path[64], *text = NULL;
    size_t n = 0;
    int64_t at = osh_checkpoint_find(m->ck, name)->e->begin + 2 * element;
    snprintf(path, sizeof path, "%s/model.safetensors", m->dir);
    tiny_check(m->cx, osh_file_read_all(m->cx, &text, &n, path, 1 << 24));
    text[at] = (char)0xc0, text[at + 1] = 0x7f;
    tiny_check(m->cx, osh_file_write_all(m->cx, path, text, n));
    osh_free(m->cx, text);
    osh_checkpoint_close(m->cx, m->ck);
    tiny_check(m->cx, osh_checkpoint_open(m->cx, &m->ck, m->dir));
}

static void nonfinite_weight_is_named(void **state)
{
    model m;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    weight_spoil(&m, "model.layers.1.mlp.up_proj.weight", 33);
    assert_int_equal(osh_weights_load(m.cx, m.w, m.g, m.ck, 0, m.g->n_nodes), OSH_E_NUMERIC);
    assert_non_null(strstr(osh_error_text(m.cx), "model.layers.1.mlp.up_proj.weight: element 33"));
    tiny_model_close(&m);
}

/* osh_weights_read must read the wanted weights that are not in memory, and no other weights. */
static void only_wanted_weights_are_read(void **state)
{
    model m;
    bool want[256] = {false};
    tiny_model_open(&m, "llama_default", OSH_BF16, 3);
    int n = m.g->n_weights;
    assert_in_range(n, 6, 256);
    want[1] = want[2] = want[4] = want[n - 1] = true;
    tiny_check(m.cx, osh_weight_load(m.cx, &m.w->w[2], m.g, m.ck, 2));
    osh_weight_set set = {want, 1, n - 1}; // the set has all weights except the last
    tiny_check(m.cx, osh_weights_read(m.cx, m.w, m.g, m.ck, &set));
    for (int i = 0; i < n; i++) assert_int_equal(m.w->host[i] != NULL, i == 1 || i == 4);
    for (int i = 1; i < 5; i++)
        if (want[i]) tiny_check(m.cx, osh_weight_place(m.cx, m.w, m.g, m.ck, i));
    osh_tensor *t = NULL;
    tiny_check(m.cx, osh_weight_load(m.cx, &t, m.g, m.ck, 4));
    assert_null(m.w->host[4]);
    assert_memory_equal(m.w->w[4]->data, t->data, osh_tensor_bytes(t));
    osh_tensor_free(m.cx, t);
    tiny_model_close(&m);
}

/* Loads only the embedding rows of the tokens. The result is the same to the bit as with the whole
 * table. */
static void only_named_rows_are_read(void **state)
{
    const int32_t ids[] = {7, 3, 4, 7, 41, 3};
    const int64_t offsets[] = {0, 2, 6};
    model m;
    osh_batch *b = NULL, *from_table = NULL;
    tiny_model_open(&m, "llama_default", OSH_BF16, 2);
    int h = m.g->nodes[0].out[0];
    const osh_weight *w = &m.g->weights[m.g->nodes[0].w[0]];
    weight_spoil(&m, w->name, 5 * w->shape[1] + 1);
    tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, 1));
    assert_null(m.w->w[m.g->nodes[0].w[0]]);
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, ids, offsets, 2));
    tiny_check(m.cx,
               osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, 1, NULL, NULL}, m.w, b, NULL, true));
    osh_tensor *table = NULL;
    tiny_check(m.cx, osh_checkpoint_load(m.cx, &table, m.ck, w->name, w->ndim, w->shape));
    m.w->w[m.g->nodes[0].w[0]] = table;
    tiny_check(m.cx, osh_batch_new(m.cx, &from_table, m.g, ids, offsets, 2));
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, 1, NULL, NULL}, m.w, from_table,
                                  NULL, true));
    assert_memory_equal(b->values[h]->data, from_table->values[h]->data,
                        osh_tensor_bytes(b->values[h]));
    osh_weights_release(m.cx, m.w, m.g, 0, 1);
    osh_batch_free(m.cx, b), osh_batch_free(m.cx, from_table);

    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, (int32_t[]){9, 5}, (int64_t[]){0, 2}, 1));
    assert_int_equal(
        osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, 1, NULL, NULL}, m.w, b, NULL, true),
        OSH_E_NUMERIC);
    char want[64];
    snprintf(want, sizeof want, "embed_tokens.weight: element %d is not finite",
             (int)(5 * w->shape[1] + 1));
    assert_non_null(strstr(osh_error_text(m.cx), want));
    osh_error_clear(m.cx);
    osh_batch_free(m.cx, b);
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, (int32_t[]){9, (int32_t)w->shape[0]},
                                   (int64_t[]){0, 2}, 1));
    assert_int_equal(
        osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, 1, NULL, NULL}, m.w, b, NULL, true),
        OSH_E_FORMAT);
    osh_error_clear(m.cx);
    osh_batch_free(m.cx, b);
    tiny_model_close(&m);
}

/* Asserts that elements of two BF16 tensors differ by at most one or two roundings. With fewer rows
 * a matrix library may add in another order. */
static void assert_close(const osh_tensor *x, const osh_tensor *want)
{
    double diff = 0, all = 0;
    for (int64_t i = 0; i < osh_tensor_numel(want); i++) {
        float a, b;
        osh_to_f32(&a, (uint16_t *)x->data + i, x->dtype, 1);
        osh_to_f32(&b, (uint16_t *)want->data + i, want->dtype, 1);
        diff += ((double)a - b) * ((double)a - b), all += (double)b * b;
    }
    assert_true(all > 0 && diff <= 1e-4 * all);
}

static osh_status count_rows(osh_ctx *cx, void *user, int node, const osh_tensor **x,
                             const osh_batch *b)
{
    int64_t *rows = user; // [nodes]: number of rows of each Linear
    (void)cx, (void)b;
    rows[node] = (*x)->shape[0];
    return OSH_OK;
}

/* The Linears of an expert run only on the rows that the router sends to the expert. All nodes run
 * at once, or each node runs alone. The results must be the same. */
static void only_routed_rows_run(void **state)
{
    model m;
    osh_batch *b = NULL, *all = NULL, *pieces = NULL;
    tiny_model_open(&m, "qwen3_moe", OSH_BF16, 2);
    int n = m.g->n_nodes, logits = logits_of(m.g);
    int64_t *rows = calloc((size_t)n, sizeof *rows), sent = 0, ran = 0;
    bool *routed = calloc((size_t)n, sizeof *routed),
         *keep = calloc((size_t)m.g->n_values, sizeof *keep);
    for (int i = 0; i < n; i++) routed[i] = osh_routed_to(m.g, i) >= 0;
    tiny_check(m.cx, osh_weights_load(m.cx, m.w, m.g, m.ck, 0, n));
    keep[logits] = true;
    all = whole(&m, 0, m.t.n_samples);
    osh_exec_hooks hooks = {.linear_input = count_rows, .user = rows};
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, m.t.n_samples));
    tiny_check(m.cx, osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, n, NULL, keep, {0, 0}, routed},
                                  m.w, b, &hooks, true));
    for (int i = 0; i < n; i++) {
        if (strcmp(m.g->nodes[i].op->name, "linear") == 0 && routed[i]) ran += rows[i];
        if (strcmp(m.g->nodes[i].op->name, "moe_router") == 0)
            sent += 3 * b->n_tokens * ((const osh_moe_router_attr *)m.g->nodes[i].attr)->top_k;
    }
    assert_true(ran > 0 && ran <= sent); // a row that is sent does not run if its routing weight
                                         // is rounded to 0
    assert_true(ran >= sent - sent / 50);
    assert_close(b->values[logits], all->values[logits]);

    tiny_check(m.cx, osh_batch_new(m.cx, &pieces, m.g, m.t.ids, m.t.offsets, m.t.n_samples));
    memset(keep, true, (size_t)m.g->n_values);
    for (int i = 0; i < n; i++) {
        osh_exec_span one = {m.g, i, 1, NULL, keep, {0, 0}, routed + i};
        tiny_check(m.cx, osh_exec_run(m.cx, &one, m.w, pieces, NULL, true));
    }
    assert_memory_equal(pieces->values[logits]->data, b->values[logits]->data,
                        osh_tensor_bytes(b->values[logits]));
    osh_batch_free(m.cx, b), osh_batch_free(m.cx, all), osh_batch_free(m.cx, pieces);
    free(rows), free(routed), free(keep);
    tiny_model_close(&m);
}

static void missing_pieces_are_named(void **state)
{
    model m;
    osh_batch *b = NULL;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    tiny_check(m.cx, osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, 1));
    assert_int_equal(
        osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, 1, NULL, NULL}, m.w, b, NULL, true),
        OSH_E_INTERNAL);
    assert_non_null(strstr(osh_error_text(m.cx), "model.embed_tokens.weight is not loaded"));
    osh_error_clear(m.cx);
    assert_int_equal(
        osh_exec_run(m.cx, &(osh_exec_span){m.g, 1, 1, NULL, NULL}, m.w, b, NULL, true),
        OSH_E_INTERNAL);
    assert_non_null(strstr(osh_error_text(m.cx), "value h is not live"));
    osh_batch_free(m.cx, b);
    tiny_model_close(&m);
}

static void out_of_memory(void **state)
{
    model m;
    osh_status rc = OSH_E_NOMEM;
    tiny_model_open(&m, "llama_default", OSH_BF16, 1);
    int64_t n = 0;
    while (rc == OSH_E_NOMEM) {
        osh_batch *b = NULL;
        osh_error_clear(m.cx);
        osh_mem_fail_after(m.cx, ++n);
        rc = osh_weights_load(m.cx, m.w, m.g, m.ck, 0, 3);
        if (!rc) rc = osh_batch_new(m.cx, &b, m.g, m.t.ids, m.t.offsets, 1);
        if (!rc)
            rc = osh_exec_run(m.cx, &(osh_exec_span){m.g, 0, 3, NULL, NULL}, m.w, b, NULL, true);
        osh_mem_fail_after(m.cx, -1);
        osh_batch_free(m.cx, b);
        osh_weights_release(m.cx, m.w, m.g, 0, 3);
    }
    assert_int_equal(rc, OSH_OK);
    assert_true(n > 10);
    tiny_model_close(&m);
}

/* osh_device_peaks computes the peaks on a GPU only once for layers with equal shapes and an equal
 * number of tokens. The peaks of each layer must equal those of a separate computation. */
static void alike_layers_are_placed_once(void **state)
{
    model m;
    osh_device_peaks *p = NULL;
    osh_partition *parts = NULL;
    static const char *const targets[] = {"Qwen3MoeDecoderLayer"};
    tiny_model_open(&m, "qwen3_moe_step", OSH_BF16, 2);
    bool *keep = calloc((size_t)m.g->n_values, sizeof *keep),
         *in = calloc((size_t)m.g->n_values, sizeof *in);
    bool *routed = calloc((size_t)m.g->n_nodes, sizeof *routed),
         *run = calloc((size_t)m.g->n_nodes, sizeof *run);
    memset(run, true, (size_t)m.g->n_nodes);
    tiny_check(m.cx, osh_partition_new(m.cx, &parts, m.g, targets, 1, 1));
    tiny_check(m.cx, osh_device_peaks_new(m.cx, &p, m.g));
    int64_t n_runs = 0;
    // way 0: each expert runs on all rows; way 1: only on the rows that are sent to this expert
    for (int way = 0; way < 2; way++)
        for (int s = 0; s < parts->n; s++) {
            const osh_subgraph *part = &parts->parts[s];
            osh_exec_values of = {m.g->n_values, 0};
            memset(keep, 0, (size_t)m.g->n_values), memset(in, 0, (size_t)m.g->n_values);
            for (int i = 0; i < part->n_live_in; i++) in[part->live_in[i]] = true;
            for (int i = 0; i < part->n_live_out; i++) keep[part->live_out[i]] = true;
            for (int i = part->first; i < part->first + part->n_nodes; i++) {
                const osh_node *n = &m.g->nodes[i];
                for (int k = 0; k < n->op->n_in; k++) {
                    if (n->in[k] < of.v0) of.v0 = n->in[k];
                    if (n->in[k] >= of.v1) of.v1 = n->in[k] + 1;
                }
                for (int k = 0; k < n->op->n_out; k++)
                    if (n->out[k] >= of.v1) of.v1 = n->out[k] + 1;
            }
            // extends the range `of` so that it has all values that are live before or after the
            // subgraph
            for (int v = 0; v < m.g->n_values; v++)
                if (in[v] || keep[v])
                    of.v0 = v < of.v0 ? v : of.v0, of.v1 = v >= of.v1 ? v + 1 : of.v1;
            osh_routed_choose(routed, m.g, part->first, part->n_nodes, run);
            osh_exec_span near = {m.g,  part->first, part->n_nodes,      run,
                                  keep, of,          way ? routed : NULL},
                          all = near;
            all.of = (osh_exec_values){0, 0};
            tiny_check(m.cx, osh_device_peaks_walk(m.cx, p, &near, &(osh_exec_brought){.in = in}));
            for (int64_t n = 100; n < 103; n++, n_runs++) {
                size_t peak, left, peak2, left2;
                tiny_check(m.cx, osh_device_peaks_at(m.cx, &peak, &left, p, n));
                tiny_check(m.cx, osh_exec_peak_on_device(m.cx, &peak2, &left2, &all,
                                                         &(osh_exec_brought){.in = in}, n));
                assert_int_equal(peak, peak2);
                assert_int_equal(left, left2);
                assert_true(left < peak);
            }
        }
    /* Two of the four layers have experts, so peaks are shared. The first subgraph also has the
     * embedding, and the last subgraph the head. */
    assert_true(osh_device_peaks_placed(p) <= n_runs * 2 / 3);
    osh_device_peaks_free(m.cx, p);
    osh_partition_free(m.cx, parts);
    free(keep), free(in), free(run), free(routed);
    tiny_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_layers_are_placed_once),
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(batches_and_threads_do_not_matter),
        cmocka_unit_test(hooks_are_called_once),
        cmocka_unit_test(linear_input_is_replaced),
        cmocka_unit_test(only_needed_nodes),
        cmocka_unit_test(originals_are_beside),
        cmocka_unit_test(memory_is_what_was_predicted),
        cmocka_unit_test(samples_go_side_by_side),
        cmocka_unit_test(nonfinite_is_named),
        cmocka_unit_test(nonfinite_of_an_up_is_named),
        cmocka_unit_test(a_batch_keeps_its_lists),
        cmocka_unit_test(nonfinite_weight_is_named),
        cmocka_unit_test(only_wanted_weights_are_read),
        cmocka_unit_test(only_named_rows_are_read),
        cmocka_unit_test(only_routed_rows_run),
        cmocka_unit_test(missing_pieces_are_named),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
