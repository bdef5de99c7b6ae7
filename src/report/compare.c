/* compare.c - the table of `oneshot compare`, as text and as a page. The reference is the first
 * row. */
#include "report/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

enum { NAME_WIDTH = 28, N_CELLS = 5, CELL_BYTES = 32 };
static const char *const titles[N_CELLS] = {"size", "perplexity", "KL mean", "KL 99 %", "top-1"};

osh_status osh_compare_check(osh_ctx *cx, const osh_panel *of, int n)
{
    osh_status rc = OSH_OK;
    for (int i = 1; i < n; i++) {
        if (strcmp(of[i].tokens, of[0].tokens))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s is about other tokens than %s: checksums %s and %s. Want the same data "
                     "set, windows and tokenizer",
                     of[i].name, of[0].name, of[i].tokens, of[0].tokens);
        if (!of[i].reference != !of[0].reference ||
            (of[i].reference && of[i].reference_perplexity != of[0].reference_perplexity))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s and %s have different references: want one --reference for all",
                     of[i].name, of[0].name);
    }
done:
    return rc;
}

/* Returns the last two parts of a path, which tell OUT/w4 and OTHER/w4 apart. */
static const char *compare_name(const char *path)
{
    const char *last = path, *before = path;
    for (const char *c = path; *c; c++)
        if (*c == '/' && c[1] && c[1] != '/') before = last, last = c + 1;
    return before;
}

/* Prints the cells of a row. An empty cell does not apply. */
static void compare_cells(char cells[N_CELLS][CELL_BYTES], const osh_panel *p)
{
    memset(cells, 0, (size_t)N_CELLS * CELL_BYTES);
    snprintf(cells[0], CELL_BYTES, "%.1f MB", (double)p->model_bytes / 1e6);
    snprintf(cells[1], CELL_BYTES, "%.4f", p->perplexity);
    if (!p->reference) return;
    snprintf(cells[2], CELL_BYTES, "%.5f", p->kl_mean);
    snprintf(cells[3], CELL_BYTES, "%.4f", p->kl_p99);
    snprintf(cells[4], CELL_BYTES, "%.2f %%", 100 * p->top1);
}

static osh_status compare_line(osh_ctx *cx, osh_buf *b, const char *name,
                               char cells[N_CELLS][CELL_BYTES])
{
    osh_status rc = OSH_OK;
    size_t n = strlen(name);
    bool cut = n > NAME_WIDTH;
    OSH_TRY(osh_buf_printf(cx, b, "%s%-*s", cut ? ".." : "", cut ? NAME_WIDTH - 2 : NAME_WIDTH,
                           cut ? name + n - (NAME_WIDTH - 2) : name));
    for (int k = 0; k < N_CELLS; k++)
        OSH_TRY(osh_buf_printf(cx, b, " %*s", k > 1 ? 9 : 10, cells[k]));
    while (b->len && b->data[b->len - 1] == ' ') b->len--;
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

osh_status osh_compare_text(osh_ctx *cx, char **text, const osh_panel *of, int n)
{
    osh_status rc = OSH_OK;
    char cells[N_CELLS][CELL_BYTES] = {{0}};
    osh_buf b; // own
    osh_buf_init(&b, 0);
    for (int k = 0; k < N_CELLS; k++) snprintf(cells[k], CELL_BYTES, "%s", titles[k]);
    OSH_TRY(compare_line(cx, &b, "model", cells));
    if (of[0].reference) {
        memset(cells, 0, sizeof cells);
        snprintf(cells[1], CELL_BYTES, "%.4f", of[0].reference_perplexity);
        OSH_TRY(compare_line(cx, &b, "reference", cells));
    }
    for (int i = 0; i < n; i++) {
        compare_cells(cells, &of[i]);
        OSH_TRY(compare_line(cx, &b, compare_name(of[i].model), cells));
    }
    OSH_TRY(osh_buf_printf(cx, &b, "%lld tokens of %s, checksum %s\n", (long long)of[0].n_scored,
                           compare_name(of[0].data), of[0].tokens));
    OSH_TRY(osh_buf_append(cx, &b, "", 0));
    *text = b.data, b.data = NULL; // passes ownership
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static void compare_html_row(osh_page *pg, const char *name, char cells[N_CELLS][CELL_BYTES],
                             const char *cell)
{
    OSH_PUT(pg, "<tr><%s>", cell);
    osh_page_escape(pg, name);
    OSH_PUT(pg, "</%s>", cell);
    for (int k = 0; k < N_CELLS; k++) OSH_PUT(pg, "<%s class=\"n\">%s</%s>", cell, cells[k], cell);
    OSH_PUT(pg, "</tr>\n");
}

osh_status osh_compare_html(osh_ctx *cx, char **html, const osh_panel *of, int n)
{
    osh_page pg;
    char cells[N_CELLS][CELL_BYTES] = {{0}};
    osh_page_begin(&pg, cx, "Evaluations");
    OSH_PUT(&pg, "<p>%lld tokens of ", (long long)of[0].n_scored);
    osh_page_escape(&pg, of[0].data);
    OSH_PUT(&pg, ", checksum ");
    osh_page_escape(&pg, of[0].tokens);
    if (of[0].reference) {
        OSH_PUT(&pg, "; reference ");
        osh_page_escape(&pg, of[0].reference);
    }
    OSH_PUT(&pg, ".</p>\n<div class=\"wide\"><table id=\"compare\">");
    for (int k = 0; k < N_CELLS; k++) snprintf(cells[k], CELL_BYTES, "%s", titles[k]);
    compare_html_row(&pg, "model", cells, "th");
    if (of[0].reference) {
        memset(cells, 0, sizeof cells);
        snprintf(cells[1], CELL_BYTES, "%.4f", of[0].reference_perplexity);
        compare_html_row(&pg, "reference", cells, "td");
    }
    for (int i = 0; i < n; i++) {
        compare_cells(cells, &of[i]);
        compare_html_row(&pg, compare_name(of[i].model), cells, "td");
    }
    OSH_PUT(&pg, "</table></div>\n");
    osh_page_end(&pg, html);
    return pg.rc;
}
