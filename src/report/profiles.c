/* profiles.c - writes the peaks and the times of profiles as a page or as a text. For several
 * profiles, also writes a table of peaks by model and method. */
#include "report/profiles.h"
#include "report/page.h"

#include <string.h>

static const char *profile_model(const osh_profiled *p) { return p->model ? p->model : p->name; }
static const char *profile_method(const osh_profiled *p) { return p->method ? p->method : ""; }

enum { N_FIGURES = 7 };
/* The row of one profile in the table of peaks. Each value is a number of bytes; < 0: unknown. */
typedef struct figures { int64_t of[N_FIGURES]; } figures;

static figures profile_figures(const osh_profiled *p)
{
    return (figures){{p->d.peak_bytes, p->d.live_peak, p->rss_peak, p->gpu_peak, p->d.driver_peak,
                      p->d.io.read_bytes, p->d.io.written_bytes}};
}

/* Returns the index of the first profile with the same text as profile i. `what` returns this text,
 * which is the model or the method of a profile. */
static int profiles_first(const osh_profiled *of, int n, const char *(*what)(const osh_profiled *),
                          int i)
{
    int k = 0;
    while (k < n && strcmp(what(&of[k]), what(&of[i]))) k++;
    return k;
}

static int profiles_find(const osh_profiled *of, int n, int model, int method)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(profile_model(&of[i]), profile_model(&of[model])) &&
            !strcmp(profile_method(&of[i]), profile_method(&of[method])))
            return i;
    return -1;
}

/* ---- page ---- */

static void profile_row(osh_page *pg, const osh_profiled *p)
{
    OSH_PUT(pg, "<tr><td>");
    osh_page_escape(pg, p->name);
    OSH_PUT(pg, "</td><td>");
    osh_page_escape(pg, p->model ? p->model : "");
    OSH_PUT(pg, "</td><td>");
    osh_page_escape(pg, profile_method(p));
    OSH_PUT(pg, "</td><td class=\"n\">");
    osh_page_seconds(pg, p->d.seconds);
    OSH_PUT(pg, "%s</td>", p->whole ? "" : ", then ended");
    figures f = profile_figures(p);
    for (int i = 0; i < N_FIGURES; i++) osh_page_bytes_cell(pg, f.of[i]);
    OSH_PUT(pg, "</tr>\n");
}

static void peaks_table(osh_page *pg, const osh_profiled *of, int n)
{
    OSH_PUT(
        pg,
        "<div class=\"wide\"><table "
        "id=\"profiles\"><tr><th>profile</th><th>model</th><th>method</th>"
        "<th class=\"n\">time</th><th class=\"n\">highest memory</th><th class=\"n\">in use</th>"
        "<th class=\"n\">resident set</th><th class=\"n\">GPU</th><th class=\"n\">GPU, by its "
        "driver</th><th class=\"n\">read</th><th class=\"n\">written</th></tr>\n");
    for (int i = 0; i < n; i++) profile_row(pg, &of[i]);
    OSH_PUT(pg, "</table></div>\n");
}

/* Writes a table with a row for each model and a column for each method. */
static void cross_table(osh_page *pg, const osh_profiled *of, int n)
{
    OSH_PUT(pg, "<h2>Highest memory by model and method</h2>\n<div class=\"wide\"><table "
                "id=\"peaks\"><tr><th></th>");
    for (int m = 0; m < n; m++) {
        if (profiles_first(of, n, profile_method, m) != m) continue;
        OSH_PUT(pg, "<th class=\"n\">");
        osh_page_escape(pg, profile_method(&of[m]));
        OSH_PUT(pg, "</th>");
    }
    for (int i = 0; i < n; i++) {
        if (profiles_first(of, n, profile_model, i) != i) continue;
        OSH_PUT(pg, "</tr>\n<tr><td>");
        osh_page_escape(pg, profile_model(&of[i]));
        OSH_PUT(pg, "</td>");
        for (int m = 0; m < n; m++) {
            if (profiles_first(of, n, profile_method, m) != m) continue;
            int at = profiles_find(of, n, i, m);
            osh_page_bytes_cell(pg, at >= 0 ? of[at].d.peak_bytes : -1);
        }
    }
    OSH_PUT(pg, "</tr></table></div>\n");
}

