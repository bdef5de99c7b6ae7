/* report_html.c - makes oneshot-report.html: a page (page.h) with the results of a run; charts are
 * inline SVG. */
#include "base/name.h"
#include "base/shell.h"
#include "learn/tune.h"
#include "match/padding.h"
#include "output/tuned.h"
#include "report/closing.h"
#include "report/labels.h"
#include "report/report.h"
#include "report/report_mix.h"
#include "report/report_mixed.h"
#include "report/report_modules.h"
#include "report/verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CHART_W = OSH_CHART_W,
    CHART_H = OSH_CHART_H,
    LEFT = OSH_CHART_LEFT,
    BOTTOM = OSH_CHART_BOTTOM,
    TOP = OSH_CHART_TOP
};

#define PUT OSH_PUT

static void html_tile(osh_page *pg, const char *label)
{
    PUT(pg, "</b><span>%s</span></div>\n", label);
}

static void html_about_row(osh_page *pg, const char *what, const char *text)
{
    if (!text || !*text) return;
    PUT(pg, "<tr><th>%s</th><td>", what);
    osh_page_escape(pg, text);
    PUT(pg, "</td></tr>\n");
}

/* Writes the table of the run (model, scheme, date and machine), and then the command. */
static void html_about(osh_page *pg, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    PUT(pg, "<div class=\"wide\"><table id=\"about\">\n");
    html_about_row(pg, "model", r->model);
    html_about_row(pg, "adapter",
                   p->in.ck->adapter ? osh_path_last(p->in.ck->adapter) : NULL);
    if (p->in.ck->config && p->in.ck->config->n_sizes) {
        PUT(pg, "<tr><th>padding</th><td>");
        if (!pg->rc) pg->rc = osh_padding_print(pg->cx, &pg->b, &p->in);
        PUT(pg, "</td></tr>\n");
    }
    html_about_row(pg, "architecture", p->in.ck->config ? p->in.ck->config->architecture : NULL);
    html_about_row(pg, "scheme", p->in.opt->scheme);
    html_about_row(pg, "recipe", p->in.opt->recipe ? osh_path_last(p->in.opt->recipe) : NULL);
    html_about_row(pg, "date", r->date);
    html_about_row(pg, "machine", r->machine);
    PUT(pg, "</table></div>\n");
    osh_page_command(pg, r->command);
}

/* Writes "once", "twice" or "3 times". */
static const char *times_text(char to[32], int n)
{
    snprintf(to, 32, "%d times", n);
    return n == 1 ? "once" : n == 2 ? "twice" : to;
}

/* Writes the verdict of a run without an evaluation. A later evaluation replaces it. */
static void html_verdict(osh_page *pg, const osh_report *r)
{
    double share = 0;
    int n = osh_closing_share(&share, r->run);
    const osh_tuned none = {0}, *t = r->run->emitter ? osh_emit_tuned(r->run->emitter) : &none;
    double kl = t->kept ? t->after : t->before;
    bool held = t->known && isfinite(kl);
    const osh_dataset *d = &r->run->plan->in.data;
    PUT(pg, "<div id=\"verdict\">" OSH_VERDICT_BEGINS);
    if (held) osh_verdict_held(pg, t->before, kl, osh_tune_held(d));
    if (n && held)
        PUT(pg,
            "Before tuning, the loss at the outputs of %d modules was %.1f&nbsp;%% of the loss "
            "with rounding to nearest. ",
            n, 100 * share);
    else if (n)
        PUT(pg,
            "<p><b>The loss at the outputs of %d modules is %.1f&nbsp;%% of the loss with "
            "rounding to nearest.</b></p>\n<p>Below 100 %%, the method is better than "
            "rounding to nearest, on the calibration data. ",
            n, 100 * share);
    else if (!held)
        PUT(pg, "<p><b>%d modules are quantized.</b></p>\n<p>", r->run->plan->match.n_linears);
    PUT(pg, "The predictions of the output were not compared with those of the source%s: "
            "<code>--eval</code> or the line below compares them.</p>\n",
        held ? " on other text" : "");
    if (held) osh_verdict_limits(pg);
    PUT(pg, OSH_VERDICT_ENDS);
    if (r->n_fallbacks)
        PUT(pg, "<p class=\"warn\">%d of %d modules were not solved as asked (Fallbacks).</p>\n",
            r->n_fallbacks, r->run->plan->match.n_linears);
    PUT(pg, "</div>\n");
}

/* Writes the next commands. Directories are named by their last part, because the report must not
 * contain paths of the machine. */
