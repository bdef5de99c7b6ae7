/* lines.h - the lines of a text file, one after the other and in pieces: what is held is a piece. */
#ifndef OSH_LINES_H
#define OSH_LINES_H
#include "base/buf.h"

typedef struct osh_lines osh_lines;
osh_status osh_lines_open(osh_ctx *cx, osh_lines **out, const char *path); // .zst and .gz are decompressed
/* Lines of a data file, or of the files of a directory (folder.h): rows of a .json or .csv, of its column, become lines
 * of JSON objects (shape.h). column lives longer. A byte order mark of UTF-8 is left out; NUL, UTF-16 and UTF-32 are
 * errors. */
osh_status osh_lines_open_rows(osh_ctx *cx, osh_lines **out, const char *path, const char *column);
void osh_lines_close(osh_ctx *cx, osh_lines *l);
/* Lines end with their \n only, not with \r\n, and are of any length; else 64 MiB is the most. */
void osh_lines_as_they_are(osh_lines *l);
/* Goes on to the first line, or the next one. *any false: there is none. */
osh_status osh_lines_begin(osh_ctx *cx, osh_lines *l, bool *any);
/* Of this line, without its \n or \r\n: the first `used` bytes of what was shown go; shows what follows, more of it
 * than before or *end. */
osh_status osh_lines_more(osh_ctx *cx, osh_lines *l, size_t used, const char **text, size_t *n, bool *end);
osh_status osh_lines_skip(osh_ctx *cx, osh_lines *l, bool *blank); // all of it that was not shown; it is white space
bool osh_is_blank(const char *s, size_t n);
typedef struct osh_place { // of a line, for messages
    const char
        *path; // view: lives as long as the lines; of the file, where a directory has several
    const char *what; // "line", or "row" where a row is not a line of the file
    int64_t number;   // in that file, 1-based
} osh_place;
osh_place osh_lines_place(const osh_lines *l); // of this line
/* Instead of lines: the next bytes as they are; *n 0: there are none. */
osh_status osh_lines_bytes(osh_ctx *cx, osh_lines *l, const char **text, size_t *n);
#endif
