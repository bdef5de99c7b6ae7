/* report_html.c - oneshot-report.html: one file without script, network or fonts; charts are inline
 * SVG. Every text that came from a file or the command line goes through escape(). */
#include "plan/dense.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHART_W = 920, CHART_H = 240, LEFT = 64, BOTTOM = 28, TOP = 24, MAX_BARS = 1500, MAX_ROWS = 1000 };

static const char style[] =
    ":root{--ink:#1d2733;--soft:#5d6b7a;--line:#d9e0e7;--back:#fff;--card:#f5f7f9;--bar:#3867b8;--"
    "warn:#b3541e;"
    "--observe:#3867b8;--solve:#c98a1b;--propagate:#3f8f6b;--load:#7b6bb0;--write:#b3541e;--round:#"
    "c98a1b;"
    "--copy:#5b9bb5;--seal:#8a6d3b;--plan:#9aa5b1;--other:#c5ccd3}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9fb0c0;--line:#36414d;--back:#"
    "14191f;--card:#1d242c;"
    "--bar:#7ba4e8;--warn:#e89a66;--observe:#7ba4e8;--solve:#e0b25a;--propagate:#6cc49b;--load:#"
    "a99ae0;--write:#e89a66}}"
    "body{font:15px/1.5 "
    "system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:960px;margin:2rem auto;"
    "padding:0 "
    "1rem}h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2.2rem}table{border-collapse:collapse;"
    "width:100%;"
    "font-size:.9rem}th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid "
    "var(--line)}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.cards{display:flex;flex-wrap:"
    "wrap;gap:.8rem}"
    ".cards div{background:var(--card);border-radius:6px;padding:.6rem 1rem;min-width:8rem}.cards "
    "b{display:block;"
    "font-size:1.2rem}.soft,.cards "
    "span{color:var(--soft);font-size:.85rem}.warn{color:var(--warn)}svg{width:100%;"
    "height:auto;display:block}svg "
    "text{font-size:11px;fill:var(--soft)}.grid{stroke:var(--line)}details{margin:.6rem 0}"
    ".key i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .3em 0 "
    "1em}td{overflow-wrap:anywhere}td.n,th{white-space:nowrap;overflow-wrap:normal}"
    ".wide{overflow-x:auto}.wide svg{min-width:900px}code{overflow-wrap:anywhere}.cards{margin-top:1rem}"
    ":root{color-scheme:light dark}#errors td:first-child{min-width:13em}"
    "#about th{font-weight:normal;color:var(--soft);vertical-align:top}#about td{width:100%}";

typedef struct page {
    osh_ctx *cx;
    osh_buf b; // own
    osh_status rc;
} page;

#define PUT(pg, ...) ((pg)->rc = (pg)->rc ? (pg)->rc : osh_buf_printf((pg)->cx, &(pg)->b, __VA_ARGS__))

static void escape(page *pg, const char *text)
{
    for (const char *s = text; *s; s++) {
        const char *as = *s == '&' ? "&amp;" : *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '"' ? "&quot;"
                         : *s == '\'' ? "&#39;" : NULL;
        if (as) PUT(pg, "%s", as);
        else if (!pg->rc) pg->rc = osh_buf_append(pg->cx, &pg->b, s, 1);
    }
}

static void put_bytes(page *pg, double n)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;
    while (n >= 999.5 && u < 4) n /= 1000, u++;
    PUT(pg, u && n < 99.95 ? "%.1f %s" : "%.0f %s", n, units[u]);
}

static void put_seconds(page *pg, double s)
{
    if (s < 100) PUT(pg, "%.2f s", s);
    else if (s < 6000) PUT(pg, "%.0f min %02.0f s", floor(s / 60), fmod(s, 60));
    else PUT(pg, "%.0f h %02.0f min", floor(s / 3600), floor(fmod(s, 3600) / 60));
}

static void card(page *pg, const char *label) { PUT(pg, "</b><span>%s</span></div>\n", label); }

