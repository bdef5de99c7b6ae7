/* st_write.c - lays a safetensors file out before a byte of it is written.
 *
 * Same bytes as the safetensors library's serialize with metadata {"format": "pt"}: JSON without
 * spaces, tensors by dtype (widest alignment first), then by name bytes, spaces behind up to 8.
 */
#include "base/buf.h"
#include "base/map.h"
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER_BYTES = 100000000 }; // the safetensors library refuses to read more

/* The library sorts by its dtype enum, downwards: the unsigned types stand between the others. */
static int dtype_rank(osh_dtype dt)
{
    static const int rank[OSH_N_DTYPES] = {
        [OSH_U64] = 0,  [OSH_I64] = 1,       [OSH_F64] = 2, [OSH_F32] = 3, [OSH_U32] = 4,
        [OSH_I32] = 5,  [OSH_BF16] = 6,      [OSH_F16] = 7, [OSH_U16] = 8, [OSH_I16] = 9,
        [OSH_FP8_E8M0] = 10, [OSH_FP8] = 11, [OSH_FP8_E5M2] = 12, [OSH_I8] = 13, [OSH_U8] = 14, [OSH_BOOL] = 15,
    };
    return rank[dt];
}

static int by_dtype_and_name(const void *a, const void *b)
{
    const osh_st_entry *x = a, *y = b;
    int d = dtype_rank(x->dtype) - dtype_rank(y->dtype);
    return d ? d : strcmp(x->name, y->name);
}

/* As serde_json: two-letter escapes, \u00xx for the other control characters, the rest raw. */
static osh_status put_string(osh_ctx *cx, osh_buf *b, const char *s)
{
    static const char letters[] = "btn?fr"; // of 0x08 to 0x0d; serde has no \v
    osh_status rc = OSH_OK;
    const char *from = s;

    OSH_TRY(osh_buf_append(cx, b, "\"", 1));
    for (; *s; s++) {
        uint8_t c = (uint8_t)*s;
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        OSH_TRY(osh_buf_append(cx, b, from, (size_t)(s - from)));
        from = s + 1;
        if (c == '"' || c == '\\')
            OSH_TRY(osh_buf_printf(cx, b, "\\%c", c));
        else if (c >= 8 && c <= 13 && c != 11)
            OSH_TRY(osh_buf_printf(cx, b, "\\%c", letters[c - 8]));
        else
            OSH_TRY(osh_buf_printf(cx, b, "\\u%04x", c));
    }
    OSH_TRY(osh_buf_append(cx, b, from, (size_t)(s - from)));
    OSH_TRY(osh_buf_append(cx, b, "\"", 1));
done:
    return rc;
}

static osh_status put_entry(osh_ctx *cx, osh_buf *b, const osh_st_entry *e)
{
    osh_status rc = OSH_OK;

    OSH_TRY(osh_buf_append(cx, b, ",", 1));
    OSH_TRY(put_string(cx, b, e->name));
    OSH_TRY(osh_buf_printf(cx, b, ":{\"dtype\":\"%s\",\"shape\":[", osh_dtype_name(e->dtype)));
    for (int d = 0; d < e->ndim; d++)
        OSH_TRY(osh_buf_printf(cx, b, "%s%lld", d ? "," : "", (long long)e->shape[d]));
    OSH_TRY(osh_buf_printf(cx, b, "],\"data_offsets\":[%lld,%lld]}", (long long)e->begin,
                           (long long)e->end));
done:
    return rc;
}

/* Sorts, and fills in begin and end from the data's start. */
static osh_status place(osh_ctx *cx, osh_st_entry *entries, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_map *seen = NULL; // own
    int64_t at = 0, numel, n_bytes, first;

    OSH_TRY(osh_map_new(cx, &seen, (size_t)n));
    if (n) qsort(entries, (size_t)n, sizeof *entries, by_dtype_and_name);
    for (int64_t i = 0; i < n; i++) {
        osh_st_entry *e = &entries[i];
        size_t len = strlen(e->name);
        if (osh_map_get(seen, e->name, len, &first) || !strcmp(e->name, "__metadata__"))
            OSH_FAIL(cx, OSH_E_FORMAT, "cannot write two tensors, or metadata, as '%.200s'",
                     e->name);
        OSH_TRY(osh_map_put(cx, seen, e->name, len, i));
        e->begin = at;
        if (!osh_shape_numel(&numel, e->ndim, e->shape) ||
            __builtin_mul_overflow(numel, (int64_t)osh_dtype_bytes(e->dtype), &n_bytes) ||
            __builtin_add_overflow(at, n_bytes, &at) || at > INT64_MAX / 2)
            OSH_FAIL(cx, OSH_E_FORMAT, "%.200s: the file would be too large to address", e->name);
        e->end = at;
    }
done:
    osh_map_free(cx, seen);
    return rc;
}

osh_status osh_st_layout(osh_ctx *cx, char **header, size_t *header_bytes, osh_st_entry *entries,
                         int64_t n)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    uint64_t json_bytes;

    osh_buf_init(&b, 0);
    OSH_TRY(place(cx, entries, n));
    OSH_TRY(osh_buf_append(cx, &b, "\0\0\0\0\0\0\0\0", 8)); // the length, known at the end
    OSH_TRY(osh_buf_printf(cx, &b, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (int64_t i = 0; i < n; i++) OSH_TRY(put_entry(cx, &b, &entries[i]));
    OSH_TRY(osh_buf_append(cx, &b, "}", 1));
    OSH_TRY(osh_buf_append(cx, &b, "       ", (8 - b.len % 8) % 8));
    json_bytes = b.len - 8;
    if (json_bytes > MAX_HEADER_BYTES)
        OSH_FAIL(cx, OSH_E_FORMAT, "a header of %zu bytes for %lld tensors, wanted at most %d",
                 b.len, (long long)n, MAX_HEADER_BYTES);
    for (int i = 0; i < 8; i++) b.data[i] = (char)(json_bytes >> (8 * i));
    for (int64_t i = 0; i < n; i++) {
        entries[i].begin += (int64_t)b.len;
        entries[i].end += (int64_t)b.len;
    }
    *header_bytes = b.len;
    *header = b.data;
    b.data = NULL; // give
done:
    osh_buf_deinit(cx, &b);
    return rc;
}
