/* report_modules.c - writes the parts of oneshot-report.html that list modules: their errors,
 * experts, fallbacks, and modules that stay dense. */
#include "match/dense.h"
#include "report/labels.h"
#include "report/report_modules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_ROWS = 1000,
    CHART_W = OSH_CHART_W,
    CHART_H = OSH_CHART_H,
    LEFT = OSH_CHART_LEFT,
    BOTTOM = OSH_CHART_BOTTOM,
    TOP = OSH_CHART_TOP
};

#define PUT OSH_PUT

static double module_error(const osh_run *r, int i)
{
    return r->results[i].nmse > 0 ? r->results[i].nmse : 0;
}

/* Returns the loss of the output of Linear i, relative to the loss with the weight rounded to
 * nearest. Returns 0 if the loss is not known. */
static double module_share(const osh_run *r, int i)
{
    const osh_result *x = &r->results[i];
    return x->objective > 0 && x->nearest > 0 ? x->objective / x->nearest : 0;
}

static bool run_has_shares(const osh_run *r)
{
    for (int i = 0; i < r->plan->match.n_linears; i++)
        if (module_share(r, i) > 0) return true;
    return false;
}

/* Draws one bar for each module in the order of execution, with a logarithmic scale. For more than
 * OSH_PAGE_BARS modules, one bar shows the worst of several successive modules. */
static void html_error_chart(osh_page *pg, const osh_run *r,
                             double (*value)(const osh_run *r, int i), const char *what)
{
    const osh_plan *p = r->plan;
    int n = p->match.n_linears, bars = n < OSH_PAGE_BARS ? n : OSH_PAGE_BARS;
    double lo = HUGE_VAL, hi = 0;
    for (int i = 0; i < n; i++) {
        double e = value(r, i);
        if (e > 0 && e < lo) lo = e;
        if (e > hi) hi = e;
    }
    if (!(hi > 0) || !isfinite(hi)) return;
    int d0 = (int)floor(log10(lo) - 0.01), d1 = (int)ceil(log10(hi));
    if (d1 <= d0) d1 = d0 + 1;
    double h = CHART_H - TOP - BOTTOM, w = CHART_W - LEFT, step = w / bars;
    osh_labels labels = {.pg = pg};
    char text[32];
    PUT(pg, "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" "
        "role=\"img\" aria-label=\"%s of each module\">\n", CHART_W, CHART_H, what);
    osh_label_put(&labels, 0, 12, OSH_AT_START, what);
    for (int d = d1; d >= d0; d--) {
        double y = TOP + h * (d1 - d) / (d1 - d0);
        PUT(pg, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, CHART_W,
            y, y);
        snprintf(text, sizeof text, d >= -5 && d <= 3 ? "%.*f %%" : "%.*e %%", d >= -2 ? 0 : -2 - d,
                 pow(10, d + 2));
        osh_label_put(&labels, LEFT - 6, y + 4, OSH_AT_END, text);
    }
    for (int k = 0; k < bars; k++) {
        int worst = (int)((int64_t)k * n / bars);
        for (int i = worst; i < (int)((int64_t)(k + 1) * n / bars); i++)
            if (value(r, i) > value(r, worst)) worst = i;
        double e = value(r, worst), top = e > 0 ? (d1 - log10(e)) / (d1 - d0) : 1;
        PUT(pg,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"var(--%s)\"><title>",
            LEFT + k * step, TOP + h * top, step > 3 ? step - 1 : step, h * (1 - top),
            r->results[worst].fallback ? "warn" : "bar");
        osh_page_escape(pg, p->match.linears[worst].name);
        PUT(pg, ": ");
        osh_page_percent(pg, e);
        PUT(pg, "</title></rect>\n");
    }
    if (value == module_share && d0 <= 0 && d1 >= 0) {
        double y = TOP + h * d1 / (d1 - d0);
        PUT(pg,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"var(--warn)\" "
            "stroke-dasharray=\"8 4\"/>",
            LEFT, CHART_W, y, y);
        osh_label_put(&labels, CHART_W, 12, OSH_AT_END, "dashed: rounded to nearest");
    }
    osh_label_put(&labels, LEFT, CHART_H - 8, OSH_AT_START,
                  bars < n ? "modules in the order of execution; each bar is the worst of a few"
                           : "modules in the order of execution");
    PUT(pg, "</svg></div>\n");
}

typedef struct ranked { double error; int i; } ranked;
static int ranked_by_error(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->error != y->error) return x->error > y->error ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

typedef struct columns { // columns of the table of modules: true if a column has values
    bool shares, steps, outputs;
    double lost; // sum of the losses of all modules
} columns;

