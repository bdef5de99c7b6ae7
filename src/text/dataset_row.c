/* dataset_row.c - one line of a data file to token ids.
 *
 * Text is tokenized with special tokens and cut as a Hugging Face tokenizer's truncation does: what the template puts
 * behind the text (an end-of-sequence token) stays, the text before it is shortened. */
#include "text/dataset_row.h"
#include "base/buf.h"
#include "text/json.h"
#include <math.h>
#include <string.h>

osh_status osh_row_reader_init(osh_ctx *cx, osh_row_reader *r, const osh_dataset_options *opt,
                               osh_tokenizer *tok)
{
    size_t len = strlen(opt->path);

    *r = (osh_row_reader){.opt = opt, .tok = tok, .cut_ids = true, .n_suffix = -1};
    if (len > 4 && !strcmp(opt->path + len - 4, ".zst")) len -= 4;
    r->json = len > 6 && !strncmp(opt->path + len - 6, ".jsonl", 6);
    if (!r->json) r->kind = OSH_ROW_TEXT;
    if (r->json || (len > 4 && !strncmp(opt->path + len - 4, ".txt", 4))) return OSH_OK;
    return osh_fail(cx, OSH_E_USAGE, "%s: unknown kind of dataset, wanted .jsonl, .txt, .jsonl.zst or .txt.zst",
                    opt->path);
}

osh_status osh_ids_check(osh_ctx *cx, const osh_ids *ids, int64_t from, int64_t n_vocab,
                         const char *where)
{
    for (int64_t i = from; i < ids->n; i++)
        if (ids->ids[i] < 0 || (n_vocab && ids->ids[i] >= n_vocab))
            return osh_fail(cx, OSH_E_FORMAT, "%s: token %lld of it is %d, wanted one of the model's %lld",
                            where, (long long)(i - from) + 1, ids->ids[i], (long long)n_vocab);
    return OSH_OK;
}

/* How many special tokens stand behind a text: found by encoding a letter with and without them. */
static osh_status find_suffix(osh_ctx *cx, osh_row_reader *r)
{
    osh_status rc = OSH_OK;
    osh_ids with = {0}, without = {0}; // own

    if (r->n_suffix >= 0) return OSH_OK;
    OSH_TRY(osh_tokenizer_encode(cx, r->tok, &with, "a", 1, true));
    OSH_TRY(osh_tokenizer_encode(cx, r->tok, &without, "a", 1, false));
    r->n_suffix = 0;
    for (int64_t p = 0; without.n && p + without.n <= with.n; p++) {
        if (memcmp(with.ids + p, without.ids, (size_t)without.n * sizeof *with.ids)) continue;
        r->n_suffix = with.n - without.n - p;
        break;
    }
done:
    osh_ids_deinit(cx, &with);
    osh_ids_deinit(cx, &without);
    return rc;
}

static osh_status encode_text(osh_ctx *cx, osh_row_reader *r, osh_ids *ids, const char *text,
                              size_t n)
{
    osh_status rc = OSH_OK;
    int64_t start = ids->n, limit = r->opt->max_seq_length;

    if (!r->tok)
        OSH_FAIL(cx, OSH_E_USAGE, "the rows hold text and there is no tokenizer, wanted input_ids");
    OSH_TRY(osh_tokenizer_encode(cx, r->tok, ids, text, n, true));
    if (ids->n - start <= limit) goto done;
    OSH_TRY(find_suffix(cx, r));
    int64_t kept = r->n_suffix < limit ? r->n_suffix : 0;
    memmove(ids->ids + start + limit - kept, ids->ids + ids->n - kept, (size_t)kept * sizeof *ids->ids);
    ids->n = start + limit;
done:
    return rc;
}

static osh_status reserve(osh_ctx *cx, osh_ids *ids, int64_t n_more)
{
    int64_t cap = ids->cap ? ids->cap : 1024;

    if (ids->n + n_more <= ids->cap) return OSH_OK;
    while (cap < ids->n + n_more) cap *= 2;
    int32_t *more = osh_realloc(cx, ids->ids, (size_t)cap * sizeof *more);
    if (!more) return OSH_E_NOMEM;
    ids->ids = more;
    ids->cap = cap;
    return OSH_OK;
}

