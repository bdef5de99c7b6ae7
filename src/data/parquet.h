/* parquet.h - reads the rows of a Parquet file as lines of JSON objects.
 *
 *   PAR1 [row group: [column: pages] [column: pages] ...] ... [footer] n PAR1
 *   n: number of bytes of the footer
 *
 * Columns are strings, numbers, booleans, and lists and structs of these. Memory has the
 * footer, and one page and the dictionary of each column that is read. */
#ifndef OSH_PARQUET_H
#define OSH_PARQUET_H
#include "base/buf.h"
#include "base/file.h"

typedef struct osh_parquet osh_parquet;
/* Opens the rows of `file`, which must live as long as *out. `column` is the column that the caller
 * reads. If `column` is NULL, the caller reads the columns from which a sample can be made. If
 * `column` is osh_all_columns, the caller reads all columns. Other columns are null in each row;
 * they are there so that messages can name them. */
osh_status osh_parquet_open(osh_ctx *cx, osh_parquet **out, osh_file *file, const char *column);
/* Frees p. Accepts NULL. */
void osh_parquet_close(osh_ctx *cx, osh_parquet *p);
/* Appends the next rows to `to`, each as a line. Appends nothing after the last row. */
osh_status osh_parquet_rows(osh_ctx *cx, osh_parquet *p, osh_buf *to);
#endif
