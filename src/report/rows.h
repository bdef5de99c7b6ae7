/* rows.h - rows of a label and a text, for summaries on a terminal. */
#ifndef OSH_ROWS_H
#define OSH_ROWS_H
#include "base/buf.h"

enum { OSH_ROW_LABEL = 11 }; // columns of the label

/* Appends a label and a text in at most two lines of 80 columns. Control characters become
 * \uXXXX. */
osh_status osh_row(osh_ctx *cx, osh_buf *b, const char *label, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#endif
