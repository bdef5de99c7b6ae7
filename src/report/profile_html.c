/* profile_html.c - draws a profile as charts and tables. */
#include "report/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- time ---- */

static void total_cells(osh_page *pg, const osh_profile_total *sum, double total)
{
    OSH_PUT(pg,
            "%s</td><td class=\"n\">%.3f</td><td class=\"n\">%.1f %%</td><td class=\"n\">%lld</td>",
            sum->background ? " (beside)" : "", sum->seconds, 100 * sum->seconds / total,
            (long long)sum->n);
    osh_page_bytes_cell(pg, sum->peak_bytes ? sum->peak_bytes : -1);
    osh_page_bytes_cell(pg, sum->live_bytes ? sum->live_bytes : -1);
    OSH_PUT(pg, "<td class=\"n\">");
    if (sum->flops > 0 && sum->seconds > 0) OSH_PUT(pg, "%.1f", sum->flops / sum->seconds / 1e9);
    OSH_PUT(pg, "</td></tr>\n");
}

static void times_head(osh_page *pg, const char *id, const char *what)
{
    OSH_PUT(
        pg,
        "<div class=\"wide\"><table id=\"%s\"><tr><th>%s</th><th class=\"n\">seconds</th>"
        "<th class=\"n\">share</th><th class=\"n\">times</th><th class=\"n\">highest memory</th>"
        "<th class=\"n\">of it in use</th><th class=\"n\">GFLOP/s</th></tr>\n",
        id, what);
}

static void stages_table(osh_page *pg, const osh_profile_data *d, double total)
{
    osh_profile_total sums[OSH_N_STAGES];
    int64_t n = 0;
    osh_profile_stages(sums, d->rows, d->n_rows);
    for (int k = 0; k < OSH_N_STAGES; k++) n += sums[k].n;
    if (!n) return;
    times_head(pg, "stages", "stage");
    for (int k = 0; k < OSH_N_STAGES; k++) {
        if (!sums[k].n) continue;
        OSH_PUT(pg, "<tr><td>%s", sums[k].name);
        total_cells(pg, &sums[k], total);
    }
    OSH_PUT(pg, "</table></div>\n");
}

void osh_page_times(osh_page *pg, const osh_profile_data *d)
{
    size_t n;
    osh_profile_total *sums = osh_profile_phases(&n, d->rows, d->n_rows); // own
    if (!sums) {
        if (!pg->rc)
            pg->rc = osh_fail(pg->cx, OSH_E_NOMEM, "no memory for the phases of a profile");
        return;
    }
    double total = d->seconds > 0 ? d->seconds : 1, x = 0, known = 0;
    OSH_PUT(pg,
            "<div class=\"wide\"><svg viewBox=\"0 0 %d 30\" role=\"img\" aria-label=\"time per "
            "phase\">\n",
            OSH_CHART_W);
    for (size_t i = 0; i < n; i++) {
        double w = OSH_CHART_W * sums[i].seconds / total;
        if (sums[i].background) continue;
        OSH_PUT(pg,
                "<rect x=\"%.2f\" y=\"2\" width=\"%.2f\" height=\"26\" fill=\"var(--%s)\"><title>",
                x, w, osh_page_colour(sums[i].name));
        osh_page_escape(pg, sums[i].name);
        OSH_PUT(pg, " %.2f s</title></rect>\n", sums[i].seconds);
        x += w, known += sums[i].seconds;
    }
    OSH_PUT(pg, "</svg></div>\n");
    stages_table(pg, d, total);
    times_head(pg, "phases", "phase");
    for (size_t i = 0; i < n; i++) {
        OSH_PUT(pg, "<tr><td class=\"key\"><i style=\"background:var(--%s);margin-left:0\"></i>",
                osh_page_colour(sums[i].name));
        osh_page_escape(pg, sums[i].name);
        total_cells(pg, &sums[i], total);
    }
    double other = total > known ? total - known : 0;
    OSH_PUT(pg,
            "<tr><td>other</td><td class=\"n\">%.3f</td><td class=\"n\">%.1f "
            "%%</td><td></td><td></td><td></td><td></td></tr></table></div>\n",
            other, 100 * other / total);
    free(sums);
}

/* ---- memory over time ---- */

enum { STRIP_H = 7, LABEL_W = 112, LABEL_CHARS = 18, LEAST_W = 1 };

typedef struct axes { double seconds, top; } axes; // `seconds` is the time at the right edge, `top`
                                                   // the number of bytes at the upper edge

