/* shape.c - converts .json and .csv files to lines of JSON objects, byte by byte. Rows and fields
 * may have any length, because they are not kept in memory. */
#include "data/shape.h"

#include <string.h>

#include "base/name.h"
#include "base/near.h"

enum { HEADER_BYTES = 1 << 16 };

const char osh_all_columns[] = "*";

struct osh_shape {
    const char *path;   // view
    osh_status (*byte)(osh_ctx *cx, osh_shape *s, osh_buf *to, char c);
    osh_status (*end)(osh_ctx *cx, osh_shape *s, osh_buf *to);
    int64_t row;        // number of the current row, from 1, for messages
    /* The next members are for a .json. */
    int64_t depth;      // number of open brackets and braces
    bool list, over;    // list: true if the file is a list; over: true if the list has ended
    bool item;          // true if a row has begun since the last comma of the list
    bool in_string, escaped;
    /* The next members are for a .csv. */
    const char *column; // view: name of the wanted column
    /* header: names of all columns, for a message.
     * name: name of the column that is being read. */
    osh_buf header, name; // own
    osh_buf keys;         // own: names of all columns as JSON text, each with a NUL
    size_t key;           // position in `keys` of the name of the current field
    bool all;
    /* n_columns: number of columns.
     * which: index of the wanted column; -1: not found yet.
     * at: index of the current field. */
    int64_t n_columns, which, at;
    /* closing: true if the last byte was a quote in a quoted field.
     * cr: true if the last byte was a \r. */
    bool in_header, quoted, closing, cr;
    bool any;           // true if the current field has bytes
};

const char *osh_data_kind(const char *path)
{
    static const char *const kinds[] = {"jsonl", "json", "csv", "txt"},
                      *const packed[] = {"", ".zst", ".gz"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t p = 0; p < sizeof packed / sizeof *packed; p++) {
            char tail[16] = ".";
            strcat(strcat(tail, kinds[k]), packed[p]);
            if (osh_before_tail(path, tail)) return kinds[k];
        }
    return osh_before_tail(path, ".parquet") ? "parquet" : NULL;
}

bool osh_data_is_columns(const char *path) { return osh_before_tail(path, ".arrow"); }

/* ---- .json ---- */

static osh_status buf_put_byte(osh_ctx *cx, osh_buf *to, char c)
{
    return osh_buf_append(cx, to, &c, 1);
}

static osh_status json_fail(osh_ctx *cx, const osh_shape *s, const char *what)
{
    return osh_fail(cx, OSH_E_FORMAT,
                    "%s: %s, at row %lld: want a list of objects, or objects one after the other",
                    s->path, what, (long long)s->row);
}

static osh_status json_open(osh_ctx *cx, osh_shape *s, osh_buf *to, char c)
{
    bool first = !s->depth && !s->list && !s->item && s->row == 1;
    if (s->over) return json_fail(cx, s, "text after the list");
    if (c == '[' && !s->depth && !first) return json_fail(cx, s, "a list in place of an object");
    s->depth++;
    if (c == '[' && first) return s->list = true, OSH_OK;
    s->item = true;
    return buf_put_byte(cx, to, c);
}

static osh_status json_close(osh_ctx *cx, osh_shape *s, osh_buf *to, char c)
{
    if (s->over || !s->depth) return json_fail(cx, s, "a closing bracket without an opening one");
    if (--s->depth || !s->list) return buf_put_byte(cx, to, c);
    if (c != ']') return json_fail(cx, s, "'}' in place of ']' at the end of the list");
    if (!s->item && s->row > 1) return json_fail(cx, s, "a comma after the last row");
    s->over = true;
    return buf_put_byte(cx, to, '\n');
}

static osh_status json_byte(osh_ctx *cx, osh_shape *s, osh_buf *to, char c)
{
    if (s->in_string) {
        if (c == '\n') return json_fail(cx, s, "a line ends inside a string");
        s->in_string = s->escaped || c != '"';
        s->escaped = !s->escaped && c == '\\';
        return buf_put_byte(cx, to, c);
    }
    if (c == ' ' || c == '\t' || c == '\r') return buf_put_byte(cx, to, ' ');
    if (c == '\n') {
        bool ends = !s->depth && s->item; // a line end inside an object does not end the row
        if (ends) s->row++, s->item = false;
        return buf_put_byte(cx, to, ends ? '\n' : ' ');
    }
    if (c == '[' || c == '{') return json_open(cx, s, to, c);
    if (c == ']' || c == '}') return json_close(cx, s, to, c);
    if (s->over) return json_fail(cx, s, "text after the list");
    if (!s->depth) return json_fail(cx, s, "text that is not an object");
    if (c == ',' && s->list && s->depth == 1) {
        if (!s->item) return json_fail(cx, s, "a comma without a row");
        s->row++, s->item = false;
        return buf_put_byte(cx, to, '\n');
    }
    s->item = true;
    s->in_string = c == '"';
    return buf_put_byte(cx, to, c);
}