static osh_status html_next(osh_ctx *cx, osh_page *pg, const osh_report *r)
{
    osh_status rc = OSH_OK;
    osh_buf output, model, line; // own
    osh_buf_init(&output, 0), osh_buf_init(&model, 0), osh_buf_init(&line, 0);
    const char *out = r->run->plan->in.opt->output;
    OSH_TRY(osh_shell_path(cx, &output, out ? osh_path_last(out) : "."));
    OSH_TRY(osh_shell_path(cx, &model, r->model));
    PUT(pg, "<h2>Next</h2>\n<p class=\"soft\">Run these lines in the directory that contains the "
            "output. A click selects a line.</p>\n");
    for (int i = 0; i < 3; i++) {
        osh_buf_clear(&line);
        if (!i) OSH_TRY(osh_buf_printf(cx, &line, "vllm serve %s", output.data));
        if (i == 1)
            OSH_TRY(osh_buf_printf(cx, &line, "oneshot eval --model %s --reference %s --dataset "
                                              "TEXT", output.data, model.data));
        if (i == 2)
            OSH_TRY(osh_buf_printf(cx, &line, "oneshot verify %s --model %s", output.data,
                                   model.data));
        osh_page_command(pg, line.data);
    }
done:
    osh_buf_deinit(cx, &output);
    osh_buf_deinit(cx, &model);
    osh_buf_deinit(cx, &line);
    return rc;
}

static void html_tiles(osh_page *pg, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    char times[32];
    PUT(pg, "<div class=\"tiles\">\n<div><b id=\"modules\">%d", p->match.n_linears);
    html_tile(pg, "modules quantized");
    PUT(pg, "<div><b>");
    osh_page_bytes(pg, (double)r->source_bytes);
    PUT(pg, " → ");
    osh_page_bytes(pg, (double)p->manifest.total_bytes);
    html_tile(pg, "tensors, source and output");
    PUT(pg, "<div><b>");
    osh_page_seconds(pg, r->d.seconds);
    html_tile(pg, "until the report was written");
    PUT(pg, "<div><b>");
    osh_page_bytes(pg, (double)r->d.peak_bytes);
    html_tile(pg, "highest memory");
    if (p->in.data.n) {
        PUT(pg, "<div><b>%lld", (long long)p->in.data.offsets[p->in.data.n]);
        html_tile(pg, "calibration tokens");
    }
    PUT(pg, "<div><b id=\"n-fallbacks\"%s>%d", r->n_fallbacks ? " class=\"warn\"" : "",
        r->n_fallbacks);
    html_tile(pg, "fallbacks");
    /* an evaluation later replaces this HTML comment by its results */
    PUT(pg, "<!-- evaluation --></div>\n");
    if (r->n_resumed)
        PUT(pg, "<p id=\"resumed\" class=\"soft\">The run was resumed %s. Seconds, memory and "
                "bytes read and written are those of its last part.</p>\n",
            times_text(times, r->n_resumed));
}

static osh_status html_head(osh_ctx *cx, osh_page *pg, const osh_report *r)
{
    PUT(pg, "<p class=\"soft\">oneshot %s, pipeline %s</p>\n", osh_version(),
        osh_plan_pipeline(r->run->plan));
    html_verdict(pg, r);
    html_tiles(pg, r);
    html_about(pg, r);
    osh_status rc = html_next(cx, pg, r);
    PUT(pg, "<!-- sample --><!-- end of sample -->\n");
    return rc;
}

/* ---- time ---- */

static double subgraph_seconds(const osh_profile_data *d, const char *name)
{
    double s = 0;
    for (size_t i = 0; i < d->n_rows; i++)
        if (!d->rows[i].background && d->rows[i].of && !strcmp(d->rows[i].of, name))
            s += d->rows[i].seconds;
    return s;
}

/* Draws one stacked column for each subgraph. */
static void html_subgraph_chart(osh_page *pg, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    double most = 0, h = CHART_H - TOP - BOTTOM;
    osh_labels labels = {.pg = pg};
    char text[32];
    if (p->in.pipeline != OSH_PIPELINE_SEQUENTIAL || p->schedule.parts->n > OSH_PAGE_BARS) return;
    for (int s = 0; s < p->schedule.parts->n; s++)
        most = fmax(most, subgraph_seconds(&r->d, p->schedule.parts->parts[s].name));
    if (most <= 0) return;
    double step = (double)(CHART_W - LEFT) / p->schedule.parts->n;
    PUT(pg,
        "<h3>Per subgraph</h3>\n"
        "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"time per "
        "subgraph\">\n"
        "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n",
        CHART_W, CHART_H, LEFT, CHART_W, TOP, TOP);
    osh_label_put(&labels, 0, 12, OSH_AT_START, "seconds");
    osh_seconds_text(text, most);
    osh_label_put(&labels, LEFT - 6, TOP + 4, OSH_AT_END, text);
    osh_label_put(&labels, LEFT - 6, TOP + h, OSH_AT_END, "0");
    osh_label_put(&labels, LEFT, CHART_H - 8, OSH_AT_START, "subgraphs in order");
    for (int s = 0; s < p->schedule.parts->n; s++) {
        double y = TOP + h;
        for (size_t i = 0; i < r->d.n_rows; i++) {
            const osh_profile_row *row = &r->d.rows[i];
            if (row->background || !row->of || strcmp(row->of, p->schedule.parts->parts[s].name))
                continue;
            double part = h * row->seconds / most;
            y -= part;
            PUT(pg,
                "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                "fill=\"var(--%s)\"><title>",
                LEFT + s * step, y, step > 3 ? step - 1 : step, part, osh_page_colour(row->phase));
            osh_page_escape(pg, p->schedule.parts->parts[s].name);
            PUT(pg, ", ");
            osh_page_escape(pg, row->phase);
            PUT(pg, ": %.3f s</title></rect>\n", row->seconds);
        }
    }
    PUT(pg, "</svg></div>\n");
}

