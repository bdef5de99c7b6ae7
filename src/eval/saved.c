/* saved.c - writes and opens the saved logits of a model. config.json is removed first and written
 * last, so a directory with config.json is complete. */
#include "eval/saved.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/xxh3.h"
#include "eval/share.h"
#include "text/json.h"

static const char architecture[] = "OneshotLogits", config_name[] = "config.json",
                  tensors_name[] = "model.safetensors";

/* The template of the graph: an embedding and the head. */
static const char graph_template[] =
    "{\"architectures\": [\"OneshotLogits\"],\n"
    " \"dims\": {\"N\": \"n_tokens\", \"D\": \"hidden_size\", \"V\": \"vocab_size\",\n"
    "  \"L\": \"num_hidden_layers\"},\n"
    " \"logits\": {\"divide\": \"logits_divide\", \"cap\": \"logits_cap\"},\n"
    " \"head\": \"lm_head\",\n"
    " \"before\": [{\"name\": \"hidden\", \"class\": \"Embedding\", \"op\": \"embedding\",\n"
    "  \"in\": [\"input_ids\"], \"out\": \"h\", \"weight\": [\"N\", \"D\"]}],\n"
    " \"layer\": {\"name\": \"layers.{i}\", \"class\": \"Logits\", \"repeat\": \"L\",\n"
    "  \"nodes\": []},\n"
    " \"after\": [\n"
    "  {\"name\": \"lm_head\", \"class\": \"Linear\", \"op\": \"linear\", \"in\": [\"h\"],\n"
    "   \"out\": \"logits\", \"weight\": [\"V\", \"D\"], \"bias\": \"head_bias\"}]}\n";

uint64_t osh_saved_sum(const osh_dataset *d)
{
    uint64_t sum = XXH3_64bits(d->offsets, (size_t)(d->n + 1) * sizeof *d->offsets);
    return XXH3_64bits_withSeed(d->ids, (size_t)d->offsets[d->n] * sizeof *d->ids, sum);
}

/* Reads DIR/config.json and sets *config (own) to its JSON tree, or to NULL if the directory has no
 * saved logits. */
static osh_status saved_config(osh_ctx *cx, cJSON **config, const char *dir)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL;                               // own
    char *path = osh_path_join(cx, dir, config_name); // own
    *config = NULL;
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (!osh_file_exists(path)) goto done;
    OSH_TRY(osh_json_read(cx, &root, path, 0, OSH_JSON_NAN));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "architectures"),
                *name = cJSON_IsArray(list) ? list->child : NULL;
    if (cJSON_IsString(name) && !strcmp(name->valuestring, architecture))
        *config = root, root = NULL; // passes ownership
done:
    cJSON_Delete(root);
    osh_free(cx, path);
    return rc;
}

osh_status osh_saved_is(osh_ctx *cx, bool *yes, const char *dir)
{
    cJSON *config = NULL; // own
    osh_status rc = saved_config(cx, &config, dir);
    *yes = config != NULL;
    cJSON_Delete(config);
    return rc;
}

/* ---- reading ---- */

static osh_status saved_check_tokens(osh_ctx *cx, const char *dir, const osh_dataset *d)
{
    osh_status rc = OSH_OK;
    cJSON *config = NULL; // own
    char want[17];
    snprintf(want, sizeof want, "%016llx", (unsigned long long)osh_saved_sum(d));
    OSH_TRY(saved_config(cx, &config, dir));
    const cJSON *sum = cJSON_GetObjectItemCaseSensitive(config, "tokens_xxh3"),
                *n = cJSON_GetObjectItemCaseSensitive(config, "n_tokens");
    if (!cJSON_IsString(sum) || !cJSON_IsNumber(n))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s/%s: has no tokens_xxh3 and n_tokens", dir, config_name);
    if (strcmp(sum->valuestring, want) || n->valuedouble != (double)d->offsets[d->n])
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--reference %s has the logits of %.0f tokens with checksum %s, and --dataset has "
                 "%lld tokens with checksum %s: want the data set, the windows and the tokenizer "
                 "of --save-logits",
                 dir, n->valuedouble, sum->valuestring, (long long)d->offsets[d->n], want);
