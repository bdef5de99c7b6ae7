/* mixed.c - makes the survey and chooses the scheme of each unit. The survey measures the loss of
 * each candidate scheme. A unit consists of modules that must get the same scheme, such as q, k and
 * v. The survey is a run with a journal but without an output, in the directory OUT.oneshot-survey.
 * The survey changes no weight and reads the values of the original model, so it is one pass
 * through the model. */
#include "api/mixed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/xxh3.h"
#include "eval/effect.h"
#include "eval/gradients.h"
#include "math/isa.h"
#include "output/emit_impl.h"
#include "output/known.h"
#include "output/share.h"
#include "plan/division.h"
#include "plan/identity.h"
#include "budget/memory.h"
#include "run/run.h"

typedef struct survey {
    osh_options opt; // its strings are views of `output` and of the strings in the job's options
    char *output;    // own
    osh_plan *p;     // own
    osh_run r;
    /* Hashes of the inputs on which the survey's records depend. The hash `of` does not depend on
     * the target (bits or size), and the hash `id` also depends on the target. */
    uint64_t of, id;
    int64_t peak;    // predicted peak of host memory, in bytes
    int64_t least;   // the smallest --host-memory for the survey
    int64_t at_most; // size in bytes that the target allows for the tensors of the output
    char *pass;      // own: description of the pass that needs `least`
    /* Recipe that gives each unit the candidate scheme with the most bits; NULL: not needed. */
    char *largest;   // own
} survey;

static void survey_end(osh_ctx *cx, survey *s)
{
    osh_coverage_free(cx, s->r.coverage);
    osh_emitter_free(cx, s->r.emitter);
    osh_free(cx, s->r.results);
    osh_free(cx, s->r.times);
    osh_plan_free(cx, s->p);
    osh_free(cx, s->output);
    osh_free(cx, s->pass);
    osh_free(cx, s->largest);
}

static osh_status survey_find_id(osh_ctx *cx, survey *s, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    char *text = NULL;       // own
    OSH_TRY(osh_identity_new(cx, &id, s->p));
    OSH_TRY(osh_identity_json(cx, &text, id, OSH_IDENTITY_FIELDS));
    s->of = XXH3_64bits(text, strlen(text));
    s->id = XXH3_64bits_withSeed(&opt->target_bits, sizeof opt->target_bits, s->of);
    if (opt->target_size)
        s->id = XXH3_64bits_withSeed(opt->target_size, strlen(opt->target_size), s->id);
done:
    osh_identity_free(cx, id);
    osh_free(cx, text);
    return rc;
}

/* Sets *out (own) to the path OUT.oneshot-survey. */
static osh_status survey_output(osh_ctx *cx, char **out, const osh_options *opt)
{
    size_t n = strlen(opt->output ? opt->output : "");
    while (n > 1 && opt->output[n - 1] == '/') n--;
    *out = osh_sprintf(cx, "%.*s.oneshot-survey", (int)n, n ? opt->output : "");
    return *out ? OSH_OK : OSH_E_NOMEM;
}

static osh_status survey_begin(osh_ctx *cx, survey *s, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    *s = (survey){.opt = *opt, .r = {.started = osh_now()}};
    if (opt->target_bits > 0 && opt->target_size)
        OSH_FAIL(cx, OSH_E_USAGE, "--target-bits and --target-size exclude each other");
    OSH_TRY(survey_output(cx, &s->output, opt));
    s->opt.output = s->output, s->opt.survey = true, s->opt.device = "cpu",
    s->opt.device_memory = 0;
    s->opt.profile = NULL, s->opt.overwrite = false, s->opt.eval = NULL;
    OSH_TRY(osh_output_claim(cx, &s->opt));
    OSH_TRY(osh_plan_new(cx, &s->p, &s->opt));
    s->r.plan = s->p, s->r.budget = &s->p->budget;
    OSH_TRY(survey_find_id(cx, s, opt));
done:
    return rc;
}

/* Predicts the peak of the survey and of the pass that measures gradients or effects. Fails if the
 * target cannot be met. All losses count as zero, because the survey has not measured them yet. If
 * `largest` is true, also makes the recipe s->largest. */
