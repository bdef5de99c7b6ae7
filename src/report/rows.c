/* rows.c - prints rows for a terminal. A row has a label and a text. */
#include "report/rows.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/quote.h"

enum { ROW_WIDTH = 80, ROW_LINES = 2 };

/* Returns the number of bytes of a word that fit into `room` bytes. A character is not cut. */
static int word_fit(const char *word, int room)
{
    while (room > 0 && ((unsigned char)word[room] & 0xc0) == 0x80) room--;
    return room;
}

/* Wraps the text between words and appends at most `lines` lines to b. If b is NULL, only counts
 * lines. Appends "..." if words remain. If a word is longer than a line, "..." replaces its end.
 * Sets *used to the number of lines. */
static osh_status row_put_wrapped(osh_ctx *cx, osh_buf *b, int *used, const char *text, int lines)
{
    osh_status rc = OSH_OK;
    int column = OSH_ROW_LABEL;
    *used = 1;
    while (*text) {
        int n = (int)strcspn(text, " "), kept = n, room = ROW_WIDTH;
        bool first = column == OSH_ROW_LABEL;
        if (*used == lines && text[n]) room -= 4;
        if (!first && column + 1 + n > room) {
            if (*used == lines) {
                if (b) OSH_TRY(osh_buf_printf(cx, b, " ..."));
                break;
            }
            ++*used;
            if (b) OSH_TRY(osh_buf_printf(cx, b, "\n%*s", OSH_ROW_LABEL, ""));
            column = OSH_ROW_LABEL;
            continue;
        }
        if (column + n > room) kept = word_fit(text, room - column - 3);
        if (b)
            OSH_TRY(osh_buf_printf(cx, b, "%s%.*s%s", first ? "" : " ", kept, text,
                                   kept < n ? "..." : ""));
        column += kept + (kept < n ? 3 : 0) + !first;
        text += n + (text[n] == ' ');
    }
    if (b) OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

static osh_status row_put(osh_ctx *cx, osh_buf *b, const char *label, const char *text, int lines)
{
    osh_status rc = OSH_OK;
    int used;
    OSH_TRY(osh_buf_printf(cx, b, "%-*s", OSH_ROW_LABEL, label));
    OSH_TRY(row_put_wrapped(cx, b, &used, text, lines));
done:
    return rc;
}

/* Writes the formatted text without control characters. */
static void row_text(char to[2000], const char *format, va_list ap)
{
    char text[1000];
    vsnprintf(text, sizeof text, format, ap);
    osh_show(to, 2000, text, NULL);
}

osh_status osh_row(osh_ctx *cx, osh_buf *b, const char *label, const char *format, ...)
{
    char text[2000];
    va_list ap;
    va_start(ap, format);
    row_text(text, format, ap);
    va_end(ap);
    return row_put(cx, b, label, text, ROW_LINES);
}

osh_status osh_rows_add(osh_ctx *cx, osh_rows *r, int order, const char *label, const char *format,
                        ...)
{
    osh_status rc = OSH_OK;
    char text[2000];
    va_list ap;
    va_start(ap, format);
    row_text(text, format, ap);
    va_end(ap);
    assert(r->n < OSH_ROWS_MOST);
    if (!(r->items[r->n].text = osh_strdup(cx, text)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a summary");
    r->items[r->n].label = label, r->items[r->n].order = order;
    r->n++;
done:
    return rc;
}

/* Returns the row to leave out next. It is the row with the highest order among the rows that have
 * lines. If several rows have this order, it is the last of them. Returns -1 if all rows with lines
 * have order 0. */
static int rows_last(const osh_rows *r, const int *lines)
{
    int last = -1;
    for (int i = 0; i < r->n; i++)
        if (lines[i] && r->items[i].order &&
            (last < 0 || r->items[i].order >= r->items[last].order))
            last = i;
    return last;
}

/* Returns the row that gets the next free line. This is the row with the lowest order among the
 * rows that need a second line. If several have this order, it is the first of them. Returns -1 if
 * no row needs a second line. */
static int rows_next(const osh_rows *r, const int *lines, const int *wants)
{
    int next = -1;
    for (int i = 0; i < r->n; i++)
        if (lines[i] == 1 && wants[i] > 1 && (next < 0 || r->items[i].order < r->items[next].order))
            next = i;
    return next;
}

osh_status osh_rows_print(osh_ctx *cx, osh_buf *b, int *n_left, const osh_rows *r, int most)
{
    osh_status rc = OSH_OK;
    int lines[OSH_ROWS_MOST], wants[OSH_ROWS_MOST], total = r->n, i, left = 0;
    for (i = 0; i < r->n; i++) {
        lines[i] = 1;
        OSH_TRY(row_put_wrapped(cx, NULL, &wants[i], r->items[i].text, ROW_LINES));
    }
    for (; total > most && (i = rows_last(r, lines)) >= 0; total--, left++) lines[i] = 0;
    for (; total < most && (i = rows_next(r, lines, wants)) >= 0; total++) lines[i] = 2;
    for (i = 0; i < r->n; i++)
        if (lines[i]) OSH_TRY(row_put(cx, b, r->items[i].label, r->items[i].text, lines[i]));
    if (n_left) *n_left = left;
done:
    return rc;
}

void osh_rows_deinit(osh_ctx *cx, osh_rows *r)
{
    for (int i = 0; i < r->n; i++) osh_free(cx, r->items[i].text);
    r->n = 0;
}
