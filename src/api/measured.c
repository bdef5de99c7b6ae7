/* measured.c - measures experts (REAP) or outliers (OWL) before the run. The result is stored as a
 * key of the output's recipe.yaml. If the job is killed before it has an output, the next process
 * measures again, with the same result. */
#include "api/measured.h"
#include "api/mixed.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/xxh3.h"
#include "eval/measure.h"
#include "plan/division.h"
#include "math/isa.h"
#include "output/emit.h"
#include "plan/identity.h"

static const osh_measurement *const measurements[] = {&osh_measure_experts, &osh_measure_outliers};

typedef struct asked { // a measurement that a modifier of the recipe requires
    size_t at;                    // index of the modifier in the recipe
    const osh_measurement *what;  // view: the measurement; NULL: none is required
    bool known;                   // true if the recipe already has the result of the measurement
} asked;

static const osh_measurement *find_measurement(const char *key)
{
    for (size_t i = 0; i < sizeof measurements / sizeof *measurements; i++)
        if (!strcmp(measurements[i]->key, key)) return measurements[i];
    return NULL;
}

static osh_status find_asked(osh_ctx *cx, asked *out, const osh_recipe *r)
{
    osh_status rc = OSH_OK;
    *out = (asked){0};
    for (size_t i = 0; i < r->n; i++) {
        osh_asks asks = osh_modifier_asks(&r->modifiers[i]);
        if (!asks.key) continue;
        if (out->what)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s and %s both need measurements before the run: want one of them, and its "
                     "output as the --model of the other",
                     r->modifiers[out->at].type->name, r->modifiers[i].type->name);
        *out = (asked){i, find_measurement(asks.key), asks.known};
    }
done:
    return rc;
}

osh_status osh_wants_measure(osh_ctx *cx, bool *wants, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_recipe *r = NULL; // own
    asked a;
    *wants = false;
    if (!opt->recipe || opt->chosen) goto done;
    OSH_TRY(osh_recipe_open(cx, &r, opt->recipe, opt->quality));
    OSH_TRY(find_asked(cx, &a, r));
    *wants = a.what && !a.known;
done:
    osh_recipe_free(cx, r);
    return rc;
}

typedef struct measuring {
    osh_options opt; // its strings are views of those in the job's options
    osh_plan *p;     // own
    asked a;
    osh_measuring *state; // own: state of the measurement (a.what)
    char *mark;      // own: a line of the output's recipe that identifies the measurement
    int64_t peak;    // predicted peak of host memory, in bytes
} measuring;

static void measuring_end(osh_ctx *cx, measuring *m)
{
    if (m->a.what) m->a.what->close(cx, m->state);
    osh_plan_free(cx, m->p);
    osh_free(cx, m->mark);
}

static osh_status measuring_begin(osh_ctx *cx, measuring *m, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_identity *id = NULL; // own
    char *text = NULL;       // own
    int64_t bytes = 0;
    *m = (measuring){.opt = *opt};
    m->opt.measure = true, m->opt.device = "cpu", m->opt.device_memory = 0, m->opt.profile = NULL;
    // the plan gets no budget, because the peak of the measurement is computed below
    m->opt.host_memory = m->opt.scratch_size = 0;
    OSH_TRY(osh_plan_new(cx, &m->p, &m->opt));
    OSH_TRY(osh_identity_new(cx, &id, m->p));
    OSH_TRY(osh_identity_json(cx, &text, id, OSH_IDENTITY_FIELDS));
    if (!(m->mark = osh_sprintf(cx, "# measured %016llx\n",
                                (unsigned long long)XXH3_64bits(text, strlen(text)))))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(find_asked(cx, &m->a, m->p->in.recipe));
    OSH_TRY(m->a.what->open(cx, &m->state, m->p, &m->p->in.recipe->modifiers[m->a.at]));
    OSH_TRY(osh_measuring_bytes(cx, &bytes, m->state));
    m->peak = bytes + m->p->budget.memory.base_bytes;
    if (m->peak < m->p->budget.memory.load_bytes) m->peak = m->p->budget.memory.load_bytes;
done:
    osh_identity_free(cx, id);
    osh_free(cx, text);
    return rc;
}

