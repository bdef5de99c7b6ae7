/* lines.h - reads the lines of a text file in order and in pieces. Memory contains one piece at a
 * time. */
#ifndef OSH_LINES_H
#define OSH_LINES_H
#include "base/buf.h"

typedef struct osh_lines osh_lines;
/* Opens a file. A .zst or .gz is decompressed. */
osh_status osh_lines_open(osh_ctx *cx, osh_lines **out, const char *path);
/* Opens the lines of a data file, or of the data files of a directory. `splits` chooses files of
 * the directory by their names (folder.h). Rows of a .json, a .csv or a .parquet become lines of
 * JSON objects. A line of a .csv has only the field of the column `column` (shape.h). `column` must
 * live as long as *out. A byte order mark of UTF-8 is removed; NUL, UTF-16, UTF-32 and other bytes
 * that are not UTF-8 are errors. */
osh_status osh_lines_open_rows(osh_ctx *cx, osh_lines **out, const char *path, const char *column,
                               const char *splits);
/* Closes the file. Accepts NULL. */
void osh_lines_close(osh_ctx *cx, osh_lines *l);
/* Lets the following calls return lines as they are in the file. Only \n ends a line, so a \r
 * before \n belongs to the line. A line may have any length. Without this call a line has at most
 * 64 MiB. */
void osh_lines_as_they_are(osh_lines *l);
/* Moves to the next line; the first call moves to the first line. Sets *any to false if there is no
 * such line. */
osh_status osh_lines_begin(osh_ctx *cx, osh_lines *l, bool *any);
/* Drops the first `used` bytes of the current text, and reads more of the line. Sets *text to all
 * bytes of the line that are not dropped yet, without \n or \r\n. Sets *end to true if *text
 * reaches the end of the line. */
osh_status osh_lines_more(osh_ctx *cx, osh_lines *l, size_t used, const char **text, size_t *n,
                          bool *end);
/* Skips the rest of the current line. Sets *blank to true if the rest is only white space. */
osh_status osh_lines_skip(osh_ctx *cx, osh_lines *l, bool *blank);
/* True if the n bytes at s are white space. */
bool osh_is_blank(const char *s, size_t n);
typedef struct osh_place { // the position of a line, for messages
    const char *path; // view: path of the file that has the line; valid until osh_lines_close
    const char *what; // "line", or "row" if the rows of the file are not lines
    int64_t number;   // number of the line or row in the file, from 1
} osh_place;
/* Returns the position of the line that is being read. */
osh_place osh_lines_place(const osh_lines *l);
/* Returns the next bytes of the file instead of lines. *n is 0 at the end of the file. */
osh_status osh_lines_bytes(osh_ctx *cx, osh_lines *l, const char **text, size_t *n);
#endif
