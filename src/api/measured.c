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
#include "eval/experts.h"
#include "eval/owl.h"
#include "modifiers/experts.h"
#include "math/isa.h"
#include "output/emit.h"
#include "rewrite/experts.h"
#include "plan/identity.h"

typedef struct asked { // a measurement that a modifier of the recipe requires
    size_t at;            // index of the modifier in the recipe
    const osh_reap *reap; // views: at most one of reap and owl is not NULL
    const osh_owl *owl;
    bool known;           // true if the recipe already has the result
} asked;

static osh_status find_asked(osh_ctx *cx, asked *out, const osh_recipe *r)
{
    osh_status rc = OSH_OK;
    *out = (asked){0};
    for (size_t i = 0; i < r->n; i++) {
        const osh_reap *reap = osh_reap_of(&r->modifiers[i]);
        const osh_owl *owl = osh_owl_of(&r->modifiers[i]);
        if (!reap && !owl) continue;
        if (out->reap || out->owl)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s and %s are both measured before the run: want one of them, and its "
                     "output as the --model of the other",
                     r->modifiers[out->at].type->name, r->modifiers[i].type->name);
        *out = (asked){i, reap, owl, reap ? reap->n_kept > 0 : owl->n_shares > 0};
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
    *wants = (a.reap || a.owl) && !a.known;
done:
    osh_recipe_free(cx, r);
    return rc;
}

typedef struct measuring {
    osh_options opt; // view: strings belong to the options of the job
    osh_plan *p;     // own
    asked a;
    osh_reaping *r;  // own: measures experts; NULL if the job measures outliers
    osh_owl_measure *owl; // own: measures outliers; NULL if the job measures experts
    char *mark;      // own: a line of the output's recipe that identifies the measurement
    int64_t peak;    // predicted peak of host memory, in bytes
} measuring;

static void measuring_end(osh_ctx *cx, measuring *m)
{
    osh_reaping_close(cx, m->r);
    osh_owl_close(cx, m->owl);
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
    m->opt.host_memory = m->opt.scratch_size = 0; // no budget: the measurement predicts its own
                                                  // peak
    OSH_TRY(osh_plan_new(cx, &m->p, &m->opt));
    OSH_TRY(osh_identity_new(cx, &id, m->p));
    OSH_TRY(osh_identity_json(cx, &text, id, OSH_IDENTITY_FIELDS));
    if (!(m->mark = osh_sprintf(cx, "# measured %016llx\n",
                                (unsigned long long)XXH3_64bits(text, strlen(text)))))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(find_asked(cx, &m->a, m->p->in.recipe));
    if (m->a.reap) {
        OSH_TRY(osh_reaping_open(cx, &m->r, m->p));
        OSH_TRY(osh_reaping_bytes(cx, &bytes, m->r));
    } else {
        OSH_TRY(osh_owl_open(cx, &m->owl, m->p, m->a.owl));
        OSH_TRY(osh_owl_bytes(cx, &bytes, m->owl));
    }
    m->peak = bytes + m->p->budget.memory.base_bytes;
    if (m->peak < m->p->budget.memory.load_bytes) m->peak = m->p->budget.memory.load_bytes;
done:
    osh_identity_free(cx, id);
    osh_free(cx, text);
    return rc;
}

/* Sets *recipe (own) to the recipe of the output if that recipe has the line m->mark, which
 * identifies this measurement. */
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

/* Prints the sparsities to *out (own), a JSON object that maps names of layers to sparsities. */
static osh_status print_shares(osh_ctx *cx, char **out, const osh_layer_share *shares, int n)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    for (int l = 0; l < n; l++)
        OSH_TRY(osh_buf_printf(cx, &b, "%s\"%s\": %.10g", l ? ", " : "{", shares[l].layer,
                               shares[l].sparsity));
    if (!(*out = osh_sprintf(cx, "%s}", b.data))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Measures experts or outliers. Sets *line (own) to the key for the recipe, and *said (own) to a
 * message for the user. */
static osh_status measuring_run(osh_ctx *cx, char **line, char **said, measuring *m,
                                osh_progress *pr)
{
    osh_status rc = OSH_OK;
    const osh_layer_share *shares = NULL; // view
    char *found = NULL;                   // own
    const osh_experts *x = m->p->rewrites.experts;
    double least = 1, most = 0;
    int n = 0;
    if (m->a.reap) {
        OSH_TRY(osh_reaping_run(cx, m->r, pr));
        OSH_TRY(osh_experts_print(cx, &found, x));
        *said = osh_sprintf(cx, "experts: %d of %d left in each of %d layers\n", x->n_kept,
                            x->n_all, x->n);
    } else {
        OSH_TRY(osh_owl_run(cx, &shares, &n, m->owl, pr));
        OSH_TRY(print_shares(cx, &found, shares, n));
        for (int l = 0; l < n; l++) {
            if (shares[l].sparsity < least) least = shares[l].sparsity;
            if (shares[l].sparsity > most) most = shares[l].sparsity;
        }
        *said = osh_sprintf(cx, "sparsity: from %.4f to %.4f in %d layers\n", least, most, n);
    }
    *line = osh_sprintf(cx, "%s: %s", m->a.reap ? "retained" : "layer_sparsities", found);
    if (!*said || !*line) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(cx, found);
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
    osh_options with = *opt; // strings are views of the job's options
    with.host_memory = OSH_PASS_HOST_BYTES;
    OSH_TRY(measuring_begin(cx, &m, opt));
    OSH_TRY(osh_plan_new(cx, &p, &with));
    int64_t run = p->budget.memory.least.host + OSH_PASS_LEFT_BYTES;
    const char *what = m.a.reap ? "experts" : "outliers";
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
    const osh_experts *x = m.p->rewrites.experts;
    double mb = (double)m.peak / 1e6;
    if (x)
        *text = osh_sprintf(cx,
                            "experts are measured first: %d of %d are left in each of %d layers, "
                            "host memory %.1f MB, predicted; the plan below assumes that the "
                            "first experts are kept\n\n",
                            x->n_kept, x->n_all, x->n, mb);
    else
        *text = osh_sprintf(cx,
                            "outliers of the layers are measured first, host memory %.1f MB, "
                            "predicted; the plan below assumes equal sparsities\n\n",
                            mb);
    if (!*text) rc = OSH_E_NOMEM;
done:
    measuring_end(cx, &m);
    return rc;
}
