/* dataset_row.c - converts one line of a data file to token ids, piece by piece. So the whole line
 * is not in memory, except for a row that a template renders.
 *
 * Text is tokenized with special tokens, and cut as a Hugging Face tokenizer truncates it: the
 * special tokens after the text (an end-of-sequence token) stay, and the text before them is
 * shortened. Text after the cut is not tokenized. A conversation gets no special tokens, because
 * its template has already written them. */
#include "data/dataset_row.h"
#include "base/file.h"
#include "base/map.h"
#include "chat/chat.h"
#include "text/json_scan.h"
#include "data/shape.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 4096, KEY_BYTES = 1 << 16 };

typedef struct row {
    osh_ctx *cx;
    osh_row_reader *r; // view: reader of the data set's rows
    osh_ids *ids;      // view: output
    int64_t start;     // index in `ids` of the first token of the row
    osh_map *keys;     // own: keys of the row's object that were read so far
    osh_buf key, names; // own. key: the current key; names: all keys of the row, for a message.
    char piece[PIECE_BYTES]; // decoded text that is not yet tokenized
    size_t n_piece;
    osh_ids list, mask, loss; // own: values of input_ids, attention_mask and loss_mask
    osh_ids counted; // own: with opt->answers, 1 for each token of the row that counts, else 0
    /* Position (from 1) of the first wrong item of input_ids, attention_mask and loss_mask; 0: all
     * items are right. */
    int64_t bad_id, bad_mask, bad_loss;
    bool bare; // true: the text gets no special tokens
    bool has_text, has_list, has_mask, has_loss, is_string, is_list;
} row;

osh_status osh_ids_check(osh_ctx *cx, const osh_ids *ids, int64_t from, int64_t n_vocab,
                         const char *where)
{
    for (int64_t i = from; i < ids->n; i++)
        if (ids->ids[i] < 0 || (n_vocab && ids->ids[i] >= n_vocab))
            return osh_fail(cx, OSH_E_FORMAT,
                            "%s: its token %lld is %d, wanted one of the model's %lld", where,
                            (long long)(i - from) + 1, ids->ids[i], (long long)n_vocab);
    return OSH_OK;
}

/* ---- text ---- */

static osh_status ids_append(osh_ctx *cx, osh_ids *ids, const int32_t *more, int64_t n)
{
    osh_status rc = osh_ids_reserve(cx, ids, n);

    if (rc || !n) return rc;
    memcpy(ids->ids + ids->n, more, (size_t)n * sizeof *more);
    ids->n += n;
    return OSH_OK;
}

static osh_status text_refuse(osh_ctx *cx, const char *model_dir)
{
    const char *other = NULL;
    if (model_dir && osh_tokenizer_other(cx, &other, model_dir)) return OSH_E_NOMEM;
    if (other)
        return osh_fail(cx, OSH_E_USAGE,
                        "the rows hold text, and the model's %s is not supported: want input_ids "
                        "in the rows, or " OSH_TOKENIZER_WANTED,
                        other);
    return osh_fail(cx, OSH_E_USAGE,
                    "the rows hold text and there is no tokenizer: want tokenizer.json in the "
                    "model's directory, or input_ids in the rows");
}

static osh_status text_begin(osh_ctx *cx, row *w)
{
    if (!w->r->tok) return text_refuse(cx, w->r->opt->model_dir);
    osh_tokenizer_begin(w->r->tok);
    return w->bare ? OSH_OK : ids_append(cx, w->ids, w->r->special.ids, w->r->n_before);
}

static int64_t n_special_after(const row *w)
{
    return w->bare ? 0 : w->r->special.n - w->r->n_before;
}

/* Returns the number of tokens that fit in max_seq_length before the special tokens at the end. */
static int64_t text_room(const row *w)
{
    int64_t limit = w->r->opt->max_seq_length, after = n_special_after(w);
    return after < limit ? limit - after : limit;
}

static bool text_is_full(const row *w) { return w->ids->n - w->start > text_room(w); }

static osh_status text_more(osh_ctx *cx, row *w, const char *s, size_t n)
{
    return text_is_full(w) ? OSH_OK : osh_tokenizer_feed(cx, w->r->tok, w->ids, s, n);
}

static osh_status text_end(osh_ctx *cx, row *w)
{
    osh_status rc = OSH_OK;
    int64_t most = w->start + w->r->opt->max_seq_length;

    if (!text_is_full(w)) OSH_TRY(osh_tokenizer_end(cx, w->r->tok, w->ids));
    if (text_is_full(w)) w->ids->n = w->start + text_room(w);
    OSH_TRY(ids_append(cx, w->ids, w->r->special.ids + w->r->n_before, n_special_after(w)));
    if (w->ids->n > most) w->ids->n = most;
done:
    return rc;
}