/* ---- memory, bytes, options ---- */

static void html_bytes_row(osh_page *pg, const char *what, double n)
{
    if (n < 0) return;
    PUT(pg, "<tr><td>%s</td><td class=\"n\">%.0f</td><td class=\"n\">", what, n);
    osh_page_bytes(pg, n);
    PUT(pg, "</td></tr>\n");
}

static void html_bytes_table(osh_page *pg, const osh_report *r)
{
    PUT(pg, "<h2>Bytes</h2>\n"
            "<div class=\"wide\"><table id=\"bytes\"><tr><th></th><th "
            "class=\"n\">bytes</th><th></th></tr>\n");
    html_bytes_row(pg, "tensors of the source", (double)r->source_bytes);
    html_bytes_row(pg, "tensors of the output", (double)r->run->plan->manifest.total_bytes);
    html_bytes_row(pg, "read by the program, with the check of the output",
                   (double)r->d.io.read_bytes);
    html_bytes_row(pg, "written by the program", (double)r->d.io.written_bytes);
    html_bytes_row(pg, "planned: read from the source",
                   (double)r->run->plan->budget.memory.read_bytes);
    html_bytes_row(pg, "planned: written", (double)r->run->plan->budget.memory.write_bytes);
    html_bytes_row(pg, "read from storage by the process", (double)r->storage_read);
    html_bytes_row(pg, "written to storage by the process so far", (double)r->storage_written);
    PUT(pg, "</table></div>\n");
}

static void html_copies_row(osh_page *pg, const char *what, int64_t bytes, double seconds)
{
    PUT(pg, "<tr><td>%s</td><td class=\"n\">", what);
    osh_page_bytes(pg, (double)bytes);
    PUT(pg, "</td><td class=\"n\">");
    if (seconds > 0) PUT(pg, "%.1f GB/s", (double)bytes / seconds / 1e9);
    PUT(pg, "</td></tr>\n");
}

static void html_device_table(osh_page *pg, const osh_report *r)
{
    const osh_plan *p = r->run->plan;
    const osh_device_counters *c = &r->copies;
    if (!p->in.device) return;
    PUT(pg, "<h2>Device</h2>\n<div class=\"wide\"><table id=\"device\"><tr><th>");
    osh_page_escape(pg, p->in.device->text);
    PUT(pg, "</th><th></th><th></th></tr>\n");
    html_copies_row(pg, "highest memory", (int64_t)osh_arena_peak(p->in.device->arena), 0);
    if (r->d.driver_peak >= 0)
        html_copies_row(pg, "highest memory of all processes, from the driver", r->d.driver_peak,
                        0);
    html_copies_row(pg, "predicted", p->budget.memory.peak.device, 0);
    if (p->in.opt->device_memory) html_copies_row(pg, "budget", p->in.opt->device_memory, 0);
    html_copies_row(pg, "copied to the device", c->put_bytes, c->put_s);
    html_copies_row(pg, "copied to the device during the work", c->ahead_bytes, c->ahead_s);
    html_copies_row(pg, "copied from the device", c->get_bytes, c->get_s);
    if (c->file_bytes) html_copies_row(pg, "read by the device from files", c->file_bytes, 0);
    PUT(pg,
        "<tr><td>location of values between subgraphs</td><td class=\"n\">%s</td><td></td></tr>\n",
        osh_tier_name(p->budget.memory.tier));
    html_copies_row(pg, "values among the copies to the device", c->value_in_bytes, 0);
    html_copies_row(pg, "values among the copies from the device", c->value_out_bytes, 0);
    if (c->put_s + c->ahead_s > 0)
        PUT(pg,
            "<tr><td>copies to the device: share of time during compute</td><td class=\"n\">%.1f "
            "%%</td><td></td></tr>\n",
            100 * c->hidden_s / (c->put_s + c->ahead_s));
    if (c->get_s > 0)
        PUT(pg,
            "<tr><td>copies from the device: share of time during compute</td><td class=\"n\">%.1f "
            "%%</td><td></td></tr>\n",
            100 * c->get_hidden_s / c->get_s);
    for (int k = OSH_PHASE_OBSERVE; k <= OSH_PHASE_PROPAGATE; k++) {
        PUT(pg, "<tr><td>%s, by the device's clock</td><td class=\"n\">",
            osh_phase_name((osh_phase)k));
        osh_page_seconds(pg, r->run->device_seconds[k]);
        PUT(pg, "</td><td></td></tr>\n");
    }
    for (int k = 0; k < OSH_N_DETOURS; k++)
        if (c->detours[k])
            PUT(pg, "<tr class=\"warn\"><td>%s</td><td class=\"n\">%lld times</td><td></td></tr>\n",
                osh_detour_text((osh_detour)k), (long long)c->detours[k]);
    PUT(pg, "</table></div>\n");
}