static osh_status survey_predict(osh_ctx *cx, survey *s, bool largest)
{
    osh_status rc = OSH_OK;
    static const osh_losses none = {0};
    const osh_losses **losses = NULL; // own: array of views
    osh_mixed *m = NULL;              // own
    osh_effect *e = NULL;             // own
    osh_gradients *g = NULL;          // own
    int64_t effects = 0, limit;
    OSH_NEW(cx, losses, s->p->match.n_linears);
    for (int i = 0; i < s->p->match.n_linears; i++) losses[i] = &none;
    OSH_TRY(osh_mixed_new(cx, &m, s->p, losses));
    OSH_TRY(osh_mixed_limit(cx, &limit, m, s->p));
    OSH_TRY(osh_mixed_choose(cx, m, limit));
    s->at_most = s->p->manifest.dense_bytes + m->limit;
    if (s->p->gradients) {
        OSH_TRY(osh_gradients_open(cx, &g, s->p));
        OSH_TRY(osh_gradients_bytes(cx, &effects, g));
    } else {
        OSH_TRY(osh_effect_open(cx, &e, s->p, m->unit_of, m->n_units));
        OSH_TRY(osh_effect_bytes(cx, &effects, e));
    }
    effects += s->p->budget.memory.base_bytes;
    s->peak = s->p->budget.memory.peak.host > effects ? s->p->budget.memory.peak.host : effects;
    bool alone = s->p->budget.memory.least.host >= effects + OSH_ISA_NOISE_BYTES;
    s->least = alone ? s->p->budget.memory.least.host : effects + OSH_ISA_NOISE_BYTES;
    if (alone)
        s->pass = osh_strdup(cx, "the survey of the modules runs first");
    else
        s->pass = osh_sprintf(cx, "%s %d units of modules are measured before the run",
                              s->p->gradients ? "gradients of" : "the effects of", m->n_units);
    if (!s->pass) OSH_TRY(OSH_E_NOMEM);
    for (int i = 0; largest && i < m->n_units; i++)
        for (int k = 0; k < m->units[i].n; k++)
            if (m->units[i].bytes[k] > m->units[i].bytes[m->units[i].chosen])
                m->units[i].chosen = k;
    if (largest) OSH_TRY(osh_mixed_recipe(cx, &s->largest, m, s->p, ""));
done:
    osh_gradients_close(cx, g);
    osh_effect_close(cx, e);
    osh_mixed_free(cx, m);
    osh_free(cx, losses);
    return rc;
}

/* Measures the gradients by which the losses of the survey are weighted. */
static osh_status measure_gradients(osh_ctx *cx, survey *s)
{
    osh_status rc = OSH_OK;
    osh_gradients *g = NULL; // own
    osh_progress progress = s->r.progress;
    OSH_TRY(osh_gradients_open(cx, &g, s->p));
    OSH_TRY(osh_gradients_run(cx, g, &progress));
done:
    osh_gradients_close(cx, g);
    return rc;
}

static osh_status survey_run(osh_ctx *cx, survey *s)
{
    osh_status rc = OSH_OK;
    bool finished = false;
    osh_division division = osh_divide(s->p);
    osh_ranks *ranks = s->opt.ranks;
    if (division.kind == OSH_DIVIDE_SAMPLES) s->r.ranks = ranks;
    if (osh_ranks_me(ranks) && !s->r.ranks) return OSH_OK; // rank 0 makes the survey
    OSH_TRY(osh_run_watch(cx, &s->r, &s->opt));
    osh_memory_enforce(cx, &s->p->budget);
    s->r.progress.budget_bytes = s->opt.host_memory;
    OSH_NEW(cx, s->r.results, s->p->match.n_linears);
    OSH_TRY((s->r.ranks ? osh_emitter_share : osh_emitter_new)(cx, &s->r.emitter, s->p,
                                                               s->r.results, &finished));
    OSH_TRY(osh_run_start(cx, &s->r));
    if (ranks)
        osh_log(cx, OSH_LOG_INFO, "survey, %d ranks: %s%s", osh_ranks_n(ranks),
                osh_division_text(&division), division.not ? division.not : "");
    if (!osh_run_solved(&s->r, 0, s->p->schedule.parts->n)) {
        if (s->p->gradients) OSH_TRY(measure_gradients(cx, s));
        OSH_TRY(osh_run_calibrated(cx, &s->r));
    }
    OSH_TRY(osh_emit_wait(cx, s->r.emitter));
done:
    osh_run_unwatch(cx, &s->r, rc);
    return rc;
}