static void about_row(page *pg, const char *what, const char *text, bool code)
{
    if (!text || !*text) return;
    PUT(pg, "<tr><th>%s</th><td>%s", what, code ? "<code>" : "");
    escape(pg, text);
    PUT(pg, "%s</td></tr>\n", code ? "</code>" : "");
}

static const char *last_part(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash && slash[1] ? slash + 1 : path;
}

/* Which run this was. */
static void about(page *pg, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    PUT(pg, "<div class=\"wide\"><table id=\"about\">\n");
    about_row(pg, "model", r->model, false);
    about_row(pg, "architecture", p->ck->config ? p->ck->config->architecture : NULL, false);
    about_row(pg, "scheme", p->opt->scheme, false);
    about_row(pg, "recipe", last_part(p->opt->recipe), false);
    about_row(pg, "date", r->date, false);
    about_row(pg, "machine", r->machine, false);
    about_row(pg, "command", r->command, true);
    PUT(pg, "</table></div>\n");
}

static void head(page *pg, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    PUT(pg,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width\"><title>oneshot "
        "report</title>\n<style>%s</style>"
        "</head><body>\n<h1>oneshot report</h1>\n<p class=\"soft\">oneshot %s, pipeline "
        "%s</p>\n",
        style, osh_version(), osh_pipeline_name(p->pipeline));
    about(pg, r);
    PUT(pg, "<div class=\"cards\">\n");
    PUT(pg, "<div><b id=\"modules\">%d", p->n_linears);
    card(pg, "modules quantized");
    PUT(pg, "<div><b>");
    put_bytes(pg, (double)r->source_bytes);
    PUT(pg, " → ");
    put_bytes(pg, (double)p->total_bytes);
    card(pg, "tensors, source and output");
    PUT(pg, "<div><b>");
    put_seconds(pg, r->d.seconds);
    card(pg, "until the report was written");
    PUT(pg, "<div><b>");
    put_bytes(pg, (double)r->d.peak_bytes);
    card(pg, "highest memory");
    if (p->data.n) {
        PUT(pg, "<div><b>%lld", (long long)p->data.offsets[p->data.n]);
        card(pg, "calibration tokens");
    }
    PUT(pg, "<div><b id=\"n-fallbacks\"%s>%d", r->n_fallbacks ? " class=\"warn\"" : "", r->n_fallbacks);
    card(pg, "fallbacks");
    PUT(pg, "<!-- evaluation --></div>\n"); // --eval puts its numbers there
}

/* ---- error per module ---- */

static double error_at(const osh_run *r, int i) { return r->results[i].nmse > 0 ? r->results[i].nmse : 0; }

/* Of what the layer's output loses, the part of what rounding to nearest would. */
static double share_at(const osh_run *r, int i)
{
    const osh_result *x = &r->results[i];
    return x->objective > 0 && x->nearest > 0 ? x->objective / x->nearest : 0;
}

static bool has_shares(const osh_run *r)
{
    for (int i = 0; i < r->plan->n_linears; i++)
        if (share_at(r, i) > 0) return true;
    return false;
}

