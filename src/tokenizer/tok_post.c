/* tok_post.c - implements the post-processors of tokenizer.json. Only the ids that a post-processor
 * puts before and after one sequence are used.
 *
 * ByteLevel changes only the offsets of tokens, which are not used. The templates for pairs are not
 * used. */
#include "tokenizer/tok_impl.h"
#include <string.h>

void osh_tok_post_deinit(osh_ctx *cx, osh_tok_post *p)
{
    osh_ids_deinit(cx, &p->before);
    osh_ids_deinit(cx, &p->after);
}

static osh_status post_push(osh_ctx *cx, osh_ids *ids, const cJSON *id, const char *what)
{
    osh_status rc = OSH_OK;

    if (!cJSON_IsNumber(id) || id->valuedouble < 0 || id->valuedouble >= INT32_MAX)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a special token of the post_processor without an id", what);
    OSH_TRY(osh_ids_reserve(cx, ids, 1));
    ids->ids[ids->n++] = (int32_t)id->valuedouble;
done:
    return rc;
}

static osh_status post_load_template(osh_ctx *cx, osh_tok_post *p, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *special = cJSON_GetObjectItemCaseSensitive(o, "special_tokens"), *item = NULL;
    const cJSON *single = cJSON_GetObjectItemCaseSensitive(o, "single");
    int n_sequences = 0;

    if (!cJSON_IsArray(single))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: TemplateProcessing without a list \"single\"", what);
    cJSON_ArrayForEach(item, single) {
        const cJSON *tok = cJSON_GetObjectItemCaseSensitive(item, "SpecialToken"), *id = NULL;
        const char *name = NULL;
        if (cJSON_GetObjectItemCaseSensitive(item, "Sequence")) {
            n_sequences++;
            continue;
        }
        if (!cJSON_IsObject(tok))
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: a piece of a template has the wrong kind, want SpecialToken or Sequence",
                     what);
        OSH_TRY(osh_json_str_or(cx, &name, tok, "id", NULL, what));
        const cJSON *entry = name && cJSON_IsObject(special)
                                 ? cJSON_GetObjectItemCaseSensitive(special, name)
                                 : NULL;
        const cJSON *ids = entry ? cJSON_GetObjectItemCaseSensitive(entry, "ids") : NULL;
        if (!cJSON_IsArray(ids))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: template token '%s' is not among special_tokens", what,
                     name ? name : "");
        cJSON_ArrayForEach(id, ids)
            OSH_TRY(post_push(cx, n_sequences ? &p->after : &p->before, id, what));
    }
    if (n_sequences != 1)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: a template with %d sequences, 1 is supported", what,
                 n_sequences);
done:
    return rc;
}

/* Reads BertProcessing or RobertaProcessing: "cls" and "sep" are [token, id]. */
static osh_status post_load_cls_sep(osh_ctx *cx, osh_tok_post *p, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;

    OSH_TRY(post_push(cx, &p->before,
                 cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(o, "cls"), 1), what));
    OSH_TRY(post_push(cx, &p->after,
                 cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(o, "sep"), 1), what));
done:
    return rc;
}

static osh_status post_load_nested(osh_ctx *cx, osh_tok_post *p, const cJSON *o, const char *what,
                              int *n_templates, int depth)
{
    osh_status rc = OSH_OK;
    const char *type = NULL;
    const cJSON *item = NULL;

    OSH_TRY(osh_tok_type(cx, &type, o, "post_processor", what));
    if (!strcmp(type, "ByteLevel")) goto done;
    if (!strcmp(type, "Sequence")) {
        const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "processors");
        if (!cJSON_IsArray(list) || depth > 8)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: a post_processor Sequence without \"processors\"",
                     what);
        cJSON_ArrayForEach(item, list)
            OSH_TRY(post_load_nested(cx, p, item, what, n_templates, depth + 1));
        goto done;
    }
    if (++*n_templates > 1) // the tokenizers library panics if two templates add tokens
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: more than one post_processor adds tokens", what);
    if (!strcmp(type, "TemplateProcessing"))
        OSH_TRY(post_load_template(cx, p, o, what));
    else if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing"))
        OSH_TRY(post_load_cls_sep(cx, p, o, what));
    else
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: post_processor \"%s\" is not supported", what, type);
done:
    return rc;
}

osh_status osh_tok_post_load(osh_ctx *cx, osh_tok_post *p, const cJSON *o, const char *what)
{
    int n_templates = 0;

    if (!o || cJSON_IsNull(o)) return OSH_OK;
    return post_load_nested(cx, p, o, what, &n_templates, 0);
}