static void profile_draw(osh_page *pg, const osh_profiled *p)
{
    OSH_PUT(pg, "<h2>");
    osh_page_escape(pg, p->name);
    OSH_PUT(pg, "</h2>\n");
    if (!p->whole)
        OSH_PUT(pg, "<p class=\"warn\">The run did not end by itself: its last records may be "
                    "missing.</p>\n");
    osh_page_memory(pg, &p->d, 0, 0);
    osh_page_times(pg, &p->d);
}

osh_status osh_profiles_html(osh_ctx *cx, char **html, const osh_profiled *of, int n)
{
    osh_page pg;
    osh_page_begin(&pg, cx, n > 1 ? "oneshot profiles" : "oneshot profile");
    peaks_table(&pg, of, n);
    if (n > 1) cross_table(&pg, of, n);
    for (int i = 0; i < n; i++) profile_draw(&pg, &of[i]);
    osh_page_end(&pg, html);
    return pg.rc;
}

osh_status osh_profile_svg(osh_ctx *cx, char **svg, const osh_profiled *p)
{
    osh_page pg;
    osh_page_bare(&pg, cx);
    osh_page_picture(&pg, &p->d);
    osh_page_end(&pg, svg);
    return pg.rc;
}

/* ---- text ---- */

enum { WIDE = 40 };
static double bytes_in_mb(int64_t n) { return (double)n / (1 << 20); }

static osh_status text_put_mb(osh_ctx *cx, osh_buf *b, int64_t n)
{
    return n < 0 ? osh_buf_printf(cx, b, " %10s", "-")
                 : osh_buf_printf(cx, b, " %10.2f", bytes_in_mb(n));
}

static osh_status text_put_profile(osh_ctx *cx, osh_buf *b, const osh_profiled *p)
{
    osh_status rc = OSH_OK;
    figures f = profile_figures(p);
    OSH_TRY(osh_buf_printf(cx, b, "%10.2f%s", p->d.seconds, p->whole ? " " : "+"));
    for (int i = 0; i < N_FIGURES; i++) OSH_TRY(text_put_mb(cx, b, f.of[i]));
    OSH_TRY(osh_buf_printf(cx, b, "  %s", p->name));
    if (p->model || p->method)
        OSH_TRY(osh_buf_printf(cx, b, " (%s; %s)", profile_model(p), profile_method(p)));
    OSH_TRY(osh_buf_line(cx, b, "%s", ""));
done:
    return rc;
}

static osh_status text_put_cross(osh_ctx *cx, osh_buf *b, const osh_profiled *of, int n)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_buf_line(cx, b, "%s", ""));
    OSH_TRY(osh_buf_line(cx, b, "highest memory in MB, by model and method:"));
    for (int m = 0; m < n; m++) {
        if (profiles_first(of, n, profile_method, m) != m) continue;
        OSH_TRY(osh_buf_line(cx, b, "  %s",
                             *profile_method(&of[m]) ? profile_method(&of[m]) : "(not told)"));
        for (int i = 0; i < n; i++) {
            int at = profiles_first(of, n, profile_model, i) == i ? profiles_find(of, n, i, m) : -1;
            if (at >= 0)
                OSH_TRY(osh_buf_line(cx, b, "  %10.2f  %s", bytes_in_mb(of[at].d.peak_bytes),
                                     profile_model(&of[i])));
        }
    }
done:
    return rc;
}

osh_status osh_profiles_text(osh_ctx *cx, char **text, const osh_profiled *of, int n)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    bool cut = false;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_line(cx, &b, "%10s %11s %10s %10s %10s %10s %10s %10s  MB of 2^20 bytes",
                         "seconds", "memory", "in use", "resident", "GPU", "by driver", "read",
                         "written"));
    for (int i = 0; i < n; i++) {
        OSH_TRY(text_put_profile(cx, &b, &of[i]));
        cut |= !of[i].whole;
    }
    if (cut) OSH_TRY(osh_buf_line(cx, &b, "+ the run did not end by itself"));
    if (n > 1) OSH_TRY(text_put_cross(cx, &b, of, n));
    *text = b.data, b.data = NULL; // give
done:
    osh_buf_deinit(cx, &b);
    return rc;
}