/* One bar per module in order of execution, or the worst of each of MAX_BARS ranges; logarithmic. */
static void error_chart(page *pg, const osh_run *r, double (*value)(const osh_run *r, int i), const char *what)
{
    const osh_plan *p = r->plan;
    int n = p->n_linears, bars = n < MAX_BARS ? n : MAX_BARS;
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
    PUT(pg, "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" "
        "role=\"img\" aria-label=\"%s of each module\">\n<text x=\"0\" "
        "y=\"12\">%s</text>\n", CHART_W, CHART_H, what, what);
    for (int d = d0; d <= d1; d++) {
        double y = TOP + h * (d1 - d) / (d1 - d0);
        PUT(pg, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">1e%d</text>\n", LEFT, CHART_W, y, y, LEFT - 6, y + 4, d);
    }
    for (int k = 0; k < bars; k++) {
        int worst = (int)((int64_t)k * n / bars);
        for (int i = worst; i < (int)((int64_t)(k + 1) * n / bars); i++)
            if (value(r, i) > value(r, worst)) worst = i;
        double e = value(r, worst), top = e > 0 ? (d1 - log10(e)) / (d1 - d0) : 1;
        PUT(pg, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"var(--%s)\"><title>",
            LEFT + k * step, TOP + h * top, step > 3 ? step - 1 : step, h * (1 - top),
            r->results[worst].fallback ? "warn" : "bar");
        escape(pg, p->linears[worst].name);
        PUT(pg, ": %.3e</title></rect>\n", e);
    }
    if (value == share_at && d0 <= 0 && d1 >= 0) {
        double y = TOP + h * d1 / (d1 - d0);
        PUT(pg, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"var(--warn)\" stroke-dasharray=\"8 4\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">rounded to nearest</text>\n", LEFT, CHART_W, y, y,
            CHART_W - 4, y - 4);
    }
    PUT(pg, "<text x=\"%d\" y=\"%d\">modules in the order of execution%s</text></svg></div>\n", LEFT, CHART_H - 8,
        bars < n ? "; each bar is the worst of a few" : "");
}

typedef struct ranked { double error; int i; } ranked;
static int by_error(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->error != y->error) return x->error > y->error ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

static void error_table(page *pg, const osh_run *r, const ranked *order)
{
    const osh_plan *p = r->plan;
    int n = p->n_linears < MAX_ROWS ? p->n_linears : MAX_ROWS;
    PUT(pg, "<details%s><summary>%d modules, the worst first</summary>\n"
            "<div class=\"wide\"><table id=\"errors\"><tr><th>module</th>"
            "<th>format</th><th class=\"n\">loss</th><th class=\"n\">rounded to nearest</th><th class=\"n\">part</th>"
            "<th class=\"n\">weight error</th><th>by step</th><th class=\"n\">relative output error</th></tr>\n",
        n <= 40 ? " open" : "", n);
    for (int k = 0; k < n; k++) {
        const osh_result *x = &r->results[order[k].i];
        PUT(pg, "<tr><td>");
        escape(pg, p->linears[order[k].i].name);
        PUT(pg, "</td><td>%s</td><td class=\"n\">", p->linears[order[k].i].format->name);
        if (x->objective >= 0) PUT(pg, "%.4g", x->objective);
        PUT(pg, "</td><td class=\"n\">");
        if (x->objective >= 0 && x->nearest >= 0) PUT(pg, "%.4g", x->nearest);
        PUT(pg, "</td><td class=\"n\">");
        if (share_at(r, order[k].i) > 0) PUT(pg, "%.3f", share_at(r, order[k].i));
        PUT(pg, "</td><td class=\"n\">%.3e</td><td>", x->nmse);
        const osh_modifier *m = x->losses.n ? &p->recipe->modifiers[p->linears[order[k].i].modifier] : NULL;
        for (int i = 0; i < x->losses.n; i++)
            PUT(pg, "%s%s %.4g", i ? ", " : "", m->type->step(m, i), x->losses.of[i]);
        PUT(pg, "</td><td class=\"n\">");
        if (x->losses.all > 0) PUT(pg, "%.3e", x->losses.of[x->losses.n - 1] / x->losses.all);
        PUT(pg, "</td></tr>\n");
    }
    PUT(pg, "</table></div>\n");
    if (n < p->n_linears) PUT(pg, "<p class=\"soft\">All %d are in oneshot-report.json.</p>\n", p->n_linears);
    PUT(pg, "</details>\n");
}

/* Experts that fewer tokens than an eighth of an even share went to. */
static void starved(page *pg, const osh_router_tokens *x, int64_t share)
{
    int n = 0;
    for (int64_t e = 0; e < x->n_experts; e++) {
        if (x->tokens[e] * 8 >= share || n++ >= 16) continue;
        PUT(pg, "%s%lld (%lld)", n > 1 ? ", " : "", (long long)e, (long long)x->tokens[e]);
    }
    if (n > 16) PUT(pg, " and %d more", n - 16);
    if (!n) PUT(pg, "none");
}

