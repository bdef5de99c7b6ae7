/* rows.c - prints rows of a label and a text for a terminal. */
#include "report/rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/quote.h"

enum { ROW_WIDTH = 80, ROW_LINES = 2 };

/* Wraps the text between words and appends at most `lines` lines. Appends "..." if words remain. */
static osh_status row_put_wrapped(osh_ctx *cx, osh_buf *b, const char *text, int lines)
{
    osh_status rc = OSH_OK;
    int column = OSH_ROW_LABEL;
    while (*text) {
        int n = (int)strcspn(text, " "), room = ROW_WIDTH - (lines == 1 && text[n] ? 4 : 0);
        bool first = column == OSH_ROW_LABEL;
        if (!first && column + 1 + n > room) {
            if (!--lines) {
                OSH_TRY(osh_buf_printf(cx, b, " ..."));
                break;
            }
            OSH_TRY(osh_buf_printf(cx, b, "\n%*s", OSH_ROW_LABEL, ""));
            column = OSH_ROW_LABEL, first = true;
            continue;
        }
        OSH_TRY(osh_buf_printf(cx, b, "%s%.*s", first ? "" : " ", n, text));
        column += n + !first;
        text += n + (text[n] == ' ');
    }
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

osh_status osh_row(osh_ctx *cx, osh_buf *b, const char *label, const char *format, ...)
{
    osh_status rc = OSH_OK;
    char text[1000], shown[2000];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    OSH_TRY(osh_buf_printf(cx, b, "%-*s", OSH_ROW_LABEL, label));
    osh_show(shown, sizeof shown, text, NULL);
    OSH_TRY(row_put_wrapped(cx, b, shown, ROW_LINES));
done:
    return rc;
}
