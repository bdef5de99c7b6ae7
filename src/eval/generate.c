/* generate.c - continues a prompt token by token: reads the prompt, runs the model, chooses tokens,
 * and passes their text to the sink. */
#include "eval/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/profile.h"
#include "base/utf8.h"
#include "chat/chat.h"
#include "data/dataset_row.h"
#include "eval/decode.h"
#include "eval/eval_memory.h"
#include "eval/sample.h"
#include "match/paths.h"
#include "math/isa.h"
#include "tokenizer/detokenizer.h"

enum { CONFIG_BYTES = 64 << 20 };
typedef enum { STOP_LENGTH, STOP_EOS, STOP_POSITIONS } stop_reason;
static const char *const stop_names[] = {"max_new_tokens", "eos_token", "max_positions"};

typedef struct generation {
    const osh_generate_options *o; // view
    const char *model;             // view
    /* The tokenizer of the prompt. NULL: the model has no tokenizer.json, or the tokenizer is
     * closed already. */
    osh_tokenizer *tok; // own
    osh_detokenizer *words; // own: makes text of token ids; NULL: the model has no tokenizer.json
    osh_forward *f;         // own
    osh_decode *decode;     // own
    osh_ids prompt, made;   // own
    osh_ids eos;            // own: ids of tokens that end the text
    osh_buf text;           // own: all new text
    int32_t *order;         // own [V]: scratch for choosing a token
    float *logits;          // own [V]: logits of the last token
    stop_reason stop;
} generation;

static osh_status ids_add(osh_ctx *cx, osh_ids *ids, int32_t id)
{
    osh_status rc = osh_ids_reserve(cx, ids, 1);
    if (!rc) ids->ids[ids->n++] = id;
    return rc;
}

/* ---- prompt ---- */

/* Reads the token ids of --input-ids. */
static osh_status prompt_parse_ids(osh_ctx *cx, osh_ids *ids, const char *text)
{
    osh_status rc = OSH_OK;
    for (const char *at = text;;) {
        char *end;
        long long id = strtoll(at, &end, 10);
        bool none = end == at;
        at = end + strspn(end, " ");
        if (none || id < 0 || id > INT32_MAX || (*at && *at != ','))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "--input-ids '%s': want whole numbers from 0 with commas between them", text);
        OSH_TRY(ids_add(cx, ids, (int32_t)id));
        if (!*at++) break;
    }
done:
    return rc;
}

/* Applies the chat template to the prompt as a message of the user. */
static osh_status prompt_ask(osh_ctx *cx, osh_buf *out, const generation *g,
                             const osh_generate_prompt *prompt)
{
    osh_status rc = OSH_OK;
    static const char begin[] = "{\"messages\": [{\"role\": \"user\", \"content\": ",
                      end[] = "}]}";
    osh_chat *chat = NULL; // own
    osh_buf text, row;     // own
    osh_buf_init(&text, 0);
    osh_buf_init(&row, 0);
    if (memchr(prompt->text, 0, prompt->n))
        OSH_FAIL(cx, OSH_E_USAGE, "the prompt has a byte 0, which a chat message cannot have");
    OSH_TRY(osh_chat_open(cx, &chat, g->model, g->o->chat_date));
    if (!osh_chat_has_template(chat))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--chat: %s has no chat template: want chat_template.jinja, or chat_template in "
                 "tokenizer_config.json",
                 g->model);
    osh_chat_ask(chat);
    OSH_TRY(osh_buf_append(cx, &text, prompt->text, prompt->n));
    OSH_TRY(osh_buf_append(cx, &row, begin, sizeof begin - 1));
    OSH_TRY(osh_json_put_string(cx, &row, text.data ? text.data : ""));
    OSH_TRY(osh_buf_append(cx, &row, end, sizeof end - 1));
    OSH_TRY(osh_chat_render(cx, chat, out, row.data, row.len, "messages"));
done:
    osh_buf_deinit(cx, &text);
    osh_buf_deinit(cx, &row);
    osh_chat_free(cx, chat);
    return rc;
}

static osh_status prompt_check_utf8(osh_ctx *cx, const osh_generate_prompt *prompt)
{
    osh_status rc = OSH_OK;
    osh_utf8 utf8 = {0};
    if (!osh_utf8_read(&utf8, prompt->text, prompt->n) || !osh_utf8_ends(&utf8))
        OSH_FAIL(cx, OSH_E_USAGE, "the prompt: byte %lld is 0x%02x, which is not UTF-8: want text "
                 "in UTF-8", (long long)utf8.start, utf8.lead);
done:
    return rc;
}

