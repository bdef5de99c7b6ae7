/* shape.h - converts files whose rows are not lines to lines of JSON objects, a piece at a time.
 *
 *   .json    [{"text": "a"}, {"text": "b"}], or objects in sequence, over several lines: one line
 *   each
 *   .csv     a header, then records of RFC 4180: {"text": "a"}, with the wanted column, or with
 *   all */
#ifndef OSH_SHAPE_H
#define OSH_SHAPE_H
#include "base/buf.h"

typedef struct osh_shape osh_shape;
extern const char osh_all_columns[]; // for `column`: all columns
/* *out is NULL if the rows of a file of this name are lines. column: the column of a .csv, NULL:
 * "text". path and column must live as long as *out. */
osh_status osh_shape_new(osh_ctx *cx, osh_shape **out, const char *path, const char *column);
void osh_shape_free(osh_ctx *cx, osh_shape *s);
/* Converts the next n bytes, and appends the result to `to`; n 0: the file ends here. */
osh_status osh_shape_feed(osh_ctx *cx, osh_shape *s, osh_buf *to, const char *bytes, size_t n);

/* Returns the kind of a data file from its name without .zst or .gz: "jsonl", "json", "csv" or
 * "txt"; NULL: none of them. */
const char *osh_data_kind(const char *path);
bool osh_data_is_columns(const char *path); // .parquet, .arrow; not supported
#endif
