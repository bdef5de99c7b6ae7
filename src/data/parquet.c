/* parquet.c - joins the columns of a Parquet file to rows.
 *
 * Each value of a column has two levels. The definition level tells which part of the column's path
 * exists: if it is below the level of an optional group, the group is null; if it is below the
 * level of a repeated group, the list is empty. The repetition level tells which list the value
 * continues; 0 begins a row. All columns below a group must have the same levels for the parts of
 * their paths that they share. This is checked: a wrong file could otherwise shift the columns. */
#include "data/parquet.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/chat.h"
#include "data/pq_codec.h"
#include "data/pq_schema.h"
#include "data/shape.h"
#include "text/json.h"
#include "text/json_walk.h"

enum { SOME_BYTES = 256 << 10, MAX_ROW = 64 << 20 };

struct osh_parquet {
    osh_pq_schema schema;   // own
    osh_pq_column *columns; // own [schema.n_leaves]
    osh_pq_chunk *chunks;   // own [schema.n_leaves]
    bool *wanted;           // own [schema.n_nodes]: true for children of the root that are read
    bool all;               // true if all columns are wanted
    int group;              // number of row groups that were begun
    int64_t n_left;         // rows of the current row group that were not yet read
    int64_t n_rows;         // rows of all row groups that were appended so far
    osh_buf *to;            // view
    size_t row;             // position in `to` of the current row
    bool left_out;          // true: the last value is left out, because JSON cannot express it
};

/* ---- columns ---- */

static bool is_sample_column(const char *name, const char *column)
{
    static const char *const always[] = {"attention_mask", "tools"}, *const plain[] = {"text",
                                                                                       "input_ids"};
    for (size_t i = 0; i < 2; i++)
        if (!strcmp(name, always[i])) return true;
    if (column) return !strcmp(name, column);
    for (size_t i = 0; i < 2; i++)
        if (!strcmp(name, plain[i])) return true;
    for (size_t i = 0; osh_chat_column(i); i++)
        if (!strcmp(name, osh_chat_column(i))) return true;
    return false;
}

static osh_status parquet_choose(osh_ctx *cx, osh_parquet *p, const char *column)
{
    osh_status rc = OSH_OK;
    const osh_pq_schema *s = &p->schema;
    p->all = column == osh_all_columns;
    OSH_NEW(cx, p->wanted, s->n_nodes);
    for (int i = 1; i < s->n_nodes; i = s->nodes[i].next) {
        bool ours = p->all || is_sample_column(s->nodes[i].name, column);
        p->wanted[i] = ours && s->nodes[i].known;
        if (ours && !p->wanted[i])
            osh_log(cx, p->all ? OSH_LOG_INFO : OSH_LOG_WARN,
                    "%s: the column '%s' has a type that is not supported: want text, number, "
                    "boolean, list or struct",
                    osh_file_path(s->file), s->nodes[i].name);
    }
done:
    return rc;
}

osh_status osh_parquet_open(osh_ctx *cx, osh_parquet **out, osh_file *file, const char *column)
{
    osh_status rc = OSH_OK;
    osh_parquet *p = NULL; // own
    OSH_NEW(cx, p, 1);
    OSH_TRY(osh_pq_schema_read(cx, &p->schema, file));
    const osh_pq_schema *s = &p->schema;
    OSH_TRY(parquet_choose(cx, p, column));
    OSH_NEW(cx, p->columns, s->n_leaves);
    OSH_NEW(cx, p->chunks, s->n_leaves);
    for (int i = 0; i < s->n_nodes; i++) {
        const osh_pq_node *n = &s->nodes[i];
        if (n->type < 0) continue;
        osh_pq_column *c = &p->columns[n->first_leaf];
        c->file = file, c->type = n->type, c->max_rep = n->max_rep, c->max_def = n->max_def;
        if (!(c->what = osh_sprintf(cx, "%s, column '%.200s'", osh_file_path(file), n->name)))
            OSH_TRY(OSH_E_NOMEM);
    }
    *out = p, p = NULL; // give
done:
    osh_parquet_close(cx, p);
    return rc;
}

