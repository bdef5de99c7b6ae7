/* json_lists.c - reads JSON files that are too long for a tree. The caller names arrays whose items
 * are read one at a time. The rest of the file becomes a tree. Memory contains a piece of the file,
 * one item and the tree.
 *
 * osh_json_members reads an object that is in memory. This function also makes only one tree at a
 * time, because the trees of 12,500 tensors of a safetensors header would take 8 MB. */
#include "text/json.h"
#include "text/json_scan.h"
#include <string.h>

enum { PIECE = 1 << 16, MOST_ITEM = 1 << 26, MOST_REST = 1 << 28 };

typedef struct reading {
    osh_file *f;   // own
    char *piece;   // own [PIECE]
    size_t n;      // number of bytes in `piece`
    int64_t at;    // offset in the file at which `piece` ends
    osh_buf *copy; // view: receives the scanned text from offset `from` on; NULL: not copied
    size_t from;
    osh_buf item, rest, key; // own
    const osh_json_taken *lists;
    void *user;
} reading;

/* Appends the scanned text before offset `to` to r->copy. */
static osh_status reading_copied(osh_ctx *cx, reading *r, size_t to)
{
    osh_status rc = OSH_OK;
    if (r->copy) OSH_TRY(osh_buf_append(cx, r->copy, r->piece + r->from, to - r->from));
    r->from = 0;
done:
    return rc;
}

static osh_status reading_more(osh_ctx *cx, void *user, size_t used, const char **text, size_t *n,
                               bool *end)
{
    osh_status rc = OSH_OK;
    reading *r = user;
    OSH_TRY(reading_copied(cx, r, used));
    memmove(r->piece, r->piece + used, r->n -= used);
    int64_t left = osh_file_bytes(r->f) - r->at;
    size_t room = PIECE - r->n, next = left < (int64_t)room ? (size_t)left : room;
    OSH_TRY(osh_file_pread(cx, r->f, r->piece + r->n, next, r->at));
    r->n += next, r->at += (int64_t)next;
    *text = r->piece, *n = r->n, *end = r->at == osh_file_bytes(r->f);
done:
    return rc;
}

/* Scans one value and appends its text to `to`. */
static osh_status reading_copy_value(osh_json_scan *s, reading *r, osh_buf *to)
{
    osh_status rc = OSH_OK;
    osh_json_scan_space(s);
    r->copy = to, r->from = s->at;
    OSH_TRY(osh_json_scan_value(s));
    OSH_TRY(reading_copied(s->cx, r, s->at));
done:
    r->copy = NULL;
    return rc;
}

static osh_status list_take_item(osh_json_scan *s, reading *r, const osh_json_taken *list)
{
    osh_status rc = OSH_OK;
    cJSON *item = NULL; // own
    if (!list->item) return osh_json_scan_value(s);
    osh_buf_clear(&r->item);
    OSH_TRY(reading_copy_value(s, r, &r->item));
    OSH_TRY(osh_json_parse(s->cx, &item, r->item.data, r->item.len, s->what, 0));
    OSH_TRY(list->item(s->cx, r->user, item));
done:
    cJSON_Delete(item);
    return rc;
}

/* Reads an array from its opening to its closing bracket, and passes each item to the callback of
 * the array. */
static osh_status list_take_items(osh_json_scan *s, reading *r, const osh_json_taken *list)
{
    osh_status rc = OSH_OK;
    s->at++;
    osh_json_scan_space(s);
    if (osh_json_scan_peek(s) == ']') {
        s->at++;
        return OSH_OK;
    }
    for (int c = ','; c == ',';) {
        OSH_TRY(osh_check_interrupt(s->cx));
        OSH_TRY(list_take_item(s, r, list));
        osh_json_scan_space(s);
        c = osh_json_scan_peek(s);
        if (c != ',' && c != ']')
            OSH_TRY(osh_json_scan_fail(s, s->base + s->at, "found no ',' or ']' in an array"));
        s->at++;
    }
done:
    return rc;
}

/* Reads a member of the outermost object and appends the text of the member to r->rest. For an
 * array that the caller has named, appends null. */
