/* api.c - runs the jobs that compress a model, print its plan and draw its graph. */
#include <string.h>

#include "api/api.h"
#include "api/evaluate.h"
#include "api/held_back.h"
#include "api/largest.h"
#include "api/measured.h"
#include "api/mixed.h"
#include "api/others.h"
#include "api/sample.h"
#include "base/buf.h"
#include "base/file.h"
#include "output/share.h"
#include "output/stream.h"
#include "output/tuned.h"
#include "match/dense.h"
#include "rewrite/folds.h"
#include "budget/memory.h"
#include "match/paths.h"
#include "plan/division.h"
#include "plan/traversals.h"
#include "quant/source.h"
#include "report/readme.h"
#include "report/closing.h"
#include "report/plan_print.h"
#include "report/report.h"
#include "run/run.h"

#ifndef OSH_VERSION
#define OSH_VERSION "unknown"
#endif

static osh_status job_copy(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    osh_scope scope = osh_run_begin(cx, r, OSH_PHASE_COPY, -1);
    OSH_TRY(osh_stream_copies(cx, r->emitter, NULL));
    // if there are no tensors to copy, only this call notices an interrupt
    OSH_TRY(osh_check_interrupt(cx));
done:
    osh_run_end(cx, r, scope);
    return rc;
}

/* Warns if copied tensors contain a NaN or an infinity, and names the first of these tensors. */
static osh_status warn_not_finite(osh_ctx *cx, const osh_run *r)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    int64_t n = 0;
    osh_buf_init(&b, 0);
    for (int64_t i = 0; i < r->plan->manifest.n_out; i++)
        if (osh_emit_not_finite(r->emitter, i) && n++ < 3)
            OSH_TRY(
                osh_buf_printf(cx, &b, "%s%s", n > 1 ? ", " : "", r->plan->manifest.out[i].name));
    if (n)
        osh_log(cx, OSH_LOG_WARN,
                "%lld of the copied tensors have a NaN or an infinity in the source: %s%s",
                (long long)n, b.data, n > 3 ? ", ..." : "");
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status job_seal(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    osh_report report = {0}; // own
    char *html = NULL, *readme = NULL; // own
    osh_scope scope = osh_run_begin(cx, r, OSH_PHASE_SEAL, -1);
    OSH_TRY(osh_emit_check(cx, r->emitter));
    OSH_TRY(warn_not_finite(cx, r));
    osh_run_end(cx, r, scope);
    OSH_TRY(osh_run_report(cx, &report, &html, r));
    OSH_TRY(osh_readme_make(cx, &readme, r));
    OSH_TRY(osh_emit_seal(cx, r->emitter, r->results,
                          &(osh_seal_report){html, readme, osh_report_write, &report}));
    osh_run_finished(cx, r, "the output");
done:
    osh_report_deinit(cx, &report);
    osh_free(cx, html);
    osh_free(cx, readme);
    return rc;
}

static osh_status warn_dense(osh_ctx *cx, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_dense_warning(cx, &b, &p->match));
    if (b.len) osh_log(cx, OSH_LOG_WARN, "%s", b.data);
    osh_buf_clear(&b);
    OSH_TRY(osh_dense_grown(cx, &b, &p->match, p->manifest.total_bytes));
    if (b.len) osh_log(cx, OSH_LOG_WARN, "%s", b.data);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Prints the first lines of the run. */
