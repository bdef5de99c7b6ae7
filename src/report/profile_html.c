/* profile_html.c - draws a profile as charts and tables. */
#include "report/labels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- time ---- */

static void total_cells(osh_page *pg, const osh_profile_total *sum, double total)
{
    OSH_PUT(pg,
            "%s</td><td class=\"n\">%.3f</td><td class=\"n\">%.1f %%</td><td class=\"n "
            "more\">%lld</td>",
            sum->background ? " (background)" : "", sum->seconds, 100 * sum->seconds / total,
            (long long)sum->n);
    osh_page_bytes_cell(pg, sum->peak_bytes ? sum->peak_bytes : -1);
    OSH_PUT(pg, "<td class=\"n more\">");
    if (sum->live_bytes) osh_page_bytes(pg, (double)sum->live_bytes);
    OSH_PUT(pg, "</td><td class=\"n more\">");
    if (sum->flops > 0 && sum->seconds > 0) OSH_PUT(pg, "%.1f", sum->flops / sum->seconds / 1e9);
    OSH_PUT(pg, "</td></tr>\n");
}

static void times_head(osh_page *pg, const char *id, const char *what)
{
    OSH_PUT(
        pg,
        "<div class=\"wide\"><table id=\"%s\"><tr><th>%s</th><th class=\"n\">seconds</th>"
        "<th class=\"n\">share</th><th class=\"n more\">times</th>"
        "<th class=\"n\">highest memory</th>"
        "<th class=\"n more\">of it in use</th><th class=\"n more\">GFLOP/s</th></tr>\n",
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
            "<div class=\"wide\"><svg class=\"bar\" viewBox=\"0 0 %d 30\" role=\"img\" "
            "aria-label=\"time per phase\">\n",
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
            "%%</td><td class=\"more\"></td><td></td><td class=\"more\"></td><td "
            "class=\"more\"></td></tr></table></div>\n",
            other, 100 * other / total);
    free(sums);
}

/* ---- memory over time ----
 *
 *   bytes in memory
 *          model.layers.0     model.layers.1          names of subgraphs
 *   20 MB |------------------------------------
 *         |  lines, area and grid, no text
 *     0 B |____________________________________
 *          stages in colours
 *          half                                       names of checkpoints, if there are any
 *          0           time since the start      3 s
 */

enum { STRIP_H = 7, LABEL_CHARS = 18, LEAST_W = 1, ROW_H = 14, MAX_MARKS = 50 };

typedef struct axes {
    double seconds, top;  // seconds: time at the right edge; top: number of bytes at the upper edge
    int y0, y1, height;   // y0, y1: top and bottom of the area of lines; height: of the chart
    osh_labels labels;    // the texts
} axes;

static double axes_x(const axes *a, double seconds)
{
    return OSH_CHART_LEFT + (OSH_CHART_W - OSH_CHART_LEFT) * fmin(seconds / a->seconds, 1);
}
static double axes_y(const axes *a, double bytes)
{
    return a->y0 + (a->y1 - a->y0) * (1 - bytes / a->top);
}

/* Draws a dashed line. The text below the chart explains it. */
static void draw_memory_line(osh_page *pg, const axes *a, double bytes, const char *what,
                             const char *style)
{
    double y = axes_y(a, bytes);
    OSH_PUT(pg, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" %s><title>%s</title></line>\n",
            OSH_CHART_LEFT, OSH_CHART_W, y, y, style, what);
}

static const char predicted_style[] = "stroke=\"var(--soft)\" stroke-dasharray=\"2 4\"",
                  budget_style[] = "stroke=\"var(--warn)\" stroke-dasharray=\"8 4\"";

/* Appends a text to the chart. */
static void draw_text(axes *a, double x, double y, osh_anchor anchor, const char *text)
{
    osh_label_put(&a->labels, x, y, anchor, text);
}

