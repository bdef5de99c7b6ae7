/* tok_file.c - splits a tokenizer.json into its long lists (vocabulary, merges, added tokens) and
 * everything else. The lists stay text and are read item by item, which saves the memory of a JSON
 * tree. Everything else becomes a tree. */
#include "base/map.h"
#include "text/json_scan.h"
#include "tokenizer/tok_impl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *buf_text(const osh_buf *b) { return b->data ? b->data : ""; }

typedef struct lists { // the long lists of an object, which are not parsed but stay text
    const char *names[3];
    char opens[3];
    osh_tok_list *to[3];
} lists;
enum { MOST_LISTS = 3 };

/* Scans the object at s and appends its text without the long lists to *rest. `own` has the names
 * of the long lists in the object. `inner` has the names of the long lists in the object's member
 * "model"; `inner` may be NULL. */
static osh_status split_object(osh_json_scan *s, osh_buf *rest, const lists *own,
                               const lists *inner)
{
    osh_status rc = OSH_OK;
    osh_ctx *cx = s->cx;
    osh_map *seen = NULL; // own
    osh_buf key;          // own
    int64_t unused;

    osh_buf_init(&key, 0);
    OSH_TRY(osh_map_new(cx, &seen, 16));
    OSH_TRY(osh_buf_append(cx, rest, "{", 1));
    s->at++;
    osh_json_scan_space(s);
    for (bool first = true; osh_json_scan_peek(s) != '}';) {
        size_t from = s->at;
        osh_buf_clear(&key);
        OSH_TRY(osh_json_scan_key_to(s, &key));
        if (osh_map_get(seen, buf_text(&key), key.len, &unused))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: the key '%s' occurs twice in one object", s->what,
                     buf_text(&key));
        OSH_TRY(osh_map_put(cx, seen, buf_text(&key), key.len, 1));
        osh_json_scan_space(s);
        size_t value = s->at, which = 0;
        char open = (char)osh_json_scan_peek(s);
        while (which < MOST_LISTS &&
               !(own->names[which] && !strcmp(buf_text(&key), own->names[which]) &&
                 open == own->opens[which]))
            which++;
        bool is_model = inner && open == '{' && !strcmp(buf_text(&key), "model");
        if (which == MOST_LISTS) {
            if (!first) OSH_TRY(osh_buf_append(cx, rest, ",", 1));
            OSH_TRY(osh_buf_append(cx, rest, s->text + from, value - from));
            first = false;
        }
        s->n_commas = 0;
        if (is_model) OSH_TRY(split_object(s, rest, inner, NULL));
        else OSH_TRY(osh_json_scan_value(s));
        if (which < MOST_LISTS)
            *own->to[which] =
                (osh_tok_list){s->text + value, s->at - value, s->n_commas + 1, s->what};
        else if (!is_model) OSH_TRY(osh_buf_append(cx, rest, s->text + value, s->at - value));
        osh_json_scan_space(s);
        int c = osh_json_scan_peek(s);
        if (c == '}') break;
        if (c != ',') OSH_TRY(osh_json_scan_fail(s, s->at, "found no ',' or '}' in an object"));
        s->at++;
        osh_json_scan_space(s);
        if (osh_json_scan_peek(s) == '}')
            OSH_TRY(osh_json_scan_fail(s, s->at, "found no quoted key in an object"));
    }
    s->at++;
    OSH_TRY(osh_buf_append(cx, rest, "}", 1));
done:
    osh_map_free(cx, seen);
    osh_buf_deinit(cx, &key);
    return rc;
}

/* Fails if the text is not UTF-8. The Python package `tokenizers` also reads the file as UTF-8.
 * Later code expects that tokens consist of whole characters. */
static osh_status check_utf8(osh_ctx *cx, const char *text, size_t n, const char *what)
{
    uint32_t cp = 0;

    for (size_t i = 0, len = 0; i < n; i += len) {
        len = (unsigned char)text[i] < 0x80 ? 1 : osh_utf8_decode(text + i, n - i, &cp);
        if (!len)
            return osh_fail(cx, OSH_E_FORMAT,
                            "%s: byte %zu is not UTF-8, which a tokenizer.json must be", what, i);
    }
    return OSH_OK;
}

