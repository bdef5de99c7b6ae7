/* data_rows.c - prints each row of a data file as a JSON object on a line.
 *
 *   data_rows FILE [COLUMN]     without COLUMN, all columns */
#include <stdio.h>

#include "data/lines.h"
#include "data/shape.h"

static osh_status rows_print(osh_ctx *cx, osh_lines *l)
{
    osh_status rc = OSH_OK;
    const char *text;
    size_t n;
    bool any = true, end;
    for (;;) {
        OSH_TRY(osh_lines_begin(cx, l, &any));
        if (!any) break;
        for (end = false, n = 0; !end;) {
            OSH_TRY(osh_lines_more(cx, l, n, &text, &n, &end));
            fwrite(text, 1, n, stdout);
        }
        putchar('\n');
    }
done:
    return rc;
}

int main(int argc, char **argv)
{
    osh_ctx *cx = NULL;
    osh_lines *l = NULL; // own
    if (argc < 2 || osh_ctx_new(&cx, 1)) return 2;
    osh_status rc =
        osh_lines_open_rows(cx, &l, argv[1], argc > 2 ? argv[2] : osh_all_columns, NULL);
    if (!rc) rc = rows_print(cx, l);
    if (rc) fprintf(stderr, "data_rows: %s\n", osh_error_text(cx));
    osh_lines_close(cx, l);
    osh_ctx_free(cx);
    return rc ? 1 : 0;
}