static void draw_grid(osh_page *pg, axes *a)
{
    char text[32];
    for (int k = 0; k <= 4; k++) {
        double y = axes_y(a, a->top * k / 4);
        OSH_PUT(pg, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>",
                OSH_CHART_LEFT, OSH_CHART_W, y, y);
        osh_bytes_text(text, a->top * k / 4);
        draw_text(a, OSH_CHART_LEFT - 6, y + 4, OSH_AT_END, text);
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

static void draw_stages(osh_page *pg, const osh_profile_data *d, axes *a)
{
    double drawn = 0; // right edge of the last stage that was drawn
    char name[64];
    const char *of = NULL;
    for (size_t i = 0, k; i < d->n_points; i = k) {
        int r = d->points[i].row;
        for (k = i + 1; k < d->n_points && d->points[k].row == r; k++) {}
        if (r < 0 || (size_t)r >= d->n_rows) continue;
        const osh_profile_row *row = &d->rows[r];
        double from = d->points[i].seconds, x = axes_x(a, from);
        double to = k < d->n_points ? d->points[k].seconds : d->seconds;
        /* a stage narrower than LEAST_W would be invisible */
        if (axes_x(a, to) - drawn >= LEAST_W)
            draw_stage(pg, a, row, from, to), drawn = axes_x(a, to);
        if (!row->of || (of && !strcmp(of, row->of))) continue;
        of = row->of;
        osh_label_name(name, sizeof name, row->of, LABEL_CHARS);
        if (osh_label_put(&a->labels, x + 2, a->y0 - 3, OSH_AT_START, name))
            OSH_PUT(pg, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n",
                    x, x, a->y0 - ROW_H, a->y1);
    }
}

static void draw_checkpoints(osh_page *pg, const osh_profile_data *d, axes *a)
{
    char name[64];
    for (size_t i = 0; i < d->n_marks && i < MAX_MARKS; i++) {
        double x = axes_x(a, d->marks[i].seconds), y = a->y1 + STRIP_H + ROW_H;
        OSH_PUT(pg,
                "<line stroke=\"var(--warn)\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"><title>",
                x, x, a->y0, a->y1);
        osh_page_escape(pg, d->marks[i].name);
        OSH_PUT(pg, "</title></line>\n");
        osh_label_name(name, sizeof name, d->marks[i].name, LABEL_CHARS);
        if (!osh_label_put(&a->labels, x, y, OSH_AT_START, name))
            osh_label_put(&a->labels, x, y, OSH_AT_END, name);
    }
}

static bool axes_init(axes *a, const osh_profile_data *d, int64_t predicted, int64_t budget)
{
    *a = (axes){.seconds = d->seconds, .top = fmax((double)d->peak_bytes, (double)d->live_peak)};
    bool any = d->n_points && d->seconds > 0 && a->top > 0;
    a->top = 1.08 * fmax(a->top, fmax((double)budget, (double)predicted));
    a->height = OSH_CHART_H + ROW_H + (d->n_marks ? ROW_H : 0);
    a->y0 = OSH_CHART_TOP + ROW_H;
    a->y1 = a->height - OSH_CHART_BOTTOM - (d->n_marks ? ROW_H : 0);
    return any;
}

/* Draws the content of the svg element. */
static void draw_picture(osh_page *pg, const osh_profile_data *d, axes *a, int64_t predicted,
                         int64_t budget)
{
    char seconds[32];
    double y = a->height - 6;
    a->labels.pg = pg;
    draw_text(a, 0, 12, OSH_AT_START, "bytes in memory");
    draw_grid(pg, a);
    draw_stages(pg, d, a);
    draw_curves(pg, d, a);
    if (predicted) draw_memory_line(pg, a, (double)predicted, "predicted", predicted_style);
    if (budget) draw_memory_line(pg, a, (double)budget, "budget", budget_style);
    osh_seconds_text(seconds, d->seconds);
    draw_text(a, OSH_CHART_LEFT, y, OSH_AT_START, "0");
    draw_text(a, OSH_CHART_W, y, OSH_AT_END, seconds);
    draw_text(a, OSH_CHART_LEFT + (OSH_CHART_W - OSH_CHART_LEFT) / 2, y, OSH_AT_MIDDLE,
              "time since the start");
    draw_checkpoints(pg, d, a);
}

/* Appends a short dashed line and its meaning, for the text below the chart. */
static void key_line(osh_page *pg, const char *style, const char *what, int64_t bytes)
{
    OSH_PUT(pg,
            "<svg class=\"dash\" viewBox=\"0 0 28 8\"><line x1=\"0\" x2=\"28\" y1=\"4\" y2=\"4\" "
            "%s/></svg> %s ",
            style, what);
    osh_page_bytes(pg, (double)bytes);
    OSH_PUT(pg, ". ");
}

void osh_page_memory(osh_page *pg, const osh_profile_data *d, int64_t predicted, int64_t budget)
{
    axes a;
    if (!axes_init(&a, d, predicted, budget)) return;
    OSH_PUT(pg,
            "<div class=\"wide\"><svg id=\"memory\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"memory against time\">\n",
            OSH_CHART_W, a.height);
    draw_picture(pg, d, &a, predicted, budget);
    OSH_PUT(pg, "</svg></div>\n<p class=\"soft key\">");
    if (predicted) key_line(pg, predicted_style, "predicted", predicted);
    if (budget) key_line(pg, budget_style, "budget", budget);
    OSH_PUT(pg, "The line shows the anonymous and shared memory "
                "of the process, the highest value of each interval");
    if (d->live_peak >= 0)
        OSH_PUT(pg, "; the area shows the part that the program had allocated and used");
    OSH_PUT(pg, ". The bars below it show the stages, in the colours of the table.</p>\n");
}

void osh_page_picture(osh_page *pg, const osh_profile_data *d)
{
    axes a;
    if (!axes_init(&a, d, 0, 0)) return;
    OSH_PUT(pg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\" aria-label=\"memory against time\">\n<style>",
            OSH_CHART_W, a.height, OSH_CHART_W, a.height);
    osh_page_style(pg);
    OSH_PUT(pg, "svg{background:var(--back);font-family:system-ui,sans-serif}</style>\n");
    draw_picture(pg, d, &a, 0, 0);
    OSH_PUT(pg, "</svg>\n");
}