static osh_status rest_read_member(osh_json_scan *s, reading *r)
{
    osh_status rc = OSH_OK;
    const osh_json_taken *list = r->lists;
    osh_buf_clear(&r->key);
    osh_json_scan_space(s);
    r->copy = &r->rest, r->from = s->at;
    OSH_TRY(osh_json_scan_key_to(s, &r->key));
    OSH_TRY(reading_copied(s->cx, r, s->at));
    r->copy = NULL;
    osh_json_scan_space(s);
    while (list->key && (!r->key.data || strcmp(list->key, r->key.data))) list++;
    if (list->key && osh_json_scan_peek(s) == '[') {
        OSH_TRY(list_take_items(s, r, list));
        OSH_TRY(osh_buf_append(s->cx, &r->rest, "null", 4));
    } else {
        OSH_TRY(reading_copy_value(s, r, &r->rest));
    }
done:
    r->copy = NULL;
    return rc;
}

static osh_status rest_read_object(osh_json_scan *s, reading *r)
{
    osh_status rc = OSH_OK;
    s->at++;
    OSH_TRY(osh_buf_append(s->cx, &r->rest, "{", 1));
    osh_json_scan_space(s);
    for (int c = osh_json_scan_peek(s); c != '}';) {
        OSH_TRY(rest_read_member(s, r));
        osh_json_scan_space(s);
        c = osh_json_scan_peek(s);
        if (c != ',' && c != '}')
            OSH_TRY(osh_json_scan_fail(s, s->base + s->at, "found no ',' or '}' in an object"));
        if (c == ',') s->at++;
        OSH_TRY(osh_buf_append(s->cx, &r->rest, c == ',' ? "," : "", c == ','));
    }
    s->at++;
    OSH_TRY(osh_buf_append(s->cx, &r->rest, "}", 1));
done:
    return rc;
}

osh_status osh_json_read_lists(osh_ctx *cx, cJSON **rest, const char *path,
                               const osh_json_taken *lists, void *user)
{
    osh_status rc = OSH_OK;
    cJSON *tree = NULL;                         // own
    reading r = {.lists = lists, .user = user}; // own
    osh_json_scan s = {.cx = cx, .what = path, .more = reading_more, .more_user = &r};
    osh_buf_init(&r.item, MOST_ITEM);
    osh_buf_init(&r.rest, MOST_REST);
    osh_buf_init(&r.key, MOST_ITEM);
    OSH_NEW(cx, r.piece, PIECE);
    OSH_TRY(osh_file_open(cx, &r.f, path));
    OSH_TRY(osh_json_scan_begin(&s));
    osh_json_scan_space(&s);
    if (osh_json_scan_peek(&s) == '{') OSH_TRY(rest_read_object(&s, &r));
    else OSH_TRY(reading_copy_value(&s, &r, &r.rest));
    OSH_TRY(osh_json_scan_end(&s));
    /* The parser fails if a key occurs twice. This includes the keys of the named arrays. */
    OSH_TRY(osh_json_parse(cx, &tree, r.rest.data, r.rest.len, path, 0));
    if (rest) *rest = tree, tree = NULL; // give
done:
    cJSON_Delete(tree);
    osh_file_close(cx, r.f);
    osh_free(cx, r.piece);
    osh_buf_deinit(cx, &r.item);
    osh_buf_deinit(cx, &r.rest);
    osh_buf_deinit(cx, &r.key);
    return rc;
}

osh_status osh_json_members(osh_ctx *cx, const char *text, size_t n, const char *what,
                            osh_json_member_fn member, void *user)
{
    osh_status rc = OSH_OK;
    cJSON *value = NULL; // own
    osh_buf key;
    osh_buf_init(&key, 0);
    osh_json_scan all = {.cx = cx, .what = what, .text = text, .n = n}, s = all;
    OSH_TRY(osh_json_scan_begin(&all));
    osh_json_scan_space(&all);
    s.at = all.at;
    if (osh_json_scan_peek(&all) != '{')
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: holds no JSON object", what);
    OSH_TRY(osh_json_scan_value(&all));
    OSH_TRY(osh_json_scan_end(&all));
    s.at++;
    osh_json_scan_space(&s);
    for (size_t i = 0; osh_json_scan_peek(&s) != '}'; i++) {
        osh_buf_clear(&key);
        OSH_TRY(osh_json_scan_key_to(&s, &key));
        osh_json_scan_space(&s);
        size_t begin = s.at;
        OSH_TRY(osh_json_scan_value(&s));
        OSH_TRY(osh_json_parse(cx, &value, text + begin, s.at - begin, what, 0));
        OSH_TRY(member(cx, user, i, all.n_commas + 1, key.data ? key.data : "", value));
        cJSON_Delete(value);
        value = NULL;
        osh_json_scan_space(&s);
        if (osh_json_scan_peek(&s) == ',') s.at++;
        osh_json_scan_space(&s);
    }
done:
    cJSON_Delete(value);
    osh_buf_deinit(cx, &key);
    return rc;
}