static osh_status prompt_encode(osh_ctx *cx, generation *g, const osh_generate_prompt *prompt)
{
    osh_status rc = OSH_OK;
    osh_buf text; // own
    osh_buf_init(&text, 0);
    if (!g->o->input_ids) OSH_TRY(prompt_check_utf8(cx, prompt));
    if (g->o->input_ids) {
        OSH_TRY(prompt_parse_ids(cx, &g->prompt, g->o->input_ids));
    } else if (!g->tok) {
        OSH_FAIL(cx, OSH_E_USAGE, "%s has no tokenizer.json: want --input-ids instead of a text",
                 g->model);
    } else if (g->o->chat) {
        OSH_TRY(prompt_ask(cx, &text, g, prompt));
        OSH_TRY(osh_tokenizer_encode(cx, g->tok, &g->prompt, text.data ? text.data : "", text.len,
                                     false));
    } else {
        OSH_TRY(osh_tokenizer_encode(cx, g->tok, &g->prompt, prompt->text, prompt->n, true));
    }
    if (!g->prompt.n) OSH_FAIL(cx, OSH_E_USAGE, "the prompt is empty: want at least one token");
done:
    osh_buf_deinit(cx, &text);
    return rc;
}

/* ---- tokens that end the text ---- */

/* Adds the tokens that a config has under the key eos_token_id: a number or a list of numbers. */
static osh_status eos_add(osh_ctx *cx, osh_ids *eos, const cJSON *config, const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id"), *item;
    const cJSON *first = cJSON_IsArray(v) ? v->child : v;
    for (item = first; item; item = cJSON_IsArray(v) ? item->next : NULL) {
        if (cJSON_IsNull(item)) continue;
        if (!cJSON_IsNumber(item) || item->valuedouble != (double)(int32_t)item->valuedouble)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: eos_token_id is not a token id and not a list of token ids", what);
        if (item->valuedouble >= 0) OSH_TRY(ids_add(cx, eos, (int32_t)item->valuedouble));
    }
done:
    return rc;
}

static osh_status json_find(osh_ctx *cx, cJSON **out, char **path, const char *dir,
                            const char *name)
{
    osh_status rc = OSH_OK;
    cJSON_Delete(*out), *out = NULL;
    osh_free(cx, *path);
    if (!(*path = osh_path_join(cx, dir, name))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_file_exists(*path))
        OSH_TRY(osh_json_read(cx, out, *path, CONFIG_BYTES, OSH_JSON_NAN | OSH_JSON_NUL));
done:
    return rc;
}

/* Finds the tokens that end the text, in generation_config.json. If it names none, uses
 * config.json, then the tokenizer. */
static osh_status eos_find(osh_ctx *cx, generation *g)
{
    osh_status rc = OSH_OK;
    const osh_hf_config *c = osh_source_checkpoint(g->f->source)->config;
    cJSON *json = NULL; // own
    char *path = NULL;  // own
    OSH_TRY(json_find(cx, &json, &path, g->model, "generation_config.json"));
    OSH_TRY(eos_add(cx, &g->eos, json, path));
    if (!g->eos.n) OSH_TRY(eos_add(cx, &g->eos, c->json, c->path));
    if (!g->eos.n && c->model != c->json) OSH_TRY(eos_add(cx, &g->eos, c->model, c->path));
    if (g->eos.n || !g->words) goto done;
    OSH_TRY(json_find(cx, &json, &path, g->model, "tokenizer_config.json"));
    const cJSON *token = cJSON_GetObjectItemCaseSensitive(json, "eos_token");
    if (cJSON_IsObject(token)) token = cJSON_GetObjectItemCaseSensitive(token, "content");
    int32_t id = cJSON_IsString(token) ? osh_detokenizer_find(g->words, token->valuestring) : -1;
    if (id >= 0) OSH_TRY(ids_add(cx, &g->eos, id));
done:
    cJSON_Delete(json);
    osh_free(cx, path);
    return rc;
}

static bool eos_has(const generation *g, int32_t id)
{
    for (int64_t i = 0; i < g->eos.n; i++)
        if (g->eos.ids[i] == id) return true;
    return false;
}

/* ---- text of tokens ---- */

/* Appends the text of token `id` to the output, and passes the text to the sink. If id < 0, the
 * text is the remaining bytes of an incomplete character. */
static osh_status text_add(osh_ctx *cx, generation *g, int32_t id, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    size_t from = g->text.len;
    if (g->words && id >= 0) OSH_TRY(osh_detokenizer_feed(cx, g->words, &g->text, id));
    else if (g->words) OSH_TRY(osh_detokenizer_end(cx, g->words, &g->text));
    else if (id >= 0)
        OSH_TRY(osh_buf_printf(cx, &g->text, "%s%d", g->made.n > 1 ? " " : "", (int)id));
    if (!g->o->json && g->text.len > from) sink(user, g->text.data + from, g->text.len - from);
done:
    return rc;
}