/* Appends the work of each phase on each rank of a divided job. */
static void html_ranks(osh_page *pg, const osh_run *r)
{
    osh_ranks *ranks = r->plan->in.opt->ranks;
    int n = osh_ranks_n(ranks);
    if (!r->times) return;
    PUT(pg, "<h2>Ranks</h2>\n<p class=\"soft\">Seconds of work of each phase, and in brackets of "
            "waiting for other ranks. Imbalance: most work divided by the mean.</p>\n"
            "<div class=\"wide\"><table id=\"ranks\"><tr><th>rank</th><th>node</th>");
    for (osh_phase p = 0; p < OSH_N_PHASES; p++)
        if (osh_time_imbalance(r->times, n, p) > 0)
            PUT(pg, "<th class=\"n\">%s</th>", osh_phase_name(p));
    PUT(pg, "<th class=\"n\">sent</th></tr>\n");
    for (int k = 0; k < n; k++) {
        PUT(pg, "<tr><td>%d</td><td>", k);
        osh_page_escape(pg, osh_ranks_at(ranks, k)->node);
        PUT(pg, "</td>");
        for (osh_phase p = 0; p < OSH_N_PHASES; p++)
            if (osh_time_imbalance(r->times, n, p) > 0)
                PUT(pg, "<td class=\"n\">%.2f (%.2f)</td>", osh_time_work(&r->times[k], p),
                    r->times[k].waited[p]);
        osh_page_bytes_cell(pg, r->times[k].sent);
        PUT(pg, "</tr>\n");
    }
    PUT(pg, "<tr><td>imbalance</td><td></td>");
    for (osh_phase p = 0; p < OSH_N_PHASES; p++)
        if (osh_time_imbalance(r->times, n, p) > 0)
            PUT(pg, "<td class=\"n\">%.2f</td>", osh_time_imbalance(r->times, n, p));
    PUT(pg, "<td></td></tr>\n</table></div>\n");
}

static void html_options_table(osh_page *pg, const cJSON *options)
{
    PUT(pg, "<h2>Options</h2>\n<div class=\"wide\"><table id=\"options\">\n");
    for (const cJSON *o = options->child; o; o = o->next) {
        char *text = cJSON_IsString(o) ? NULL : cJSON_PrintUnformatted(o); // own
        PUT(pg, "<tr><td>");
        osh_page_escape(pg, o->string);
        PUT(pg, "</td><td>");
        osh_page_escape(pg, cJSON_IsString(o) ? o->valuestring : text ? text : "");
        PUT(pg, "</td></tr>\n");
        cJSON_free(text);
    }
    PUT(pg, "</table></div>\n");
}

osh_status osh_report_html(osh_ctx *cx, char **html, const osh_report *r, cJSON *options)
{
    osh_status rc = OSH_OK;
    osh_page pg;
    osh_page_begin(&pg, cx, "oneshot report");
    OSH_TRY(html_head(cx, &pg, r));
    OSH_TRY(osh_report_errors(cx, &pg, r->run));
    osh_mixed_page(&pg, r->run->plan->in.opt->mixed);
    osh_mix_page(&pg, &r->run->plan->in.mix);
    osh_report_modules(&pg, r);
    PUT(&pg, "<h2>Time per phase</h2>\n");
    osh_page_times(&pg, &r->d);
    html_subgraph_chart(&pg, r);
    PUT(&pg, "<h2>Memory against time</h2>\n");
    osh_page_memory(&pg, &r->d, r->predicted_bytes, r->budget_bytes);
    html_bytes_table(&pg, r);
    html_device_table(&pg, r);
    html_ranks(&pg, r->run);
    html_options_table(&pg, options);
done:
    pg.rc = rc ? rc : pg.rc;
    osh_page_end(&pg, html);
    return pg.rc;
}
