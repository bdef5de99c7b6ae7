/* track.c - reports the phases of a run to the profile, the log, the progress line and the time
 * estimate. */
#include "run/run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/name.h"
#include "base/nvml.h"
#include "plan/marks.h"
#include "ranks/ranks.h"

/* ---- records of --checkpoint ---- */

/* Writes a record to the profile if the pattern of an item of --checkpoint matches the subgraph.
 * The record has the name of the item. If the item has no name, or if its pattern is a regex, the
 * record also has the name of the subgraph. */
static void checkpoint_mark(osh_ctx *cx, const char *item, const osh_mark *m, const char *subgraph)
{
    char step[512];
    int64_t which = -1;
    int n = osh_mark_name_length(item);
    bool many = !strncmp(osh_mark_pattern(item), "re:", 3);
    if (osh_matcher_find(cx, &which, m->match, subgraph, NULL)) osh_error_clear(cx);
    if (which < 0) return;
    snprintf(step, sizeof step, "%.*s%s%s", n, item, n && many ? " " : "",
             !n || many ? subgraph : "");
    osh_profile_checkpoint(cx, step);
}

/* Writes a record to the profile: a stage begins (edge "Start") or ends ("End"). A stage is a range
 * of subgraphs, and an item of --checkpoint gives its name. */
static void checkpoint_edge(osh_ctx *cx, const char *item, const char *edge)
{
    char step[512];
    snprintf(step, sizeof step, "%.*s %s", osh_mark_name_length(item), item, edge);
    osh_profile_checkpoint(cx, step);
}

void osh_run_entered(osh_ctx *cx, osh_run *r, const char *name)
{
    const osh_strs *items = &r->plan->in.opt->checkpoint;
    for (size_t k = 0; k < items->n; k++) {
        const osh_mark *m = &r->plan->marks[k];
        if (m->match) continue;
        /* A resumed run may begin inside of a stage. The record "Start" is then written at the
         * first subgraph of this run. */
        int at = osh_mark_index(r->plan, name);
        if (at == m->first || (!r->entered && at > m->first && at <= m->last))
            checkpoint_edge(cx, items->items[k], "Start");
    }
    r->entered = true;
}

static void checkpoint_marks(osh_ctx *cx, const osh_run *r, const char *subgraph)
{
    const osh_strs *items = &r->plan->in.opt->checkpoint;
    for (size_t k = 0; k < items->n; k++) {
        const osh_mark *m = &r->plan->marks[k];
        if (m->match) checkpoint_mark(cx, items->items[k], m, subgraph);
        else if (osh_mark_index(r->plan, subgraph) == m->last)
            checkpoint_edge(cx, items->items[k], "End");
    }
}

/* ---- begin and end of a run ---- */

/* Sets the text with which the profile distinguishes runs of one model: recipe or scheme, method,
 * quality, pipeline, targets. */