done:
    cJSON_Delete(config);
    return rc;
}

osh_status osh_forward_open_saved(osh_ctx *cx, osh_forward **out, const char *dir,
                                  const osh_dataset *d)
{
    osh_status rc = OSH_OK;
    osh_forward *f = NULL; // own
    int64_t n = d->offsets[d->n];
    OSH_TRY(saved_check_tokens(cx, dir, d));
    OSH_TRY(osh_forward_open_by(cx, &f, dir, graph_template, sizeof graph_template - 1));
    OSH_NEW(cx, f->ids, n);
    for (int64_t t = 0; t < n; t++) f->ids[t] = (int32_t)t;
    *out = f, f = NULL; // passes ownership
done:
    if (rc) osh_note(cx, "opening the saved logits in %s", dir);
    osh_forward_close(cx, f);
    return rc;
}

/* ---- writing ---- */

static bool saved_is_file(const char *name)
{
    return !strncmp(name, config_name, sizeof config_name - 1) ||
           /* Only the beginning is compared: the name of a temporary file has a suffix. */
           !strncmp(name, tensors_name, sizeof tensors_name - 1);
}

osh_status osh_saved_make_dir(osh_ctx *cx, const char *dir)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = osh_path_join(cx, dir, config_name); // own
    size_t n = 0;
    bool ours = false;
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (!osh_dir_exists(dir)) {
        if (osh_file_exists(dir))
            OSH_FAIL(cx, OSH_E_USAGE, "--save-logits %s: found a file, want a directory", dir);
        OSH_TRY(osh_dir_make(cx, dir));
        goto done;
    }
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n; i++)
        if (!saved_is_file(names[i]))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "--save-logits %s: the directory contains %s, which is not a file of saved "
                     "logits: want another name",
                     dir, names[i]);
    OSH_TRY(osh_saved_is(cx, &ours, dir));
    if (!ours && osh_file_exists(path))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--save-logits %s: the directory contains a model, not saved logits: want another "
                 "name",
                 dir);
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, path);
    return rc;
}

typedef struct saving { // state of the callback that writes model.safetensors
    const osh_eval_models *m; // view
    const char *header;       // view
    size_t header_bytes;
    const osh_entry *hidden;    // view
    const osh_tensor *of[2];    // views: weight and bias of the head; NULL: no bias
    const osh_entry *at[2];     // views: their entries
} saving;

/* Receives the rows of a batch of another rank. *row: own. n_tokens: tokens of the batch. */
static osh_status saving_recv_rows(osh_ctx *cx, osh_tensor **row, const saving *s, int64_t n_tokens,
                                   int from)
{
    osh_status rc = OSH_OK;
    const osh_forward *f = s->m->f;
    const osh_value *v = &f->graph->values[f->graph->hidden];
    OSH_TRY(osh_tensor_new(cx, row, v->dtype, 2, (int64_t[]){n_tokens, v->width}));
    OSH_TRY(osh_ranks_recv(cx, f->ranks, (*row)->data, osh_tensor_bytes(*row), from));
done:
    return rc;
}

/* Sets *x (view) to the rows of batch b, which this rank has run. If a GPU has the rows, copies
 * them to *row (own). */
static osh_status saving_rows(osh_ctx *cx, const osh_tensor **x, osh_tensor **row,
                              const osh_eval_models *m, int64_t b)
{
    osh_status rc = OSH_OK;
    const osh_forward *f = m->f;
    if (m->gpu) OSH_TRY(osh_eval_gpu_hidden(cx, row, m->gpu, b));
    *x = m->gpu ? *row : f->batches[osh_deal_local(f->ranks, b)]->values[f->graph->hidden];
done:
    return rc;
}