static columns columns_find(const osh_run *r)
{
    columns c = {.shares = run_has_shares(r)};
    for (int i = 0; i < r->plan->match.n_linears; i++) {
        const osh_result *x = &r->results[i];
        c.steps |= x->losses.n > 0, c.outputs |= x->losses.all > 0;
        if (x->objective > 0) c.lost += x->objective;
    }
    return c;
}

static void html_error_row(osh_page *pg, const osh_run *r, const columns *c, int i)
{
    const osh_result *x = &r->results[i];
    const osh_linear *l = &r->plan->match.linears[i];
    PUT(pg, "<tr><td>");
    osh_page_name(pg, l->name);
    PUT(pg, "</td><td class=\"n%s\">%d</td><td class=\"n\">", c->shares ? " more" : "",
        l->scheme->weights.bits);
    if (c->shares) {
        if (x->objective >= 0 && c->lost > 0) osh_page_percent(pg, x->objective / c->lost);
        PUT(pg, "</td><td class=\"n\">");
        if (module_share(r, i) > 0) osh_page_percent(pg, module_share(r, i));
        PUT(pg, "</td><td class=\"n\">");
    }
    osh_page_percent(pg, x->nmse);
    if (c->outputs) {
        PUT(pg, "</td><td class=\"n more\">");
        if (x->losses.all > 0) osh_page_percent(pg, x->losses.of[x->losses.n - 1] / x->losses.all);
    }
    if (c->steps) {
        const osh_modifier *m = &r->plan->in.recipe->modifiers[l->modifier];
        PUT(pg, "</td><td class=\"more\">");
        for (int k = 0; k < x->losses.n; k++) {
            PUT(pg, "%s%s ", k ? ", " : "", osh_modifier_step(m, k));
            osh_page_percent(pg, x->losses.of[0] > 0 ? x->losses.of[k] / x->losses.of[0] : 0);
        }
    }
    PUT(pg, "</td></tr>\n");
}

static void html_error_table(osh_page *pg, const osh_run *r, const ranked *order)
{
    const osh_plan *p = r->plan;
    int n = p->match.n_linears < MAX_ROWS ? p->match.n_linears : MAX_ROWS;
    columns c = columns_find(r);
    PUT(pg,
        "<details%s><summary>%d modules, the largest %s first</summary>\n"
        "<div class=\"wide\"><table id=\"errors\"><tr><th>module</th><th class=\"n%s\">bits</th>"
        "%s<th class=\"n\">error of the weight</th>%s%s</tr>\n",
        n <= 40 ? " open" : "", n, c.shares ? "loss" : "error", c.shares ? " more" : "",
        c.shares ? "<th class=\"n\">share of the loss</th><th class=\"n\">loss, rounded to nearest "
                   "is 100 %</th>" : "",
        c.outputs ? "<th class=\"n more\">error of the output</th>" : "",
        c.steps ? "<th class=\"more\">loss after each step, the first is 100 %</th>" : "");
    for (int k = 0; k < n; k++) html_error_row(pg, r, &c, order[k].i);
    PUT(pg, "</table></div>\n");
    if (n < p->match.n_linears)
        PUT(pg, "<p class=\"soft\">All %d are in oneshot-report.json.</p>\n", p->match.n_linears);
    PUT(pg, "</details>\n");
}

osh_status osh_report_errors(osh_ctx *cx, osh_page *pg, const osh_run *r)
{
    osh_status rc = OSH_OK;
    ranked *order = NULL; // own
    int n = r->plan->match.n_linears;
    bool shares = run_has_shares(r);
    OSH_NEW(cx, order, n);
    for (int i = 0; i < n; i++)
        order[i] = (ranked){shares ? r->results[i].objective : r->results[i].nmse, i};
    qsort(order, (size_t)n, sizeof *order, ranked_by_error);
    if (shares) {
        PUT(pg, "<h2>Loss per module</h2>\n<p class=\"soft\">Loss of the layer's output on the "
                "calibration data, divided by the loss with the weight rounded to nearest; "
                "logarithmic.</p>\n");
        html_error_chart(pg, r, module_share, "loss, rounded to nearest is 100 %");
    } else {
        PUT(pg, "<h2>Error per module</h2>\n<p class=\"soft\">Squared error of the weight, "
                "divided by the square of the weight; logarithmic.</p>\n");
        html_error_chart(pg, r, module_error, "squared error of the weight");
    }
    html_error_table(pg, r, order);
done:
    osh_free(cx, order);
    return rc;
}

/* Lists experts with fewer than share / 8 tokens. `share` is the number of tokens per expert if the
 * router sends equally many tokens to each expert. */
static void html_starved(osh_page *pg, const osh_router_tokens *x, int64_t share)
{
    int n = 0;
    for (int64_t e = 0; e < x->n_experts; e++) {
        if (x->tokens[e] * 8 >= share || n++ >= 16) continue;
        PUT(pg, "%s%lld (%lld)", n > 1 ? ", " : "", (long long)e, (long long)x->tokens[e]);
    }
    if (n > 16) PUT(pg, " and %d more", n - 16);
    if (!n) PUT(pg, "none");
}