static osh_status take_ids(osh_ctx *cx, const osh_row_reader *r, osh_ids *ids, const cJSON *list,
                           const cJSON *mask)
{
    osh_status rc = OSH_OK;
    int64_t start = ids->n, limit = r->cut_ids ? r->opt->max_seq_length : INT64_MAX, i = 0;
    const cJSON *m = mask ? mask->child : NULL;

    if (!cJSON_IsArray(list)) OSH_FAIL(cx, OSH_E_FORMAT, "'input_ids' is no list");
    if (mask && (!cJSON_IsArray(mask) || cJSON_GetArraySize(mask) != cJSON_GetArraySize(list)))
        OSH_FAIL(cx, OSH_E_FORMAT, "'attention_mask' is no list of %d numbers, as long as 'input_ids'",
                 cJSON_GetArraySize(list));
    for (const cJSON *v = list->child; v; v = v->next, m = m ? m->next : NULL, i++) {
        double d = v->valuedouble;
        if (!cJSON_IsNumber(v) || d != floor(d) || d < INT32_MIN || d > INT32_MAX)
            OSH_FAIL(cx, OSH_E_FORMAT, "'input_ids' holds no token at place %lld", (long long)i + 1);
        if (m && (!cJSON_IsNumber(m) || (m->valuedouble != 0 && m->valuedouble != 1)))
            OSH_FAIL(cx, OSH_E_FORMAT, "'attention_mask' is neither 0 nor 1 at place %lld", (long long)i + 1);
        if ((m && m->valuedouble == 0) || ids->n - start >= limit) continue;
        OSH_TRY(reserve(cx, ids, 1));
        ids->ids[ids->n++] = (int32_t)d;
    }
done:
    return rc;
}

static osh_status fail_column(osh_ctx *cx, const cJSON *row, const char *wanted)
{
    osh_status rc = OSH_OK;
    osh_buf names; // own

    osh_buf_init(&names, 4000);
    for (const cJSON *c = row->child; c && names.len < 300; c = c->next)
        OSH_TRY(osh_buf_printf(cx, &names, "%s'%.60s'", names.len ? ", " : "", c->string));
    OSH_FAIL(cx, OSH_E_FORMAT, "no column '%s', found %s", wanted, names.len ? names.data : "none");
done:
    osh_buf_deinit(cx, &names);
    return rc;
}

static osh_status encode_json(osh_ctx *cx, osh_row_reader *r, osh_ids *ids, const char *text,
                              size_t n)
{
    osh_status rc = OSH_OK;
    cJSON *row = NULL; // own
    const char *column = r->opt->text_column;

    OSH_TRY(osh_json_parse(cx, &row, text, n, "the row", 0));
    if (!cJSON_IsObject(row)) OSH_FAIL(cx, OSH_E_FORMAT, "not a JSON object");
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(row, "input_ids");
    if (r->kind == OSH_ROW_UNKNOWN)
        r->kind = list && (!column || !strcmp(column, "input_ids")) ? OSH_ROW_IDS : OSH_ROW_TEXT;
    if (r->kind == OSH_ROW_IDS) {
        if (!list) OSH_TRY(fail_column(cx, row, "input_ids"));
        OSH_TRY(take_ids(cx, r, ids, list, cJSON_GetObjectItemCaseSensitive(row, "attention_mask")));
    } else {
        if (!column) column = "text";
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(row, column);
        if (!v) OSH_TRY(fail_column(cx, row, column));
        if (!cJSON_IsString(v)) OSH_FAIL(cx, OSH_E_FORMAT, "the column '%s' holds no string", column);
        OSH_TRY(encode_text(cx, r, ids, v->valuestring, strlen(v->valuestring)));
    }
done:
    cJSON_Delete(row);
    return rc;
}

osh_status osh_row_encode(osh_ctx *cx, osh_row_reader *r, osh_ids *ids, const char *text, size_t n,
                          int64_t line)
{
    osh_status rc = OSH_OK;
    int64_t start = ids->n;

    if (r->json) OSH_TRY(encode_json(cx, r, ids, text, n));
    else OSH_TRY(encode_text(cx, r, ids, text, n));
    OSH_TRY(osh_ids_check(cx, ids, start, r->opt->n_vocab, "the row"));
done:
    if (rc) osh_note(cx, "reading %s line %lld", r->opt->path, (long long)line);
    return rc;
}
