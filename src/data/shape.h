/* shape.h - files whose rows are no lines, as lines of JSON objects: for lines.c, a piece at a time.
 *
 *   .json    [{"text": "a"}, {"text": "b"}], or objects one after the other, over several lines: a line for each
 *   .csv     a header, then records as RFC 4180 has them: {"text": "a"}, of the one column that is wanted, or of all */
#ifndef OSH_SHAPE_H
#define OSH_SHAPE_H
#include "base/buf.h"

typedef struct osh_shape osh_shape;
extern const char osh_all_columns[]; // as a column: all of them
/* *out NULL: the rows of a file of this name are lines. column: of a .csv, NULL: "text". path lives longer. */
osh_status osh_shape_new(osh_ctx *cx, osh_shape **out, const char *path, const char *column);
void osh_shape_free(osh_ctx *cx, osh_shape *s);
/* Appends what becomes of the next n bytes; n 0: the file ends here. */
osh_status osh_shape_feed(osh_ctx *cx, osh_shape *s, osh_buf *to, const char *bytes, size_t n);

/* What a data file is by its name, without .zst or .gz: "jsonl", "json", "csv" or "txt"; NULL: none of them. */
const char *osh_data_kind(const char *path);
bool osh_data_is_columns(const char *path); // .parquet, .arrow: refused with the line that converts it
#endif