static void router_row(page *pg, const osh_graph *g, const osh_router_tokens *x)
{
    int64_t least = x->tokens[0], most = least, all = 0;
    for (int64_t e = 0; e < x->n_experts; e++) {
        if (x->tokens[e] < least) least = x->tokens[e];
        if (x->tokens[e] > most) most = x->tokens[e];
        all += x->tokens[e];
    }
    PUT(pg, "<tr><td>");
    escape(pg, g->modules[g->nodes[x->node].module].name);
    PUT(pg, "</td>");
    const int64_t cells[] = {x->n_experts, least, all / x->n_experts, most};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        PUT(pg, "<td class=\"n\">%lld</td>", (long long)cells[i]);
    PUT(pg, "<td>");
    starved(pg, x, all / x->n_experts);
    PUT(pg, "</td></tr>\n");
}

static void coverage(page *pg, const osh_run *run)
{
    const osh_coverage *c = run->coverage;
    PUT(pg, "<div class=\"wide\"><table id=\"coverage\"><tr><th>router</th><th class=\"n\">experts</th>"
            "<th class=\"n\">tokens, least</th><th class=\"n\">mean</th><th class=\"n\">most</th>"
            "<th>starved: expert (tokens)</th></tr>\n");
    for (int i = 0; i < c->n; i++)
        if (c->routers[i].n_tokens) router_row(pg, run->plan->graph, &c->routers[i]);
    PUT(pg, "</table></div>\n<p class=\"soft\">Tokens that the router sends to an expert; starved: less than an eighth "
            "of the mean.</p>\n");
}

static void experts(page *pg, const osh_report *r)
{
    const osh_dataset *d = &r->run->plan->data;
    if (!r->n_experts) return;
    PUT(pg, "<h2>Experts</h2>\n<p id=\"experts\" class=\"soft\">%d modules of experts", r->n_experts);
    if (d->n)
        PUT(pg, ", each calibrated on all %lld tokens, whichever expert the router chose",
            (long long)d->offsets[d->n]);
    PUT(pg, ".</p>\n");
    if (r->run->coverage) coverage(pg, r->run);
}

static void fallbacks(page *pg, const osh_report *r)
{
    const osh_run *run = r->run;
    PUT(pg, "<h2>Fallbacks</h2>\n");
    if (!r->n_fallbacks) {
        PUT(pg, "<p class=\"soft\">None: every module was solved as asked.</p>\n");
        return;
    }
    PUT(pg, "<div class=\"wide\"><table id=\"fallbacks\"><tr><th>module</th><th>what was done instead</th></tr>\n");
    for (int i = 0; i < run->plan->n_linears; i++) {
        if (!run->results[i].fallback) continue;
        PUT(pg, "<tr><td>");
        escape(pg, run->plan->linears[i].name);
        PUT(pg, "</td><td class=\"warn\">");
        escape(pg, run->results[i].fallback);
        PUT(pg, "</td></tr>\n");
    }
    PUT(pg, "</table></div>\n");
}

static void left_dense(page *pg, const osh_plan *p)
{
    PUT(pg, "<h2>Left dense</h2>\n<p id=\"dense-share\"%s>%.1f %% of the decoder blocks' weight bytes</p>\n",
        p->dense_share > OSH_DENSE_MUCH ? " class=\"warn\"" : " class=\"soft\"", 100 * p->dense_share);
    PUT(pg, "<details><summary>what, and why</summary>"
            "<div class=\"wide\"><table><tr><th>modules</th><th>tensors</th><th>bytes</th>"
            "<th>why</th></tr>\n");
    for (int64_t i = 0; i < p->n_dense && i < MAX_ROWS; i++) {
        PUT(pg, "<tr><td>");
        escape(pg, p->dense[i].names);
        PUT(pg, "</td><td>%lld</td><td>", (long long)p->dense[i].n);
        put_bytes(pg, (double)p->dense[i].bytes);
        PUT(pg, "</td><td>%s</td></tr>\n", p->dense[i].why);
    }
    PUT(pg, "</table></div></details>\n");
}