static osh_status json_end(osh_ctx *cx, osh_shape *s, osh_buf *to)
{
    (void)to;
    return s->depth ? json_fail(cx, s, "the file ends inside the brackets") : OSH_OK;
}

/* ---- .csv ---- */

static osh_status buf_put_escaped(osh_ctx *cx, osh_buf *to, char c)
{
    if (c == '"' || c == '\\') return osh_buf_printf(cx, to, "\\%c", c);
    if ((unsigned char)c < 0x20) return osh_buf_printf(cx, to, "\\u%04x", (unsigned)c);
    return buf_put_byte(cx, to, c);
}

static osh_status csv_put(osh_ctx *cx, osh_shape *s, osh_buf *to, char c)
{
    s->any = true;
    if (!s->in_header) return s->all || s->at == s->which ? buf_put_escaped(cx, to, c) : OSH_OK;
    if (s->name.len + s->header.len >= HEADER_BYTES)
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: the line that names the columns is longer than 64 KiB", s->path);
    return buf_put_byte(cx, &s->name, c);
}

/* Writes the JSON text that precedes the first byte of a .csv field: comma, key and quote. */
static osh_status csv_begin(osh_ctx *cx, osh_shape *s, osh_buf *to)
{
    osh_status rc = OSH_OK;
    if (s->in_header || (s->all ? s->at >= s->n_columns : s->at != s->which)) goto done;
    if (s->all) {
        OSH_TRY(osh_buf_printf(cx, to, "%s\"%s\": \"", s->at ? ", " : "{", s->keys.data + s->key));
        s->key += strlen(s->keys.data + s->key) + 1;
        goto done;
    }
    OSH_TRY(osh_buf_append(cx, to, "{\"", 2));
    for (const char *c = s->column; *c; c++) OSH_TRY(buf_put_escaped(cx, to, *c));
    OSH_TRY(osh_buf_append(cx, to, "\": \"", 4));
done:
    return rc;
}

/* Ends a field of a .csv: writes the JSON text that follows the last byte of the field. */
static osh_status csv_field(osh_ctx *cx, osh_shape *s, osh_buf *to)
{
    osh_status rc = OSH_OK;
    if (s->in_header) {
        const char *name = s->name.data ? s->name.data : "";
        bool wanted = !s->all && !strcmp(name, s->column);
        if (wanted && s->which >= 0)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: columns %lld and %lld are both named '%s': want one of that name",
                     s->path, (long long)s->which + 1, (long long)s->at + 1, name);
        if (wanted) s->which = s->at;
        OSH_TRY(osh_buf_printf(cx, &s->header, "%s%s", s->at ? ", " : "", name));
        for (const char *c = name; s->all && *c; c++) OSH_TRY(buf_put_escaped(cx, &s->keys, *c));
        if (s->all) OSH_TRY(buf_put_byte(cx, &s->keys, 0));
        osh_buf_clear(&s->name);
    } else if (s->all || s->at == s->which) {
        OSH_TRY(osh_buf_append(cx, to, "\"}", s->all ? 1 : 2));
    }
    s->at++, s->quoted = s->closing = false;
done:
    return rc;
}

static osh_status csv_no_column(osh_ctx *cx, const osh_shape *s)
{
    osh_near near;
    char names[1024] = "";
    osh_near_init(&near, s->column);
    if (s->header.len)
        memcpy(names, s->header.data,
               s->header.len < sizeof names ? s->header.len : sizeof names - 1);
    for (char *save = NULL, copy[1024],
              *name = strtok_r(memcpy(copy, names, sizeof copy), ",", &save);
         name; name = strtok_r(NULL, ",", &save))
        osh_near_see(&near, name + (*name == ' '));
    return osh_fail(cx, OSH_E_FORMAT,
                    "%s: no column '%s' among %s%s: want its name as --text-column", s->path,
                    s->column, names, osh_near_hint(&near, ""));
}

/* Ends a record of a .csv: ends the last field of the record and writes the end of the JSON
 * object. */