static osh_status job_open(osh_ctx *cx, const osh_plan *p, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_run_opening(cx, &b, p));
    if (sink && b.len) sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status job_summarize(osh_ctx *cx, const osh_run *r, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    int64_t in = osh_checkpoint_stored_bytes(r->plan->in.ck);
    osh_buf_init(&b, 4096);
    OSH_TRY(osh_buf_line(
        cx, &b, "%s: %d modules, %.1f MB to %.1f MB (%.2f times smaller), %.1f s%s%s",
        r->plan->in.opt->output, r->plan->match.n_linears, (double)in / 1e6,
        (double)r->plan->manifest.total_bytes / 1e6,
        r->plan->manifest.total_bytes ? (double)in / (double)r->plan->manifest.total_bytes : 0,
        osh_now() - r->started, r->plan->in.spared ? "; dense: the output head " : "",
        r->plan->in.spared ? r->plan->in.spared : ""));
    if (r->plan->in.opt->guide) OSH_TRY(osh_closing_loss(cx, &b, r));
    if (sink) sink(user, b.data, b.len);
    OSH_TRY(warn_dense(cx, r->plan));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status require_model(osh_ctx *cx, const osh_options *opt)
{
    return opt->model ? OSH_OK : osh_fail(cx, OSH_E_USAGE, "--model is not given");
}

static osh_status plan_profiled(osh_ctx *cx, osh_plan **p, const osh_options *opt)
{
    osh_scope scope = osh_profile_begin(cx, "plan", NULL);
    osh_status rc = osh_plan_new(cx, p, opt);
    osh_profile_end(cx, scope);
    if (rc && opt->ranks && opt->host_memory > 0)
        osh_note(cx, "planning one of the %d ranks that share the --host-memory of a node",
                 osh_ranks_per_node(opt->ranks));
    return rc;
}

static osh_status say_finished(osh_ctx *cx, const osh_plan *p, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_line(cx, &b, "%s: is finished and was made by this command; nothing to do",
                         p->in.opt->output));
    if (sink) sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Logs how many modules an earlier process has finished. With --strict, fails if one of these
 * modules was not quantized as planned. */
static osh_status check_resumed(osh_ctx *cx, const osh_run *r)
{
    osh_status rc = OSH_OK;
    int n = 0;
    for (int i = 0; i < r->plan->match.n_linears; i++) {
        n += r->results[i].done;
        if (r->plan->in.opt->strict && r->results[i].fallback)
            OSH_FAIL(cx, OSH_E_NUMERIC, "%s: %s; --strict allows no fallback",
                     r->plan->match.linears[i].name, r->results[i].fallback);
    }
    if (osh_emitter_resumed(r->emitter))
        osh_log(cx, OSH_LOG_INFO, "continuing from %s: %d of %d modules are done",
                osh_emit_dir(r->emitter), n, r->plan->match.n_linears);
done:
    return rc;
}

char *osh_partial_dir(osh_ctx *cx, const osh_options *opt)
{
    char *final = NULL, *dir = NULL; // own
    if (opt->output) osh_output_dirs(cx, &final, &dir, opt->output);
    osh_free(cx, final);
    return dir;
}

char *osh_resume_dir(osh_ctx *cx, const osh_options *opt)
{
    char *dir = osh_partial_dir(cx, opt); // own
    if (dir && osh_dir_exists(dir)) return dir;
    osh_free(cx, dir);
    return NULL;
}

/* Runs one traversal for all modifiers, or one traversal for each modifier. Skips traversals that
 * an earlier process has finished. */
static osh_status job_calibrate(osh_ctx *cx, osh_run *r, osh_plan *p)
{
    osh_status rc = OSH_OK;
    int n = p->n_traversals;
    if (!n) return osh_run_calibrated(cx, r);
    for (int t = 0; t < n; t++) {
        osh_traversal *v = &p->traversals[t];
        const char *name = p->in.recipe->modifiers[v->schedule.modifier].type->name;
        double began = osh_now();
        r->budget = &v->budget;
        if (osh_run_solved(r, 0, p->schedule.parts->n) &&
            osh_folds_known(&v->schedule, 0, p->schedule.parts->n)) {
            osh_log(cx, OSH_LOG_INFO, "traversal %d of %d, %s: was done by an earlier run", t + 1,
                    n, name);
            continue;
        }
        OSH_TRY(osh_run_traverse(cx, r));
        OSH_TRY(osh_run_calibrated(cx, r));
        OSH_TRY(osh_emit_wait(cx, r->emitter));
        v->seconds = osh_now() - began;
        osh_log(cx, OSH_LOG_INFO, "traversal %d of %d, %s: %.1f s", t + 1, n, name, v->seconds);
    }
    r->budget = &p->budget;
done:
    return rc;
}

/* Refuses flags that only `oneshot plan` reads. --json is one of them, except with
 * --only-largest-layer. */
static osh_status refuse_plan_flags(osh_ctx *cx, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    const char *only = opt->json && !opt->only_largest_layer ? "--json"
                       : opt->verbose                        ? "--verbose"
                       : opt->largest_layer                  ? "--largest-layer"
                                                             : NULL;
    if (only)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: a run prints no plan; the flag belongs to `oneshot plan`%s",
                 only, opt->verbose ? ": want --log-level info" : "");
    if (opt->device_model)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--device-model %s: a run uses the GPU of the machine; the flag belongs to "
                 "`oneshot plan`",
                 opt->device_model);
    if (opt->n_ranks || opt->ranks_per_node)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--ranks %lld: mpirun or srun sets the ranks of a run; the flag belongs to "
                 "`oneshot plan`",
                 (long long)opt->n_ranks);