/* Returns the line (own) by which a recipe identifies the choice, or NULL if the allocation
 * fails. */
static char *choice_mark(osh_ctx *cx, uint64_t id)
{
    return osh_sprintf(cx, "# choice %016llx\n", (unsigned long long)id);
}

/* If the recipe of the output has the line that identifies this choice, sets c->recipe (own) to
 * that recipe. */
static osh_status survey_find_output(osh_ctx *cx, osh_choice *c, const survey *s,
                                     const osh_options *opt)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, opt->output, "recipe.yaml"), *mark = choice_mark(cx, s->id),
         *text = NULL; // own
    size_t n = 0;
    if (!path || !mark) OSH_TRY(OSH_E_NOMEM);
    if (opt->overwrite || opt->restart || !osh_file_exists(path)) goto done;
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, 1u << 20));
    if (strstr(text, mark)) c->recipe = text, text = NULL;
done:
    osh_free(cx, path);
    osh_free(cx, mark);
    osh_free(cx, text);
    return rc;
}

/* ---- file of effects ---- */

static osh_status survey_keep_effects(osh_ctx *cx, const char *path, const survey *s,
                                      const double *effect, int n)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "{\"survey\": \"%016llx\", \"effects\": [",
                           (unsigned long long)s->of));
    for (int i = 0; i < n; i++)
        OSH_TRY(osh_buf_printf(cx, &b, "%s\"%a\"", i ? ", " : "", effect[i]));
    OSH_TRY(osh_buf_printf(cx, &b, "]}\n"));
    OSH_TRY(osh_file_write_all(cx, path, b.data, b.len));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Reads the effects of the units from a file. Sets *found to false if the file does not exist or
 * belongs to another survey. */
static osh_status survey_find_effects(osh_ctx *cx, const char *path, const survey *s,
                                      double *effect, int n, bool *found)
{
    osh_status rc = OSH_OK;
    cJSON *root = NULL; // own
    char want[24];
    *found = false;
    if (!osh_file_exists(path)) goto done;
    snprintf(want, sizeof want, "%016llx", (unsigned long long)s->of);
    OSH_TRY(osh_json_read(cx, &root, path, (size_t)1 << 26, 0));
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(root, "survey");
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "effects");
    *found = cJSON_IsString(of) && !strcmp(of->valuestring, want) && cJSON_IsArray(list) &&
             cJSON_GetArraySize(list) == n;
    for (const cJSON *e = *found ? list->child : NULL; e; e = e->next)
        *effect++ = cJSON_IsString(e) ? strtod(e->valuestring, NULL) : 0;
done:
    cJSON_Delete(root);
    return rc;
}

/* Measures the effect of each unit, which is the change of the model's predictions when the unit is
 * rounded. Reads the effects from their file if this file exists. Multiplies the losses by the
 * effects (osh_mixed_weigh). The ranks share out the units, and rank 0 gets all effects. */
static osh_status choice_weigh(osh_ctx *cx, osh_mixed *m, survey *s)
{
    osh_status rc = OSH_OK;
    osh_effect *e = NULL;  // own
    double *effect = NULL; // own
    char *path = NULL;     // own
    osh_ranks *ranks = s->opt.ranks;
    bool found = false, others = osh_ranks_me(ranks) > 0;
    OSH_NEW(cx, effect, m->n_units);
    if (!others) {
        path = osh_path_join(cx, osh_emit_dir(s->r.emitter), "oneshot-report.json");
        if (!path) OSH_TRY(OSH_E_NOMEM);
        OSH_TRY(survey_find_effects(cx, path, s, effect, m->n_units, &found));
    }
    OSH_TRY(osh_ranks_broadcast(cx, ranks, &found, sizeof found, 0));
    if (!found) {
        OSH_TRY(osh_effect_open(cx, &e, s->p, m->unit_of, m->n_units));
        OSH_TRY(osh_effect_run(cx, e, effect, &s->r.progress));
        if (!others) OSH_TRY(survey_keep_effects(cx, path, s, effect, m->n_units));
    }
    osh_mixed_weigh(m, effect);
done:
    osh_free(cx, path);
    osh_effect_close(cx, e);
    osh_free(cx, effect);
    return rc;
}

