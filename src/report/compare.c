/* compare.c - writes the table of `oneshot compare`, as text and as a page. The reference is the
 * first row. */
#include "report/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

enum { WIDTH = 80, N_CELLS = 6, CELL_BYTES = 32 };

/* Columns in print order. The column of names is not in this list; it has the remaining width of a
 * line. */
static const struct {
    const char *title;
    int width;
} columns[N_CELLS] = {{"size", 11},    {"loss", 9},     {"perplexity", 11},
                      {"KL mean", 10}, {"KL 99 %", 10}, {"top-1", 10}};
enum { CELL_SIZE, CELL_LOSS, CELL_PERPLEXITY, CELL_KL, CELL_P99, CELL_TOP1 };

static const char about_loss[] =
    "loss: at the outputs of the modules; rounding to nearest has 100 %";
static const char about_unscored[] =
    "no evaluation: want runs with --eval TEXT, or files of `oneshot eval --panel`";

typedef struct table { // a table; each row is an osh_panel, the results of one output
    const osh_panel *of;
    int n;
    const osh_panel *scored; // first panel with scores; NULL: there is none
    bool shown[N_CELLS];     // [column]: true if at least one row has a value in the column
} table;

static table table_make(const osh_panel *of, int n)
{
    table t = {.of = of, .n = n, .shown = {[CELL_SIZE] = true}};
    for (int i = 0; i < n; i++) {
        if (!t.scored && !of[i].unscored) t.scored = &of[i];
        t.shown[CELL_LOSS] |= of[i].loss >= 0;
    }
    for (int k = CELL_PERPLEXITY; k < N_CELLS; k++)
        t.shown[k] = t.scored && (k == CELL_PERPLEXITY || t.scored->reference);
    return t;
}

osh_status osh_compare_check(osh_ctx *cx, const osh_panel *of, int n)
{
    osh_status rc = OSH_OK;
    const osh_panel *first = table_make(of, n).scored;
    for (int i = 0; i < n; i++) {
        if (of[i].unscored) continue;
        if (strcmp(of[i].tokens, first->tokens))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s and %s have different tokens: checksums %s and %s. Want the same data "
                     "set, windows and tokenizer",
                     of[i].name, first->name, of[i].tokens, first->tokens);
        if (!of[i].reference != !first->reference ||
            (of[i].reference && of[i].reference_perplexity != first->reference_perplexity))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s and %s have different references: want one --reference for all",
                     of[i].name, first->name);
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

/* Prints the results of evaluation p to the cells of one row. The cell of a missing result is
 * empty. */
static void compare_cells(char cells[N_CELLS][CELL_BYTES], const osh_panel *p)
{
    memset(cells, 0, (size_t)N_CELLS * CELL_BYTES);
    snprintf(cells[CELL_SIZE], CELL_BYTES, "%.1f MB", (double)p->model_bytes / 1e6);
    if (p->loss >= 0) snprintf(cells[CELL_LOSS], CELL_BYTES, "%.1f %%", 100 * p->loss);
    if (p->unscored) return;
    snprintf(cells[CELL_PERPLEXITY], CELL_BYTES, "%.4f", p->perplexity);
    if (!p->reference) return;
    snprintf(cells[CELL_KL], CELL_BYTES, "%.5f", p->kl_mean);
    snprintf(cells[CELL_P99], CELL_BYTES, "%.4f", p->kl_p99);
    snprintf(cells[CELL_TOP1], CELL_BYTES, "%.2f %%", 100 * p->top1);
}

static void compare_titles(char cells[N_CELLS][CELL_BYTES])
{
    for (int k = 0; k < N_CELLS; k++) snprintf(cells[k], CELL_BYTES, "%s", columns[k].title);
}

static void compare_reference(char cells[N_CELLS][CELL_BYTES], const table *t)
{
    memset(cells, 0, (size_t)N_CELLS * CELL_BYTES);
    snprintf(cells[CELL_PERPLEXITY], CELL_BYTES, "%.4f", t->scored->reference_perplexity);
}

