/* buf.c - implements a growing byte buffer with a size limit; a NUL always follows the bytes. */
#include "base/buf.h"
#include "base/quote.h"

#include <stdio.h>
#include <string.h>

void osh_buf_init(osh_buf *b, size_t max_bytes)
{
    *b = (osh_buf){.max_bytes = max_bytes};
}

void osh_buf_deinit(osh_ctx *cx, osh_buf *b)
{
    osh_free(cx, b->data);
    *b = (osh_buf){.max_bytes = b->max_bytes};
}

/* Reserves memory for n more bytes and the NUL. */
static osh_status buf_reserve(osh_ctx *cx, osh_buf *b, size_t n)
{
    size_t want, cap;
    char *p;

    if (__builtin_add_overflow(b->len, n, &want) || (b->max_bytes && want > b->max_bytes))
        return osh_fail(cx, OSH_E_FORMAT, "text of %zu and %zu more bytes, at most %zu are allowed",
                        b->len, n, b->max_bytes ? b->max_bytes : SIZE_MAX);
    if (b->data && want < b->cap) return OSH_OK;
    cap = b->cap < 64 ? 64 : b->cap;
    while (cap <= want && cap <= SIZE_MAX / 2) cap *= 2;
    if (cap <= want) cap = want == SIZE_MAX ? want : want + 1;
    p = osh_realloc(cx, b->data, cap);
    if (!p) return OSH_E_NOMEM;
    b->data = p;
    b->cap = cap;
    return OSH_OK;
}

osh_status osh_buf_room(osh_ctx *cx, osh_buf *b, size_t n)
{
    if (b->data) return buf_reserve(cx, b, n);
    if (!(b->data = osh_alloc(cx, n + 1))) return OSH_E_NOMEM;
    b->cap = n + 1, b->data[0] = 0;
    return OSH_OK;
}

osh_status osh_buf_append(osh_ctx *cx, osh_buf *b, const void *p, size_t n)
{
    osh_status rc = buf_reserve(cx, b, n);
    if (rc) return rc;
    if (n) memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
    return OSH_OK;
}

/* Sets *n to the length of the formatted text. */
static osh_status text_length(osh_ctx *cx, size_t *n, const char *fmt, va_list ap)
{
    int k = vsnprintf(NULL, 0, fmt, ap);
    *n = k < 0 ? 0 : (size_t)k;
    return k < 0 ? osh_fail(cx, OSH_E_INTERNAL, "format '%s' cannot be printed", fmt) : OSH_OK;
}

osh_status osh_buf_printf(osh_ctx *cx, osh_buf *b, const char *fmt, ...)
{
    va_list ap;
    osh_status rc;
    size_t n;

    va_start(ap, fmt);
    rc = text_length(cx, &n, fmt, ap);
    va_end(ap);
    if (!rc) rc = buf_reserve(cx, b, n);
    if (rc) return rc;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, n + 1, fmt, ap);
    va_end(ap);
    b->len += n;
    return OSH_OK;
}

osh_status osh_buf_line(osh_ctx *cx, osh_buf *b, const char *fmt, ...)
{
    va_list ap;
    osh_status rc;
    size_t n;

    va_start(ap, fmt);
    rc = text_length(cx, &n, fmt, ap);
    va_end(ap);
    size_t most = 6 * n; // 6: each byte may become the characters \uXXXX
    if (!rc) rc = buf_reserve(cx, b, most + 1 + n);
    if (rc) return rc;
    // the unescaped text; it is in the same block, after the room for the escaped text
    char *text = b->data + b->len + most;
    va_start(ap, fmt);
    vsnprintf(text, n + 1, fmt, ap);
    va_end(ap);
    b->len += osh_show(b->data + b->len, most + 1, text, NULL);
    return osh_buf_append(cx, b, "\n", 1);
}

void osh_buf_clear(osh_buf *b)
{
    b->len = 0;
    if (b->data) b->data[0] = 0;
}