static osh_status csv_record(osh_ctx *cx, osh_shape *s, osh_buf *to)
{
    osh_status rc = OSH_OK;
    if (!s->any && !s->at) goto done; // an empty line is not a record
    OSH_TRY(csv_field(cx, s, to));
    if (s->in_header) {
        if (s->which < 0 && !s->all) OSH_TRY(csv_no_column(cx, s));
        s->n_columns = s->at, s->in_header = false;
    } else if (s->at != s->n_columns) {
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: record %lld has %lld fields, want the %lld of the first line", s->path,
                 (long long)s->row, (long long)s->at, (long long)s->n_columns);
    } else {
        s->row++;
        OSH_TRY(osh_buf_append(cx, to, s->all ? "}\n" : "\n", 1 + s->all));
    }
done:
    s->at = 0, s->key = 0, s->any = false;
    return rc;
}

static osh_status csv_plain(osh_ctx *cx, osh_shape *s, osh_buf *to, char c)
{
    osh_status rc = OSH_OK;
    if (c == '\n') {
        if (!s->any && s->at) OSH_TRY(csv_begin(cx, s, to));
        OSH_TRY(csv_record(cx, s, to));
    } else if (c == ',') {
        if (!s->any) OSH_TRY(csv_begin(cx, s, to));
        OSH_TRY(csv_field(cx, s, to));
        s->any = false;
    } else if (c == '"' && !s->any) {
        OSH_TRY(csv_begin(cx, s, to));
        s->any = s->quoted = true;
    } else {
        if (!s->any) OSH_TRY(csv_begin(cx, s, to));
        OSH_TRY(csv_put(cx, s, to, c));
    }
done:
    return rc;
}

static osh_status csv_byte(osh_ctx *cx, osh_shape *s, osh_buf *to, char c)
{
    osh_status rc = OSH_OK;
    if (s->quoted && !s->closing) {
        if (c == '"') s->closing = true;
        else OSH_TRY(csv_put(cx, s, to, c));
        goto done;
    }
    if (s->closing && c == '"') { // two quotes in a quoted field are one quote
        s->closing = false;
        OSH_TRY(csv_put(cx, s, to, c));
        goto done;
    }
    s->closing = s->quoted = false;
    if (s->cr && c != '\n') OSH_TRY(csv_plain(cx, s, to, '\r'));
    s->cr = c == '\r';
    if (!s->cr) OSH_TRY(csv_plain(cx, s, to, c));
done:
    return rc;
}

static osh_status csv_end(osh_ctx *cx, osh_shape *s, osh_buf *to)
{
    osh_status rc = OSH_OK;
    if (s->quoted && !s->closing)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: record %lld ends inside quotes: the file is cut off",
                 s->path, (long long)s->row);
    OSH_TRY(csv_plain(cx, s, to, '\n'));
    if (s->in_header) OSH_FAIL(cx, OSH_E_FORMAT, "%s: no line that names the columns", s->path);
done:
    return rc;
}

/* ---- both ---- */

osh_status osh_shape_new(osh_ctx *cx, osh_shape **out, const char *path, const char *column)
{
    osh_status rc = OSH_OK;
    const char *kind = osh_data_kind(path);
    osh_shape *s = NULL; // own
    bool json = kind && !strcmp(kind, "json"), csv = kind && !strcmp(kind, "csv");
    *out = NULL;
    if (!json && !csv) goto done;
    OSH_NEW(cx, s, 1);
    s->path = path, s->column = column ? column : "text", s->row = 1;
    s->byte = json ? json_byte : csv_byte, s->end = json ? json_end : csv_end;
    s->in_header = csv, s->which = -1, s->all = column == osh_all_columns;
    osh_buf_init(&s->header, 0);
    osh_buf_init(&s->name, 0);
    osh_buf_init(&s->keys, 0);
    *out = s, s = NULL; // give
done:
    osh_shape_free(cx, s);
    return rc;
}

void osh_shape_free(osh_ctx *cx, osh_shape *s)
{
    if (!s) return;
    osh_buf_deinit(cx, &s->header);
    osh_buf_deinit(cx, &s->name);
    osh_buf_deinit(cx, &s->keys);
    osh_free(cx, s);
}

osh_status osh_shape_feed(osh_ctx *cx, osh_shape *s, osh_buf *to, const char *bytes, size_t n)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < n; i++) OSH_TRY(s->byte(cx, s, to, bytes[i]));
    if (!n) OSH_TRY(s->end(cx, s, to));
done:
    return rc;
}