osh_status osh_tok_file_parse(osh_ctx *cx, osh_tok_file *f, const char *text, size_t n,
                              const char *what)
{
    osh_status rc = OSH_OK;
    osh_buf rest; // own
    osh_json_scan s = {.cx = cx, .what = what, .text = text, .n = n, .allow_nul = true};
    lists outer = {{"added_tokens"}, {'['}, {&f->added}};
    lists model = {
        {"vocab", "merges", "vocab"}, {'{', '[', '['}, {&f->vocab, &f->merges, &f->scores}};

    *f = (osh_tok_file){.tree = NULL};
    osh_buf_init(&rest, 0);
    OSH_TRY(check_utf8(cx, text, n, what));
    OSH_TRY(osh_json_scan_begin(&s));
    osh_json_scan_space(&s);
    if (osh_json_scan_peek(&s) == '{') {
        OSH_TRY(split_object(&s, &rest, &outer, &model));
        OSH_TRY(osh_json_scan_end(&s));
        text = rest.data, n = rest.len;
    }
    OSH_TRY(osh_json_parse(cx, &f->tree, text, n, what, OSH_JSON_NUL));
done:
    osh_buf_deinit(cx, &rest);
    return rc;
}

void osh_tok_file_deinit(osh_tok_file *f)
{
    cJSON_Delete(f->tree);
    f->tree = NULL;
}

void osh_tok_items_init(osh_tok_items *it, osh_ctx *cx, const osh_tok_list *l)
{
    *it = (osh_tok_items){.scan = {.cx = cx, .what = l->what, .text = l->text, .n = l->n, .at = 1,
                                   .allow_nul = true}};
    osh_buf_init(&it->key, 0);
    osh_buf_init(&it->text, 0);
}

void osh_tok_items_deinit(osh_ctx *cx, osh_tok_items *it)
{
    osh_buf_deinit(cx, &it->key);
    osh_buf_deinit(cx, &it->text);
}

/* Reads the next item of a list. No error of syntax is possible, because the file was scanned
 * before. */
osh_status osh_tok_items_next(osh_tok_items *it, bool *any)
{
    osh_status rc = OSH_OK;
    osh_json_scan *s = &it->scan;
    char number[OSH_JSON_MAX_NUMBER + 1];

    osh_buf_clear(&it->key), osh_buf_clear(&it->text);
    it->n_first = 0, it->n_strings = 0, it->number = NAN;
    osh_json_scan_space(s);
    if (osh_json_scan_peek(s) == ',') s->at++;
    osh_json_scan_space(s);
    int c = osh_json_scan_peek(s);
    *any = c != '}' && c != ']' && c >= 0;
    if (!*any) goto done;
    if (s->text[0] == '{') {
        OSH_TRY(osh_json_scan_key_to(s, &it->key));
        osh_json_scan_space(s);
        c = osh_json_scan_peek(s);
    }
    it->value = s->text + s->at;
    size_t at = s->at;
    if (c == '"') {
        OSH_TRY(osh_json_scan_string_to(s, &it->text));
        it->n_strings = 1;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        OSH_TRY(osh_json_scan_number(s, number));
        it->number = strtod(number, NULL);
    } else {
        OSH_TRY(osh_json_scan_value(s));
    }
    it->n_value = s->at - at;
done:
    return rc;
}

osh_status osh_tok_items_join(osh_tok_items *it)
{
    osh_status rc = OSH_OK;
    osh_json_scan s = it->scan;

    s.text = it->value, s.n = it->n_value, s.at = 1;
    if (it->value[0] != '[') return OSH_OK;
    for (;;) {
        osh_json_scan_space(&s);
        if (osh_json_scan_peek(&s) == ',') s.at++;
        osh_json_scan_space(&s);
        int c = osh_json_scan_peek(&s);
        if (c == ']') break;
        if (c != '"') {
            it->n_strings = 0;
            break;
        }
        OSH_TRY(osh_json_scan_string_to(&s, &it->text));
        if (++it->n_strings == 1) it->n_first = it->text.len;
    }
done:
    return rc;
}

osh_status osh_tok_items_pair(osh_tok_items *it, char number[OSH_JSON_MAX_NUMBER + 1])
{
    osh_status rc = OSH_OK;
    osh_json_scan s = it->scan;

    s.text = it->value, s.n = it->n_value, s.at = 1;
    osh_buf_clear(&it->text);
    it->n_strings = 0;
    if (it->value[0] != '[') return OSH_OK;
    osh_json_scan_space(&s);
    if (osh_json_scan_peek(&s) != '"') return OSH_OK;
    OSH_TRY(osh_json_scan_string_to(&s, &it->text));
    osh_json_scan_space(&s);
    if (osh_json_scan_peek(&s) != ',') return OSH_OK;
    s.at++;
    osh_json_scan_space(&s);
    int c = osh_json_scan_peek(&s);
    if (c != '-' && (c < '0' || c > '9')) return OSH_OK;
    OSH_TRY(osh_json_scan_number(&s, number));
    osh_json_scan_space(&s);
    it->n_strings = osh_json_scan_peek(&s) == ']';
done:
    return rc;
}
