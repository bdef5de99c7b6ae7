/* lines.h - the lines of a text file, or of a .zst one, one after the other: memory is that of the longest line. */
#ifndef OSH_LINES_H
#define OSH_LINES_H
#include "base/buf.h"

typedef struct osh_lines osh_lines;
osh_status osh_lines_open(osh_ctx *cx, osh_lines **out, const char *path); // .zst is decompressed
void osh_lines_close(osh_ctx *cx, osh_lines *l);
/* The next line without its \n or \r\n, valid until the next call; *text NULL: there are no more. */
osh_status osh_lines_next(osh_ctx *cx, osh_lines *l, const char **text, size_t *n);
int64_t osh_lines_number(const osh_lines *l); // of the line last given, 1-based
/* All that has not been read yet, byte for byte, appended to b. */
osh_status osh_lines_rest(osh_ctx *cx, osh_lines *l, osh_buf *b);
#endif