void osh_parquet_close(osh_ctx *cx, osh_parquet *p)
{
    if (!p) return;
    for (int i = 0; p->columns && i < p->schema.n_leaves; i++)
        osh_pq_column_deinit(cx, &p->columns[i]);
    osh_free(cx, p->columns);
    osh_free(cx, p->chunks);
    osh_free(cx, p->wanted);
    osh_pq_schema_deinit(cx, &p->schema);
    osh_free(cx, p);
}

/* ---- values ---- */

static osh_status parquet_put(osh_ctx *cx, osh_parquet *p, const char *word)
{
    return osh_buf_append(cx, p->to, word, strlen(word));
}

static osh_status parquet_fail(osh_ctx *cx, const osh_parquet *p, const osh_pq_node *n,
                               const char *why)
{
    return osh_fail(cx, OSH_E_FORMAT, "%s: row %lld, column '%s': %s",
                    osh_file_path(p->schema.file), (long long)p->n_rows + 1, n->name, why);
}

static osh_status buf_put(osh_ctx *cx, void *user, const char *s, size_t n)
{
    return osh_buf_append(cx, user, s, n);
}

/* Writes a string. Bytes without annotation count as text if they are UTF-8. Other bytes without
 * annotation are left out if all columns are wanted; otherwise they are an error. */
static osh_status parquet_put_text(osh_ctx *cx, osh_parquet *p, const osh_pq_node *n,
                                   const osh_pq_value *v)
{
    osh_status rc = OSH_OK;
    osh_utf8 u = {0};
    const char *s = (const char *)v->s;
    bool text = !v->n || (osh_utf8_read(&u, s, v->n) && osh_utf8_ends(&u));
    if (!text && n->form == OSH_PQ_AS_BYTES && p->all) {
        p->left_out = true;
        goto done;
    }
    if (!text) OSH_TRY(parquet_fail(cx, p, n, "the bytes are not UTF-8"));
    OSH_TRY(parquet_put(cx, p, "\""));
    if (v->n) OSH_TRY(osh_json_put_inside(cx, buf_put, p->to, s, v->n));
    OSH_TRY(parquet_put(cx, p, "\""));
done:
    return rc;
}

static osh_status parquet_put_value(osh_ctx *cx, osh_parquet *p, const osh_pq_node *n,
                                    const osh_pq_value *v)
{
    uint64_t u = n->type == OSH_PQ_INT32 ? (uint32_t)v->u.i : (uint64_t)v->u.i;
    switch (n->form) {
    case OSH_PQ_AS_TEXT:
    case OSH_PQ_AS_BYTES:
        return parquet_put_text(cx, p, n, v);
    case OSH_PQ_AS_INT:
        return osh_buf_printf(cx, p->to, "%lld", (long long)v->u.i);
    case OSH_PQ_AS_UINT:
        return osh_buf_printf(cx, p->to, "%llu", (unsigned long long)u);
    case OSH_PQ_AS_BOOL:
        return parquet_put(cx, p, v->u.i ? "true" : "false");
    case OSH_PQ_AS_FLOAT:
        return isfinite(v->u.d) ? osh_json_put_float(cx, p->to, v->u.d)
                                : parquet_put(cx, p, "null");
    case OSH_PQ_AS_NOTHING:
        break;
    }
    return osh_fail(cx, OSH_E_INTERNAL, "column '%s' has an unknown kind of values", n->name);
}

/* Skips one entry in each column below the node. The entry of the first column has no value. Fails
 * if the entry of another column has a value. */
static osh_status parquet_skip(osh_ctx *cx, osh_parquet *p, const osh_pq_node *n)
{
    osh_status rc = OSH_OK;
    osh_pq_value unused;
    for (int i = n->first_leaf; i < n->first_leaf + n->n_leaves; i++) {
        osh_pq_column *c = &p->columns[i];
        OSH_TRY(osh_pq_column_peek(cx, c));
        if (c->def >= n->max_def)
            OSH_TRY(parquet_fail(cx, p, n, "one of its columns has a value, but another has none"));
        OSH_TRY(osh_pq_column_take(cx, c, &unused));
    }
done:
    return rc;
}

/* Sets *def to the definition level of the next value of the node's first column. */
static osh_status parquet_peek(osh_ctx *cx, osh_parquet *p, const osh_pq_node *n, int *def)
{
    osh_pq_column *c = &p->columns[n->first_leaf];
    osh_status rc = osh_pq_column_peek(cx, c);
    *def = c->def;
    return !rc && c->ended ? parquet_fail(cx, p, n, "fewer values than rows") : rc;
}