static osh_status choice_choose(osh_ctx *cx, osh_choice *c, survey *s)
{
    osh_status rc = OSH_OK;
    static const osh_losses none = {0};
    int64_t limit = 0;
    const osh_losses **losses = NULL; // own array of views
    char *head = NULL, *mark = choice_mark(cx, s->id); // own
    const osh_options *o = &s->opt;
    OSH_NEW(cx, losses, s->p->match.n_linears);
    for (int i = 0; i < s->p->match.n_linears; i++)
        losses[i] = s->r.results ? &s->r.results[i].losses : &none;
    OSH_TRY(osh_mixed_new(cx, &c->mixed, s->p, losses));
    if (s->p->gradients_not)
        osh_log(cx, OSH_LOG_INFO,
                "losses are weighted by the effects of rounding, not by gradients: %s",
                s->p->gradients_not);
    if (s->p->gradients) osh_mixed_by_gradients(c->mixed, s->p);
    else OSH_TRY(choice_weigh(cx, c->mixed, s));
    if (osh_ranks_me(o->ranks)) goto done; // rank 0 has all losses, and chooses
    OSH_TRY(osh_mixed_limit(cx, &limit, c->mixed, s->p));
    OSH_TRY(osh_mixed_choose(cx, c->mixed, limit));
    if (!mark) OSH_TRY(OSH_E_NOMEM);
    head = o->target_size
               ? osh_sprintf(cx, "# chosen for --target-size %s\n%s", o->target_size, mark)
               : osh_sprintf(cx, "# chosen for --target-bits %.10g\n%s", o->target_bits, mark);
    if (!head) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_mixed_recipe(cx, &c->recipe, c->mixed, s->p, head));
done:
    osh_free(cx, losses);
    osh_free(cx, head);
    osh_free(cx, mark);
    return rc;
}