/* ---- time ---- */

static const char *colour(const char *phase)
{
    static const char *const known[] = {"observe", "solve", "propagate", "load", "write",
                                        "round",   "copy",  "seal",      "plan"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i], phase)) return known[i];
    return "other";
}

typedef struct phase_sum { const char *name; double seconds, flops; int64_t n; bool background; } phase_sum;

static size_t sum_phases(phase_sum *sums, size_t cap, const osh_profile_data *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_rows; i++) {
        const osh_profile_row *row = &d->rows[i];
        size_t k = 0;
        while (k < n && (strcmp(sums[k].name, row->phase) || sums[k].background != row->background)) k++;
        if (k == cap) continue;
        if (k == n) sums[n++] = (phase_sum){.name = row->phase, .background = row->background};
        sums[k].seconds += row->seconds, sums[k].flops += row->flops, sums[k].n += row->n;
    }
    return n;
}

static void time_table(page *pg, const osh_report *r)
{
    phase_sum sums[32];
    size_t n = sum_phases(sums, 32, &r->d);
    double total = r->d.seconds > 0 ? r->d.seconds : 1, x = 0, known = 0;
    PUT(pg, "<div class=\"wide\"><svg viewBox=\"0 0 %d 30\" role=\"img\" aria-label=\"time per phase\">\n", CHART_W);
    for (size_t i = 0; i < n; i++) {
        double w = CHART_W * sums[i].seconds / total;
        if (sums[i].background) continue;
        PUT(pg, "<rect x=\"%.2f\" y=\"2\" width=\"%.2f\" height=\"26\" fill=\"var(--%s)\"><title>", x, w,
            colour(sums[i].name));
        escape(pg, sums[i].name);
        PUT(pg, " %.2f s</title></rect>\n", sums[i].seconds);
        x += w, known += sums[i].seconds;
    }
    PUT(pg, "</svg></div>\n"
            "<div class=\"wide\"><table id=\"phases\"><tr><th>phase</th><th class=\"n\">seconds</th>"
            "<th class=\"n\">share</th>"
            "<th class=\"n\">times</th><th class=\"n\">GFLOP/s</th></tr>\n");
    for (size_t i = 0; i < n; i++) {
        PUT(pg, "<tr><td class=\"key\"><i style=\"background:var(--%s);margin-left:0\"></i>", colour(sums[i].name));
        escape(pg, sums[i].name);
        PUT(pg,
            "%s</td><td class=\"n\">%.3f</td><td class=\"n\">%.1f %%</td><td "
            "class=\"n\">%lld</td><td class=\"n\">",
            sums[i].background ? " (beside)" : "", sums[i].seconds, 100 * sums[i].seconds / total,
            (long long)sums[i].n);
        if (sums[i].flops > 0 && sums[i].seconds > 0) PUT(pg, "%.1f", sums[i].flops / sums[i].seconds / 1e9);
        PUT(pg, "</td></tr>\n");
    }
    double other = total > known ? total - known : 0;
    PUT(pg, "<tr><td>other</td><td class=\"n\">%.3f</td><td class=\"n\">%.1f %%</td><td></td><td></td></tr>"
            "</table></div>\n",
        other, 100 * other / total);
}

static double seconds_of(const osh_profile_data *d, const char *name)
{
    double s = 0;
    for (size_t i = 0; i < d->n_rows; i++)
        if (!d->rows[i].background && d->rows[i].of && !strcmp(d->rows[i].of, name)) s += d->rows[i].seconds;
    return s;
}

