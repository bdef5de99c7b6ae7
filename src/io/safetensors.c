/* safetensors.c - reads the header of a safetensors file and checks that each byte of the file
 * belongs to the header or to one tensor.
 *
 *   [0, 8)        u64 little-endian: bytes of the header, h
 *   [8, 8 + h)    JSON: name -> {"dtype", "shape", "data_offsets": [begin, end]}, __metadata__
 *   [8 + h, ...)  data of the tensors, without holes, overlaps or other bytes; offsets begin
 *                 here */
#include "io/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/xxh3.h"
#include "io/container_impl.h"
#include "text/json.h"

enum { MAX_HEADER_BYTES = 100000000 }; // the safetensors library accepts no larger header
/* 2^53: JSON numbers are doubles, and doubles represent all whole numbers up to 2^53 exactly */
#define EXACT_INT 9007199254740992.0

static int64_t u64_le(const uint8_t *b)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | b[i];
    return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

/* Reads the header to *text (own). If the header would be longer than the file, fails before memory
 * for the header is allocated. */
static osh_status read_header(osh_ctx *cx, char **text, size_t *n_text, osh_container *st)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL;  // own
    char *header = NULL; // own
    uint8_t b[8];
    int64_t n;
    osh_utf8 utf8 = {0};

    OSH_TRY(osh_file_open(cx, &f, st->path));
    OSH_TRY(osh_file_stamp(cx, &st->stamp, f));
    if (st->stamp.n_bytes < 8)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: has %lld bytes, wanted the 8 of the header length and more",
                 st->path, (long long)st->stamp.n_bytes);
    OSH_TRY(osh_file_pread(cx, f, b, 8, 0));
    n = u64_le(b);
    if (n > st->stamp.n_bytes - 8)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: header of %lld bytes, but the file has %lld (truncated?)",
                 st->path, (long long)n, (long long)st->stamp.n_bytes);
    if (n > MAX_HEADER_BYTES)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: header of %lld bytes, wanted at most %d", st->path,
                 (long long)n, MAX_HEADER_BYTES);
    header = osh_alloc(cx, (size_t)n + 9);
    if (!header) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_file_pread(cx, f, header, (size_t)n + 8, 0));
    st->header_bytes = n + 8, st->header_sum = XXH3_64bits(header, (size_t)n + 8);
    memmove(header, header + 8, (size_t)n);
    header[n] = 0;
    if (n < 2 || header[0] != '{')
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: the header is not a JSON object, not a safetensors file",
                 st->path);
    if (!osh_utf8_read(&utf8, header, (size_t)n) || !osh_utf8_ends(&utf8))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: the header is not UTF-8 at byte %lld", st->path,
                 (long long)(8 + utf8.start));
    *n_text = (size_t)n;
    *text = header, header = NULL; // give
done:
    osh_free(cx, header);
    osh_file_close(cx, f);
    return rc;
}

static osh_status check_metadata(osh_ctx *cx, const osh_container *st, const cJSON *meta)
{
    if (!cJSON_IsObject(meta))
        return osh_fail(cx, OSH_E_FORMAT, "%s: __metadata__ is not an object of strings", st->path);
    for (const cJSON *v = meta->child; v; v = v->next)
        if (!cJSON_IsString(v))
            return osh_fail(cx, OSH_E_FORMAT, "%s: __metadata__.%.100s is not a string", st->path,
                            v->string);
    return OSH_OK;
}

/* Sets *out to v, an item of the list `key` of a tensor. Fails unless v is a whole number in [0,
 * 2^53]. */
static osh_status take_size(osh_ctx *cx, int64_t *out, const osh_container *st, const char *name,
                            const char *key, const cJSON *v)
{
    double d = v->valuedouble;

    if (!cJSON_IsNumber(v))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %.200s: %s holds a value that is not a number",
                        st->path, name, key);
    if (!(d >= 0 && d <= EXACT_INT) || d != floor(d))
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: %.200s: %s holds %.17g, wanted a whole number from 0", st->path, name,
                        key, d);
    *out = (int64_t)d;
    return OSH_OK;
}

/* Reads the description of a tensor from its JSON object. Sets begin and end to offsets from the
 * start of the data. */