static osh_status tokens_make(osh_ctx *cx, generation *g, int64_t most, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    const osh_generate_options *o = g->o;
    const osh_sampler how = {o->temperature, o->top_k, o->top_p, (uint64_t)o->seed};
    osh_progress pr = {.error = -1, .n_steps = g->f->parts->n, .phase = "prompt",
                       .budget_bytes = o->host_memory};
    int64_t V = osh_decode_width(g->f);
    OSH_TRY(osh_decode_run(cx, g->decode, g->logits, g->prompt.ids, g->prompt.n, &pr));
    int64_t again = osh_decode_read_bytes(g->decode);
    if (again)
        osh_log(cx, OSH_LOG_WARN,
                "not all weights fit in memory: each token reads %.1f MB of the checkpoint "
                "again",
                (double)again / 1e6);
    while (g->made.n < most) {
        OSH_TRY(osh_check_interrupt(cx));
        if (g->made.n)
            OSH_TRY(osh_decode_run(cx, g->decode, g->logits, &g->made.ids[g->made.n - 1], 1, NULL));
        int64_t id = osh_sample(&how, g->logits, V, (uint64_t)g->made.n, g->order);
        if (id < 0)
            OSH_FAIL(cx, OSH_E_NUMERIC, "the logits of new token %lld are not finite",
                     (long long)g->made.n + 1);
        OSH_TRY(ids_add(cx, &g->made, (int32_t)id));
        if (eos_has(g, (int32_t)id)) {
            g->stop = STOP_EOS;
            break;
        }
        OSH_TRY(text_add(cx, g, (int32_t)id, sink, user));
    }
    OSH_TRY(text_add(cx, g, -1, sink, user));
done:
    return rc;
}

/* ---- the job ---- */

static osh_status json_put_ids(osh_ctx *cx, osh_buf *b, const char *key, const osh_ids *ids)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_printf(cx, b, "\"%s\": [", key));
    for (int64_t i = 0; i < ids->n; i++)
        OSH_TRY(osh_buf_printf(cx, b, "%s%d", i ? ", " : "", (int)ids->ids[i]));
    OSH_TRY(osh_buf_printf(cx, b, "], "));
done:
    return rc;
}

static osh_status json_print(osh_ctx *cx, const generation *g, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "{"));
    OSH_TRY(json_put_ids(cx, &b, "prompt_ids", &g->prompt));
    OSH_TRY(json_put_ids(cx, &b, "new_ids", &g->made));
    OSH_TRY(osh_buf_printf(cx, &b, "\"text\": "));
    if (g->words) OSH_TRY(osh_json_put_string(cx, &b, g->text.len ? g->text.data : ""));
    else OSH_TRY(osh_buf_printf(cx, &b, "null"));
    OSH_TRY(osh_buf_printf(cx, &b, ", \"stop_reason\": \"%s\"}\n", stop_names[g->stop]));
    sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Opens the model and reads the prompt. Sets *load to the largest number of host
 * bytes that were in use during this call. */
static osh_status generation_open(osh_ctx *cx, generation *g, const osh_generate_prompt *prompt,
                                  int64_t *load)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, g->model, "tokenizer.json"); // own
    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    osh_mem_hold(cx, g->o->host_memory, OSH_MEM_LEAST);
    OSH_TRY(osh_forward_open(cx, &g->f, g->model, g->o->adapter, g->o->models_dir));
    OSH_TRY(
        osh_graph_need_head(cx, g->f->graph, osh_source_checkpoint(g->f->source), "predictions"));
    if (osh_file_exists(path)) OSH_TRY(osh_tokenizer_open(cx, &g->tok, g->model));
    OSH_TRY(prompt_encode(cx, g, prompt));
    OSH_TRY(osh_ids_check(cx, &g->prompt, 0, g->f->graph->n_vocab, "the prompt"));
    if (g->tok) OSH_TRY(osh_detokenizer_open(cx, &g->words, g->tok, g->model));
    osh_tokenizer_close(cx, g->tok), g->tok = NULL;
    OSH_TRY(eos_find(cx, g));
    *load = osh_mem_held(cx);
done:
    osh_free(cx, path);
    return rc;
}

/* Sets *most to the number of new tokens: --max-new-tokens, or fewer if the model has too few
 * positions. The last new token is not run, so it needs no position. */
