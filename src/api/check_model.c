/* check_model.c - checks that a template fits a checkpoint, for authors of templates. It prints
 * lines such as:
 *
 *   wrong  tensor model.layers.0.self_attn.q_norm.weight is missing in DIR
 *   unread model.layers.0.self_attn.q_proj.bias BF16 [576]
 *   272 tensors, 30 layers: 1 wrong, 1 forgotten by the template, 0 aside
 *   one sample of 96 tokens: loss 3.8164; who guesses has ln 49152 = 10.8026
 *
 * With `--logits FILE`, the sample comes from FILE, and the model's logits are compared with those
 * in FILE (check_logits.c).
 *
 * A tensor that no node reads counts as forgotten (an error of the template) or as aside. It is
 * forgotten if the template has the tensor's module. In a decoder block, it is also forgotten if
 * the template has the parent of that module. All other unread tensors are aside, such as the
 * tensors of a vision tower, or of Mllama's layers with cross-attention. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/check_logits.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/rng.h"
#include "eval/forward.h"
#include "graph/kind.h"
#include "math/isa.h"

enum { MOST_TOKENS = 128, MADE_UP = 64 };

static const char sample[] =
    "The lighthouse stood at the end of a long stone pier. Every evening the keeper climbed its "
    "hundred and twelve steps, cleaned the glass and lit the lamp, so that the fishing boats could "
    "find their way home between the rocks. In winter the waves reached the windows of his "
    "kitchen. He wrote down the weather three times a day, in a book that nobody read, and on "
    "Sundays his sister came with bread, newspapers and stories from the town.";

typedef struct checked {
    osh_source *source; // own
    osh_graph *graph;   // own
    osh_graph_faults faults; // own
    /* n_forgotten: number of tensors that the template forgets.
     * n_unread: number of tensors that no node reads (forgotten ones included). */
    int64_t n_forgotten, n_unread;
    osh_map *modules;   // own: names of the modules of all nodes, and names of their parents
} checked;

/* ---- tensors ---- */

static bool names_module(const checked *c, const char *name, size_t n)
{
    int64_t at;
    return n && osh_map_get(c->modules, name, n, &at);
}

/* Returns the length of a name (n bytes) without the part after the last dot. */
static size_t without_last(const char *name, size_t n)
{
    while (n && name[n - 1] != '.') n--;
    return n ? n - 1 : 0;
}

/* True if the template has the module of the tensor. In a decoder block, also true if the template
 * has the parent of that module. */
static bool is_forgotten(const checked *c, const char *name)
{
    size_t module = without_last(name, strlen(name)), around = without_last(name, module);
    // names of buffers that a file may contain, although the program computes them
    static const char *const buffers[] = {"inv_freq", "slope_rate", "query_decay", "key_decay",
                                          "diagonal_decay"};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (strstr(name, buffers[i])) return false;
    /* True if the module is an item of a list, such as a decoder layer. */
    bool of_list =
        around && strspn(name + around + 1, "0123456789") == module - around - 1;
    return names_module(c, name, module) ||
           (!of_list && osh_in_decoder_block(name) && names_module(c, name, around));
}

static osh_status list_unread(osh_ctx *cx, checked *c, osh_buf *b)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = osh_source_checkpoint(c->source);
    bool *read = NULL; // own [tensors]: true if a node reads the tensor
    OSH_NEW(cx, read, ck->n_tensors);
    for (int i = 0; i < c->graph->n_weights; i++) {
        const osh_weight *w = &c->graph->weights[i];
        if (w->tensor >= 0) read[w->tensor] = true;
        for (int64_t s = 0; s < w->n_shards; s++) read[w->shards[s]] = true;
    }
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const osh_entry *e = ck->tensors[i].e;
        if (read[i]) continue;
        bool forgotten = is_forgotten(c, e->name);
        c->n_unread++, c->n_forgotten += forgotten;
        char shape[OSH_MAX_DIMS * 24] = "";
        for (int d = 0, at = 0; d < e->ndim; d++)
            at += snprintf(shape + at, sizeof shape - (size_t)at, d ? ", %lld" : "%lld",
                           (long long)e->shape[d]);
        OSH_TRY(osh_buf_line(cx, b, "%s %s %s [%s]", forgotten ? "unread" : "aside ", e->name,
                             osh_dtype_name(e->dtype), shape));
    }