static osh_status row_read_text(osh_ctx *cx, row *w, osh_lines *lines, bool *blank)
{
    osh_status rc = OSH_OK;
    const char *text = NULL;
    size_t n = 0;
    bool end = false, begun = false;

    *blank = true;
    while (!end) {
        OSH_TRY(osh_lines_more(cx, lines, n, &text, &n, &end));
        *blank = *blank && osh_is_blank(text, n);
        if (*blank && end) break;
        if (!begun) OSH_TRY(text_begin(cx, w));
        begun = true;
        OSH_TRY(text_more(cx, w, text, n));
    }
    if (*blank) w->ids->n = w->start;
    else OSH_TRY(text_end(cx, w));
done:
    return rc;
}

/* ---- JSON ---- */

static osh_status row_more_bytes(osh_ctx *cx, void *user, size_t used, const char **text, size_t *n,
                                 bool *end)
{
    return osh_lines_more(cx, user, used, text, n, end);
}

static osh_status row_flush_text(osh_ctx *cx, row *w)
{
    osh_status rc = text_more(cx, w, w->piece, w->n_piece);
    w->n_piece = 0;
    return rc;
}

static osh_status row_take_text(osh_ctx *cx, void *user, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    row *w = user;

    if (w->n_piece + n > PIECE_BYTES) OSH_TRY(row_flush_text(cx, w));
    if (n > PIECE_BYTES) return text_more(cx, w, s, n);
    memcpy(w->piece + w->n_piece, s, n);
    w->n_piece += n;
done:
    return rc;
}

/* Reads a list of whole numbers. Sets *bad to the position, from 1, of the first item that is not a
 * whole number. */
static osh_status row_read_list(osh_json_scan *s, osh_ids *list, int64_t *bad)
{
    osh_status rc = OSH_OK;
    char number[OSH_JSON_MAX_NUMBER + 1];

    s->at++;
    osh_json_scan_space(s);
    for (int c = osh_json_scan_peek(s); c != ']'; s->at++) {
        double d = NAN;
        osh_json_scan_space(s);
        c = osh_json_scan_peek(s);
        if (c == '-' || (c >= '0' && c <= '9')) {
            OSH_TRY(osh_json_scan_number(s, number));
            d = strtod(number, NULL);
        } else {
            OSH_TRY(osh_json_scan_value(s));
        }
        bool whole = d == floor(d) && d >= INT32_MIN && d <= INT32_MAX;
        OSH_TRY(osh_ids_reserve(s->cx, list, 1));
        list->ids[list->n++] = whole ? (int32_t)d : 0;
        if (!whole && !*bad) *bad = list->n;
        osh_json_scan_space(s);
        c = osh_json_scan_peek(s);
        if (c == ']') break;
        if (c != ',')
            OSH_TRY(osh_json_scan_fail(s, s->base + s->at, "found no ',' or ']' in an array"));
    }
    s->at++;
done:
    return rc;
}

static osh_status row_read_value(osh_json_scan *s, row *w)
{
    osh_status rc = OSH_OK;
    const char *key = w->key.data ? w->key.data : "", *column = w->r->opt->text_column;

    osh_json_scan_space(s);
    int c = osh_json_scan_peek(s);
    bool is_list = !strcmp(key, "input_ids"), is_mask = !strcmp(key, "attention_mask");
    bool is_loss = !strcmp(key, "loss_mask") && w->r->opt->answers;
    bool is_text = w->r->kind == OSH_ROW_TEXT && !strcmp(key, column ? column : "text");
    w->has_list |= is_list, w->has_mask |= is_mask, w->has_text |= is_text, w->has_loss |= is_loss;
    if (is_text && c == '"') {
        w->is_string = true;
        s->take = row_take_text;
        OSH_TRY(text_begin(s->cx, w));
        OSH_TRY(osh_json_scan_string(s));
        OSH_TRY(row_flush_text(s->cx, w));
    } else if (w->r->kind == OSH_ROW_IDS && is_list && c == '[') {
        w->is_list = true;
        OSH_TRY(row_read_list(s, &w->list, &w->bad_id));
    } else if (w->r->kind == OSH_ROW_IDS && is_mask && c == '[') {
        OSH_TRY(row_read_list(s, &w->mask, &w->bad_mask));
    } else if (w->r->kind == OSH_ROW_IDS && is_loss && c == '[') {
        OSH_TRY(row_read_list(s, &w->loss, &w->bad_loss));
    } else {
        OSH_TRY(osh_json_scan_value(s));
    }
done:
    s->take = NULL;
    return rc;
}