static osh_status generation_limit(osh_ctx *cx, generation *g, int64_t *most)
{
    osh_status rc = OSH_OK;
    int64_t positions = g->f->graph->max_positions, n = g->prompt.n;
    if (n > positions)
        OSH_FAIL(cx, OSH_E_USAGE, "the prompt has %lld tokens, and the model has %lld positions%s",
                 (long long)n, (long long)positions, osh_positions_why(g->f->graph));
    *most = g->o->max_new_tokens;
    if (*most <= positions - n + 1) goto done;
    *most = positions - n + 1, g->stop = STOP_POSITIONS;
    osh_log(cx, OSH_LOG_INFO,
            "the model has %lld positions%s: at most %lld new tokens after a prompt of %lld",
            (long long)positions, osh_positions_why(g->f->graph), (long long)*most, (long long)n);
done:
    return rc;
}

static osh_status options_check(osh_ctx *cx, const osh_generate_options *o)
{
    osh_status rc = OSH_OK;
    if (o->temperature <= 0 && (o->top_k || o->top_p < 1))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--top-k and --top-p need random draws, but the temperature is 0 and takes the "
                 "most likely token: want --temperature, too");
    if (o->top_p <= 0) OSH_FAIL(cx, OSH_E_USAGE, "--top-p 0 leaves no token: want more than 0");
    if (o->chat && o->input_ids)
        OSH_FAIL(cx, OSH_E_USAGE, "--chat needs a text, and --input-ids is not a text");
    OSH_TRY(osh_paths_check(cx, osh_generate_fields, o));
    OSH_TRY(osh_isa_use(cx, o->isa));
    OSH_TRY(osh_isa_load(cx));
done:
    return rc;
}

static void generation_close(osh_ctx *cx, generation *g)
{
    osh_decode_close(cx, g->decode);
    osh_forward_close(cx, g->f);
    osh_tokenizer_close(cx, g->tok);
    osh_detokenizer_close(cx, g->words);
    osh_ids_deinit(cx, &g->prompt);
    osh_ids_deinit(cx, &g->made);
    osh_ids_deinit(cx, &g->eos);
    osh_buf_deinit(cx, &g->text);
    osh_free(cx, g->order);
    osh_free(cx, g->logits);
}

/* Reads model and prompt, and decides which weights stay in memory. Sets *most to the number of new
 * tokens. If `least` is not NULL, only computes the smallest budget. */
static osh_status generation_begin(osh_ctx *cx, generation *g, int64_t *most, int64_t *least,
                                   const osh_generate_prompt *prompt)
{
    osh_status rc = OSH_OK;
    const osh_generate_options *o = g->o;
    int64_t load = 0;
    OSH_TRY(options_check(cx, o));
    OSH_TRY(osh_mem_refused(cx, generation_open(cx, g, prompt, &load), o->host_memory));
    OSH_TRY(generation_limit(cx, g, most));
    /* Removes the memory limit, which osh_decode_open sets again. */
    osh_mem_limit(cx, OSH_MEM_HOST, 0);
    OSH_NEW(cx, g->logits, osh_decode_width(g->f));
    OSH_NEW(cx, g->order, osh_decode_width(g->f));
    osh_decode_want want = {.n_prompt = g->prompt.n,
                            .room = g->prompt.n + *most - 1,
                            .host_memory = o->host_memory,
                            .load = load,
                            .least = least,
                            .round = !o->no_activation_quantization,
                            .again = !o->use_cache};
    OSH_TRY(osh_decode_open(cx, &g->decode, g->f, &want));
done:
    return rc;
}

osh_status osh_generate(osh_ctx *cx, const char *model, const osh_generate_prompt *prompt,
                        const osh_generate_options *o, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    generation g = {.o = o, .model = model}; // own
    int64_t most = 0;
    osh_buf_init(&g.text, 0);
    OSH_TRY(generation_begin(cx, &g, &most, NULL, prompt));
    OSH_TRY(tokens_make(cx, &g, most, sink, user));
    if (o->json) OSH_TRY(json_print(cx, &g, sink, user));
done:
    generation_close(cx, &g);
    return rc;
}

osh_status osh_generate_least(osh_ctx *cx, int64_t *host, const char *model,
                              const osh_generate_prompt *prompt, const osh_generate_options *o)
{
    osh_status rc = OSH_OK;
    generation g = {.o = o, .model = model}; // own
    int64_t most = 0;
    osh_buf_init(&g.text, 0);
    OSH_TRY(generation_begin(cx, &g, &most, host, prompt));
    *host += osh_eval_output_bytes(g.f, g.prompt.n);
done:
    generation_close(cx, &g);
    return rc;
}