/* Sets *recipe (own) to the recipe of the output, if this recipe has the line m->mark. The line
 * identifies the measurement. */
static osh_status measuring_find_output(osh_ctx *cx, char **recipe, const measuring *m,
                                        const osh_options *opt)
{
    osh_status rc = OSH_OK;
    char *path = osh_path_join(cx, opt->output, "recipe.yaml"), *text = NULL; // own
    size_t n = 0;
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (opt->overwrite || opt->restart || !osh_file_exists(path)) goto done;
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, (size_t)1 << 24));
    if (strstr(text, m->mark)) *recipe = text, text = NULL; // give
done:
    osh_free(cx, path);
    osh_free(cx, text);
    return rc;
}

/* Runs the measurement. Sets *line (own) to a line for the recipe: a key, and the result as its
 * value. Sets *said (own) to a message for the user. */
static osh_status measuring_run(osh_ctx *cx, char **line, char **said, measuring *m,
                                osh_progress *pr)
{
    osh_status rc = OSH_OK;
    char *value = NULL; // own
    OSH_TRY(osh_measuring_run(cx, m->state, pr));
    OSH_TRY(m->a.what->print(cx, &value, said, m->state));
    if (!(*line = osh_sprintf(cx, "%s: %s", m->a.what->key, value))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(cx, value);
    return rc;
}

osh_status osh_measure(osh_ctx *cx, char **recipe, const osh_options *opt, osh_sink sink,
                       void *user)
{
    osh_status rc = OSH_OK;
    measuring m; // own
    osh_progress pr = {.budget_bytes = opt->host_memory};
    char *line = NULL, *said = NULL; // own
    *recipe = NULL;
    OSH_TRY(measuring_begin(cx, &m, opt));
    OSH_TRY(osh_plan_agree(cx, m.p, opt->ranks));
    OSH_TRY(measuring_find_output(cx, recipe, &m, opt));
    if (*recipe) goto done;
    osh_mem_limit(cx, OSH_MEM_HOST, m.peak);
    OSH_TRY(measuring_run(cx, &line, &said, &m, &pr));
    osh_mem_limit(cx, OSH_MEM_HOST, 0);
    OSH_TRY(osh_recipe_with_line(cx, recipe, m.p->in.recipe, m.mark, (int)m.a.at, line));
    if (sink) sink(user, said, strlen(said));
done:
    osh_free(cx, line);
    osh_free(cx, said);
    measuring_end(cx, &m);
    return rc;
}

osh_status osh_measure_least(osh_ctx *cx, int64_t *host, char **of, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    measuring m;           // own
    osh_plan *p = NULL;    // own
    osh_options with = *opt; // its strings are views of those in the job's options
    with.host_memory = OSH_PASS_HOST_BYTES;
    OSH_TRY(measuring_begin(cx, &m, opt));
    OSH_TRY(osh_plan_new(cx, &p, &with));
    int64_t run = p->budget.memory.least.host + OSH_PASS_LEFT_BYTES;
    const char *what = m.a.what->what;
    *host = m.peak + OSH_ISA_NOISE_BYTES;
    if (run > *host) *of = osh_sprintf(cx, "%s are measured before the run", what);
    else *of = osh_sprintf(cx, "%s are measured before the run, with all samples in memory", what);
    if (run > *host) *host = run;
    if (!*of) OSH_TRY(OSH_E_NOMEM);
done:
    osh_plan_free(cx, p);
    measuring_end(cx, &m);
    return rc;
}

osh_status osh_measure_plan(osh_ctx *cx, char **text, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    measuring m; // own
    OSH_TRY(measuring_begin(cx, &m, opt));
    *text = m.a.what->plan(cx, m.p, (double)m.peak / 1e6);
    if (!*text) rc = OSH_E_NOMEM;
done:
    measuring_end(cx, &m);
    return rc;
}
