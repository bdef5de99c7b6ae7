/* pq_schema.c - reads the footer of a Parquet file, a struct of Thrift. Only the positions of the
 * row groups are kept: osh_pq_schema_group decodes a row group when it is needed. */
#include "data/pq_schema.h"

#include <string.h>

#include "data/pq_codec.h"
#include "data/thrift.h"

enum { TAIL = 8, MAX_FOOTER = 256 << 20, MAX_NODES = 100000, MAX_LEVELS = 32 };

/* Annotations of a column: the older "converted type" and the newer "logical type". */
enum {
    UTF8,
    MAP,
    MAP_KEY_VALUE,
    LIST,
    ENUM,
    DECIMAL,
    UINT_8 = 11,
    UINT_64 = 14,
    INT_8,
    INT_64 = 18,
    JSON
};
enum {
    LOGICAL_STRING = 1,
    LOGICAL_MAP,
    LOGICAL_LIST,
    LOGICAL_ENUM,
    LOGICAL_INTEGER = 10,
    LOGICAL_NOTHING,
    LOGICAL_JSON
};

typedef struct element { // an element of the footer's list of columns and groups
    int64_t type, repetition, n_children, converted, logical;
    bool is_signed;
    const char *name; // view: name in the footer, without a NUL
    size_t n_name;
} element;

/* ---- the tree ---- */

static osh_status integer_field(osh_thrift *t, void *user, int id, int type)
{
    element *e = user;
    return id == 2 ? osh_thrift_bool(t, &e->is_signed, type) : osh_thrift_skip(t, type);
}

static osh_status logical_field(osh_thrift *t, void *user, int id, int type)
{
    element *e = user;
    e->logical = id;
    return id == LOGICAL_INTEGER ? osh_thrift_struct(t, type, integer_field, e)
                                 : osh_thrift_skip(t, type);
}

static osh_status element_field(osh_thrift *t, void *user, int id, int type)
{
    element *e = user;
    switch (id) {
    case 1:
        return osh_thrift_int(t, &e->type, type);
    case 3:
        return osh_thrift_int(t, &e->repetition, type);
    case 4:
        return osh_thrift_binary(t, &e->name, &e->n_name, type);
    case 5:
        return osh_thrift_int(t, &e->n_children, type);
    case 6:
        return osh_thrift_int(t, &e->converted, type);
    case 10:
        return osh_thrift_struct(t, type, logical_field, e);
    default:
        return osh_thrift_skip(t, type);
    }
}

static osh_pq_form element_form(const element *e)
{
    int64_t c = e->converted, l = e->logical;
    bool bare = c < 0 && l < 0; // true: no annotation changes the meaning of the type
    if (e->type == OSH_PQ_BOOLEAN) return OSH_PQ_AS_BOOL;
    if (e->type == OSH_PQ_FLOAT || e->type == OSH_PQ_DOUBLE) return OSH_PQ_AS_FLOAT;
    if (e->type == OSH_PQ_INT32 || e->type == OSH_PQ_INT64) {
        if (bare || l == LOGICAL_NOTHING || (c >= INT_8 && c <= INT_64)) return OSH_PQ_AS_INT;
        if (c >= UINT_8 && c <= UINT_64) return OSH_PQ_AS_UINT;
        if (l == LOGICAL_INTEGER) return e->is_signed ? OSH_PQ_AS_INT : OSH_PQ_AS_UINT;
    }
    if (e->type == OSH_PQ_BYTE_ARRAY) {
        if (bare) return OSH_PQ_AS_BYTES;
        if (c == UTF8 || c == ENUM || c == JSON || l == LOGICAL_STRING || l == LOGICAL_ENUM ||
            l == LOGICAL_JSON)
            return OSH_PQ_AS_TEXT;
    }
    return OSH_PQ_AS_NOTHING;
}

