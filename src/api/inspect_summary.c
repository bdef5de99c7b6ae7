/* inspect_summary.c - describes a checkpoint in a few lines.
 *
 *   model      LlamaForCausalLM, 134.5 million parameters, BF16, 269.0 MB in 1 file
 *   layers     30 of LlamaDecoderLayer
 *   head       lm_head, tied to model.embed_tokens
 *   tokenizer  tokenizer.json with 49152 tokens; with a chat template
 *   quantized  no
 *   data       recipes with calibration data are supported
 */
#include "api/inspect_summary.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "chat/chat.h"
#include "graph/graph.h"
#include "quant/source.h"
#include "report/rows.h"
#include "tokenizer/tokenizer.h"

/* Converts a fault of the model to OSH_OK and a text in `why`. Returns other failures unchanged. */
static osh_status inspect_fault(osh_ctx *cx, osh_status rc, char why[600])
{
    if (!rc || rc == OSH_E_NOMEM || rc == OSH_E_INTERRUPTED) return rc;
    snprintf(why, 600, "%s", osh_error_text(cx));
    osh_error_clear(cx);
    return OSH_OK;
}

static const char *count_text(char to[48], double n)
{
    if (n >= 1e9) snprintf(to, 48, "%.2f billion", n / 1e9);
    else snprintf(to, 48, "%.1f million", n / 1e6);
    return to;
}

/* Returns the dtype whose tensors have the most bytes. */
static const char *main_dtype(const osh_checkpoint *ck)
{
    int64_t of[OSH_N_DTYPES] = {0};
    int most = 0;
    for (int64_t i = 0; i < ck->n_tensors; i++) {
        const osh_entry *e = ck->tensors[i].e;
        of[e->dtype] += e->end - e->begin;
    }
    for (int d = 0; d < OSH_N_DTYPES; d++)
        if (of[d] > of[most]) most = d;
    return osh_dtype_name((osh_dtype)most);
}

/* Appends the line "model". `dense` lists the tensors of `ck` after its quantized weights are
 * decoded. `dense` is NULL if the weights cannot be read. */
static osh_status inspect_model(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck,
                                const osh_checkpoint *dense)
{
    osh_status rc = OSH_OK;
    double n = 0;
    char count[48];
    int64_t bytes = 0;
    const char *arch = ck->config->architecture;
    osh_dtype config = ck->config->dtype;
    for (int64_t i = 0; i < ck->n_tensors; i++)
        bytes += ck->tensors[i].e->end - ck->tensors[i].e->begin;
    for (int64_t i = 0; dense && i < dense->n_tensors; i++) {
        double elements = 1;
        const osh_entry *e = dense->tensors[i].e;
        for (int k = 0; k < e->ndim; k++) elements *= (double)e->shape[k];
        n += elements;
    }
    OSH_TRY(osh_row(cx, b, "model", "%s, %s%s%s, %.1f MB in %d %s",
                         arch ? arch : "without an architecture in config.json",
                         dense ? count_text(count, n) : "", dense ? " parameters, " : "",
                         config != OSH_DTYPE_NONE ? osh_dtype_name(config) : main_dtype(ck),
                         (double)bytes / 1e6, ck->n_shards,
                         ck->n_shards == 1 ? "file" : "files"));
done:
    return rc;
}

/* Searches the keys in config.json in the order of the list, and sets *out to the value of the
 * first key that is found. Sets *out to 0 if config.json has none of them. */
static osh_status config_count(osh_ctx *cx, double *out, const osh_hf_config *c,
                               const char *const *keys)
{
    osh_status rc = OSH_OK;
    bool found = false;
    char why[600];
    for (*out = 0; *keys && !found; keys++)
        OSH_TRY(inspect_fault(cx, osh_hf_config_num(cx, out, &found, c, *keys), why));
done:
    return rc;
}

static osh_status inspect_layers(osh_ctx *cx, osh_buf *b, const osh_hf_config *c,
                                 const osh_graph *g)
{
    static const char *const layers[] = {"num_hidden_layers", "n_layer", NULL},
                 *const experts[] = {"num_experts", "num_local_experts", "n_routed_experts", NULL},
                 *const active[] = {"num_experts_per_tok", "num_experts_per_token", "top_k_experts",
                                    NULL};
    osh_status rc = OSH_OK;
    double n = 0, n_experts = 0, n_active = 0;
    char moe[96] = "";
    OSH_TRY(config_count(cx, &n, c, layers));
    OSH_TRY(config_count(cx, &n_experts, c, experts));
    OSH_TRY(config_count(cx, &n_active, c, active));
    if (g) n = (double)g->n_layers;
    /* false: the architecture has no experts, although config.json may state a number of experts */
    bool routes = !g;
    for (int i = 0; g && i < g->n_nodes && !routes; i++) routes = osh_node_routes(&g->nodes[i]);
    if (n_experts > 1 && routes)
        snprintf(moe, sizeof moe, "; %.0f experts, %.0f of them for a token", n_experts,
                 n_active);
    if (n > 0)
        OSH_TRY(osh_row(cx, b, "layers", "%.0f%s%s%s", n, g ? " of " : "",
                             g ? g->layer_class : "", moe));
done:
    return rc;
}

