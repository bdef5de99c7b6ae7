/* tok_encode.c - a tokenizer: opened from a model directory, text through all stages to ids.
 *
 * Agrees with tokenizers.Tokenizer.from_file(...).encode(text, add_special_tokens). */
#include "base/file.h"
#include "text/tok_impl.h"
#include <string.h>

#define MAX_FILE_BYTES ((size_t)256 << 20)
#define MAX_CONFIG_BYTES ((size_t)64 << 20)

struct osh_tokenizer {
    osh_tok_steps normalizers, pretokenizers; // own
    osh_bpe *model;                           // own
    osh_tok_added *added;                     // own
    osh_tok_post post;                        // own
    osh_tok_text texts[2];                    // own; scratch
    int64_t model_max_length;
};

void osh_tokenizer_close(osh_ctx *cx, osh_tokenizer *t)
{
    if (!t) return;
    osh_tok_steps_deinit(cx, &t->normalizers);
    osh_tok_steps_deinit(cx, &t->pretokenizers);
    osh_bpe_free(cx, t->model);
    osh_tok_added_free(cx, t->added);
    osh_tok_post_deinit(cx, &t->post);
    for (int i = 0; i < 2; i++) osh_tok_text_deinit(cx, &t->texts[i]);
    osh_free(cx, t);
}

static osh_status build(osh_ctx *cx, osh_tokenizer **out, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    osh_tokenizer *t = NULL; // own
    const cJSON *model = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "model") : NULL;

    OSH_NEW(cx, t, 1);
    if (!cJSON_IsObject(model)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: no object \"model\"", what);
    OSH_TRY(osh_tok_normalizers_load(cx, &t->normalizers,
                                     cJSON_GetObjectItemCaseSensitive(o, "normalizer"), what));
    OSH_TRY(osh_tok_pretokenizers_load(cx, &t->pretokenizers,
                                       cJSON_GetObjectItemCaseSensitive(o, "pre_tokenizer"), what));
    OSH_TRY(osh_tok_post_load(cx, &t->post, cJSON_GetObjectItemCaseSensitive(o, "post_processor"),
                              what));
    OSH_TRY(osh_bpe_load(cx, &t->model, model, what));
    OSH_TRY(osh_tok_added_load(cx, &t->added, cJSON_GetObjectItemCaseSensitive(o, "added_tokens"),
                               t->model, &t->normalizers, what));
    *out = t, t = NULL; // give
done:
    osh_tokenizer_close(cx, t);
    return rc;
}

osh_status osh_tokenizer_parse(osh_ctx *cx, osh_tokenizer **out, const char *text, size_t n,
                               const char *what)
{
    osh_status rc = OSH_OK;
    cJSON *o = NULL; // own

    OSH_TRY(osh_json_parse(cx, &o, text, n, what, OSH_JSON_NUL));
    OSH_TRY(build(cx, out, o, what));
done:
    cJSON_Delete(o);
    return rc;
}

static osh_status read_config(osh_ctx *cx, osh_tokenizer *t, const char *dir)
{
    osh_status rc = OSH_OK;
    cJSON *o = NULL;                                              // own
    char *path = osh_path_join(cx, dir, "tokenizer_config.json"); // own
    double max = 0;

    if (!path) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    if (!osh_file_exists(path)) goto done;
    OSH_TRY(osh_json_read(cx, &o, path, MAX_CONFIG_BYTES, OSH_JSON_NUL));
    OSH_TRY(osh_json_num_or(cx, &max, o, "model_max_length", 0, path));
    if (max >= 1 && max <= 1e9) t->model_max_length = (int64_t)max; // 1e30 means: nobody knows
done:
    cJSON_Delete(o);
    osh_free(cx, path);
    return rc;
}

osh_status osh_tokenizer_open(osh_ctx *cx, osh_tokenizer **out, const char *model_dir)
{
    osh_status rc = OSH_OK;
    osh_tokenizer *t = NULL;                                     // own
    cJSON *o = NULL;                                             // own
    char *path = osh_path_join(cx, model_dir, "tokenizer.json"); // own

    if (!path) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_json_read(cx, &o, path, MAX_FILE_BYTES, OSH_JSON_NUL));
    OSH_TRY(build(cx, &t, o, path));
    OSH_TRY(read_config(cx, t, model_dir));
    *out = t, t = NULL; // give
done:
    if (rc) osh_note(cx, "loading the tokenizer of %s", model_dir);
    cJSON_Delete(o);
    osh_free(cx, path);
    osh_tokenizer_close(cx, t);
    return rc;
}

static osh_status append_ids(osh_ctx *cx, osh_ids *ids, const osh_ids *more)
{
    osh_status rc = osh_ids_reserve(cx, ids, more->n);

    if (rc || more->n == 0) return rc;
    memcpy(ids->ids + ids->n, more->ids, (size_t)more->n * sizeof *ids->ids);
    ids->n += more->n;
    return OSH_OK;
}

osh_status osh_tokenizer_encode(osh_ctx *cx, osh_tokenizer *t, osh_ids *ids, const char *text,
                                size_t n, bool special_tokens)
{
    osh_status rc = OSH_OK;
    osh_tok_work w = {&t->texts[0], &t->texts[1]};

    for (int i = 0; i < 2; i++) t->texts[i].n = t->texts[i].n_pieces = 0;
    if (special_tokens) OSH_TRY(append_ids(cx, ids, &t->post.before));
    OSH_TRY(osh_tok_utf8_clean(cx, w.cur, text, n));
    if (w.cur->n) OSH_TRY(osh_tok_piece_add(cx, w.cur, 0, w.cur->n, -1, true));
    OSH_TRY(osh_tok_added_split(cx, t->added, false, &w));
    OSH_TRY(osh_tok_steps_run(cx, &t->normalizers, &w));
    OSH_TRY(osh_tok_added_split(cx, t->added, true, &w));
    OSH_TRY(osh_tok_steps_run(cx, &t->pretokenizers, &w));
    for (size_t i = 0; i < w.cur->n_pieces; i++) {
        osh_tok_piece p = w.cur->pieces[i];
        if (p.id < 0) {
            OSH_TRY(osh_bpe_encode(cx, t->model, ids, w.cur->s + p.at, p.len));
            continue;
        }
        OSH_TRY(osh_ids_reserve(cx, ids, 1));
        ids->ids[ids->n++] = p.id;
    }
    if (special_tokens) OSH_TRY(append_ids(cx, ids, &t->post.after));
done:
    return rc;
}

int64_t osh_tokenizer_model_max_length(const osh_tokenizer *t) { return t->model_max_length; }

int64_t osh_tokenizer_n_vocab(const osh_tokenizer *t)
{
    int32_t a = osh_bpe_max_id(t->model), b = osh_tok_added_max_id(t->added);

    return (int64_t)(a > b ? a : b) + 1;
}