static osh_status schema_add(osh_ctx *cx, osh_pq_schema *s, const element *e, const char *what)
{
    osh_status rc = OSH_OK;
    bool group = e->type < 0;
    if (s->n_nodes == MAX_NODES)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: more than %d columns", what, MAX_NODES);
    if (e->type > OSH_PQ_FIXED || e->repetition < 0 || e->repetition > OSH_PQ_REPEATED ||
        e->n_children < 0 || e->n_children > MAX_NODES || (!group && e->n_children))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: column %d of the schema is not valid", what, s->n_nodes);
    if (s->n_nodes == s->cap) {
        int cap = s->cap ? 2 * s->cap : 16;
        osh_pq_node *more = osh_realloc(cx, s->nodes, (size_t)cap * sizeof *more);
        if (!more) OSH_TRY(OSH_E_NOMEM);
        s->nodes = more, s->cap = cap;
    }
    osh_pq_node *n = &s->nodes[s->n_nodes];
    *n = (osh_pq_node){.type = group ? -1 : (int)e->type,
                       .repetition = (osh_pq_repetition)e->repetition,
                       .form = group ? OSH_PQ_AS_NOTHING : element_form(e),
                       .n_children = (int)e->n_children,
                       .list = group && (e->converted == LIST || e->logical == LOGICAL_LIST),
                       .map = group && (e->converted == MAP || e->converted == MAP_KEY_VALUE ||
                                        e->logical == LOGICAL_MAP)};
    if (!(n->name = osh_sprintf(cx, "%.*s", (int)e->n_name, e->n_name ? e->name : "")))
        OSH_TRY(OSH_E_NOMEM);
    s->n_nodes++;
done:
    return rc;
}

static osh_status schema_item(osh_thrift *t, void *user, int i, int type)
{
    osh_status rc = OSH_OK;
    element e = {.type = -1, .converted = -1, .logical = -1};
    (void)i;
    OSH_TRY(osh_thrift_struct(t, type, element_field, &e));
    OSH_TRY(schema_add(t->cx, user, &e, t->what));
done:
    return rc;
}

/* Computes the levels and leaves of node i and of all nodes below it. `rep` and `def` are the
 * levels of the parent of node i. */
static osh_status schema_link(osh_ctx *cx, osh_pq_schema *s, int i, int rep, int def, int depth)
{
    osh_status rc = OSH_OK;
    const char *path = osh_file_path(s->file);
    if (i >= s->n_nodes) OSH_FAIL(cx, OSH_E_FORMAT, "%s: the schema is cut off", path);
    if (depth > MAX_LEVELS)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: groups nested more than %d deep", path, MAX_LEVELS);
    osh_pq_node *n = &s->nodes[i];
    if (depth) rep += n->repetition == OSH_PQ_REPEATED, def += n->repetition != OSH_PQ_REQUIRED;
    n->max_rep = rep, n->max_def = def, n->first_leaf = s->n_leaves, n->next = i + 1;
    n->known = n->type < 0 ? n->n_children > 0 && !n->map : n->form != OSH_PQ_AS_NOTHING;
    if (n->type >= 0) s->n_leaves++;
    for (int k = 0; k < n->n_children; k++) {
        int child = n->next;
        OSH_TRY(schema_link(cx, s, child, rep, def, depth + 1));
        n->next = s->nodes[child].next;
        n->known = n->known && s->nodes[child].known;
    }
    n->n_leaves = s->n_leaves - n->first_leaf;
    n->list = n->list && n->n_children == 1 && s->nodes[i + 1].repetition == OSH_PQ_REPEATED;
done:
    return rc;
}

/* ---- row groups ---- */

static osh_status group_item(osh_thrift *t, void *user, int i, int type)
{
    osh_status rc = OSH_OK;
    osh_pq_schema *s = user;
    (void)i;
    if (s->n_groups == s->groups_cap) {
        int cap = s->groups_cap ? 2 * s->groups_cap : 16;
        size_t *more = osh_realloc(t->cx, s->groups, (size_t)cap * sizeof *more);
        if (!more) OSH_TRY(OSH_E_NOMEM);
        s->groups = more, s->groups_cap = cap;
    }
    s->groups[s->n_groups++] = t->at;
    OSH_TRY(osh_thrift_skip(t, type));
done:
    return rc;
}