static double axes_x(const axes *a, double seconds)
{
    return OSH_CHART_LEFT + (OSH_CHART_W - OSH_CHART_LEFT) * fmin(seconds / a->seconds, 1);
}
static double axes_y(const axes *a, double bytes)
{
    return OSH_CHART_TOP + (OSH_CHART_H - OSH_CHART_TOP - OSH_CHART_BOTTOM) * (1 - bytes / a->top);
}

/* Draws a dashed line. The label is at the left or the right end, because two lines may have the
 * same height. */
static void draw_memory_line(osh_page *pg, double y, const char *what, double bytes, bool left)
{
    OSH_PUT(pg,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"var(--%s)\" "
            "stroke-dasharray=\"%s\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"%s\">%s ",
            OSH_CHART_LEFT, OSH_CHART_W, y, y, left ? "soft" : "warn", left ? "2 4" : "8 4",
            left ? OSH_CHART_LEFT + 4 : OSH_CHART_W - 4, y - 4, left ? "start" : "end", what);
    osh_page_bytes(pg, bytes);
    OSH_PUT(pg, "</text>\n");
}

static void draw_grid(osh_page *pg, const axes *a)
{
    for (int k = 0; k <= 4; k++) {
        double y = axes_y(a, a->top * k / 4);
        OSH_PUT(pg,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" "
                "y=\"%.1f\" text-anchor=\"end\">",
                OSH_CHART_LEFT, OSH_CHART_W, y, y, OSH_CHART_LEFT - 6, y + 4);
        osh_page_bytes(pg, a->top * k / 4);
        OSH_PUT(pg, "</text>\n");
    }
}

/* Draws one point of the memory curve: a horizontal line up to the next point. */
static void draw_step(osh_page *pg, const osh_profile_data *d, const axes *a, size_t i,
                      double bytes)
{
    double to = i + 1 < d->n_points ? d->points[i + 1].seconds : d->seconds;
    OSH_PUT(pg, "%.1f,%.1f %.1f,%.1f ", axes_x(a, d->points[i].seconds), axes_y(a, bytes),
            axes_x(a, to), axes_y(a, bytes));
}

static void draw_curves(osh_page *pg, const osh_profile_data *d, const axes *a)
{
    if (d->live_peak >= 0) {
        OSH_PUT(pg, "<polygon fill=\"var(--propagate)\" fill-opacity=\".3\" points=\"%.1f,%.1f ",
                axes_x(a, d->points[0].seconds), axes_y(a, 0));
        for (size_t i = 0; i < d->n_points; i++)
            draw_step(pg, d, a, i, fmax((double)d->points[i].live, 0));
        OSH_PUT(pg, "%.1f,%.1f\"/>\n", axes_x(a, d->seconds), axes_y(a, 0));
    }
    OSH_PUT(pg, "<polyline fill=\"none\" stroke=\"var(--bar)\" stroke-width=\"1.5\" points=\"");
    for (size_t i = 0; i < d->n_points; i++) draw_step(pg, d, a, i, (double)d->points[i].bytes);
    OSH_PUT(pg, "\"/>\n");
}

/* Draws a name. If the space is too small, draws only the end of the name, because names differ at
 * their ends. */
static void draw_label(osh_page *pg, double x, double y, const char *name)
{
    size_t n = strlen(name);
    const char *from = n > LABEL_CHARS ? name + n - LABEL_CHARS : name;
    while ((*from & 0xc0) == 0x80) from++; // moves to the start of a character
    OSH_PUT(pg, "<text x=\"%.1f\" y=\"%.1f\">%s", x + 2, y, from == name ? "" : "…");
    osh_page_escape(pg, from);
    OSH_PUT(pg, "</text>\n");
}

/* Draws a stage, from its first point to the point where another stage begins. */
static void draw_stage(osh_page *pg, const axes *a, const osh_profile_row *row, double from,
                       double to)
{
    OSH_PUT(pg,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"var(--%s)\"><title>",
            axes_x(a, from), axes_y(a, 0) + 2, fmax(axes_x(a, to) - axes_x(a, from), 0.5), STRIP_H,
            osh_page_colour(row->phase));
    osh_page_escape(pg, row->phase);
    if (row->of) OSH_PUT(pg, " ");
    if (row->of) osh_page_escape(pg, row->of);
    OSH_PUT(pg, "</title></rect>\n");
}