static osh_status inspect_head(osh_ctx *cx, osh_buf *b, const osh_hf_config *c, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    if (!g) {
        OSH_TRY(osh_row(cx, b, "head", "%s by config.json",
                             c->tie_word_embeddings ? "tied to the embedding" : "not tied"));
        goto done;
    }
    const osh_node *head = &g->nodes[g->head];
    const char *name = g->modules[head->module].name, *weight = g->weights[head->w[0]].name;
    size_t n = strlen(name);
    bool tied = strncmp(weight, name, n) || weight[n] != '.';
    if (g->headless) OSH_TRY(osh_row(cx, b, "head", "none"));
    else
        OSH_TRY(osh_row(cx, b, "head", "%s, %s%s", name, tied ? "tied to " : "with its own ",
                             tied ? weight : "weight"));
done:
    return rc;
}

/* Returns the part of the message `why` that names a fault of tokenizer.json, without the path
 * before this part and the notes after it. May shorten `why`. */
static const char *tokenizer_reason(char why[600])
{
    static const char file[] = "tokenizer.json: ";
    char *end = strstr(why, "; while "), *at = strstr(why, file);
    if (end) *end = 0;
    return at ? at + sizeof file - 1 : why;
}

static osh_status inspect_tokenizer(osh_ctx *cx, osh_buf *b, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_tokenizer *t = NULL; // own
    bool chat = false;
    char why[600] = "", unused[600];
    char *path = osh_path_join(cx, dir, "tokenizer.json"); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(path)) {
        OSH_TRY(osh_row(cx, b, "tokenizer", "no tokenizer.json: data must have token ids"));
        goto done;
    }
    OSH_TRY(inspect_fault(cx, osh_tokenizer_open(cx, &t, dir), why));
    OSH_TRY(inspect_fault(cx, osh_chat_find(cx, &chat, dir), unused));
    if (!t)
        OSH_TRY(osh_row(cx, b, "tokenizer", "tokenizer.json is not supported: %s",
                             tokenizer_reason(why)));
    else
        OSH_TRY(osh_row(
            cx, b, "tokenizer", "tokenizer.json with %lld tokens; with%s a chat template",
            (long long)osh_tokenizer_n_vocab(t), chat ? "" : "out"));
done:
    osh_tokenizer_close(cx, t);
    osh_free(cx, path);
    return rc;
}

static osh_status inspect_quantized(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck,
                                    const osh_source *source, const char *why)
{
    osh_status rc = OSH_OK;
    const char *method = NULL;
    osh_buf text; // own
    osh_buf_init(&text, 0);
    OSH_TRY(osh_source_method(cx, &method, ck->config));
    const osh_q_config *q = source ? osh_source_config(source) : NULL;
    int n = source ? osh_source_n_quantized(source) : 0;
    if (!source) OSH_TRY(osh_row(cx, b, "quantized", "not readable: %s", why));
    else if (!n) OSH_TRY(osh_row(cx, b, "quantized", "no"));
    else {
        if (q && q->n) {
            OSH_TRY(osh_buf_printf(cx, &text, ": "));
            OSH_TRY(osh_q_args_tell(cx, &text, "weights", &q->schemes[0].weights));
            OSH_TRY(osh_q_args_tell(cx, &text, "; inputs", &q->schemes[0].inputs));
        }
        OSH_TRY(osh_row(cx, b, "quantized", "%d modules by %s%s%s", n,
                             method ? method : "an unnamed method", text.len ? text.data : "",
                             q && q->n > 1 ? ", and other schemes" : ""));
    }
done:
    osh_buf_deinit(cx, &text);
    return rc;
}

osh_status osh_inspect_summary(osh_ctx *cx, osh_buf *b, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    osh_source *source = NULL; // own
    osh_graph *g = NULL;       // own
    const char *arch = ck->config->architecture;
    char unread[600] = "", why[600] = "";
    OSH_TRY(inspect_fault(cx, osh_source_open(cx, &source, ck->dir), unread));
    const osh_checkpoint *dense = source ? osh_source_checkpoint(source) : NULL;
    if (!arch) snprintf(why, sizeof why, "config.json has no architecture");
    else if (!osh_graph_knows(cx, arch, NULL))
        snprintf(why, sizeof why, "%.200s is not known (oneshot help models)", arch);
    else if (!source) snprintf(why, sizeof why, "the codes cannot be read");
    else OSH_TRY(inspect_fault(cx, osh_graph_new(cx, &g, dense, NULL), why));
    OSH_TRY(osh_check_interrupt(cx));
    OSH_TRY(inspect_model(cx, b, ck, dense));
    OSH_TRY(inspect_layers(cx, b, ck->config, g));
    OSH_TRY(inspect_head(cx, b, ck->config, g));
    OSH_TRY(inspect_tokenizer(cx, b, ck->dir));
    OSH_TRY(inspect_quantized(cx, b, ck, source, unread));
    if (g) OSH_TRY(osh_row(cx, b, "data", "recipes with calibration data are supported"));
    else OSH_TRY(osh_row(cx, b, "data", "only recipes without data are supported: %s", why));
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    osh_graph_free(cx, g);
    osh_source_close(cx, source);
    return rc;
}