static osh_status compare_line(osh_ctx *cx, osh_buf *b, const char *name,
                               char cells[N_CELLS][CELL_BYTES], const table *t)
{
    osh_status rc = OSH_OK;
    size_t n = strlen(name), room = WIDTH;
    for (int k = 0; k < N_CELLS; k++) room -= t->shown[k] ? (size_t)columns[k].width : 0;
    bool cut = n > room;
    OSH_TRY(osh_buf_printf(cx, b, "%s%-*s", cut ? ".." : "", (int)(cut ? room - 2 : room),
                           cut ? name + n - (room - 2) : name));
    for (int k = 0; k < N_CELLS; k++)
        if (t->shown[k]) OSH_TRY(osh_buf_printf(cx, b, " %*s", columns[k].width - 1, cells[k]));
    while (b->len && b->data[b->len - 1] == ' ') b->len--;
    OSH_TRY(osh_buf_append(cx, b, "\n", 1));
done:
    return rc;
}

osh_status osh_compare_text(osh_ctx *cx, char **text, const osh_panel *of, int n)
{
    osh_status rc = OSH_OK;
    char cells[N_CELLS][CELL_BYTES];
    const table t = table_make(of, n);
    osh_buf b; // own
    osh_buf_init(&b, 0);
    compare_titles(cells);
    OSH_TRY(compare_line(cx, &b, "model", cells, &t));
    if (t.scored && t.scored->reference) {
        compare_reference(cells, &t);
        OSH_TRY(compare_line(cx, &b, "reference", cells, &t));
    }
    for (int i = 0; i < n; i++) {
        compare_cells(cells, &of[i]);
        OSH_TRY(compare_line(cx, &b, compare_name(of[i].model), cells, &t));
    }
    if (t.shown[CELL_LOSS]) OSH_TRY(osh_buf_printf(cx, &b, "%s\n", about_loss));
    if (t.scored)
        OSH_TRY(osh_buf_printf(cx, &b, "%lld tokens of %s, checksum %s\n",
                               (long long)t.scored->n_scored, compare_name(t.scored->data),
                               t.scored->tokens));
    else
        OSH_TRY(osh_buf_printf(cx, &b, "%s\n", about_unscored));
    OSH_TRY(osh_buf_append(cx, &b, "", 0));
    *text = b.data, b.data = NULL; // passes ownership
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static void compare_html_row(osh_page *pg, const char *name, char cells[N_CELLS][CELL_BYTES],
                             const table *t, const char *cell)
{
    OSH_PUT(pg, "<tr><%s>", cell);
    osh_page_escape(pg, name);
    OSH_PUT(pg, "</%s>", cell);
    for (int k = 0; k < N_CELLS; k++)
        if (t->shown[k]) OSH_PUT(pg, "<%s class=\"n\">%s</%s>", cell, cells[k], cell);
    OSH_PUT(pg, "</tr>\n");
}

/* Prints the number of scored tokens, the name and the checksum of their text, and the
 * reference. */
static void compare_html_scored(osh_page *pg, const osh_panel *p)
{
    OSH_PUT(pg, "<p>%lld tokens of ", (long long)p->n_scored);
    osh_page_escape(pg, p->data);
    OSH_PUT(pg, ", checksum ");
    osh_page_escape(pg, p->tokens);
    if (p->reference) {
        OSH_PUT(pg, "; reference ");
        osh_page_escape(pg, p->reference);
    }
    OSH_PUT(pg, ".</p>\n");
}

osh_status osh_compare_html(osh_ctx *cx, char **html, const osh_panel *of, int n)
{
    osh_page pg;
    char cells[N_CELLS][CELL_BYTES];
    const table t = table_make(of, n);
    osh_page_begin(&pg, cx, "Evaluations");
    if (t.scored)
        compare_html_scored(&pg, t.scored);
    else
        OSH_PUT(&pg, "<p>%s.</p>\n", about_unscored);
    if (t.shown[CELL_LOSS]) OSH_PUT(&pg, "<p>%s.</p>\n", about_loss);
    OSH_PUT(&pg, "<div class=\"wide\"><table id=\"compare\">");
    compare_titles(cells);
    compare_html_row(&pg, "model", cells, &t, "th");
    if (t.scored && t.scored->reference) {
        compare_reference(cells, &t);
        compare_html_row(&pg, "reference", cells, &t, "td");
    }
    for (int i = 0; i < n; i++) {
        compare_cells(cells, &of[i]);
        compare_html_row(&pg, compare_name(of[i].model), cells, &t, "td");
    }
    OSH_PUT(&pg, "</table></div>\n");
    osh_page_end(&pg, html);
    return pg.rc;
}
