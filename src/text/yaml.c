/* yaml.c - reads libyaml's events into a tree of mappings, sequences and scalars.
 *
 * These are errors: anchors and aliases, the merge key `<<`, several documents, duplicate keys
 * (PyYAML silently keeps the last one), keys that are not scalars, and NUL. A tag such as
 * !!python/object/apply:x is kept as text and runs nothing. */
#include "text/yaml.h"
#include "base/map.h"
#include "base/quote.h"
#include "text/yaml_scalar.h"
#include <string.h>
#include <yaml.h>

enum { MAX_DEPTH = 100, FEW_KEYS = 16 };
/* Limit of the file size, because libyaml's time can grow faster than the text. */
#define MAX_BYTES ((size_t)4 << 20)
#define CORE "tag:yaml.org,2002:"

typedef struct reader {
    osh_ctx *cx;
    const char *what;
    yaml_parser_t parser;
    yaml_event_t event; // own while has_event is true
    bool has_event;
} reader;

static osh_status yaml_fail_at(const reader *r, yaml_mark_t mark, const char *problem,
                               const char *detail)
{
    return osh_fail(r->cx, OSH_E_FORMAT, "%s: line %zu column %zu: %s%s", r->what, mark.line + 1,
                    mark.column + 1, problem, detail);
}

static osh_status reader_next(reader *r)
{
    if (r->has_event) yaml_event_delete(&r->event);
    r->has_event = yaml_parser_parse(&r->parser, &r->event);
    if (r->has_event) return OSH_OK;
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return osh_fail(r->cx, OSH_E_NOMEM, "%s: cannot allocate the YAML parser", r->what);
    if (p->error == YAML_READER_ERROR)
        return osh_fail(r->cx, OSH_E_FORMAT, "%s: byte %zu: %s", r->what, p->problem_offset,
                        p->problem);
    return yaml_fail_at(r, p->problem_mark, p->problem ? p->problem : "not YAML", "");
}

static osh_status yaml_read_tag(reader *r, osh_yaml *y, const char *tag)
{
    if (!tag) return OSH_OK;
    y->tag = osh_strdup(r->cx, tag);
    return y->tag ? OSH_OK : OSH_E_NOMEM;
}

static bool tag_is_core(const osh_yaml *y, const char *name)
{
    return y->tag && !strncmp(y->tag, CORE, strlen(CORE)) && !strcmp(y->tag + strlen(CORE), name);
}

static bool tag_is_bare(const osh_yaml *y) { return y->tag && !strcmp(y->tag, "!"); }

static void yaml_drop_tag(osh_ctx *cx, osh_yaml *y)
{
    osh_free(cx, y->tag);
    y->tag = NULL;
}

/* Resolves a scalar by its tag, if the tag names a known type. */
static osh_status yaml_obey_tag(reader *r, osh_yaml *y, yaml_mark_t mark)
{
    static const struct {
        const char *name;
        osh_yaml_kind kind;
    } rows[] = {
        {"int", OSH_Y_INT}, {"float", OSH_Y_FLOAT}, {"bool", OSH_Y_BOOL}, {"null", OSH_Y_NULL}};

    if (tag_is_core(y, "str") || tag_is_bare(y)) {
        yaml_drop_tag(r->cx, y);
        return OSH_OK;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!tag_is_core(y, rows[i].name)) continue;
        if (!osh_yaml_resolve(y)) return yaml_fail_at(r, mark, "not a 64-bit integer: ", y->text);
        // the resolver has also set the value as a double (f)
        if (rows[i].kind == OSH_Y_FLOAT && y->kind == OSH_Y_INT) y->kind = OSH_Y_FLOAT;
        if (y->kind != rows[i].kind)
            return yaml_fail_at(r, mark, "the tag does not fit the value: ", y->text);
        yaml_drop_tag(r->cx, y);
        return OSH_OK;
    }
    return OSH_OK;
}

static osh_status yaml_read_scalar(reader *r, osh_yaml *y)
{
    osh_status rc = OSH_OK;
    const yaml_event_t *e = &r->event;
    const char *text = (const char *)e->data.scalar.value;
    bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    if (strlen(text) != e->data.scalar.length)
        return yaml_fail_at(r, e->start_mark, "a NUL character in a string", "");
    y->text = osh_strdup(r->cx, text);
    if (!y->text) return OSH_E_NOMEM;
    y->kind = OSH_Y_STR;
    OSH_TRY(yaml_read_tag(r, y, (const char *)e->data.scalar.tag));
    if (y->tag) return yaml_obey_tag(r, y, e->start_mark);
    if (plain && !osh_yaml_resolve(y))
        return yaml_fail_at(r, e->start_mark, "not a 64-bit integer: ", text);
done:
    return rc;
}

static osh_status yaml_read_node(reader *r, osh_yaml **out, int depth);

static osh_status yaml_grow(osh_ctx *cx, osh_yaml ***list, size_t n)
{
    osh_yaml **more;

    if (n & (n - 1)) return OSH_OK; // the arrays are full only if n is 0 or a power of two
    more = osh_realloc(cx, *list, (n ? 2 * n : 1) * sizeof *more);
    if (!more) return OSH_E_NOMEM;
    *list = more;
    return OSH_OK;
}