done:
    osh_free(cx, read);
    return rc;
}

static osh_status check_tensors(osh_ctx *cx, checked *c, osh_buf *b, const char *dir,
                                const char *models_dir)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_source_open(cx, &c->source, dir));
    const osh_checkpoint *ck = osh_source_checkpoint(c->source);
    OSH_TRY(osh_graph_check(cx, &c->graph, &c->faults, ck, models_dir));
    OSH_TRY(osh_map_new(cx, &c->modules, (size_t)c->graph->n_modules));
    const char *inner = c->graph->wrapped ? c->graph->inner : "";
    /* Names of the text model's modules begin with `inner`, such as "model.language_model.". If the
     * name of a parent module and a dot are shorter than `inner`, the parent is outside of the text
     * model. */
    size_t n_inner = strlen(inner);
    for (int i = 0; i < c->graph->n_nodes; i++) {
        const char *name =
            c->graph->nodes[i].module < 0 ? "" : c->graph->modules[c->graph->nodes[i].module].name;
        size_t least = !strncmp(name, inner, n_inner) ? n_inner : 1;
        for (size_t n = strlen(name); n && n + 1 >= least && !names_module(c, name, n);
             n = without_last(name, n))
            OSH_TRY(osh_map_put(cx, c->modules, name, n, 0));
    }
    if (c->faults.n) OSH_TRY(osh_buf_append(cx, b, c->faults.text.data, c->faults.text.len));
    OSH_TRY(list_unread(cx, c, b));
    OSH_TRY(osh_buf_line(
        cx, b,
        "%lld tensors, %lld layers: %lld wrong, %lld missing from the template, %lld not needed",
        (long long)ck->n_tensors, (long long)c->graph->n_layers, (long long)c->faults.n,
        (long long)c->n_forgotten, (long long)(c->n_unread - c->n_forgotten)));
done:
    return rc;
}

/* ---- one sample ---- */

static osh_status sample_make(osh_ctx *cx, osh_dataset *d, bool *text, const char *dir,
                              const osh_graph *g)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, dir, "tokenizer.json"); // own
    osh_tokenizer *tok = NULL; // own
    osh_ids ids = {0};         // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if ((*text = osh_file_exists(path))) {
        OSH_TRY(osh_tokenizer_open(cx, &tok, dir));
        OSH_TRY(osh_tokenizer_encode(cx, tok, &ids, sample, sizeof sample - 1, true));
    } else {
        OSH_TRY(osh_ids_reserve(cx, &ids, MADE_UP));
        for (; ids.n < MADE_UP; ids.n++)
            ids.ids[ids.n] = (int32_t)(osh_rng_u64(1, 2, (uint64_t)ids.n) % (uint64_t)g->n_vocab);
    }
    int64_t most = g->max_positions < MOST_TOKENS ? g->max_positions : MOST_TOKENS;
    if (ids.n > most) ids.n = most;
    OSH_NEW(cx, d->offsets, 2);
    d->offsets[1] = ids.n, d->n = 1;
    d->ids = ids.ids, ids = (osh_ids){0}; // give
done:
    osh_free(cx, path);
    osh_tokenizer_close(cx, tok);
    osh_ids_deinit(cx, &ids);
    return rc;
}