static osh_status parse_entry(osh_ctx *cx, osh_entry *e, const osh_container *st, const char *name,
                              const cJSON *o)
{
    osh_status rc = OSH_OK;
    const char *tag = NULL;
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(o, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(o, "data_offsets");
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(o, "dtype");
    int64_t numel = 0, n_bytes = 0;

    if (!cJSON_IsObject(o) || !cJSON_IsString(dtype) || !cJSON_IsArray(shape) ||
        !cJSON_IsArray(offsets))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: %.200s: wanted an object with dtype, shape and data_offsets", st->path, name);
    tag = dtype->valuestring;
    e->dtype = osh_dtype_of_name(tag);
    if (e->dtype == OSH_DTYPE_NONE || strcmp(tag, osh_dtype_name(e->dtype)))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %.200s: unknown dtype '%.40s'", st->path, name, tag);
    for (const cJSON *v = shape->child; v; v = v->next) {
        if (e->ndim == OSH_MAX_DIMS)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %.200s: more than %d dimensions", st->path, name,
                     OSH_MAX_DIMS);
        OSH_TRY(take_size(cx, &e->shape[e->ndim++], st, name, "shape", v));
    }
    if (!osh_shape_numel(&numel, e->ndim, e->shape) ||
        __builtin_mul_overflow(numel, (int64_t)osh_dtype_bytes(e->dtype), &n_bytes))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s: the product of its shape overflows", st->path,
                 name);
    if (cJSON_GetArraySize(offsets) != 2)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s: data_offsets has %d items, wanted 2", st->path,
                 name, cJSON_GetArraySize(offsets));
    OSH_TRY(take_size(cx, &e->begin, st, name, "data_offsets", offsets->child));
    OSH_TRY(take_size(cx, &e->end, st, name, "data_offsets", offsets->child->next));
    if (e->begin > e->end)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s: data_offsets [%lld, %lld) end before they begin",
                 st->path, name, (long long)e->begin, (long long)e->end);
    if (e->end - e->begin != n_bytes)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: %.200s: its shape wants %lld bytes of %s, data_offsets give %lld", st->path,
                 name, (long long)n_bytes, tag, (long long)(e->end - e->begin));
done:
    return rc;
}

static int by_offset(const void *a, const void *b)
{
    const osh_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    // an empty tensor comes before a tensor that begins at the same byte
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Checks that the sorted tensors cover all bytes of the data without gap or overlap. Then adds
 * data_begin to the offsets, so that they count from the start of the file. */
static osh_status check_tiling(osh_ctx *cx, osh_container *st, int64_t data_begin)
{
    osh_status rc = OSH_OK;
    int64_t at = 0, data_bytes = st->stamp.n_bytes - data_begin;
    const char *before = "the header";

    for (int64_t i = 0; i < st->n; i++) {
        osh_entry *e = &st->entries[i];
        if (e->end > data_bytes)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: %.200s: needs data bytes [%lld, %lld) but the file has %lld (truncated?)",
                     st->path, e->name, (long long)e->begin, (long long)e->end,
                     (long long)data_bytes);
        if (e->begin != at)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: %.200s: %s %.200s, it begins at data byte %lld, wanted %lld", st->path,
                     e->name, e->begin < at ? "overlaps" : "leaves a gap after", before,
                     (long long)e->begin, (long long)at);
        at = e->end;
        before = e->name;
    }
    if (at != data_bytes)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %lld bytes after the last tensor, wanted none", st->path,
                 (long long)(data_bytes - at));
    for (int64_t i = 0; i < st->n; i++) {
        st->entries[i].begin += data_begin;
        st->entries[i].end += data_begin;
    }
done:
    return rc;
}

typedef struct taking {
    osh_container *st;
    osh_buf names;
    bool has_metadata;
} taking;

static osh_status header_fail_twice(osh_ctx *cx, const osh_container *st, const char *name)
{
    return osh_fail(cx, OSH_E_FORMAT, "%s: the key '%.200s' occurs twice in one object", st->path,
                    name);
}

static osh_status header_take_entry(osh_ctx *cx, void *user, size_t i, size_t n, const char *name,
                                    const cJSON *o)
{
    osh_status rc = OSH_OK;
    taking *t = user;
    osh_container *st = t->st;
    if (!strcmp(name, "__metadata__")) {
        if (t->has_metadata) OSH_TRY(header_fail_twice(cx, st, name));
        t->has_metadata = true;
        OSH_TRY(check_metadata(cx, st, o));
        goto done;
    }
    if (!st->entries) OSH_NEW(cx, st->entries, n - i);
    OSH_TRY(parse_entry(cx, &st->entries[st->n], st, name, o));
    OSH_TRY(osh_buf_append(cx, &t->names, name, strlen(name) + 1));
    st->n++;
done:
    return rc;
}

static osh_status parse_entries(osh_ctx *cx, osh_container *st, const char *text, size_t n_text)
{
    osh_status rc = OSH_OK;
    taking t = {.st = st};
    const char *twice;
    osh_buf_init(&t.names, 0);
    OSH_TRY(osh_json_members(cx, text, n_text, st->path, header_take_entry, &t));
    OSH_NEW(cx, st->names, t.names.len);
    if (st->n) memcpy(st->names, t.names.data, t.names.len);
    char *name = st->names;
    for (int64_t i = 0; i < st->n; i++, name += strlen(name) + 1) st->entries[i].name = name;
    OSH_TRY(osh_entry_twice(cx, &twice, st->entries, st->n));
    if (twice) OSH_TRY(header_fail_twice(cx, st, twice));
    if (st->n) qsort(st->entries, (size_t)st->n, sizeof *st->entries, by_offset);
done:
    osh_buf_deinit(cx, &t.names);
    return rc;
}

osh_status osh_safetensors_read(osh_ctx *cx, osh_container *c)
{
    osh_status rc = OSH_OK;
    char *text = NULL; // own
    size_t n_text = 0;
    OSH_TRY(read_header(cx, &text, &n_text, c));
    OSH_TRY(parse_entries(cx, c, text, n_text));
    OSH_TRY(check_tiling(cx, c, 8 + (int64_t)n_text));
done:
    osh_free(cx, text);
    return rc;
}