static osh_status yaml_fail_twice(const reader *r, const osh_yaml *key)
{
    return osh_fail(r->cx, OSH_E_FORMAT, "%s: line %d column %d: the key '%s' occurs twice",
                    r->what, key->line, key->column, key->text);
}

static osh_status yaml_check_keys(const reader *r, const osh_yaml *y)
{
    osh_status rc = OSH_OK;
    osh_map *seen = NULL; // own
    int64_t unused = 0;

    if (y->n <= FEW_KEYS) {
        for (size_t i = 0; i < y->n; i++)
            for (size_t k = 0; k < i; k++)
                if (!strcmp(y->keys[i]->text, y->keys[k]->text))
                    return yaml_fail_twice(r, y->keys[i]);
        return OSH_OK;
    }
    OSH_TRY(osh_map_new(r->cx, &seen, y->n));
    for (size_t i = 0; i < y->n; i++) {
        const char *key = y->keys[i]->text;
        if (osh_map_get(seen, key, strlen(key), &unused)) {
            rc = yaml_fail_twice(r, y->keys[i]);
            goto done;
        }
        OSH_TRY(osh_map_put(r->cx, seen, key, strlen(key), 1));
    }
done:
    osh_map_free(r->cx, seen);
    return rc;
}

static osh_status yaml_read_key(reader *r, osh_yaml **out)
{
    const yaml_event_t *e = &r->event;

    if (e->type != YAML_SCALAR_EVENT && e->type != YAML_ALIAS_EVENT)
        return yaml_fail_at(r, e->start_mark, "a key must be a scalar", "");
    if (e->type == YAML_SCALAR_EVENT && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
        !strcmp((const char *)e->data.scalar.value, "<<"))
        return yaml_fail_at(r, e->start_mark, "the merge key << is not supported", "");
    return yaml_read_node(r, out, MAX_DEPTH);
}

/* Reads the items of a sequence, or the keys and values of a mapping, up to its end event. */
static osh_status yaml_read_items(reader *r, osh_yaml *y, yaml_event_type_t end, int depth)
{
    osh_status rc = OSH_OK;

    if (depth >= MAX_DEPTH)
        return yaml_fail_at(r, r->event.start_mark, "nested more than 100 deep", "");
    OSH_TRY(reader_next(r));
    while (r->event.type != end) {
        OSH_TRY(yaml_grow(r->cx, &y->items, y->n));
        y->items[y->n] = NULL;
        if (y->kind == OSH_Y_MAP) {
            OSH_TRY(yaml_grow(r->cx, &y->keys, y->n));
            y->keys[y->n] = NULL;
        }
        y->n++; // osh_yaml_free frees the new row from here on
        if (y->kind == OSH_Y_MAP) {
            OSH_TRY(yaml_read_key(r, &y->keys[y->n - 1]));
            OSH_TRY(reader_next(r));
        }
        OSH_TRY(yaml_read_node(r, &y->items[y->n - 1], depth + 1));
        OSH_TRY(reader_next(r));
    }
    if (y->kind == OSH_Y_MAP) OSH_TRY(yaml_check_keys(r, y));
done:
    return rc;
}

static osh_status yaml_refuse_anchor(const reader *r)
{
    const yaml_event_t *e = &r->event;
    const yaml_char_t *anchor = e->type == YAML_SCALAR_EVENT ? e->data.scalar.anchor
                                : e->type == YAML_SEQUENCE_START_EVENT
                                    ? e->data.sequence_start.anchor
                                : e->type == YAML_MAPPING_START_EVENT ? e->data.mapping_start.anchor
                                                                      : NULL;

    if (e->type == YAML_ALIAS_EVENT)
        return yaml_fail_at(r, e->start_mark, "aliases are not supported: *",
                       (const char *)e->data.alias.anchor);
    if (anchor)
        return yaml_fail_at(r, e->start_mark, "anchors are not supported: &", (const char *)anchor);
    return OSH_OK;
}

/* Reads the node that the current event starts, and stops at the last event of the node. */
static osh_status yaml_read_node(reader *r, osh_yaml **out, int depth)
{
    osh_status rc = OSH_OK;
    osh_yaml *y = NULL; // own

    OSH_TRY(yaml_refuse_anchor(r));
    OSH_NEW(r->cx, y, 1);
    y->line = (int)r->event.start_mark.line + 1;
    y->column = (int)r->event.start_mark.column + 1;
    if (r->event.type == YAML_SCALAR_EVENT) {
        OSH_TRY(yaml_read_scalar(r, y));
    } else if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        y->kind = OSH_Y_SEQ;
        OSH_TRY(yaml_read_tag(r, y, (const char *)r->event.data.sequence_start.tag));
        if (tag_is_core(y, "seq") || tag_is_bare(y)) yaml_drop_tag(r->cx, y);
        OSH_TRY(yaml_read_items(r, y, YAML_SEQUENCE_END_EVENT, depth));
    } else {
        y->kind = OSH_Y_MAP;
        OSH_TRY(yaml_read_tag(r, y, (const char *)r->event.data.mapping_start.tag));
        if (tag_is_core(y, "map") || tag_is_bare(y)) yaml_drop_tag(r->cx, y);
        OSH_TRY(yaml_read_items(r, y, YAML_MAPPING_END_EVENT, depth));
    }
    *out = y, y = NULL; // give