static osh_status profile_say_method(osh_ctx *cx, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    const char *scheme = opt->scheme ? opt->scheme : "dense";
    OSH_TRY(osh_buf_printf(cx, &b, "%s", opt->recipe ? osh_path_last(opt->recipe) : scheme));
    if (opt->method) OSH_TRY(osh_buf_printf(cx, &b, ", %s", opt->method));
    if (opt->quality) OSH_TRY(osh_buf_printf(cx, &b, ", %s", opt->quality));
    if (opt->pipeline) OSH_TRY(osh_buf_printf(cx, &b, ", %s", opt->pipeline));
    for (size_t i = 0; i < opt->sequential_targets.n; i++)
        OSH_TRY(osh_buf_printf(cx, &b, ", %s", opt->sequential_targets.items[i]));
    OSH_TRY(osh_profile_about(cx, osh_path_last(opt->model), b.data));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_run_watch(osh_ctx *cx, osh_run *r, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    if (opt->log_file && strcmp(opt->log_file, "none")) {
        OSH_TRY(osh_log_file(cx, opt->log_file));
        r->logging = true;
    }
    if (osh_profile_running(cx)) {
        if (opt->profile)
            OSH_FAIL(cx, OSH_E_USAGE, "--profile %s: the caller has started a profile",
                     opt->profile);
    } else {
        OSH_TRY(profile_say_method(cx, opt));
        OSH_TRY(osh_profile_start(cx, opt->profile));
        r->profiling = true;
    }
done:
    return rc;
}

/* Subtracts the work of an earlier, interrupted run from the costs of r->pace. */
static void pace_forget_done(osh_run *r)
{
    const osh_budget *p = r->budget;
    osh_cost *last = &r->pace.cost[r->pace.n - 1];
    for (int s = 0; s + 1 < r->pace.n; s++) {
        double *work = r->pace.cost[s].work;
        if (osh_run_solved(r, s, p->in->pipeline == OSH_PIPELINE_BASIC ? p->schedule->parts->n : 1))
            work[OSH_PHASE_OBSERVE] = work[OSH_PHASE_SOLVE] = 0;
    }
    for (int i = 0; i < p->match->n_linears; i++)
        if (r->results[i].done && osh_wants_no_data(&p->match->linears[i]))
            last->work[OSH_PHASE_ROUND] -= osh_cost_of_linear(p, i);
}

/* Sets r->before, the fraction of the work that is done. whole: work of the job. left: work that
 * remains for this process. */
static void pace_set_before(osh_run *r, double whole, double left)
{
    r->before = whole > 0 && left < whole ? 1 - left / whole : 0;
}

/* Returns the work of the traversals [first, end). */
static double traversals_work(const osh_run *r, int first, int end)
{
    double work = 0;
    for (int t = first; t < end; t++)
        for (int k = 0; k < OSH_PHASE_ROUND; k++) work += r->plan->traversals[t].work[k];
    return work;
}

osh_status osh_run_traverse(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_schedule *s = r->budget->schedule;
    osh_pace_deinit(cx, &r->pace);
    OSH_TRY(osh_pace_init(cx, &r->pace, r->budget));
    double whole = osh_pace_work(&r->pace) + traversals_work(r, 0, s->traversal);
    pace_forget_done(r);
    double left = osh_pace_work(&r->pace),
           later = traversals_work(r, s->traversal + 1, s->n_traversals);
    /* this is the first traversal of this process; an earlier process has done the previous ones */
    if (!r->traversed) pace_set_before(r, whole + later, left + later);
    r->traversed = true;
    for (int t = s->traversal + 1; t < s->n_traversals; t++)
        for (int k = 0; k < OSH_PHASE_ROUND; k++)
            r->pace.cost[r->pace.n - 1].work[k] += r->plan->traversals[t].work[k];
done:
    return rc;
}

static void profile_read_arena(void *user, osh_profile_gpu *out)
{
    const osh_device *d = user;
    out->now = (int64_t)osh_arena_used(d->arena), out->peak = (int64_t)osh_arena_peak(d->arena);
    out->driver = d->type->driver_bytes(d);
}

osh_status osh_run_start(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    char *path = NULL; // own
    const osh_plan *p = r->plan;
    r->began = osh_now();
    OSH_TRY(osh_pace_init(cx, &r->pace, r->budget));
    double whole = osh_pace_work(&r->pace);
    pace_forget_done(r);
    pace_set_before(r, whole, osh_pace_work(&r->pace));
    if (p->in.device) osh_nvml_open(cx);
    if (p->in.device) osh_profile_device(cx, profile_read_arena, p->in.device);
    // the log file of the library's caller may be open
    if (!p->in.opt->log_file && !osh_log_has_file(cx)) {
        if (!(path = osh_path_join(cx, osh_emit_dir(r->emitter), OSH_LOG_NAME)))
            OSH_TRY(OSH_E_NOMEM);
        OSH_TRY(osh_log_file(cx, path));
        r->logging = true;
    }
    char date[64] = "", host[256] = "";
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &utc));
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    osh_log_line(cx, "begin", "oneshot %s on %s, %s: %s, %d modules, %ld samples, %d threads",
                 osh_version(), host, date, osh_plan_pipeline(p), p->match.n_linears,
                 (long)p->in.data.n, osh_threads(cx));
done:
    osh_free(cx, path);
    return rc;
}

static void device_unmark(osh_ctx *cx, osh_run *r)
{
    if (r->phase_begin) r->plan->in.device->type->mark_free(cx, r->phase_begin);
    r->phase_begin = NULL;
}

void osh_run_unwatch(osh_ctx *cx, osh_run *r, osh_status rc)
{
    device_unmark(cx, r);
    if (r->profiling) osh_profile_stop(cx);
    osh_profile_device(cx, NULL, NULL);
    osh_log_line(cx, rc ? "failed" : "done", "%s", rc ? osh_error_text(cx) : "");
    if (r->logging) osh_log_file(cx, NULL);
    osh_pace_deinit(cx, &r->pace);
    /* a later measurement that uses r->progress must not show the time and speed of this run */
    r->progress.fraction = r->progress.eta_s = 0;
    r->progress.tokens_per_s = r->progress.bytes_per_s = 0;
}