static osh_status sample_score(osh_ctx *cx, double *loss, const osh_forward *f,
                               const osh_dataset *d)
{
    osh_status rc = OSH_OK;
    int64_t n = d->offsets[1];
    osh_tensor *targets = NULL, *nll = NULL; // own
    const osh_batch *b = f->batches[0];
    osh_vocab_attr rules = osh_forward_rules(f, NULL);
    OSH_TRY(osh_tensor_new(cx, &targets, OSH_I32, 1, &n));
    OSH_TRY(osh_tensor_new(cx, &nll, OSH_F32, 1, &n));
    for (int64_t i = 0; i < n; i++) ((int32_t *)targets->data)[i] = i + 1 < n ? d->ids[i + 1] : -1;
    osh_op_args a = {.in = {b->values[f->graph->hidden], f->head, targets},
                     .out = {nll},
                     .attr = &rules,
                     .seqs = &b->seqs};
    OSH_TRY(osh_op_run(cx, &osh_op_nll, &a));
    *loss = 0;
    for (int64_t i = 0; i + 1 < n; i++) *loss += ((float *)nll->data)[i] / (double)(n - 1);
done:
    osh_tensor_free(cx, targets);
    osh_tensor_free(cx, nll);
    return rc;
}

static osh_status sample_run(osh_ctx *cx, osh_buf *b, const char *dir, const osh_check_options *o)
{
    osh_status rc = OSH_OK;
    osh_forward *f = NULL;  // own
    osh_dataset d = {0};    // own
    osh_progress pr = {.error = -1};
    double loss = 0;
    bool text = false;
    OSH_TRY(osh_forward_open(cx, &f, dir, NULL, o->models_dir));
    OSH_TRY(sample_make(cx, &d, &text, dir, f->graph));
    if (d.offsets[1] < 2)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: the tokenizer makes %lld tokens of a text of %zu characters", dir,
                 (long long)d.offsets[1], sizeof sample - 1);
    OSH_TRY(osh_forward_run(cx, f, &d, 1, true, &pr));
    OSH_TRY(sample_score(cx, &loss, f, &d));
    double guess = log((double)f->graph->n_vocab);
    OSH_TRY(osh_buf_line(
        cx, b, "one sample of %lld tokens%s: loss %.4f; a random guess has ln %lld = %.4f",
        (long long)d.offsets[1],
        text ? ""
             : ", with made-up ids because there is no tokenizer.json",
        loss, (long long)f->graph->n_vocab, guess));
    if (!(loss < INFINITY))
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s: the loss of the sample is not a number", dir);
    if (text && loss > guess - 1)
        OSH_TRY(osh_buf_line(cx, b,
                             "the loss is that of a random guess: the weights are random, or the "
                             "template is wrong"));
done:
    osh_dataset_deinit(cx, &d);
    osh_forward_close(cx, f);
    return rc;
}

osh_status osh_check_model(osh_ctx *cx, const char *dir, const osh_check_options *o, osh_sink sink,
                           void *user)
{
    osh_status rc = OSH_OK;
    checked c = {0}; // own
    osh_buf b;
    osh_buf_init(&b, 0);
    osh_buf_init(&c.faults.text, 0);
    OSH_TRY(check_tensors(cx, &c, &b, dir, o->models_dir));
    if (!c.faults.n) {
        OSH_TRY(osh_isa_use(cx, o->isa));
        OSH_TRY(osh_isa_load(cx));
        if (o->logits) OSH_TRY(osh_check_logits(cx, &b, dir, o->logits, o->models_dir));
        else OSH_TRY(sample_run(cx, &b, dir, o));
    }
    if (c.faults.n || c.n_forgotten)
        OSH_FAIL(
            cx, OSH_E_FORMAT,
            "%s: %lld tensors do not fit the template of %s, and %lld are missing from it",
            dir, (long long)c.faults.n, osh_source_checkpoint(c.source)->config->architecture,
            (long long)c.n_forgotten);
done:
    if (b.len) sink(user, b.data, b.len);
    osh_buf_deinit(cx, &b);
    osh_buf_deinit(cx, &c.faults.text);
    osh_map_free(cx, c.modules);
    osh_graph_free(cx, c.graph);
    osh_source_close(cx, c.source);
    return rc;
}