static osh_status choice_say(osh_ctx *cx, const osh_mixed *m, osh_sink sink, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    struct {
        const char *label; // view
        int n;
    } kinds[4 * OSH_CANDIDATES];
    int n_kinds = 0;
    osh_buf_init(&b, 0);
    /* Counts the units by the label of their chosen candidate. */
    for (int i = 0; i < m->n_units; i++)
        for (int k = 0; k < m->units[i].n; k++) {
            int at = 0;
            while (at < n_kinds && strcmp(kinds[at].label, m->units[i].label[k])) at++;
            if (at == sizeof kinds / sizeof *kinds) continue;
            if (at == n_kinds) kinds[n_kinds].label = m->units[i].label[k], kinds[n_kinds++].n = 0;
            kinds[at].n += m->units[i].chosen == k;
        }
    OSH_TRY(osh_buf_printf(cx, &b, "chosen: %.4f bits a weight, %.1f MB;",
                           8.0 * (double)m->bytes / (double)m->n_weights, (double)m->bytes / 1e6));
    for (int k = 0; k < n_kinds; k++)
        if (kinds[k].n) OSH_TRY(osh_buf_printf(cx, &b, " %s for %d,", kinds[k].label, kinds[k].n));
    b.len--;
    OSH_TRY(osh_buf_printf(cx, &b, " of %d units; loss %.4g, no choice below %.4g\n", m->n_units,
                           m->loss, m->bound));
    if (sink) sink(user, b.data, b.len);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Sends all ranks the recipe of rank 0, which has made the choice. */
static osh_status choice_give(osh_ctx *cx, osh_choice *c, osh_ranks *ranks)
{
    osh_status rc = OSH_OK;
    uint64_t n = osh_ranks_me(ranks) ? 0 : strlen(c->recipe);
    if (!ranks) goto done;
    OSH_TRY(osh_ranks_broadcast(cx, ranks, &n, sizeof n, 0));
    if (osh_ranks_me(ranks)) OSH_NEW(cx, c->recipe, n + 1);
    OSH_TRY(osh_ranks_broadcast(cx, ranks, c->recipe, n, 0));
    /* c->mixed has losses on rank 0 only. */
    if (osh_ranks_me(ranks)) osh_mixed_free(cx, c->mixed), c->mixed = NULL;
done:
    return rc;
}

osh_status osh_choice_make(osh_ctx *cx, osh_choice *c, const osh_options *opt, osh_sink sink,
                           void *user)
{
    osh_status rc = OSH_OK;
    survey s; // own
    *c = (osh_choice){0};
    OSH_TRY(survey_begin(cx, &s, opt));
    OSH_TRY(osh_plan_agree(cx, s.p, opt->ranks));
    OSH_TRY(survey_find_output(cx, c, &s, opt));
    if (c->recipe) goto done;
    OSH_TRY(survey_predict(cx, &s, false));
    OSH_TRY(survey_run(cx, &s));
    OSH_TRY(choice_choose(cx, c, &s));
    if (!osh_ranks_me(opt->ranks)) OSH_TRY(choice_say(cx, c->mixed, sink, user));
    OSH_TRY(choice_give(cx, c, opt->ranks));
done:
    survey_end(cx, &s);
    return rc;
}

/* Removes the records of the survey (the run that measured losses). */
static osh_status remove_survey(osh_ctx *cx, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_known k = {0}; // own
    OSH_TRY(osh_known_of_survey(cx, &k));
    OSH_TRY(osh_known_remove(cx, &k, dir, OSH_JOURNAL_NAME, false));
done:
    osh_known_deinit(cx, &k);
    return rc;
}

/* Removes the records that the survey of an earlier process has left. They may belong to another
 * job. */
static osh_status discard_survey(osh_ctx *cx, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    survey s; // own
    bool finished = false;
    osh_options alone = *opt; // its strings are views of those in the job's options
    alone.ranks = NULL;       // only rank 0 calls this function
    OSH_TRY(survey_begin(cx, &s, &alone));
    s.opt.restart = false;
    OSH_NEW(cx, s.r.results, s.p->match.n_linears);
    OSH_TRY(osh_emitter_new(cx, &s.r.emitter, s.p, s.r.results, &finished));
    osh_emitter_discard(s.r.emitter);
done:
    survey_end(cx, &s);
    return rc;
}

osh_status osh_choice_end(osh_ctx *cx, const osh_choice *c, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    char *output = NULL, *final = NULL, *partial = NULL; // own
    OSH_TRY(survey_output(cx, &output, opt));
    OSH_TRY(osh_output_dirs(cx, &final, &partial, output));
    if (osh_dir_exists(partial))
        rc = c->mixed ? remove_survey(cx, partial) : discard_survey(cx, opt);
done:
    osh_free(cx, output);
    osh_free(cx, final);
    osh_free(cx, partial);
    return rc;
}

void osh_choice_deinit(osh_ctx *cx, osh_choice *c)
{
    osh_free(cx, c->recipe);
    osh_mixed_free(cx, c->mixed);
    *c = (osh_choice){0};
}

osh_status osh_choice_least(osh_ctx *cx, int64_t *host, char **of, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    survey s;              // own
    osh_plan *p = NULL;    // own
    osh_options with = *opt; // its strings are views of those in the job's options
    with.host_memory = OSH_PASS_HOST_BYTES;
    OSH_TRY(survey_begin(cx, &s, &with));
    OSH_TRY(survey_predict(cx, &s, true));
    *host = s.least, *of = s.pass, s.pass = NULL; // give
    with.chosen = s.largest;
    OSH_TRY(osh_plan_new(cx, &p, &with));
    int64_t run = p->budget.memory.least.host + OSH_PASS_LEFT_BYTES;
    if (run > *host) {
        osh_free(cx, *of);
        *host = run;
        if (!(*of = osh_strdup(cx, "the plan assumes the most bits of the candidates for each "
                                   "module")))
            OSH_TRY(OSH_E_NOMEM);
    }
done:
    osh_plan_free(cx, p);
    survey_end(cx, &s);
    return rc;
}

osh_status osh_choice_plan(osh_ctx *cx, char **text, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    survey s; // own
    *text = NULL;
    OSH_TRY(survey_begin(cx, &s, opt));
    OSH_TRY(survey_predict(cx, &s, false));
    *text = osh_sprintf(cx,
                        "a survey comes first: %d modules, host memory %.1f MB, predicted; after "
                        "it the output has at most %.1f MB\nlosses are weighted by %s%s; the plan "
                        "below gives all modules the scheme of the recipe\n\n",
                        s.p->match.n_linears, (double)s.peak / 1e6, (double)s.at_most / 1e6,
                        s.p->gradients ? "gradients" :
                                         "the effects of rounding, and not by gradients: ",
                        s.p->gradients ? "" : s.p->gradients_not);
    if (!*text) rc = OSH_E_NOMEM;
done:
    survey_end(cx, &s);
    return rc;
}