/* ---- phases and progress ---- */

/* Sets the finished fraction and the speed of the job. The speed is the work of this process,
 * divided by the time that the process needs for it. The work is this process's fraction of the
 * tokens of the job. For a job without data, it is this process's fraction of the bytes of the
 * source. */
static void run_set_rate(osh_run *r, double now)
{
    osh_progress *p = &r->progress;
    const osh_inputs *in = &r->plan->in;
    double spent = now - r->began, all = spent + p->eta_s;
    bool over = p->work_total > 0 && p->work_done >= p->work_total;
    if ((p->eta_s <= 0 && !over) || all <= 0) return;
    double left = 1 - r->before; // fraction of the job's work; this work takes `all` seconds
    p->fraction = over ? 1 : r->before + left * spent / all;
    if (in->pipeline == OSH_PIPELINE_DATAFREE)
        p->bytes_per_s = left * (double)osh_checkpoint_stored_bytes(in->ck) / all;
    else p->tokens_per_s = left * (double)in->data.offsets[in->data.n] / all;
}

static void run_show(osh_ctx *cx, osh_run *r)
{
    double now = osh_now();
    r->progress.eta_s = osh_pace_eta(&r->pace, now);
    run_set_rate(r, now);
    osh_progress_show(cx, &r->progress);
}

/* Sets a mark on the device. device_mark_end measures the time since this mark. Ignores a failure,
 * because the next use of the device reports it. */
static void device_mark_begin(osh_ctx *cx, osh_run *r)
{
    osh_device *d = r->plan->in.device;
    device_unmark(cx, r);
    if (d && d->type->mark_new(cx, d, &r->phase_begin)) osh_error_clear(cx);
}

/* Measures the time on the GPU since device_mark_begin, and adds it to the current phase. */
static void device_mark_end(osh_ctx *cx, osh_run *r)
{
    osh_device *d = r->plan->in.device;
    osh_device_mark *now = NULL; // own
    double seconds = 0;
    if (!r->phase_begin) return;
    if (d->type->mark_new(cx, d, &now) ||
        d->type->mark_between(cx, &seconds, r->phase_begin, now))
        osh_error_clear(cx);
    r->device_seconds[r->pace.phase] += seconds;
    d->type->mark_free(cx, now);
    device_unmark(cx, r);
}

osh_scope osh_run_begin(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph)
{
    return osh_run_begin_part(cx, r, phase, subgraph, 1);
}

osh_scope osh_run_begin_part(osh_ctx *cx, osh_run *r, osh_phase phase, int subgraph, double share)
{
    const osh_plan *p = r->plan;
    const char *of = subgraph < 0                        ? NULL
                     : p->in.pipeline == OSH_PIPELINE_BASIC ? "the whole model"
                                                         : p->schedule.parts->parts[subgraph].name;
    const char *name = phase == OSH_PHASE_SOLVE && r->learning ? "learn" : osh_phase_name(phase);
    osh_time_begin(&r->mine, p->in.opt->ranks);
    osh_scope scope = osh_profile_begin(cx, name, of);
    osh_ranks_phase(p->in.opt->ranks, name, of);
    device_mark_begin(cx, r);
    osh_pace_begin(&r->pace, phase, subgraph, share, osh_now());
    if (r->pace.cost) osh_profile_flops(cx, share * r->pace.cost[r->pace.subgraph].flops[phase]);
    if (of) r->progress.name = of;
    r->progress.phase = name, r->progress.done = r->progress.total = 0;
    run_show(cx, r);
    return scope;
}

void osh_run_step(osh_ctx *cx, osh_run *r, double fraction)
{
    osh_pace_step(&r->pace, fraction);
    run_show(cx, r);
}

void osh_run_end(osh_ctx *cx, osh_run *r, osh_scope scope)
{
    device_mark_end(cx, r);
    osh_time_end(&r->mine, r->plan->in.opt->ranks, r->pace.phase);
    osh_pace_end(&r->pace, osh_now());
    osh_profile_end(cx, scope);
}

void osh_run_finished(osh_ctx *cx, osh_run *r, const char *name)
{
    r->progress.name = name, r->progress.finished = true;
    if (r->progress.step >= r->progress.n_steps)
        /* If work_done is equal to work_total, the progress line shows the time that was needed,
         * and not the time left. */
        r->progress.work_done = r->progress.work_total = 1;
    run_show(cx, r);
    r->progress.finished = false;
    checkpoint_marks(cx, r, name);
}