static void html_router_row(osh_page *pg, const osh_graph *g, const osh_router_tokens *x)
{
    int64_t least = x->tokens[0], most = least, all = 0;
    for (int64_t e = 0; e < x->n_experts; e++) {
        if (x->tokens[e] < least) least = x->tokens[e];
        if (x->tokens[e] > most) most = x->tokens[e];
        all += x->tokens[e];
    }
    PUT(pg, "<tr><td>");
    osh_page_name(pg, g->modules[g->nodes[x->node].module].name);
    PUT(pg, "</td>");
    const int64_t cells[] = {x->n_experts, least, all / x->n_experts, most};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        PUT(pg, "<td class=\"n%s\">%lld</td>", i % 3 ? "" : " more", (long long)cells[i]);
    PUT(pg, "<td>");
    html_starved(pg, x, all / x->n_experts);
    PUT(pg, "</td></tr>\n");
}

static void html_coverage(osh_page *pg, const osh_run *run)
{
    const osh_coverage *c = run->coverage;
    PUT(pg,
        "<div class=\"wide\"><table id=\"coverage\"><tr><th>router</th><th class=\"n "
        "more\">experts</th><th class=\"n\">tokens, least</th><th class=\"n\">mean</th>"
        "<th class=\"n more\">most</th>"
        "<th>starved: expert (tokens)</th></tr>\n");
    for (int i = 0; i < c->n; i++)
        if (c->routers[i].n_tokens) html_router_row(pg, run->plan->in.graph, &c->routers[i]);
    PUT(pg, "</table></div>\n<p class=\"soft\">Tokens that the router sends to an expert; starved: "
            "less than an eighth of the mean.</p>\n");
}

static void html_experts(osh_page *pg, const osh_report *r)
{
    const osh_dataset *d = &r->run->plan->in.data;
    if (!r->n_experts) return;
    PUT(pg, "<h2>Experts</h2>\n<p id=\"experts\" class=\"soft\">%d modules of experts",
        r->n_experts);
    if (d->n)
        PUT(pg, ", each calibrated on all %lld tokens, for any choice of the router",
            (long long)d->offsets[d->n]);
    PUT(pg, ".</p>\n");
    if (r->run->coverage) html_coverage(pg, r->run);
}

static void html_fallbacks(osh_page *pg, const osh_report *r)
{
    const osh_run *run = r->run;
    PUT(pg, "<h2>Fallbacks</h2>\n");
    if (!r->n_fallbacks) {
        PUT(pg, "<p class=\"soft\">None: every module was solved as asked.</p>\n");
        return;
    }
    PUT(pg, "<div class=\"wide\"><table id=\"fallbacks\"><tr><th>module</th><th>method that was "
            "used instead</th></tr>\n");
    for (int i = 0; i < run->plan->match.n_linears; i++) {
        if (!run->results[i].fallback) continue;
        PUT(pg, "<tr><td>");
        osh_page_name(pg, run->plan->match.linears[i].name);
        PUT(pg, "</td><td class=\"warn\">");
        osh_page_escape(pg, run->results[i].fallback);
        PUT(pg, "</td></tr>\n");
    }
    PUT(pg, "</table></div>\n");
}

static void html_left_dense(osh_page *pg, const osh_plan *p)
{
    PUT(pg,
        "<h2>Left dense</h2>\n<p id=\"dense-share\"%s>%.1f %% of the decoder blocks' weight "
        "bytes</p>\n",
        p->match.dense_share > OSH_DENSE_MUCH ? " class=\"warn\"" : " class=\"soft\"",
        100 * p->match.dense_share);
    PUT(pg, "<details><summary>modules and reasons</summary>"
            "<div class=\"wide\"><table><tr><th>modules</th><th>tensors</th><th>bytes</th>"
            "<th>why</th></tr>\n");
    for (int64_t i = 0; i < p->match.n_dense && i < MAX_ROWS; i++) {
        PUT(pg, "<tr><td>");
        osh_page_name(pg, p->match.dense[i].names);
        PUT(pg, "</td><td>%lld</td><td>", (long long)p->match.dense[i].n);
        osh_page_bytes(pg, (double)p->match.dense[i].bytes);
        PUT(pg, "</td><td>%s</td></tr>\n", p->match.dense[i].why);
    }
    PUT(pg, "</table></div></details>\n");
}

void osh_report_modules(osh_page *pg, const osh_report *r)
{
    html_experts(pg, r);
    html_fallbacks(pg, r);
    html_left_dense(pg, r->run->plan);
}