/* Writes the rows of all batches; the rows of a sample are contiguous. */
static osh_status saving_write_rows(osh_ctx *cx, const saving *s, osh_file *f)
{
    osh_status rc = OSH_OK;
    const osh_eval_models *m = s->m;
    const osh_graph *g = m->f->graph;
    /* own: host copy of the rows of one batch, if a GPU or another rank has them. */
    osh_tensor *row = NULL;
    int64_t each = (int64_t)osh_value_bytes(g, g->hidden);
    for (int64_t b = 0; b < osh_eval_batches(m); b++) {
        int64_t first, count;
        int from = osh_deal_owner(m->f->ranks, b);
        OSH_TRY(osh_check_interrupt(cx));
        osh_eval_batch(m, b, &first, &count);
        osh_tensor_free(cx, row), row = NULL;
        if (from)
            OSH_TRY(saving_recv_rows(cx, &row, s, m->d.offsets[first + count] - m->d.offsets[first],
                                     from));
        const osh_tensor *x = row;
        if (!from) OSH_TRY(saving_rows(cx, &x, &row, m, b));
        OSH_TRY(osh_file_pwrite(cx, f, x->data, osh_tensor_bytes(x),
                                s->hidden->begin + m->d.offsets[first] * each));
    }
done:
    osh_tensor_free(cx, row);
    return rc;
}

static osh_status saving_fill(osh_ctx *cx, void *user, osh_file *f)
{
    osh_status rc = OSH_OK;
    const saving *s = user;
    OSH_TRY(osh_file_pwrite(cx, f, s->header, s->header_bytes, 0));
    for (int i = 0; i < 2; i++)
        if (s->of[i])
            OSH_TRY(osh_file_pwrite(cx, f, s->of[i]->data, osh_tensor_bytes(s->of[i]),
                                    s->at[i]->begin));
    OSH_TRY(saving_write_rows(cx, s, f));
done:
    return rc;
}

static osh_status saved_write_tensors(osh_ctx *cx, const char *path, const osh_eval_models *m,
                                      const osh_tensor *head, const osh_tensor *bias)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = m->f->graph;
    const osh_value *v = &g->values[g->hidden];
    char names[3][24] = {"hidden.weight", "lm_head.weight", "lm_head.bias"}, *header = NULL;
    osh_entry e[3] = {
        {.name = names[0], .dtype = v->dtype, .ndim = 2, .shape = {m->d.offsets[m->d.n], v->width}},
        {.name = names[1],
         .dtype = head->dtype,
         .ndim = 2,
         .shape = {head->shape[0], head->shape[1]}},
        {.name = names[2], .ndim = 1}};
    osh_entry *list[3] = {&e[0], &e[1], &e[2]};
    saving s = {.m = m, .hidden = &e[0], .of = {head, bias}, .at = {&e[1], &e[2]}};
    if (bias) e[2].dtype = bias->dtype, e[2].shape[0] = bias->shape[0];
    OSH_TRY(osh_container_written()->layout(cx, &header, &s.header_bytes, list, bias ? 3 : 2));
    s.header = header;
    OSH_TRY(osh_file_write_by(cx, path, saving_fill, &s));
done:
    osh_free(cx, header);
    return rc;
}