static osh_status row_read_key(osh_json_scan *s, row *w)
{
    osh_status rc = OSH_OK;
    int64_t unused;

    osh_buf_clear(&w->key);
    OSH_TRY(osh_json_scan_key_to(s, &w->key));
    const char *key = w->key.data ? w->key.data : "";
    if (osh_map_get(w->keys, key, w->key.len, &unused))
        OSH_FAIL(s->cx, OSH_E_FORMAT, "%s: the key '%s' occurs twice in one object", s->what, key);
    OSH_TRY(osh_map_put(s->cx, w->keys, key, w->key.len, 1));
    if (w->names.len < 300)
        OSH_TRY(osh_buf_printf(s->cx, &w->names, "%s'%.60s'", w->names.len ? ", " : "", key));
done:
    return rc;
}

static osh_status row_read_object(osh_json_scan *s, row *w)
{
    osh_status rc = OSH_OK;

    s->at++;
    osh_json_scan_space(s);
    for (int c = osh_json_scan_peek(s); c != '}'; s->at++) {
        OSH_TRY(row_read_key(s, w));
        OSH_TRY(row_read_value(s, w));
        osh_json_scan_space(s);
        c = osh_json_scan_peek(s);
        if (c == '}') break;
        if (c != ',')
            OSH_TRY(osh_json_scan_fail(s, s->base + s->at, "found no ',' or '}' in an object"));
    }
    s->at++;
    OSH_TRY(osh_json_scan_end(s));
done:
    return rc;
}

static osh_status row_fail_column(osh_ctx *cx, const row *w, const char *wanted)
{
    return osh_fail(cx, OSH_E_FORMAT, "no column '%s', found %s", wanted,
                    w->names.len ? w->names.data : "none");
}

/* Fails unless the mask is a list of zeros and ones with as many items as input_ids. `bad` is the
 * position (from 1) of the mask's first item that is no whole number, or 0 if there is none. */
static osh_status row_check_mask(osh_ctx *cx, const row *w, const char *name, const osh_ids *mask,
                                 int64_t bad)
{
    if (mask->n != w->list.n)
        return osh_fail(cx, OSH_E_FORMAT,
                        "'%s' is not a list of %lld numbers, as long as 'input_ids'", name,
                        (long long)w->list.n);
    for (int64_t i = 0; i < mask->n; i++)
        if (bad == i + 1 || (mask->ids[i] != 0 && mask->ids[i] != 1))
            return osh_fail(cx, OSH_E_FORMAT, "'%s': item %lld is not 0 or 1", name,
                            (long long)i + 1);
    return OSH_OK;
}

static osh_status row_append_list(osh_ctx *cx, row *w)
{
    osh_status rc = OSH_OK;
    const int32_t one = 1, zero = 0;
    int64_t limit = w->r->cut_ids ? w->r->opt->max_seq_length : INT64_MAX;

    if (!w->is_list) OSH_FAIL(cx, OSH_E_FORMAT, "'input_ids' is not a list");
    if (w->has_mask) OSH_TRY(row_check_mask(cx, w, "attention_mask", &w->mask, w->bad_mask));
    if (w->has_loss) OSH_TRY(row_check_mask(cx, w, "loss_mask", &w->loss, w->bad_loss));
    if (w->r->opt->answers && !w->has_loss) OSH_TRY(row_fail_column(cx, w, "loss_mask"));
    for (int64_t i = 0; i < w->list.n; i++) {
        if (w->bad_id == i + 1)
            OSH_FAIL(cx, OSH_E_FORMAT, "'input_ids': item %lld is not a token", (long long)i + 1);
        if ((w->has_mask && !w->mask.ids[i]) || w->ids->n - w->start >= limit) continue;
        OSH_TRY(ids_append(cx, w->ids, &w->list.ids[i], 1));
        if (w->r->opt->answers)
            OSH_TRY(ids_append(cx, &w->counted, w->loss.ids[i] ? &one : &zero, 1));
    }
done:
    return rc;
}

/* Reads a row, which is a JSON object. Sets *blank to true if the line is only white space, which
 * is not a row. */
