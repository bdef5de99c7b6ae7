/* safetensors_write.c - computes the layout and the header of a safetensors file before the file is
 * written.
 *
 * The header is equal to the header that `serialize` of the safetensors library writes with
 * metadata {"format": "pt"}: JSON without spaces, padded with spaces to a multiple of 8 bytes.
 * Tensors are sorted by dtype (those with the largest alignment first), then by the bytes of their
 * names. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum { MAX_HEADER_BYTES = 100000000 }; // the safetensors library refuses a larger header
/* Upper bound for the bytes of the length, the metadata and the padding of a header. The header
 * also contains the descriptions of tensors, which are not counted here. */
enum { HEADER_BYTES = 8 + 64 };

/* Returns the position of a dtype in the order in which the safetensors library sorts tensors. This
 * is the descending order of the library's dtype enum. */
static int dtype_rank(osh_dtype dt)
{
    static const int rank[OSH_N_DTYPES] = {
        [OSH_U64] = 0,       [OSH_I64] = 1, [OSH_F64] = 2,       [OSH_F32] = 3,
        [OSH_U32] = 4,       [OSH_I32] = 5, [OSH_BF16] = 6,      [OSH_F16] = 7,
        [OSH_U16] = 8,       [OSH_I16] = 9, [OSH_FP8_E8M0] = 10, [OSH_FP8] = 11,
        [OSH_FP8_E5M2] = 12, [OSH_I8] = 13, [OSH_U8] = 14,       [OSH_BOOL] = 15,
    };
    return rank[dt];
}

static int by_dtype_and_name(const void *a, const void *b)
{
    const osh_entry *const *x = a, *const *y = b;
    int d = dtype_rank((*x)->dtype) - dtype_rank((*y)->dtype);
    return d ? d : strcmp((*x)->name, (*y)->name);
}

/* Appends a JSON string as serde_json does. If JSON has a short escape for a control character,
 * such as \n, the character becomes this escape. All other control characters become \u00xx. Quotes
 * and backslashes are escaped; all other bytes are unchanged. */
static osh_status put_string(osh_ctx *cx, osh_buf *b, const char *s)
{
    // letters of the escapes for 0x08 to 0x0d; serde_json has no \v
    static const char letters[] = "btn?fr";
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

static osh_status put_entry(osh_ctx *cx, osh_buf *b, const osh_entry *e)
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

/* Sorts the tensors and sets their begin and end, in bytes from the start of the data. */
static osh_status entries_place(osh_ctx *cx, osh_entry **list, int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t at = 0, numel, n_bytes;
    const char *bad = osh_entries_twice(list, n);

    if (n) qsort(list, (size_t)n, sizeof *list, by_dtype_and_name);
    for (int64_t i = 0; i < n; i++) {
        osh_entry *e = list[i];
        if (!bad && !strcmp(e->name, "__metadata__")) bad = e->name;
        if (bad)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "cannot write '%.200s': two tensors, or a tensor and the metadata, have this "
                     "name",
                     bad);
        e->begin = at;
        if (!osh_shape_numel(&numel, e->ndim, e->shape) ||
            __builtin_mul_overflow(numel, (int64_t)osh_dtype_bytes(e->dtype), &n_bytes) ||
            __builtin_add_overflow(at, n_bytes, &at) || at > INT64_MAX / 2)
            OSH_FAIL(cx, OSH_E_FORMAT, "%.200s: the file would be too large to address", e->name);
        e->end = at;
    }
done:
    return rc;
}

/* Appends the whole header. Computes the size of the header first, and reserves this size. A buffer
 * that grows step by step can need three times as much memory. */
static osh_status put_entries(osh_ctx *cx, osh_buf *b, osh_entry *const *list, int64_t n)
{
    osh_status rc = OSH_OK;
    size_t sum = 0;
    osh_buf one; // own
    osh_buf_init(&one, 0);
    for (int64_t i = 0; i < n; i++) {
        osh_buf_clear(&one);
        OSH_TRY(put_entry(cx, &one, list[i]));
        sum += one.len;
    }
    OSH_TRY(osh_buf_room(cx, b, HEADER_BYTES + sum));
    // placeholder for the length, which is written when the header is complete
    OSH_TRY(osh_buf_append(cx, b, "\0\0\0\0\0\0\0\0", 8));
    OSH_TRY(osh_buf_printf(cx, b, "{\"__metadata__\":{\"format\":\"pt\"}"));
    for (int64_t i = 0; i < n; i++) OSH_TRY(put_entry(cx, b, list[i]));
    OSH_TRY(osh_buf_append(cx, b, "}", 1));
    OSH_TRY(osh_buf_append(cx, b, "       ", (8 - b->len % 8) % 8));
done:
    osh_buf_deinit(cx, &one);
    return rc;
}

osh_status osh_safetensors_layout(osh_ctx *cx, char **header, size_t *header_bytes,
                                  osh_entry **list, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    uint64_t json_bytes;

    osh_buf_init(&b, 0);
    OSH_TRY(entries_place(cx, list, n));
    OSH_TRY(put_entries(cx, &b, list, n));
    json_bytes = b.len - 8;
    if (json_bytes > MAX_HEADER_BYTES)
        OSH_FAIL(cx, OSH_E_FORMAT, "a header of %zu bytes for %lld tensors, wanted at most %d",
                 b.len, (long long)n, MAX_HEADER_BYTES);
    for (int i = 0; i < 8; i++) b.data[i] = (char)(json_bytes >> (8 * i));
    for (int64_t i = 0; i < n; i++) {
        list[i]->begin += (int64_t)b.len;
        list[i]->end += (int64_t)b.len;
    }
    *header_bytes = b.len;
    *header = b.data;
    b.data = NULL; // give
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_safetensors_layout_array(osh_ctx *cx, char **header, size_t *header_bytes,
                                        osh_entry *entries, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_entry **list = NULL;  // own: pointers to the entries
    osh_entry *sorted = NULL; // own
    OSH_NEW(cx, sorted, n);
    OSH_NEW(cx, list, n);
    for (int64_t i = 0; i < n; i++) list[i] = &entries[i];
    OSH_TRY(osh_safetensors_layout(cx, header, header_bytes, list, n));
    for (int64_t i = 0; i < n; i++) sorted[i] = *list[i];
    if (n) memcpy(entries, sorted, (size_t)n * sizeof *sorted);
done:
    osh_free(cx, list);
    osh_free(cx, sorted);
    return rc;
}