static osh_status parquet_put_field(osh_ctx *cx, osh_parquet *p, int i);

/* Writes the members of group i. */
static osh_status parquet_put_struct(osh_ctx *cx, osh_parquet *p, int i)
{
    osh_status rc = OSH_OK;
    const osh_pq_schema *s = &p->schema;
    bool first = true;
    OSH_TRY(parquet_put(cx, p, "{"));
    for (int k = i + 1; k < s->nodes[i].next; k = s->nodes[k].next) {
        const osh_pq_node *n = &s->nodes[k];
        size_t mark = p->to->len;
        if (i == 0 && !p->wanted[k] && !n->known) continue;
        if (!first) OSH_TRY(parquet_put(cx, p, ","));
        OSH_TRY(parquet_put(cx, p, "\""));
        if (*n->name) OSH_TRY(osh_json_put_inside(cx, buf_put, p->to, n->name, strlen(n->name)));
        OSH_TRY(parquet_put(cx, p, "\":"));
        if (i == 0 && !p->wanted[k])
            OSH_TRY(parquet_put(cx, p, "null"));
        else
            OSH_TRY(parquet_put_field(cx, p, k));
        if (p->left_out)
            p->to->len = mark; // removes the key of a value that JSON cannot express
        else
            first = false;
        p->left_out = false;
    }
    OSH_TRY(parquet_put(cx, p, "}"));
done:
    return rc;
}

/* Writes the next value of node i. The caller has checked that the value exists. The node is no
 * list. */
static osh_status parquet_put_one(osh_ctx *cx, osh_parquet *p, int i)
{
    osh_status rc = OSH_OK;
    const osh_pq_node *n = &p->schema.nodes[i];
    osh_pq_value v;
    if (p->to->len - p->row > MAX_ROW)
        OSH_TRY(parquet_fail(cx, p, n, "the row is longer than 64 MiB"));
    if (n->type < 0) return parquet_put_struct(cx, p, i);
    OSH_TRY(osh_pq_column_take(cx, &p->columns[n->first_leaf], &v));
    OSH_TRY(parquet_put_value(cx, p, n, &v));
done:
    return rc;
}

/* The node `i` is the repeated node of a list. Returns the node of the elements of this list.
 * Usually this is the only child of the repeated node. In files of older writers, it may be the
 * repeated node itself. The format has rules for these files. */
static int list_element(const osh_pq_schema *s, int list, int i)
{
    const osh_pq_node *n = &s->nodes[i], *parent = &s->nodes[list];
    size_t len = strlen(parent->name);
    bool tuple = !strncmp(n->name, parent->name, len) && !strcmp(n->name + len, "_tuple");
    if (!parent->list || n->type >= 0 || n->n_children != 1 || !strcmp(n->name, "array") || tuple)
        return i;
    return i + 1;
}

/* Sets *goes_on to true if the next value of the columns below the node continues the list. Fails
 * if the columns disagree. */
static osh_status parquet_check_together(osh_ctx *cx, osh_parquet *p, const osh_pq_node *n,
                                         bool *goes_on)
{
    osh_status rc = OSH_OK;
    for (int i = n->first_leaf; i < n->first_leaf + n->n_leaves; i++) {
        osh_pq_column *c = &p->columns[i];
        OSH_TRY(osh_pq_column_peek(cx, c));
        bool more = c->rep >= n->max_rep;
        if (c->rep > n->max_rep || (i > n->first_leaf && more != *goes_on))
            OSH_TRY(parquet_fail(cx, p, n, "its columns have lists of different lengths"));
        *goes_on = more;
    }
done:
    return rc;
}