/* One stacked column per subgraph. */
static void subgraph_chart(page *pg, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    double most = 0, h = CHART_H - TOP - BOTTOM;
    if (p->pipeline != OSH_PIPELINE_SEQUENTIAL || p->parts->n > MAX_BARS) return;
    for (int s = 0; s < p->parts->n; s++) most = fmax(most, seconds_of(&r->d, p->parts->parts[s].name));
    if (most <= 0) return;
    double step = (double)(CHART_W - LEFT) / p->parts->n;
    PUT(pg, "<h3>Per subgraph</h3>\n"
            "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"time per subgraph\">\n"
            "<text x=\"0\" y=\"12\">seconds</text>"
            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/><text x=\"%d\" y=\"%d\" text-anchor=\"end\">"
            "%.3g s</text><text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">0</text>\n",
        CHART_W, CHART_H, LEFT, CHART_W, TOP, TOP, LEFT - 6, TOP + 4, most, LEFT - 6, TOP + h);
    for (int s = 0; s < p->parts->n; s++) {
        double y = TOP + h;
        for (size_t i = 0; i < r->d.n_rows; i++) {
            const osh_profile_row *row = &r->d.rows[i];
            if (row->background || !row->of || strcmp(row->of, p->parts->parts[s].name)) continue;
            double part = h * row->seconds / most;
            y -= part;
            PUT(pg, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"var(--%s)\"><title>",
                LEFT + s * step, y, step > 3 ? step - 1 : step, part, colour(row->phase));
            escape(pg, p->parts->parts[s].name);
            PUT(pg, ", ");
            escape(pg, row->phase);
            PUT(pg, ": %.3f s</title></rect>\n", row->seconds);
        }
    }
    PUT(pg, "<text x=\"%d\" y=\"%d\">subgraphs in order</text></svg></div>\n", LEFT, CHART_H - 8);
}

/* ---- memory, bytes, options ---- */

/* The label of one stands at the left, of the other at the right: the lines may be the same. */
static void memory_line(page *pg, double y, const char *what, double bytes, bool left)
{
    PUT(pg, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"var(--%s)\" stroke-dasharray=\"%s\"/>"
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"%s\">%s ", LEFT, CHART_W, y, y, left ? "soft" : "warn",
        left ? "2 4" : "8 4", left ? LEFT + 4 : CHART_W - 4, y - 4, left ? "start" : "end", what);
    put_bytes(pg, bytes);
    PUT(pg, "</text>\n");
}

static void memory_chart(page *pg, const osh_report *r)
{
    const osh_profile_data *d = &r->d;
    double top = (double)d->peak_bytes, h = CHART_H - TOP - BOTTOM, w = CHART_W - LEFT;
    if (!d->n_points || d->seconds <= 0 || top <= 0) return;
    if (r->budget_bytes > top) top = (double)r->budget_bytes;
    if (r->predicted_bytes > top) top = (double)r->predicted_bytes;
    top *= 1.08;
    PUT(pg,
        "<div class=\"wide\"><svg id=\"memory\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"memory against "
        "time\">\n<text x=\"0\" y=\"12\">bytes in memory</text>\n",
        CHART_W, CHART_H);
    for (int k = 0; k <= 4; k++) {
        double y = TOP + h * (4 - k) / 4;
        PUT(pg, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">", LEFT, CHART_W, y, y, LEFT - 6, y + 4);
        put_bytes(pg, top * k / 4);
        PUT(pg, "</text>\n");
    }
    PUT(pg, "<polyline fill=\"none\" stroke=\"var(--bar)\" stroke-width=\"1.5\" points=\"");
    for (size_t i = 0; i < d->n_points; i++)
        PUT(pg, "%.1f,%.1f ", LEFT + w * d->points[i].seconds / d->seconds,
            TOP + h * (1 - (double)d->points[i].bytes / top));
    PUT(pg, "\"/>\n");
    if (r->predicted_bytes)
        memory_line(pg, TOP + h * (1 - (double)r->predicted_bytes / top), "predicted",
                    (double)r->predicted_bytes, true);
    if (r->budget_bytes)
        memory_line(pg, TOP + h * (1 - (double)r->budget_bytes / top), "budget", (double)r->budget_bytes, false);
    for (size_t i = 0; i < d->n_marks && i < 50; i++) {
        double x = LEFT + w * d->marks[i].seconds / d->seconds;
        PUT(pg, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.1f\"><title>", x, x, TOP, TOP + h);
        escape(pg, d->marks[i].name);
        PUT(pg, "</title></line>\n");
    }
    PUT(pg, "<text x=\"%d\" y=\"%d\">0</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">time since the start</text>"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT, CHART_H - 8, LEFT + (CHART_W - LEFT) / 2, CHART_H - 8,
        CHART_W, CHART_H - 8);
    put_seconds(pg, d->seconds);
    PUT(pg, "</text></svg></div>\n<p class=\"soft\">Anonymous and shared memory of the process, the "
            "highest of each interval.</p>\n");
}

