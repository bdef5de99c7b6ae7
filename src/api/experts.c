/* experts.c - see experts.h. What was measured is a key of the output's recipe.yaml; until there is an output a job
 * that was killed measures again, and finds the same. */
#include "api/experts.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/xxh3.h"
#include "eval/experts.h"
#include "modifiers/experts.h"
#include "ops/isa.h"
#include "output/emit.h"
#include "plan/experts.h"
#include "plan/identity.h"
#include "plan/memory.h"

static const osh_reap *reap_in(const osh_recipe *r, size_t *at)
{
    for (*at = 0; *at < r->n; ++*at)
        if (osh_reap_of(&r->modifiers[*at])) return osh_reap_of(&r->modifiers[*at]);
    return NULL;
}

osh_status osh_wants_experts(osh_ctx *cx, bool *wants, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    osh_recipe *r = NULL; // own
    size_t at;
    *wants = false;
    if (!opt->recipe || opt->chosen) goto done;
    OSH_TRY(osh_recipe_open(cx, &r, opt->recipe, opt->quality));
    const osh_reap *a = reap_in(r, &at);
    *wants = a && !a->n_kept;
done:
    osh_recipe_free(cx, r);
    return rc;
}

typedef struct measuring {
    osh_options opt; // views of the job's
    osh_plan *p;     // own
    osh_reaping *r;  // own
    char *mark;      // own: the line of a recipe by which it is known
    int64_t peak;    // host bytes, predicted
} measuring;

static void measuring_end(osh_ctx *cx, measuring *m)
{
    osh_reaping_close(cx, m->r);
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
    OSH_TRY(osh_plan_new(cx, &m->p, &m->opt));
    OSH_TRY(osh_identity_new(cx, &id, m->p));
    OSH_TRY(osh_identity_json(cx, &text, id, OSH_IDENTITY_FIELDS));
    if (!(m->mark = osh_sprintf(cx, "# experts %016llx\n", (unsigned long long)XXH3_64bits(text, strlen(text)))))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_reaping_open(cx, &m->r, m->p));
    OSH_TRY(osh_reaping_bytes(cx, &bytes, m->r));
    m->peak = bytes + m->p->memory.base_bytes;
    if (opt->host_memory > 0 && m->peak + OSH_ISA_NOISE_BYTES > opt->host_memory)
        OSH_FAIL(cx, OSH_E_USAGE, "--host-memory %lld bytes cannot be held where experts are measured, with all "
                 "samples in memory: the smallest that would do is %lld", (long long)opt->host_memory,
                 (long long)(m->peak + OSH_ISA_NOISE_BYTES));
done:
    osh_identity_free(cx, id);
    osh_free(cx, text);
    return rc;
}

/* own; in both YAML and JSON a map of lists. */
static osh_status print_kept(osh_ctx *cx, char **out, const osh_experts *x)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    for (int l = 0; l < x->n; l++) {
        OSH_TRY(osh_buf_printf(cx, &b, "%s\"%s\": [", l ? ", " : "{", x->layers[l].name));
        for (int k = 0; k < x->n_kept; k++)
            OSH_TRY(osh_buf_printf(cx, &b, "%s%d", k ? ", " : "", x->layers[l].kept[k]));
        OSH_TRY(osh_buf_printf(cx, &b, "]"));
    }
    OSH_TRY(osh_buf_printf(cx, &b, "}"));
    if (!(*out = osh_strdup(cx, b.data))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* An output of this very job is there: its recipe. */
static osh_status look_for_output(osh_ctx *cx, char **recipe, const measuring *m, const osh_options *opt)
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

static osh_status write_recipe(osh_ctx *cx, char **recipe, char **report, const measuring *m)
{
    osh_status rc = OSH_OK;
    size_t at = 0;
    char *kept = NULL, *line = NULL; // own
    const osh_reap *a = reap_in(m->p->recipe, &at);
    OSH_TRY(print_kept(cx, &kept, m->p->experts));
    if (!(line = osh_sprintf(cx, "retained: %s", kept))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_recipe_with_line(cx, recipe, m->p->recipe, m->mark, (int)at, line));
    if (a->report_path && !(*report = osh_strdup(cx, a->report_path))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(cx, kept);
    osh_free(cx, line);
    return rc;
}

osh_status osh_experts_choose(osh_ctx *cx, char **recipe, char **report, const osh_options *opt, osh_sink sink,
                              void *user)
{
    osh_status rc = OSH_OK;
    measuring m; // own
    osh_progress pr = {.budget_bytes = opt->host_memory};
    char said[96];
    *recipe = *report = NULL;
    OSH_TRY(measuring_begin(cx, &m, opt));
    OSH_TRY(look_for_output(cx, recipe, &m, opt));
    if (*recipe) goto done;
    osh_mem_limit(cx, OSH_MEM_HOST, m.peak);
    OSH_TRY(osh_reaping_run(cx, m.r, &pr));
    osh_mem_limit(cx, OSH_MEM_HOST, 0);
    OSH_TRY(write_recipe(cx, recipe, report, &m));
    const osh_experts *x = m.p->experts;
    int n = snprintf(said, sizeof said, "experts: %d of %d left in each of %d layers\n", x->n_kept, x->n_all, x->n);
    if (sink) sink(user, said, (size_t)n);
done:
    measuring_end(cx, &m);
    return rc;
}

osh_status osh_experts_report(osh_ctx *cx, const char *recipe, const char *report)
{
    osh_status rc = OSH_OK;
    char *text = NULL; // own
    const char *at = strstr(recipe, "retained: "), *end = at ? strchr(at, '\n') : NULL;
    if (!report || !end) goto done;
    at += strlen("retained: ");
    if (!(text = osh_sprintf(cx, "%.*s\n", (int)(end - at), at))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_write_all(cx, report, text, strlen(text)));
done:
    osh_free(cx, text);
    return rc;
}

osh_status osh_experts_plan(osh_ctx *cx, char **text, const osh_options *opt)
{
    osh_status rc = OSH_OK;
    measuring m; // own
    OSH_TRY(measuring_begin(cx, &m, opt));
    const osh_experts *x = m.p->experts;
    *text = osh_sprintf(cx, "experts are measured first: %d of %d are left in each of %d layers, host memory %.1f MB, "
                        "predicted; below, as if it were the first ones\n\n", x->n_kept, x->n_all, x->n,
                        (double)m.peak / 1e6);
    if (!*text) rc = OSH_E_NOMEM;
done:
    measuring_end(cx, &m);
    return rc;
}