/* Writes the elements of the repeated node `i` of group `list`. */
static osh_status parquet_put_list(osh_ctx *cx, osh_parquet *p, int list, int i)
{
    osh_status rc = OSH_OK;
    const osh_pq_node *n = &p->schema.nodes[i];
    int element = list_element(&p->schema, list, i), def;
    bool goes_on = true;
    OSH_TRY(parquet_peek(cx, p, n, &def));
    if (def < n->max_def) {
        OSH_TRY(parquet_skip(cx, p, n));
        OSH_TRY(parquet_put(cx, p, "[]"));
        goto done;
    }
    for (const char *begin = "["; goes_on; begin = ",") {
        OSH_TRY(parquet_put(cx, p, begin));
        if (element == i)
            OSH_TRY(parquet_put_one(cx, p, i));
        else
            OSH_TRY(parquet_put_field(cx, p, element));
        if (p->left_out) OSH_TRY(parquet_put(cx, p, "null"));
        p->left_out = false;
        OSH_TRY(parquet_check_together(cx, p, n, &goes_on));
    }
    OSH_TRY(parquet_put(cx, p, "]"));
done:
    return rc;
}

/* Writes the next value of node i: null, a list, a struct or a value. */
static osh_status parquet_put_field(osh_ctx *cx, osh_parquet *p, int i)
{
    osh_status rc = OSH_OK;
    const osh_pq_node *n = &p->schema.nodes[i];
    int def;
    if (n->repetition == OSH_PQ_REPEATED) return parquet_put_list(cx, p, 0, i);
    OSH_TRY(parquet_peek(cx, p, n, &def));
    if (def < n->max_def) {
        OSH_TRY(parquet_skip(cx, p, n));
        OSH_TRY(parquet_put(cx, p, "null"));
    } else if (n->list) {
        OSH_TRY(parquet_put_list(cx, p, i, i + 1));
    } else {
        OSH_TRY(parquet_put_one(cx, p, i));
    }
done:
    return rc;
}

/* ---- rows ---- */

/* Begins the next row group. */
static osh_status parquet_begin_group(osh_ctx *cx, osh_parquet *p)
{
    osh_status rc = OSH_OK;
    const osh_pq_schema *s = &p->schema;
    OSH_TRY(osh_pq_schema_group(cx, s, p->group++, &p->n_left, p->chunks));
    for (int i = 1; i < s->n_nodes; i = s->nodes[i].next)
        for (int k = 0; p->wanted[i] && k < s->nodes[i].n_leaves; k++) {
            int leaf = s->nodes[i].first_leaf + k;
            if (!osh_pq_codec_is_known(p->chunks[leaf].codec))
                OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                         "%s: is compressed with %s, want Snappy, gzip, zstd or no compression",
                         p->columns[leaf].what, osh_pq_codec_name(p->chunks[leaf].codec));
            osh_pq_column_begin(cx, &p->columns[leaf], &p->chunks[leaf]);
        }
done:
    return rc;
}

/* `ended` true: fails if a wanted column has not ended. False: fails if a wanted column does not
 * begin a row. */
static osh_status parquet_check_row(osh_ctx *cx, osh_parquet *p, bool ended)
{
    osh_status rc = OSH_OK;
    const osh_pq_schema *s = &p->schema;
    for (int i = 1; i < s->n_nodes; i = s->nodes[i].next)
        for (int k = 0; p->wanted[i] && k < s->nodes[i].n_leaves; k++) {
            osh_pq_column *c = &p->columns[s->nodes[i].first_leaf + k];
            OSH_TRY(osh_pq_column_peek(cx, c));
            if (c->rep || c->ended != ended)
                OSH_TRY(
                    parquet_fail(cx, p, &s->nodes[i],
                                 c->ended ? "fewer values than rows" : "more values than rows"));
        }
done:
    return rc;
}

osh_status osh_parquet_rows(osh_ctx *cx, osh_parquet *p, osh_buf *to)
{
    osh_status rc = OSH_OK;
    size_t had = to->len;
    p->to = to;
    while (to->len - had < SOME_BYTES) {
        if (!p->n_left) {
            if (p->group) OSH_TRY(parquet_check_row(cx, p, true));
            if (p->group == p->schema.n_groups) break;
            OSH_TRY(parquet_begin_group(cx, p));
            continue;
        }
        OSH_TRY(parquet_check_row(cx, p, false));
        p->row = to->len;
        OSH_TRY(parquet_put_struct(cx, p, 0));
        OSH_TRY(parquet_put(cx, p, "\n"));
        p->n_rows++, p->n_left--;
    }
    if (to->len == had && p->schema.n_rows != p->n_rows)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: the footer counts %lld rows, but its row groups have %lld",
                 osh_file_path(p->schema.file), (long long)p->schema.n_rows, (long long)p->n_rows);
done:
    return rc;
}