static void bytes_row(page *pg, const char *what, double n)
{
    if (n < 0) return;
    PUT(pg, "<tr><td>%s</td><td class=\"n\">%.0f</td><td class=\"n\">", what, n);
    put_bytes(pg, n);
    PUT(pg, "</td></tr>\n");
}

static void bytes_table(page *pg, const osh_report *r)
{
    PUT(pg, "<h2>Bytes</h2>\n"
            "<div class=\"wide\"><table id=\"bytes\"><tr><th></th><th class=\"n\">bytes</th><th></th></tr>\n");
    bytes_row(pg, "tensors of the source", (double)r->source_bytes);
    bytes_row(pg, "tensors of the output", (double)r->run->plan->total_bytes);
    bytes_row(pg, "read by the program, the check of the output included", (double)r->d.io.read_bytes);
    bytes_row(pg, "written by the program", (double)r->d.io.written_bytes);
    bytes_row(pg, "planned: read of the source", (double)r->run->plan->memory.read_bytes);
    bytes_row(pg, "planned: written", (double)r->run->plan->memory.write_bytes);
    bytes_row(pg, "read from storage by the process", (double)r->storage_read);
    bytes_row(pg, "written to storage by the process so far", (double)r->storage_written);
    PUT(pg, "</table></div>\n");
}

static void copies_row(page *pg, const char *what, int64_t bytes, double seconds)
{
    PUT(pg, "<tr><td>%s</td><td class=\"n\">", what);
    put_bytes(pg, (double)bytes);
    PUT(pg, "</td><td class=\"n\">");
    if (seconds > 0) PUT(pg, "%.1f GB/s", (double)bytes / seconds / 1e9);
    PUT(pg, "</td></tr>\n");
}