done:
    osh_yaml_free(r->cx, y);
    return rc;
}

static osh_status yaml_read_document(reader *r, osh_yaml **out)
{
    osh_status rc = OSH_OK;

    OSH_TRY(reader_next(r)); // reads the event that starts the stream
    OSH_TRY(reader_next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) {
        osh_yaml *empty = NULL;
        OSH_NEW(r->cx, empty, 1);
        empty->line = empty->column = 1;
        *out = empty;
        empty->text = osh_strdup(r->cx, "");
        return empty->text ? OSH_OK : OSH_E_NOMEM;
    }
    OSH_TRY(reader_next(r)); // reads the event that starts the document
    OSH_TRY(yaml_read_node(r, out, 0));
    OSH_TRY(reader_next(r)); // reads the event that ends the document
    OSH_TRY(reader_next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        rc = yaml_fail_at(r, r->event.start_mark, "a second document starts here, wanted one", "");
done:
    return rc;
}

osh_status osh_yaml_parse(osh_ctx *cx, osh_yaml **out, const char *text, size_t n, const char *what)
{
    osh_status rc = OSH_OK;
    reader r = {.cx = cx, .what = what};
    osh_yaml *y = NULL; // own

    if (n > MAX_BYTES)
        return osh_fail(cx, OSH_E_FORMAT, "%s: %zu bytes of YAML, wanted at most %zu", what, n,
                        MAX_BYTES);
    if (!yaml_parser_initialize(&r.parser))
        return osh_fail(cx, OSH_E_NOMEM, "%s: cannot allocate the YAML parser", what);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    OSH_TRY(yaml_read_document(&r, &y));
    *out = y, y = NULL; // give
done:
    if (r.has_event) yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    osh_yaml_free(cx, y);
    return rc;
}

void osh_yaml_free(osh_ctx *cx, osh_yaml *y)
{
    if (!y) return;
    for (size_t i = 0; i < y->n; i++) {
        osh_yaml_free(cx, y->items[i]);
        if (y->keys) osh_yaml_free(cx, y->keys[i]);
    }
    osh_free(cx, y->items);
    osh_free(cx, y->keys);
    osh_free(cx, y->text);
    osh_free(cx, y->tag);
    osh_free(cx, y);
}

const osh_yaml *osh_yaml_get(const osh_yaml *map, const char *key)
{
    if (!map || map->kind != OSH_Y_MAP) return NULL;
    for (size_t i = 0; i < map->n; i++)
        if (!strcmp(map->keys[i]->text, key)) return map->items[i];
    return NULL;
}

/* Appends text in double quotes, which can express every text. Single quotes cannot: they fold line
 * ends and allow no control characters. */
static osh_status yaml_quote_escaped(osh_ctx *cx, osh_buf *b, const char *text, char *scratch,
                                size_t room)
{
    osh_status rc = OSH_OK;
    size_t n = osh_quote(scratch, room, text);
    OSH_TRY(osh_buf_append(cx, b, "\"", 1));
    OSH_TRY(osh_buf_append(cx, b, scratch, n));
    OSH_TRY(osh_buf_append(cx, b, "\"", 1));
done:
    return rc;
}

osh_status osh_yaml_quote(osh_ctx *cx, osh_buf *b, const char *text)
{
    osh_status rc = OSH_OK;
    char *scratch = NULL; // own
    const size_t room = OSH_QUOTE_MOST * strlen(text) + 1;
    OSH_NEW(cx, scratch, room);
    osh_show(scratch, room, text, NULL);
    if (strcmp(scratch, text)) {
        rc = yaml_quote_escaped(cx, b, text, scratch, room);
        goto done;
    }
    OSH_TRY(osh_buf_append(cx, b, "'", 1));
    for (const char *c = text; *c; c++)
        OSH_TRY(osh_buf_append(cx, b, *c == '\'' ? "''" : c, *c == '\'' ? 2 : 1));
    OSH_TRY(osh_buf_append(cx, b, "'", 1));
done:
    osh_free(cx, scratch);
    return rc;
}

osh_status osh_yaml_name(osh_ctx *cx, osh_buf *b, const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    static const char more[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789.-";
    osh_status rc = OSH_OK;
    osh_yaml plain = {.text = NULL};
    bool safe = *text && strchr(letters, *text) && !text[strspn(text, more)];
    if (safe) {
        if (!(plain.text = osh_strdup(cx, text))) OSH_TRY(OSH_E_NOMEM);
        safe = osh_yaml_resolve(&plain) && plain.kind == OSH_Y_STR;
    }
    OSH_TRY(safe ? osh_buf_append(cx, b, text, strlen(text)) : osh_yaml_quote(cx, b, text));
done:
    osh_free(cx, plain.text);
    return rc;
}
