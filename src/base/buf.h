/* buf.h - declares a growing byte buffer with a size limit. A NUL, which is not counted, follows
 * the bytes of buf.data. */
#ifndef OSH_BUF_H
#define OSH_BUF_H
#include "base/base.h"

typedef struct osh_buf {
    char *data; // own: the bytes and a NUL; NULL while the buffer is empty
    size_t len, cap, max_bytes;
} osh_buf;

void osh_buf_init(osh_buf *b, size_t max_bytes); // max_bytes: size limit; 0: no limit
/* Frees the bytes of the buffer. The buffer is then empty and has the same size limit. */
void osh_buf_deinit(osh_ctx *cx, osh_buf *b);
/* Reserves memory for n more bytes. An empty buffer gets exactly n. */
osh_status osh_buf_room(osh_ctx *cx, osh_buf *b, size_t n);
/* The next two functions append n bytes, or a formatted text. They fail if there is no memory or if
 * the buffer would exceed its limit. */
osh_status osh_buf_append(osh_ctx *cx, osh_buf *b, const void *p, size_t n);
osh_status osh_buf_printf(osh_ctx *cx, osh_buf *b, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends a line of text that a person reads. Control characters, which file names may contain,
 * become \uXXXX. */
osh_status osh_buf_line(osh_ctx *cx, osh_buf *b, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes the buffer empty. Its memory stays allocated. */
void osh_buf_clear(osh_buf *b);
#endif
