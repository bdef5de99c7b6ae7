/* lines.h - reads the lines of a text file in order and in pieces; it holds one piece at a time. */
#ifndef OSH_LINES_H
#define OSH_LINES_H
#include "base/buf.h"

typedef struct osh_lines osh_lines;
/* Opens a file, and decompresses it if it is a .zst or .gz. */
osh_status osh_lines_open(osh_ctx *cx, osh_lines **out, const char *path);
/* Opens the lines of a data file, or of the files of a directory (folder.h). Rows of a .json, and
 * of a .csv with their `column`, become lines of JSON objects (shape.h). column must live as long
 * as *out. A byte order mark of UTF-8 is removed; NUL, UTF-16, UTF-32 and other
 * bytes that are not UTF-8 are errors. */
osh_status osh_lines_open_rows(osh_ctx *cx, osh_lines **out, const char *path, const char *column);
void osh_lines_close(osh_ctx *cx, osh_lines *l);
/* Lines end with \n only, not with \r\n, and may have any length. Without this call the limit is 64
 * MiB. */
void osh_lines_as_they_are(osh_lines *l);
/* Moves to the first or the next line. *any is false if there is none. */
osh_status osh_lines_begin(osh_ctx *cx, osh_lines *l, bool *any);
/* Drops the first `used` bytes of the text that was shown, and shows the rest of this line, without
 * its \n or \r\n: either more bytes than before or *end. */
osh_status osh_lines_more(osh_ctx *cx, osh_lines *l, size_t used, const char **text, size_t *n,
                          bool *end);
/* Skips the rest of this line. *blank is true if that is white space. */
osh_status osh_lines_skip(osh_ctx *cx, osh_lines *l, bool *blank);
bool osh_is_blank(const char *s, size_t n);
typedef struct osh_place { // the position of a line, for messages
    const char *path; // view: lives as long as the lines; the file that has the line
    const char *what; // "line", or "row" if a row is not a line of the file
    int64_t number;   // in that file, 1-based
} osh_place;
osh_place osh_lines_place(const osh_lines *l); // position of this line
/* Shows the next bytes of the file, instead of lines; *n is 0 at its end. */
osh_status osh_lines_bytes(osh_ctx *cx, osh_lines *l, const char **text, size_t *n);
#endif