static osh_status row_scan(osh_ctx *cx, row *w, osh_lines *lines, bool *blank)
{
    osh_status rc = OSH_OK;
    osh_json_scan s = {
        .cx = cx, .what = "the row", .more = row_more_bytes, .more_user = lines, .take_user = w};

    osh_buf_init(&w->key, KEY_BYTES);
    osh_buf_init(&w->names, 0);
    OSH_TRY(osh_map_new(cx, &w->keys, 8));
    while (osh_json_scan_peek(&s) >= 0 && osh_is_blank(s.text + s.at, 1)) s.at++;
    *blank = osh_json_scan_peek(&s) < 0 && !s.failed;
    if (*blank) goto done;
    osh_json_scan_space(&s);
    if (osh_json_scan_peek(&s) == '{') {
        OSH_TRY(row_read_object(&s, w));
    } else {
        OSH_TRY(osh_json_scan_value(&s));
        OSH_TRY(osh_json_scan_end(&s));
        OSH_FAIL(cx, OSH_E_FORMAT, "not a JSON object");
    }
done:
    return rc;
}

static void row_deinit(osh_ctx *cx, row *w)
{
    osh_map_free(cx, w->keys);
    osh_buf_deinit(cx, &w->key);
    osh_buf_deinit(cx, &w->names);
    osh_ids_deinit(cx, &w->list);
    osh_ids_deinit(cx, &w->mask);
    osh_ids_deinit(cx, &w->loss);
    osh_ids_deinit(cx, &w->counted);
}

static osh_status note_line(osh_ctx *cx, const osh_lines *lines, osh_status rc)
{
    osh_place at = osh_lines_place(lines);
    if (rc) osh_note(cx, "reading %s %s %lld", at.path, at.what, (long long)at.number);
    return rc;
}

/* ---- answers ---- */

typedef struct row_prefix { // prefix of a row's text: the part that is tokenized so far
    const char *text;     // view
    size_t n;             // number of bytes
    osh_ids ids;          // own: ids that later bytes cannot change
    osh_ids tail;         // own: ids of the remaining bytes if the text ends after the prefix
} row_prefix;

/* Compares `ids` with the row's ids from index `at` on. Returns the number of equal ids before the
 * first difference. */
static int64_t row_equal_ids(const row *w, int64_t at, const osh_ids *ids)
{
    int64_t n = 0, most = w->ids->n - w->start - at;
    while (n < ids->n && n < most && ids->ids[n] == w->ids->ids[w->start + at + n]) n++;
    return n;
}

/* Sets *n to the number of tokens of the row that end at or before byte `at` of the row's text. For
 * this, tokenizes the text up to `at`, and compares the ids with the row's ids. *n is the number of
 * equal ids before the first difference. `p` has the part of the text that earlier calls have
 * tokenized. If this part ends at or before `at`, the call continues at its end. So if `at` rises
 * from call to call, each byte is tokenized once. */
static osh_status row_tokens_before(osh_ctx *cx, int64_t *n, const row *w, row_prefix *p, size_t at)
{
    osh_status rc = OSH_OK;
    if (!p->n || at < p->n) osh_tokenizer_begin(w->r->tok), p->n = 0, p->ids.n = 0;
    if (at > p->n)
        OSH_TRY(osh_tokenizer_feed(cx, w->r->tok, &p->ids, p->text + p->n, at - p->n));
    p->n = at, p->tail.n = 0;
    OSH_TRY(osh_tokenizer_peek(cx, w->r->tok, &p->ids, &p->tail));
    int64_t most = w->ids->n - w->start;
    *n = p->ids.n < most ? p->ids.n + row_equal_ids(w, p->ids.n, &p->tail) : most;
done:
    return rc;
}

/* Sets w->counted of each token of the row: 1 if the token belongs to an answer, else 0. A token
 * that begins before an answer and ends in it belongs to the answer. */
static osh_status row_count_answers(osh_ctx *cx, row *w, const osh_buf *text,
                                    const osh_chat_spans *spans)
{
    osh_status rc = OSH_OK;
    int64_t n = w->ids->n - w->start, begin, end;
    row_prefix p = {.text = text->data}; // own
    OSH_TRY(osh_ids_reserve(cx, &w->counted, n));
    w->counted.n = n;
    for (int64_t i = 0; i < n; i++) w->counted.ids[i] = 0;
    for (size_t k = 0; k < spans->n; k++) {
        OSH_TRY(row_tokens_before(cx, &begin, w, &p, spans->at[k].begin));
        if (begin == n) break; // the row was cut before this answer
        end = n;
        if (spans->at[k].end < text->len)
            OSH_TRY(row_tokens_before(cx, &end, w, &p, spans->at[k].end));
        for (int64_t i = begin; i < end; i++) w->counted.ids[i] = 1;
    }
done:
    osh_ids_deinit(cx, &p.ids);
    osh_ids_deinit(cx, &p.tail);
    return rc;
}

/* Some tokens of a row are not counted. Marks such a token by storing ~id instead of its id
 * (osh_dataset_read). */