done:
    return rc;
}

static osh_status compress_plain(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_plan *p = NULL;  // own
    bool finished = false;
    osh_run r = {.started = osh_now()};
    OSH_TRY(require_model(cx, opt));
    OSH_TRY(osh_isa_use(cx, opt->isa));
    OSH_TRY(refuse_plan_flags(cx, opt));
    if (opt->only_largest_layer) return osh_try_largest(cx, opt, sink, user);
    if (!opt->output) OSH_FAIL(cx, OSH_E_USAGE, "--output is not given");
    OSH_TRY(osh_output_claim(cx, opt));
    OSH_TRY(osh_run_watch(cx, &r, opt));
    OSH_TRY(plan_profiled(cx, &p, opt));
    OSH_TRY(osh_plan_agree(cx, p, opt->ranks));
    r.plan = p, r.budget = &p->budget;
    osh_division division = osh_divide(p);
    bool others = osh_ranks_me(opt->ranks) > 0;
    bool shared = opt->ranks && division.kind != OSH_DIVIDE_NOTHING;
    /* Rank 0 does the whole job, so this rank has nothing to do. */
    if (others && division.kind == OSH_DIVIDE_NOTHING) goto done;
    OSH_TRY(osh_plan_open_device(cx, p));
    osh_memory_enforce(cx, &p->budget);
    r.progress.budget_bytes = opt->host_memory;
    OSH_NEW(cx, r.results, p->match.n_linears);
    OSH_TRY((shared ? osh_emitter_share : osh_emitter_new)(cx, &r.emitter, p, r.results,
                                                           &finished));
    if (finished && others) goto done;
    if (finished) {
        OSH_TRY(say_finished(cx, p, sink, user));
        goto done;
    }
    if (opt->guide) OSH_TRY(job_open(cx, p, sink, user));
    OSH_TRY(warn_dense(cx, p)); // job_summarize repeats the warning at the end of the run
    OSH_TRY(osh_run_start(cx, &r));
    if (division.kind == OSH_DIVIDE_SAMPLES) r.ranks = opt->ranks;
    if (opt->ranks)
        osh_log(cx, OSH_LOG_INFO, "%d ranks: %s%s", osh_ranks_n(opt->ranks),
                osh_division_text(&division), division.not ? division.not : "");
    OSH_TRY(check_resumed(cx, &r));
    /* If osh_run_tune has finished in an earlier process, all Linears are complete. */
    bool learned = osh_emit_tuned(r.emitter)->known;
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE && !learned) {
        OSH_TRY(job_calibrate(cx, &r, p));
        r.progress.step = r.progress.n_steps, r.progress.name = "the output";
        osh_run_no_error(&r);
    }
    if (others && r.ranks) goto done; // the work of this rank is done; rank 0 completes the output
    /* osh_run_datafree is called even if the run used data, because some modifiers of the recipe
     * may need no data. */
    if (!learned) OSH_TRY(osh_run_datafree(cx, &r));
    if (others) goto done; // the other work of this rank is done; rank 0 completes the output
    r.progress.step = r.progress.n_steps, r.progress.name = "the output";
    osh_run_no_error(&r);
    OSH_TRY(job_copy(cx, &r));
    OSH_TRY(osh_run_tune(cx, &r));
    OSH_TRY(job_seal(cx, &r));
    OSH_TRY(job_summarize(cx, &r, sink, user));
done:
    osh_run_unwatch(cx, &r, rc);
    osh_coverage_free(cx, r.coverage);
    osh_emitter_free(cx, r.emitter);
    osh_free(cx, r.results);
    osh_free(cx, r.times);
    osh_plan_free(cx, p);
    return rc;
}

/* Fails if the budget is too small for the run or for a pass before or after the run (osh_others).
 * Called before the first of these passes. Plans the run as if the recipe already had the results
 * of the passes. */
static osh_status check_run(osh_ctx *cx, const osh_options *opt)
{
    osh_plan *p = NULL; // own
    osh_status rc = opt->host_memory > 0 ? osh_plan_new(cx, &p, opt) : OSH_OK;
    osh_plan_free(cx, p);
    return rc;
}

/* Compresses with --target-bits or --target-size: first makes a survey (the losses of all candidate
 * schemes), then runs the job. When the output is complete, removes the records of the survey. */