static void draw_stages(osh_page *pg, const osh_profile_data *d, const axes *a)
{
    double labelled = 0, drawn = 0; // right edges of the last label and of the last stage that were
                                    // drawn
    const char *of = NULL;
    for (size_t i = 0, k; i < d->n_points; i = k) {
        int r = d->points[i].row;
        for (k = i + 1; k < d->n_points && d->points[k].row == r; k++) {}
        if (r < 0 || (size_t)r >= d->n_rows) continue;
        const osh_profile_row *row = &d->rows[r];
        double from = d->points[i].seconds, x = axes_x(a, from);
        double to = k < d->n_points ? d->points[k].seconds : d->seconds;
        /* A narrower stage would be invisible. */
        if (axes_x(a, to) - drawn >= LEAST_W)
            draw_stage(pg, a, row, from, to), drawn = axes_x(a, to);
        if (!row->of || (of && !strcmp(of, row->of))) continue;
        of = row->of;
        if (x < labelled || x + LABEL_W > OSH_CHART_W + 8) continue;
        OSH_PUT(pg, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.1f\"/>", x, x,
                OSH_CHART_TOP, axes_y(a, 0));
        draw_label(pg, x, OSH_CHART_TOP + 9, row->of);
        labelled = x + LABEL_W;
    }
}

static void draw_checkpoints(osh_page *pg, const osh_profile_data *d, const axes *a)
{
    double labelled = 0;
    for (size_t i = 0; i < d->n_marks && i < 50; i++) {
        double x = axes_x(a, d->marks[i].seconds);
        OSH_PUT(
            pg,
            "<line stroke=\"var(--warn)\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.1f\"><title>", x,
            x, OSH_CHART_TOP, axes_y(a, 0));
        osh_page_escape(pg, d->marks[i].name);
        OSH_PUT(pg, "</title></line>\n");
        if (x < labelled) continue;
        draw_label(pg, fmin(x, OSH_CHART_W - LABEL_W), axes_y(a, 0) - 4, d->marks[i].name);
        labelled = x + LABEL_W;
    }
}

static bool axes_init(axes *a, const osh_profile_data *d, int64_t predicted, int64_t budget)
{
    *a = (axes){.seconds = d->seconds, .top = fmax((double)d->peak_bytes, (double)d->live_peak)};
    bool any = d->n_points && d->seconds > 0 && a->top > 0;
    a->top = 1.08 * fmax(a->top, fmax((double)budget, (double)predicted));
    return any;
}

/* Draws the content of the svg element. */
static void draw_picture(osh_page *pg, const osh_profile_data *d, const axes *a, int64_t predicted,
                         int64_t budget)
{
    OSH_PUT(pg, "<text x=\"0\" y=\"12\">bytes in memory</text>\n");
    draw_grid(pg, a);
    draw_stages(pg, d, a);
    draw_curves(pg, d, a);
    if (predicted)
        draw_memory_line(pg, axes_y(a, (double)predicted), "predicted", (double)predicted, true);
    if (budget) draw_memory_line(pg, axes_y(a, (double)budget), "budget", (double)budget, false);
    draw_checkpoints(pg, d, a);
    OSH_PUT(pg,
            "<text x=\"%d\" y=\"%d\">0</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">time "
            "since the start</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">",
            OSH_CHART_LEFT, OSH_CHART_H - 6, OSH_CHART_LEFT + (OSH_CHART_W - OSH_CHART_LEFT) / 2,
            OSH_CHART_H - 6, OSH_CHART_W, OSH_CHART_H - 6);
    osh_page_seconds(pg, d->seconds);
    OSH_PUT(pg, "</text>");
}

void osh_page_memory(osh_page *pg, const osh_profile_data *d, int64_t predicted, int64_t budget)
{
    axes a;
    if (!axes_init(&a, d, predicted, budget)) return;
    OSH_PUT(pg,
            "<div class=\"wide\"><svg id=\"memory\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"memory against time\">\n",
            OSH_CHART_W, OSH_CHART_H);
    draw_picture(pg, d, &a, predicted, budget);
    OSH_PUT(pg, "</svg></div>\n<p class=\"soft key\">The line is the anonymous and shared memory "
                "of the process, the highest of each interval");
    if (d->live_peak >= 0)
        OSH_PUT(pg, "; the area is the part that the program had allocated and used");
    OSH_PUT(pg, ". Below it the stages, in the colours of the table.</p>\n");
}

void osh_page_picture(osh_page *pg, const osh_profile_data *d)
{
    axes a;
    if (!axes_init(&a, d, 0, 0)) return;
    OSH_PUT(pg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\" aria-label=\"memory against time\">\n<style>",
            OSH_CHART_W, OSH_CHART_H, OSH_CHART_W, OSH_CHART_H);
    osh_page_style(pg);
    OSH_PUT(pg, "svg{background:var(--back);font-family:system-ui,sans-serif}</style>\n");
    draw_picture(pg, d, &a, 0, 0);
    OSH_PUT(pg, "</svg>\n");
}