static osh_status row_mark(osh_ctx *cx, const row *w)
{
    if (!w->r->opt->answers) return OSH_OK;
    if (w->r->kind != OSH_ROW_CHAT && w->r->kind != OSH_ROW_IDS)
        return osh_fail(cx, OSH_E_USAGE,
                        "--loss-mask answers: the row is a text, want a conversation, or input_ids "
                        "and loss_mask");
    for (int64_t i = 0; i < w->counted.n; i++) {
        int32_t *id = &w->ids->ids[w->start + i];
        if (!w->counted.ids[i]) *id = ~*id;
    }
    return OSH_OK;
}

/* Renders the whole line with a template, and tokenizes the text. */
static osh_status row_read_rendered(osh_ctx *cx, row *w, osh_lines *lines, bool *blank)
{
    osh_status rc = OSH_OK;
    osh_buf text; // own
    osh_chat_spans spans = {0}; // own
    const char *line = NULL;
    size_t n = 0;
    bool end = false;

    osh_buf_init(&text, 0);
    while (!end) OSH_TRY(osh_lines_more(cx, lines, 0, &line, &n, &end));
    *blank = osh_is_blank(line, n);
    if (*blank) goto done;
    w->bare = w->r->kind == OSH_ROW_CHAT;
    osh_chat_row from = {line, n, w->r->opt->text_column};
    bool answers = w->bare && w->r->opt->answers;
    OSH_TRY(answers ? osh_chat_render_answers(cx, w->r->chat, &text, &spans, &from)
                    : osh_chat_render(cx, w->r->chat, &text, line, n, from.column));
    OSH_TRY(text_begin(cx, w));
    if (text.len) OSH_TRY(text_more(cx, w, text.data, text.len));
    OSH_TRY(text_end(cx, w));
    if (answers) OSH_TRY(row_count_answers(cx, w, &text, &spans));
done:
    osh_chat_spans_deinit(cx, &spans);
    osh_buf_deinit(cx, &text);
    return rc;
}

static osh_status row_read_json(osh_ctx *cx, row *w, osh_lines *lines, bool *blank)
{
    osh_status rc = OSH_OK;
    const char *column = w->r->opt->text_column ? w->r->opt->text_column : "text";

    OSH_TRY(row_scan(cx, w, lines, blank));
    if (*blank) goto done;
    if (w->r->kind == OSH_ROW_IDS) {
        if (!w->has_list) OSH_TRY(row_fail_column(cx, w, "input_ids"));
        OSH_TRY(row_append_list(cx, w));
    } else {
        if (!w->has_text) OSH_TRY(row_fail_column(cx, w, column));
        if (!w->is_string) OSH_FAIL(cx, OSH_E_FORMAT, "the column '%s' holds no string", column);
        OSH_TRY(text_end(cx, w));
    }
done:
    return rc;
}

static bool row_has_key(const void *user, const char *key)
{
    const row *w = user;
    int64_t unused;
    return osh_map_get(w->keys, key, strlen(key), &unused);
}

osh_status osh_row_look(osh_ctx *cx, osh_row_reader *r, osh_lines *lines)
{
    osh_status rc = OSH_OK;
    bool blank = false;
    row w = {.cx = cx, .r = r}; // own

    if (r->kind == OSH_ROW_UNKNOWN) OSH_TRY(row_scan(cx, &w, lines, &blank));
    if (r->kind != OSH_ROW_UNKNOWN || blank) goto done;
    bool talk = osh_chat_is_shape(row_has_key, &w);
    if (!w.has_list && !row_has_key(&w, "text") && talk && r->opt->model_dir)
        OSH_TRY(osh_row_reader_chat(cx, r));
    else r->kind = w.has_list ? OSH_ROW_IDS : OSH_ROW_TEXT;
done:
    row_deinit(cx, &w);
    return note_line(cx, lines, rc);
}

osh_status osh_row_read(osh_ctx *cx, osh_row_reader *r, osh_ids *ids, osh_lines *lines, bool *blank)
{
    osh_status rc = OSH_OK;
    row w = {.cx = cx, .r = r, .ids = ids, .start = ids->n}; // own

    if (r->chat) OSH_TRY(row_read_rendered(cx, &w, lines, blank));
    else
        OSH_TRY(r->json ? row_read_json(cx, &w, lines, blank)
                        : row_read_text(cx, &w, lines, blank));
    OSH_TRY(osh_ids_check(cx, ids, w.start, r->opt->n_vocab, "the row"));
    OSH_TRY(row_mark(cx, &w));
done:
    row_deinit(cx, &w);
    return note_line(cx, lines, rc);
}