static osh_status compress_chosen(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_choice c = {0}; // own
    osh_options with = *opt; // views
    OSH_TRY(require_model(cx, opt));
    OSH_TRY(osh_isa_use(cx, opt->isa));
    if (!opt->output) OSH_FAIL(cx, OSH_E_USAGE, "--output is not given");
    OSH_TRY(osh_output_claim(cx, opt));
    OSH_TRY(check_run(cx, opt));
    OSH_TRY(osh_choice_make(cx, &c, opt, sink, user));
    with.chosen = c.recipe, with.mixed = c.mixed;
    OSH_TRY(compress_plain(cx, &with, sink, user));
    if (!osh_ranks_me(opt->ranks)) OSH_TRY(osh_choice_end(cx, &c, opt));
done:
    osh_choice_deinit(cx, &c);
    return rc;
}

/* Measures experts or outliers if the recipe asks for it, then compresses with the results. */
static osh_status compress_measured(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_options with = *opt; // views
    char *recipe = NULL; // own
    OSH_TRY(require_model(cx, opt));
    OSH_TRY(osh_isa_use(cx, opt->isa));
    if (!opt->output) OSH_FAIL(cx, OSH_E_USAGE, "--output is not given");
    if (osh_wants_choice(opt))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "--target-bits and --target-size do not support a recipe that drops experts or "
                 "has sparsity_profile owl: want that recipe alone, and its output as the --model "
                 "of a second run");
    OSH_TRY(osh_output_claim(cx, opt));
    OSH_TRY(check_run(cx, opt));
    OSH_TRY(osh_measure(cx, &recipe, opt, sink, user));
    with.chosen = recipe;
    OSH_TRY(compress_plain(cx, &with, sink, user));
done:
    osh_free(cx, recipe);
    return rc;
}

/* Changes the options of a rank. Each rank of a node gets an equal part of the node's budget. Only
 * rank 0 writes the log and the profile. */
static void options_of_rank(osh_options *o)
{
    o->host_memory /= osh_ranks_per_node(o->ranks);
    if (!osh_ranks_me(o->ranks)) return;
    static char none[] = "none";
    o->log_file = none, o->profile = NULL, o->checkpoint.n = 0, o->guide = false;
}

/* Runs a job on rank 0 only. */
static osh_status oneshot_alone(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_options alone = *opt; // views
    alone.ranks = NULL;
    if (osh_ranks_me(opt->ranks)) return OSH_OK;
    osh_log(
        cx, OSH_LOG_WARN,
        "%d ranks: rank 0 does all work, because ranks do not divide a run of the largest subgraph",
        osh_ranks_n(opt->ranks));
    return osh_oneshot(cx, &alone, sink, user);
}

/* Chooses the rows that are evaluated after the run, and stores them in `held`. Members of `opt`
 * become views of `held`, so `held` must live as long as `opt`. */
static osh_status held_back_take(osh_ctx *cx, osh_held_back *held, osh_options *opt)
{
    osh_status rc = osh_held_back_find(cx, held, opt);
    if (!rc && *held->splits)
        opt->held_splits = held->splits, opt->held_name = held->name, opt->held_host = held->host;
    return rc;
}

osh_status osh_oneshot(osh_ctx *cx, const osh_options *given, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_held_back held = {.host = 0};
    osh_options mine = *given, *opt = &mine; // views
    if (given->ranks) options_of_rank(opt);
    osh_others o = {.opt = *opt}; // own
    osh_buf next;             // own
    osh_buf_init(&next, 0);
    OSH_TRY(osh_paths_check(cx, osh_option_fields, opt));
    if (opt->eval && !osh_file_exists(opt->eval) && !osh_dir_exists(opt->eval))
        OSH_FAIL(cx, OSH_E_USAGE, "--eval %s: no such file", opt->eval);
    bool chosen = osh_wants_choice(opt) && !opt->only_largest_layer, measured = false;
    OSH_TRY(osh_wants_measure(cx, &measured, opt));
    OSH_TRY(held_back_take(cx, &held, opt));
    o.opt = *opt;
    if (opt->ranks && opt->only_largest_layer) {
        rc = oneshot_alone(cx, given, sink, user);
        goto done;
    }
    /* If the job has both a measurement and a choice of schemes, compress_measured fails below. */
    bool both = measured && chosen;
    /* osh_others_find also predicts the memory of the choice and of the measurement, if `all` is
     * true. With opt->eval, it reads the data, and fails if the output could not be evaluated
     * later. */
    bool all = opt->host_memory > 0 || opt->sample;
    if (opt->model && opt->output && !both && (all || opt->eval))
        OSH_TRY(osh_others_find(cx, &o, opt, all && chosen, all && measured));
    if (measured && !opt->only_largest_layer) OSH_TRY(compress_measured(cx, &o.opt, sink, user));
    else
        OSH_TRY(chosen ? compress_chosen(cx, &o.opt, sink, user)
                       : compress_plain(cx, &o.opt, sink, user));
    if (osh_ranks_me(opt->ranks)) goto done;
    if (opt->eval && !opt->only_largest_layer) OSH_TRY(osh_evaluate(cx, opt, sink, user));
    if (opt->held_splits || held.not)
        OSH_TRY(osh_evaluate_held(cx, opt, opt->held_splits ? NULL : held.not, sink, user));
    if (opt->sample && !opt->only_largest_layer) OSH_TRY(osh_sample_run(cx, opt, sink, user));
    if (opt->guide && !opt->only_largest_layer) OSH_TRY(osh_closing_next(cx, &next, opt));
    if (sink && next.len) sink(user, next.data, next.len);
done:
    osh_buf_deinit(cx, &next);
    osh_others_deinit(cx, &o);
    return rc;
}