typedef struct group { // state while a row group is read
    const osh_pq_schema *s;
    osh_pq_chunk *chunks;
    int64_t n_rows;
    int n;                          // number of column chunks read so far
    /* Type of the current chunk, and offsets of its data pages and of its dictionary page. */
    int64_t type, data, dictionary;
    bool has_meta, elsewhere, encrypted;
} group;

static osh_status meta_field(osh_thrift *t, void *user, int id, int type)
{
    group *g = user;
    osh_pq_chunk *c = &g->chunks[g->n];
    switch (id) {
    case 1:
        return osh_thrift_int(t, &g->type, type);
    case 4:
        return osh_thrift_int(t, &c->codec, type);
    case 5:
        return osh_thrift_int(t, &c->n_values, type);
    case 7:
        return osh_thrift_int(t, &c->n_bytes, type);
    case 9:
        return osh_thrift_int(t, &g->data, type);
    case 11:
        return osh_thrift_int(t, &g->dictionary, type);
    default:
        return osh_thrift_skip(t, type);
    }
}

static osh_status chunk_field(osh_thrift *t, void *user, int id, int type)
{
    group *g = user;
    if (id == 1) g->elsewhere = true;
    if (id == 8) g->encrypted = true;
    if (id != 3) return osh_thrift_skip(t, type);
    g->has_meta = true;
    return osh_thrift_struct(t, type, meta_field, g);
}

/* Checks the chunk of leaf g->n, and computes its range of bytes. */
static osh_status chunk_check(osh_ctx *cx, group *g, const char *name, int type)
{
    osh_pq_chunk *c = &g->chunks[g->n];
    const char *path = osh_file_path(g->s->file);
    int64_t end = osh_file_bytes(g->s->file) - TAIL - (int64_t)g->s->n_footer;
    if (g->elsewhere || g->encrypted)
        return osh_fail(cx, OSH_E_UNSUPPORTED, "%s: the column '%s' is %s", path, name,
                        g->encrypted ? "encrypted" : "in another file");
    if (!g->has_meta || g->type != type || c->n_values < 0)
        return osh_fail(cx, OSH_E_FORMAT, "%s: the footer describes the column '%s' wrongly", path,
                        name);
    if (!c->n_values) { // some writers give an empty column an arbitrary position
        c->from = 4, c->n_bytes = 0;
        return OSH_OK;
    }
    c->from = g->dictionary > 0 && g->dictionary < g->data ? g->dictionary : g->data;
    if (c->from < 4 || c->n_bytes < 0 || c->n_bytes > end || c->from > end - c->n_bytes)
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: the column '%s' has %lld bytes from byte %lld on, but the file has "
                        "data up to byte %lld",
                        path, name, (long long)c->n_bytes, (long long)c->from, (long long)end);
    return OSH_OK;
}

static osh_status chunk_item(osh_thrift *t, void *user, int i, int type)
{
    osh_status rc = OSH_OK;
    group *g = user;
    const osh_pq_schema *s = g->s;
    (void)i;
    if (g->n >= s->n_leaves)
        OSH_FAIL(t->cx, OSH_E_FORMAT, "%s: a row group has more than the %d columns of the schema",
                 t->what, s->n_leaves);
    g->chunks[g->n] = (osh_pq_chunk){.codec = -1, .n_values = -1, .n_bytes = -1};
    g->type = g->data = g->dictionary = -1, g->has_meta = g->elsewhere = g->encrypted = false;
    OSH_TRY(osh_thrift_struct(t, type, chunk_field, g));
    const osh_pq_node *leaf = &s->nodes[s->leaves[g->n]];
    OSH_TRY(chunk_check(t->cx, g, leaf->name, leaf->type));
    g->n++;
done:
    return rc;
}

static osh_status row_group_field(osh_thrift *t, void *user, int id, int type)
{
    group *g = user;
    if (id == 1) return osh_thrift_list(t, type, chunk_item, g, NULL);
    return id == 3 ? osh_thrift_int(t, &g->n_rows, type) : osh_thrift_skip(t, type);
}

