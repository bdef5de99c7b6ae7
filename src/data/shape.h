/* shape.h - converts a .json or .csv to lines, chunk by chunk. A line is one row as a JSON object.
 *
 *   .json    has [{"text": "a"}, {"text": "b"}], or objects one after the other. An object may have
 *            line breaks. Each object becomes one line.
 *   .csv     has a header, then records of RFC 4180. Each record becomes {"text": "a"}, with the
 *            wanted column or all columns. */
#ifndef OSH_SHAPE_H
#define OSH_SHAPE_H
#include "base/buf.h"

typedef struct osh_shape osh_shape;
extern const char osh_all_columns[]; // value of `column` that selects all columns
/* Makes a converter (*out, own). *out is NULL if the name of the file says that each row is a line.
 * `column` is the wanted column of a .csv, or NULL for "text". `path` and `column` must live as
 * long as *out. */
osh_status osh_shape_new(osh_ctx *cx, osh_shape **out, const char *path, const char *column);
void osh_shape_free(osh_ctx *cx, osh_shape *s);
/* Converts the next n bytes of the file and appends the result to `to`. If n is 0, the file has
 * ended. */
osh_status osh_shape_feed(osh_ctx *cx, osh_shape *s, osh_buf *to, const char *bytes, size_t n);

/* Returns the kind of a data file by its name: "parquet", "jsonl", "json", "csv" or "txt". For all
 * kinds except "parquet", the name may also end in .zst or .gz. Returns NULL for any other name. */
const char *osh_data_kind(const char *path);
bool osh_data_is_columns(const char *path); // true for .arrow, which is not supported
#endif