osh_status osh_show_plan(osh_ctx *cx, const osh_options *given, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_options mine = *given, *opt = &mine; // views
    osh_plan *p = NULL; // own
    char *text = NULL, *before = NULL; // own
    osh_held_back held = {.host = 0};
    osh_others o = {.opt = *opt}; // own
    OSH_TRY(require_model(cx, opt));
    OSH_TRY(osh_paths_check(cx, osh_option_fields, opt));
    if (opt->ranks_per_node > opt->n_ranks)
        OSH_FAIL(cx, OSH_E_USAGE, "--ranks-per-node %lld: want at most the --ranks, %lld",
                 (long long)opt->ranks_per_node, (long long)opt->n_ranks);
    if (!opt->ranks_per_node) opt->ranks_per_node = opt->n_ranks;
    if (opt->n_ranks > 1) opt->host_memory /= opt->ranks_per_node;
    bool measured = false;
    if (!osh_wants_choice(opt)) OSH_TRY(osh_wants_measure(cx, &measured, opt));
    OSH_TRY(held_back_take(cx, &held, opt));
    OSH_TRY(osh_others_find(cx, &o, opt, osh_wants_choice(opt), measured));
    if (osh_wants_choice(opt)) OSH_TRY(osh_choice_plan(cx, &before, &o.opt));
    if (measured) OSH_TRY(osh_measure_plan(cx, &before, &o.opt));
    if (opt->output) OSH_TRY(osh_output_claim(cx, opt));
    OSH_TRY(osh_plan_new(cx, &p, &o.opt));
    if (opt->largest_layer) OSH_TRY(osh_print_largest(cx, &text, p, opt->json));
    else if (opt->json || opt->verbose) OSH_TRY(osh_plan_print(cx, &text, p, opt->json));
    else OSH_TRY(osh_plan_summary(cx, &text, p, before));
    if (before && opt->verbose && !opt->json && !opt->largest_layer)
        sink(user, before, strlen(before));
    sink(user, text, strlen(text));
done:
    osh_free(cx, before);
    osh_free(cx, text);
    osh_plan_free(cx, p);
    osh_others_deinit(cx, &o);
    return rc;
}

osh_status osh_show_graph(osh_ctx *cx, const osh_options *opt, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_source *source = NULL;    // own
    osh_graph *g = NULL;          // own
    osh_partition *parts = NULL;  // own
    char *dot = NULL;             // own
    OSH_TRY(require_model(cx, opt));
    OSH_TRY(osh_source_open(cx, &source, opt->model));
    OSH_TRY(osh_graph_new(cx, &g, osh_source_checkpoint(source), opt->models_dir));
    OSH_TRY(osh_partition_new(cx, &parts, g, (const char *const *)opt->sequential_targets.items,
                              opt->sequential_targets.n, opt->sequential_targets_per_subgraph));
    OSH_TRY(osh_check_interrupt(cx));
    OSH_TRY(osh_graph_dot(cx, &dot, g, parts));
    sink(user, dot, strlen(dot));
done:
    osh_free(cx, dot);
    osh_partition_free(cx, parts);
    osh_graph_free(cx, g);
    osh_source_close(cx, source);
    return rc;
}