static osh_status saved_write_config(osh_ctx *cx, const char *path, const char *model,
                                     const osh_eval_models *m, bool bias)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = m->f->graph;
    static const char *const dtypes[OSH_N_DTYPES] = {
        [OSH_BF16] = "bfloat16", [OSH_F16] = "float16", [OSH_F32] = "float32"};
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "{\n \"architectures\": [\"%s\"],\n \"model\": ", architecture));
    OSH_TRY(osh_json_put_string(cx, &b, model));
    OSH_TRY(osh_buf_printf(
        cx, &b,
        ",\n \"dtype\": \"%s\",\n \"n_tokens\": %lld,\n \"tokens_xxh3\": \"%016llx\",\n"
        " \"hidden_size\": %lld,\n \"vocab_size\": %lld,\n \"num_hidden_layers\": 1,\n"
        " \"max_position_embeddings\": %lld,\n \"tie_word_embeddings\": false,\n"
        " \"logits_divide\": %.17g,\n \"logits_cap\": %.17g,\n \"head_bias\": %s\n}\n",
        dtypes[g->dtype], (long long)m->d.offsets[m->d.n], (unsigned long long)osh_saved_sum(&m->d),
        (long long)g->values[g->hidden].width, (long long)g->n_vocab, (long long)g->max_positions,
        g->logits.divide, g->logits.cap, bias ? "true" : "false"));
    OSH_TRY(osh_file_write_all(cx, path, b.data, b.len));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_saved_send(osh_ctx *cx, const osh_eval_models *m)
{
    osh_status rc = OSH_OK;
    const osh_forward *f = m->f;
    const osh_tensor *x = NULL; // view: rows of one batch
    osh_tensor *row = NULL;     // own: host copy of these rows, if a GPU has them
    for (int64_t b = 0; b < osh_eval_batches(m); b++) {
        if (osh_deal_owner(f->ranks, b) != osh_ranks_me(f->ranks)) continue;
        OSH_TRY(saving_rows(cx, &x, &row, m, b));
        OSH_TRY(osh_ranks_send(cx, f->ranks, x->data, osh_tensor_bytes(x), 0));
        osh_tensor_free(cx, row), row = NULL;
    }
done:
    osh_tensor_free(cx, row);
    return rc;
}

osh_status osh_saved_write(osh_ctx *cx, const char *dir, const char *model,
                           const osh_eval_models *m)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = m->f->graph;
    char *config = osh_path_join(cx, dir, config_name),
         *tensors = osh_path_join(cx, dir, tensors_name);                    // own
    osh_tensor *head = m->f->head, *bias = m->f->head_bias, *own[2] = {NULL}; // own: `own`
    if (!config || !tensors) OSH_TRY(OSH_E_NOMEM);
    if (m->d.offsets[m->d.n] > INT32_MAX)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--save-logits: the data set has %lld tokens, at most %d can be saved",
                 (long long)m->d.offsets[m->d.n], INT32_MAX);
    if (g->values[g->hidden].dtype != g->dtype)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "--save-logits: the output head of %s reads %s in a model of %s", model,
                 osh_dtype_name(g->values[g->hidden].dtype), osh_dtype_name(g->dtype));
    if (!head) {
        OSH_TRY(osh_forward_load_head(cx, &own[0], &own[1], m->f));
        head = own[0], bias = own[1];
    }
    /* Another program may have changed the directory during the evaluation. */
    OSH_TRY(osh_saved_make_dir(cx, dir));
    OSH_TRY(osh_file_remove(cx, config));
    OSH_TRY(saved_write_tensors(cx, tensors, m, head, bias));
    OSH_TRY(saved_write_config(cx, config, model, m, bias != NULL));
    OSH_TRY(osh_dir_sync(cx, dir));
done:
    if (rc) osh_note(cx, "saving logits in %s", dir);
    osh_tensor_free(cx, own[0]);
    osh_tensor_free(cx, own[1]);
    osh_free(cx, config);
    osh_free(cx, tensors);
    return rc;
}

int64_t osh_saved_bytes(const osh_eval_models *m)
{
    const osh_graph *g = m->f->graph;
    int64_t most = 0;
    /* If a GPU or another rank has the rows, they are copied first, one batch at a time. */
    bool copies = m->gpu || m->f->ranks;
    for (int64_t b = 0; copies && b < osh_eval_batches(m); b++) {
        int64_t first, count;
        osh_eval_batch(m, b, &first, &count);
        int64_t tokens = m->d.offsets[first + count] - m->d.offsets[first];
        if (tokens > most) most = tokens;
    }
    return (m->gpu ? osh_forward_head_bytes(m->f) : 0) +
           (copies ? (int64_t)osh_value_gross(g, g->hidden, most) : 0);
}