osh_status osh_pq_schema_group(osh_ctx *cx, const osh_pq_schema *s, int g, int64_t *n_rows,
                               osh_pq_chunk *chunks)
{
    osh_status rc = OSH_OK;
    osh_thrift t = osh_thrift_of(cx, s->footer, s->n_footer, osh_file_path(s->file));
    group state = {.s = s, .chunks = chunks, .n_rows = -1};
    t.at = s->groups[g];
    OSH_TRY(osh_thrift_struct(&t, OSH_THRIFT_STRUCT, row_group_field, &state));
    if (state.n != s->n_leaves || state.n_rows < 0)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: row group %d has %d columns and %lld rows, want %d columns",
                 osh_file_path(s->file), g, state.n, (long long)state.n_rows, s->n_leaves);
    *n_rows = state.n_rows;
done:
    return rc;
}

/* ---- the footer ---- */

static osh_status footer_field(osh_thrift *t, void *user, int id, int type)
{
    osh_pq_schema *s = user;
    switch (id) {
    case 2:
        return osh_thrift_list(t, type, schema_item, s, NULL);
    case 3:
        return osh_thrift_int(t, &s->n_rows, type);
    case 4:
        return osh_thrift_list(t, type, group_item, s, NULL);
    default:
        return osh_thrift_skip(t, type);
    }
}

static osh_status footer_load(osh_ctx *cx, osh_pq_schema *s)
{
    osh_status rc = OSH_OK;
    uint8_t head[4], tail[TAIL];
    const char *path = osh_file_path(s->file);
    int64_t n = osh_file_bytes(s->file);
    if (n < 4 + TAIL)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %lld bytes are not a Parquet file", path, (long long)n);
    OSH_TRY(osh_file_pread(cx, s->file, head, 4, 0));
    OSH_TRY(osh_file_pread(cx, s->file, tail, TAIL, n - TAIL));
    if (!memcmp(tail + 4, "PARE", 4))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: the footer is encrypted", path);
    if (memcmp(head, "PAR1", 4) || memcmp(tail + 4, "PAR1", 4))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: want PAR1 at the beginning and at the end of a Parquet file: the file is cut "
                 "off, or of another kind",
                 path);
    int64_t size = tail[0] | tail[1] << 8 | tail[2] << 16 | (int64_t)tail[3] << 24;
    if (size > n - 4 - TAIL || size > MAX_FOOTER)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a footer of %lld bytes, want at most %lld", path,
                 (long long)size,
                 (long long)(n - 4 - TAIL < MAX_FOOTER ? n - 4 - TAIL : MAX_FOOTER));
    s->n_footer = (size_t)size;
    OSH_NEW(cx, s->footer, s->n_footer);
    OSH_TRY(osh_file_pread(cx, s->file, s->footer, s->n_footer, n - TAIL - size));
done:
    return rc;
}

osh_status osh_pq_schema_read(osh_ctx *cx, osh_pq_schema *s, osh_file *file)
{
    osh_status rc = OSH_OK;
    *s = (osh_pq_schema){.file = file};
    OSH_TRY(footer_load(cx, s));
    osh_thrift t = osh_thrift_of(cx, s->footer, s->n_footer, osh_file_path(file));
    OSH_TRY(osh_thrift_struct(&t, OSH_THRIFT_STRUCT, footer_field, s));
    OSH_TRY(schema_link(cx, s, 0, 0, 0, 0));
    if (s->nodes[0].next != s->n_nodes || s->nodes[0].type >= 0)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: the schema is not one tree of columns",
                 osh_file_path(file));
    OSH_NEW(cx, s->leaves, s->n_leaves);
    for (int i = 0; i < s->n_nodes; i++)
        if (s->nodes[i].type >= 0) s->leaves[s->nodes[i].first_leaf] = i;
done:
    return rc;
}

void osh_pq_schema_deinit(osh_ctx *cx, osh_pq_schema *s)
{
    for (int i = 0; i < s->n_nodes; i++) osh_free(cx, s->nodes[i].name);
    osh_free(cx, s->nodes);
    osh_free(cx, s->groups);
    osh_free(cx, s->leaves);
    osh_free(cx, s->footer);
}
