/* rows.h - prints summaries on a terminal, made of rows with a label and a text. */
#ifndef OSH_ROWS_H
#define OSH_ROWS_H
#include "base/buf.h"

enum { OSH_ROW_LABEL = 11 }; // number of columns of the label
enum { OSH_ROWS_MOST = 32 }; // largest number of rows

/* Rows for a text with a limited number of lines. */
typedef struct osh_rows {
    struct {
        const char *label; // view: a literal
        char *text;        // own
        int order;
    } items[OSH_ROWS_MOST];
    int n;
} osh_rows;

/* Appends a label and a text in at most two lines of 80 columns. Control characters become
 * \uXXXX. */
osh_status osh_row(osh_ctx *cx, osh_buf *b, const char *label, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a row. Rows of a higher `order` are left out first; rows of order 0 are always printed. */
osh_status osh_rows_add(osh_ctx *cx, osh_rows *r, int order, const char *label, const char *format,
                        ...) __attribute__((format(printf, 5, 6)));
/* Appends the rows in at most `most` lines of 80 columns. First leaves rows out until there is a
 * line for each row. Then gives rows a second line while lines remain. Rows of a low order get
 * their second line first. Sets *n_left (may be NULL) to the number of rows that are left out. */
osh_status osh_rows_print(osh_ctx *cx, osh_buf *b, int *n_left, const osh_rows *r, int most);
/* Frees the rows. */
void osh_rows_deinit(osh_ctx *cx, osh_rows *r);
#endif