static void device_table(page *pg, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    const osh_cuda_counters *c = &r->copies;
    if (!p->device) return;
    PUT(pg, "<h2>Device</h2>\n<div class=\"wide\"><table id=\"device\"><tr><th>");
    escape(pg, p->device->text);
    PUT(pg, "</th><th></th><th></th></tr>\n");
    copies_row(pg, "highest memory", (int64_t)osh_arena_peak(p->device->arena), 0);
    copies_row(pg, "predicted", p->memory.device_peak, 0);
    if (p->opt->device_memory) copies_row(pg, "budget", p->opt->device_memory, 0);
    copies_row(pg, "copied to it", c->put_bytes, c->put_s);
    copies_row(pg, "copied to it beside the work", c->ahead_bytes, c->ahead_s);
    copies_row(pg, "copied from it", c->get_bytes, c->get_s);
    PUT(pg, "<tr><td>values between subgraphs rest in</td><td class=\"n\">%s</td><td></td></tr>\n",
        osh_tier_name(p->memory.tier));
    copies_row(pg, "of the copies: values to it", c->value_in_bytes, 0);
    copies_row(pg, "of the copies: values from it", c->value_out_bytes, 0);
    if (c->put_s + c->ahead_s > 0)
        PUT(pg, "<tr><td>time of copies to it hidden behind compute</td><td class=\"n\">%.1f %%</td><td></td></tr>\n",
            100 * c->hidden_s / (c->put_s + c->ahead_s));
    if (c->get_s > 0)
        PUT(pg, "<tr><td>time of copies from it hidden behind compute</td><td class=\"n\">%.1f %%</td><td></td></tr>\n",
            100 * c->get_hidden_s / c->get_s);
    for (int k = OSH_PHASE_OBSERVE; k <= OSH_PHASE_PROPAGATE; k++) {
        PUT(pg, "<tr><td>%s, by its clock</td><td class=\"n\">", osh_phase_name((osh_phase)k));
        put_seconds(pg, r->run->device_seconds[k]);
        PUT(pg, "</td><td></td></tr>\n");
    }
    for (int k = 0; k < OSH_N_DETOURS; k++)
        if (c->detours[k])
            PUT(pg, "<tr class=\"warn\"><td>%s</td><td class=\"n\">%lld times</td><td></td></tr>\n",
                osh_cuda_detour_text((osh_cuda_detour)k), (long long)c->detours[k]);
    PUT(pg, "</table></div>\n");
}

static void options_table(page *pg, const cJSON *options)
{
    PUT(pg, "<h2>Options</h2>\n<div class=\"wide\"><table id=\"options\">\n");
    for (const cJSON *o = options->child; o; o = o->next) {
        char *text = cJSON_IsString(o) ? NULL : cJSON_PrintUnformatted(o); // own
        PUT(pg, "<tr><td>");
        escape(pg, o->string);
        PUT(pg, "</td><td>");
        escape(pg, cJSON_IsString(o) ? o->valuestring : text ? text : "");
        PUT(pg, "</td></tr>\n");
        cJSON_free(text);
    }
    PUT(pg, "</table></div>\n");
}

osh_status osh_report_html(osh_ctx *cx, char **html, const osh_report *r, cJSON *options)
{
    osh_status rc = OSH_OK;
    page pg = {.cx = cx};
    ranked *order = NULL; // own
    int n = r->run->plan->n_linears;
    osh_buf_init(&pg.b, 0);
    OSH_NEW(cx, order, n);
    bool shares = has_shares(r->run);
    for (int i = 0; i < n; i++)
        order[i] = (ranked){shares ? r->run->results[i].objective : r->run->results[i].nmse, i};
    qsort(order, (size_t)n, sizeof *order, by_error);
    head(&pg, r);
    if (shares) {
        PUT(&pg, "<h2>Loss per module</h2>\n<p class=\"soft\">What the layer's output loses on the calibration "
                 "data, as a part "
                 "of what it would with the weight rounded to nearest; logarithmic.</p>\n");
        error_chart(&pg, r->run, share_at, "loss, 1 = rounded to nearest");
    } else {
        PUT(&pg, "<h2>Error per module</h2>\n<p class=\"soft\">Squared error of the weight, relative to its square; "
                 "logarithmic.</p>\n");
        error_chart(&pg, r->run, error_at, "relative squared error");
    }
    error_table(&pg, r->run, order);
    experts(&pg, r);
    fallbacks(&pg, r);
    left_dense(&pg, r->run->plan);
    PUT(&pg, "<h2>Time per phase</h2>\n");
    time_table(&pg, r);
    subgraph_chart(&pg, r);
    PUT(&pg, "<h2>Memory against time</h2>\n");
    memory_chart(&pg, r);
    bytes_table(&pg, r);
    device_table(&pg, r);
    options_table(&pg, options);
    PUT(&pg, "</body></html>\n");
    OSH_TRY(pg.rc);
    *html = pg.b.data, pg.b.data = NULL; // give
done:
    osh_free(cx, order);
    osh_buf_deinit(cx, &pg.b);
    return rc;
}
