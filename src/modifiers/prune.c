/* prune.c - implements SparseGPTModifier, WandaPruningModifier, MagnitudePruningModifier and
 * ConstantPruningModifier, as in llmcompressor/modifiers/pruning. SparseGPT is from Frantar and
 * Alistarh, "SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot" (arXiv
 * 2301.00774). Wanda is from Sun et al., "A Simple and Effective Pruning Approach for Large
 * Language Models" (arXiv 2306.11695).
 *
 * The functions of solver/prune.h choose the weights that become 0; SparseGPT also compensates the
 * error in later columns. A pruned weight that is not quantized is written as a dense tensor with
 * zeros. A later quantizer does not change the zeros (osh_linear_job.pruned).
 *
 * SparseGPT uses H as GPTQ does. In dead columns the diagonal becomes 1, and the weights become 0.
 * Then `dampening_frac * mean(diag)` is added to the diagonal. If H cannot be factored, the
 * identity replaces its factor, as in LLM Compressor. The key `sparsity` can be a list with one
 * number for each module that the targets name. MagnitudePruningModifier has no schedule: it prunes
 * to final_sparsity in one step. */
#include "modifiers/prune.h"
#include "modifiers/prune_factor.h"
#include "modifiers/recipe_quant.h"
#include "solver/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum { PRUNE_SPARSEGPT, PRUNE_WANDA, PRUNE_MAGNITUDE, PRUNE_CONSTANT } prune_kind;
extern const osh_modifier_type osh_modifier_sparsegpt, osh_modifier_wanda, osh_modifier_magnitude,
    osh_modifier_constant;

typedef struct prune {
    int64_t block_size;
    double dampening_frac;
    bool keep;        // value of the key preserve_sparsity_mask
    /* Own [n]: value of the key sparsity; one number, or one for each target module. */
    double *sparsity;
    size_t n;
    /* The key mask_structure has the value "N:M": N of each M consecutive columns become 0. `of` is
     * N, and `each` is M. If M is 0, any columns can become 0. */
    int64_t of, each;
    osh_strs targets; // own: value of the key `targets`; prune_resolve moves it to the scheme
    bool aimed;       // true if the recipe has the key `targets`
    osh_owl owl;
} prune;

static const osh_field sparsegpt_fields[] = {
    {.name = "block_size", .type = OSH_F_INT, .offset = offsetof(prune, block_size), .dflt = "128",
     .min = 1, .max = 65536, .doc = "columns of a block, in which the cheapest weights become 0"},
    {.name = "dampening_frac", .type = OSH_F_FLOAT, .offset = offsetof(prune, dampening_frac),
     .dflt = "0.01", .min = 0, .max = 1, .doc = "share of mean(diag H) that is added to diag H"},
    {.name = "preserve_sparsity_mask", .type = OSH_F_BOOL, .offset = offsetof(prune, keep),
     .dflt = "false", .doc = "weights that are 0 in the source stay 0"},
    {0},
};
static const osh_field no_fields[] = {{0}};

static prune_kind prune_kind_of(const osh_modifier *m)
{
    return m->type == &osh_modifier_sparsegpt   ? PRUNE_SPARSEGPT
           : m->type == &osh_modifier_wanda     ? PRUNE_WANDA
           : m->type == &osh_modifier_magnitude ? PRUNE_MAGNITUDE
                                                : PRUNE_CONSTANT;
}

/* ---- keys ---- */

static osh_status read_share(osh_ctx *cx, double *out, const osh_yaml *v, const char *key,
                             const char *what)
{
    char *end = NULL;
    double x = v->text ? strtod(v->text, &end) : -1;
    if (!v->text || end == v->text || *end || !(x >= 0 && x < 1))
        return osh_fail(cx, OSH_E_USAGE,
                        "%s:%d:%d: %s: want a number from 0 to below 1, got %s%s%s", what, v->line,
                        v->column, key, v->text ? "'" : "", v->text ? v->text : "a list or map",
                        v->text ? "'" : "");
    *out = x;
    return OSH_OK;
}

static osh_status read_sparsity(osh_ctx *cx, prune *p, const osh_yaml *v, const char *key,
                                const char *what)
{
    osh_status rc = OSH_OK;
    size_t n = v->kind == OSH_Y_SEQ ? v->n : v->kind == OSH_Y_NULL ? 0 : 1;
    osh_free(cx, p->sparsity);
    p->sparsity = NULL, p->n = 0;
    OSH_NEW(cx, p->sparsity, n ? n : 1);
    for (; p->n < n; p->n++)
        OSH_TRY(read_share(cx, &p->sparsity[p->n], v->kind == OSH_Y_SEQ ? v->items[p->n] : v, key,
                           what));
done:
    return rc;
}

static osh_status read_structure(osh_ctx *cx, prune *p, const osh_modifier *m, const osh_yaml *v,
                                 const char *what)
{
    char *end = NULL;
    const char *text = v->text ? v->text : "";
    if (prune_kind_of(m) == PRUNE_MAGNITUDE) {
        if (!strcmp(text, "unstructured")) return OSH_OK;
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "%s:%d:%d: mask_structure '%s': channel, filter and block masks are for "
                        "convolutions: want unstructured",
                        what, v->line, v->column, text);
    }
    long long n = strtoll(text, &end, 10),
              each = *end == ':' && end > text ? strtoll(end + 1, &end, 10) : -1;
    if (*end || n < 0 || each < 0 || each > 64 || (each && n >= each) || (!each && n))
        return osh_fail(
            cx, OSH_E_USAGE,
            "%s:%d:%d: mask_structure '%s': want N:M with N below M, and M up to 64, or 0:0",
            what, v->line, v->column, text);
    p->of = n ? n : 0, p->each = n ? each : 0;
    return OSH_OK;
}

/* ---- OWL ---- */

static const osh_owl *prune_owl(const osh_modifier *m)
{
    const prune *p = m->args;
    return p->owl.asked ? &p->owl : NULL;
}

static osh_asks prune_asks(const osh_modifier *m)
{
    const osh_owl *owl = prune_owl(m);
    return owl ? (osh_asks){"layer_sparsities", owl->n_shares > 0} : (osh_asks){0};
}

static osh_status read_above_0(osh_ctx *cx, double *out, const osh_yaml *v, const char *key,
                               const char *what)
{
    char *end = NULL;
    double x = v->text ? strtod(v->text, &end) : -1;
    *out = NAN;
    if (v->kind == OSH_Y_NULL) return OSH_OK;
    if (!v->text || end == v->text || *end || !(x > 0 && isfinite(x)))
        return osh_fail(cx, OSH_E_USAGE, "%s:%d:%d: %s: want a number above 0, got '%s'", what,
                        v->line, v->column, key, v->text ? v->text : "a list or map");
    *out = x;
    return OSH_OK;
}

static osh_status read_shares(osh_ctx *cx, osh_owl *o, const osh_yaml *v, const char *what)
{
    osh_status rc = OSH_OK;
    if (v->kind != OSH_Y_MAP || !v->n || o->shares)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "%s:%d:%d: layer_sparsities: want a map from decoder layers to sparsities, as a run "
            "writes it, once",
            what, v->line, v->column);
    OSH_NEW(cx, o->shares, v->n);
    for (; o->n_shares < v->n; o->n_shares++) {
        osh_layer_share *s = &o->shares[o->n_shares];
        OSH_TRY(read_share(cx, &s->sparsity, v->items[o->n_shares], "layer_sparsities", what));
        if (!(s->layer = osh_strdup(cx, v->keys[o->n_shares]->text)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a layer's name");
    }
done:
    return rc;
}

/* Reads a key of OWL into *o. Sets *known to false if OWL has no such key. */
static osh_status owl_key(osh_ctx *cx, osh_owl *o, const char *key, const osh_yaml *v, bool *known,
                          const char *what)
{
    osh_status rc = OSH_OK;
    *known = true;
    if (!strcmp(key, "sparsity_profile")) {
        o->asked = v->kind != OSH_Y_NULL;
        if (o->asked && (!v->text || strcasecmp(v->text, "owl")))
            OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: sparsity_profile '%s': want owl", what, v->line,
                     v->column, v->text ? v->text : "");
    } else if (!strcmp(key, "owl_m")) {
        OSH_TRY(read_above_0(cx, &o->m, v, key, what));
    } else if (!strcmp(key, "owl_lmbda")) {
        OSH_TRY(read_above_0(cx, &o->lmbda, v, key, what));
    } else if (!strcmp(key, "layer_sparsities")) {
        OSH_TRY(read_shares(cx, o, v, what));
    } else {
        *known = false;
    }
done:
    return rc;
}

static osh_status owl_resolve(osh_ctx *cx, prune *p, const char *name)
{
    osh_status rc = OSH_OK;
    osh_owl *o = &p->owl;
    /* true if the key is given and above 0; a key that is not given is NAN */
    bool m = o->m > 0, lmbda = o->lmbda > 0;
    if ((o->asked || m || lmbda || o->n_shares) && !(o->asked && m && lmbda))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: sparsity_profile owl, owl_m and owl_lmbda go together: want all of them, or "
                 "none",
                 name);
    if (o->asked && p->n != 1)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "%s: sparsity_profile owl shares out one sparsity among the layers: want one number",
            name);
    if (o->asked && p->each)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "%s: mask_structure %lld:%lld and sparsity_profile owl both set the sparsity of "
            "layers: want one of them",
            name, (long long)p->of, (long long)p->each);
    if (o->asked) o->sparsity = p->sparsity[0];
done:
    return rc;
}

/* Accepts the keys of a pruning schedule. They have no effect, because this program prunes each
 * weight in one step. */
static osh_status schedule_key(osh_ctx *cx, const osh_yaml *v, const char *key, bool *known,
                               const char *what)
{
    static const char *const keys[] = {"init_sparsity", "update_scheduler", "scheduler_args",
                                       "leave_enabled", NULL};
    *known = false;
    for (int i = 0; keys[i]; i++) *known |= !strcmp(keys[i], key);
    if (*known)
        osh_log(cx, OSH_LOG_INFO, "%s:%d: %s has no effect in one shot", what, v->line, key);
    if (strcmp(key, "apply_globally")) return OSH_OK;
    *known = true;
    if (v->kind == OSH_Y_NULL || (v->kind == OSH_Y_BOOL && !v->b)) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s:%d:%d: apply_globally: one threshold for all weights is not supported, nor "
                    "in LLM Compressor: want false",
                    what, v->line, v->column);
}

static osh_status prune_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                            bool *known, const char *what)
{
    osh_status rc = OSH_OK;
    prune *p = m->args;
    prune_kind kind = prune_kind_of(m);
    bool mask = kind == PRUNE_SPARSEGPT || kind == PRUNE_WANDA;
    *known = true;
    if (!strcmp(key, "targets")) {
        osh_strs_deinit(cx, &p->targets);
        OSH_TRY(osh_recipe_strs(cx, &p->targets, v, key, what));
        p->aimed = p->targets.n > 0;
    } else if (!strcmp(key, "ignore")) {
        osh_strs_deinit(cx, &m->ignore);
        OSH_TRY(osh_recipe_strs(cx, &m->ignore, v, key, what));
    } else if (kind == PRUNE_CONSTANT) {
        *known = false;
    } else if (!strcmp(key, "mask_structure")) {
        OSH_TRY(read_structure(cx, p, m, v, what));
    } else if (!strcmp(key, mask ? "sparsity" : "final_sparsity")) {
        OSH_TRY(read_sparsity(cx, p, v, key, what));
    } else if (mask) {
        OSH_TRY(owl_key(cx, &p->owl, key, v, known, what));
    } else if (kind == PRUNE_MAGNITUDE) {
        OSH_TRY(schedule_key(cx, v, key, known, what));
    } else {
        *known = false;
    }
done:
    return rc;
}

/* Checks the keys, and makes the scheme of the modifier. The target "__ALL__", which means all
 * layers in LLM Compressor, becomes the target "Linear". */
static osh_status prune_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    prune *p = m->args;
    if (!p->n && !p->each && prune_kind_of(m) != PRUNE_CONSTANT)
        OSH_FAIL(cx, OSH_E_USAGE, "%s has no %s and no mask_structure N:M: want one of them",
                 m->type->name,
                 prune_kind_of(m) == PRUNE_MAGNITUDE ? "final_sparsity" : "sparsity");
    if (p->each && p->block_size % p->each && prune_kind_of(m) == PRUNE_SPARSEGPT)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: block_size %lld is not a multiple of the %lld columns of mask_structure",
                 m->type->name, (long long)p->block_size, (long long)p->each);
    OSH_TRY(owl_resolve(cx, p, m->type->name));
    if (!p->aimed) {
        OSH_NEW(cx, p->targets.items, 1);
        if (!(p->targets.items[0] = osh_strdup(cx, "Linear")))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for targets");
        p->targets.n = 1;
    }
    for (size_t i = 0; i < p->targets.n; i++) {
        if (strcmp(p->targets.items[i], "__ALL__")) continue;
        osh_free(cx, p->targets.items[i]);
        if (!(p->targets.items[i] = osh_strdup(cx, "Linear")))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for targets");
    }
    OSH_NEW(cx, m->schemes, 1);
    m->n_schemes = 1;
    m->schemes[0].targets = p->targets, p->targets = (osh_strs){0}; // give
    if (!(m->schemes[0].group_name = osh_strdup(cx, "pruned")))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a name");
done:
    return rc;
}

static void prune_end(osh_ctx *cx, osh_modifier *m)
{
    prune *p = m->args;
    osh_free(cx, p->sparsity);
    for (size_t i = 0; i < p->owl.n_shares; i++) osh_free(cx, p->owl.shares[i].layer);
    osh_free(cx, p->owl.shares);
    osh_strs_deinit(cx, &p->targets);
}

static osh_prune_rule prune_rule(const osh_modifier *m, double sparsity)
{
    const prune *p = m->args;
    prune_kind kind = prune_kind_of(m);
    return (osh_prune_rule){.sparsity = kind == PRUNE_CONSTANT ? 0 : sparsity, .n = p->of,
                            .m = p->each, .exact = kind != PRUNE_SPARSEGPT};
}

static osh_status prune_sparsity(osh_ctx *cx, double *out, const osh_modifier *m, int k, int n)
{
    const prune *p = m->args;
    *out = p->n == 1 ? p->sparsity[0] : 0;
    if (p->n < 2) return OSH_OK;
    if ((size_t)n != p->n)
        return osh_fail(cx, OSH_E_USAGE,
                        "%s has %zu sparsities, and its targets are %d modules: want one for each",
                        m->type->name, p->n, n);
    *out = p->sparsity[k];
    return OSH_OK;
}

static osh_status prune_takes(osh_ctx *cx, const osh_modifier *m, const char *name, int64_t I)
{
    const prune *p = m->args;
    if (!p->each || I % p->each == 0) return OSH_OK;
    return osh_fail(
        cx, OSH_E_USAGE,
        "%s has %lld input features, which mask_structure %lld:%lld does not divide: want it in "
        "ignore",
        name, (long long)I, (long long)p->of, (long long)p->each);
}

/* ---- pruning ---- */

static unsigned prune_wants(const osh_modifier *m, const osh_q_scheme *s)
{
    (void)s;
    return prune_kind_of(m) == PRUNE_SPARSEGPT ? OSH_STAT_HESSIAN
           : prune_kind_of(m) == PRUNE_WANDA   ? OSH_STAT_SQUARES
                                               : 0;
}

static void clear_columns(float *w, const bool *dead, int64_t O, int64_t I)
{
    for (int64_t o = 0; o < O; o++)
        for (int64_t i = 0; i < I; i++)
            if (dead[i]) w[o * I + i] = 0;
}

static osh_status refuse_sparser(osh_ctx *cx, const osh_linear_job *j, const float *w, int64_t n)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < n; i++) zeros += w[i] == 0;
    if ((double)zeros / (double)n <= j->sparsity) return OSH_OK;
    return osh_fail(cx, OSH_E_USAGE,
                    "%s: the fraction %.4f is 0, more than the sparsity %g: want "
                    "preserve_sparsity_mask false, or more sparsity",
                    j->name, (double)zeros / (double)n, j->sparsity);
}

/* Returns the arguments of osh_prune_solve for a job. The members w, u and loss are NULL. */
static osh_prune_solve_args sparse_args(const prune *p, const osh_linear_job *j)
{
    return (osh_prune_solve_args){.O = j->w->shape[0], .I = j->w->shape[1],
                                  .block_size = p->block_size, .sparsity = j->sparsity,
                                  .n = p->of, .m = p->each, .keep = p->keep};
}

static osh_status solve_sparse(osh_ctx *cx, const prune *p, osh_linear_job *j, float *w,
                               const osh_prune_factor *f)
{
    osh_status rc = OSH_OK;
    int64_t O = j->w->shape[0], I = j->w->shape[1];
    double *loss = NULL; // own: [O] loss of each row
    OSH_NEW(cx, loss, O);
    if (f->any) clear_columns(w, f->dead, O, I);
    if (p->keep) OSH_TRY(refuse_sparser(cx, j, w, O * I));
    osh_prune_solve_args a = sparse_args(p, j);
    a.w = w, a.u = f->u, a.loss = loss;
    OSH_TRY(osh_prune_solve(cx, &a));
    if (!f->u)
        j->fallback = f->any ? "Hessian not positive definite: pruned by magnitude"
                             : "its inputs were all 0: pruned by magnitude";
    j->objective = 0;
    for (int64_t o = 0; o < O && f->u; o++) j->objective += 2 * loss[o];
    if (!f->u) j->objective = -1;
done:
    osh_free(cx, loss);
    return rc;
}

/* Sets j->nmse to |p - w|^2 / |w|^2, where p is the pruned weight in j->codes. If keep_w is false,
 * copies the pruned weight to j->w. */
static void compare_pruned(osh_linear_job *j)
{
    int64_t O = j->w->shape[0], I = j->w->shape[1];
    size_t row = (size_t)I * osh_dtype_bytes(j->w->dtype);
    double sum[2], err = 0, all = 0;
    for (int64_t o = 0; o < O; o++) {
        char *to = (char *)j->codes + (size_t)o * row, *was = (char *)j->w->data + (size_t)o * row;
        osh_q_row_error(sum, was, to, j->w->dtype, I);
        err += sum[0], all += sum[1];
        if (!j->keep_w) memcpy(was, to, row);
    }
    j->nmse = all > 0 ? err / all : 0;
}

/* Allocates j->codes for the pruned weight. */
static osh_status new_pruned(osh_ctx *cx, osh_linear_job *j)
{
    if (!(j->codes = osh_alloc(cx, osh_tensor_bytes(j->w))))
        return osh_fail(cx, OSH_E_NOMEM, "no memory for %s", j->name);
    j->packed = true;
    return OSH_OK;
}

/* Prunes a job by SparseGPT on the device that has the factor f. */
static osh_status solve_there(osh_ctx *cx, const prune *p, osh_linear_job *j,
                              const osh_prune_factor *f)
{
    osh_status rc = OSH_OK;
    osh_prune_solve_args a = sparse_args(p, j);
    double *loss = NULL; // own: [O] loss of each row
    OSH_NEW(cx, loss, a.O);
    OSH_TRY(new_pruned(cx, j));
    a.u = f->u, a.loss = loss;
    osh_prune_there x = {&a, j->device_w, j->keep_w ? NULL : j->device_w, j->codes, f->dead};
    OSH_TRY(osh_gptq_column_of(f->device)->prune(cx, f->device, &x));
    compare_pruned(j);
    j->objective = 0;
    for (int64_t o = 0; o < a.O; o++) j->objective += 2 * loss[o];
done:
    osh_free(cx, loss);
    return rc;
}

static osh_status mask_job(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, float *w)
{
    const prune *p = m->args;
    int64_t O = j->w->shape[0], I = j->w->shape[1];
    const float epsilon = 1e-8f; // 1e-8, written as 10e-9 in LLM Compressor
    j->objective = -1;
    if (prune_kind_of(m) == PRUNE_MAGNITUDE) return osh_prune_all(cx, w, O, I, j->sparsity);
    if (prune_kind_of(m) == PRUNE_WANDA) {
        if (!j->params.importance) j->fallback = "its inputs were all 0: pruned by magnitude";
        return osh_prune_rows(cx, w, j->params.importance, O, I,
                              (osh_prune_share){j->sparsity, p->of, p->each});
    }
    for (int64_t i = 0; i < O * I; i++)
        if (!(fabsf(w[i]) > epsilon)) w[i] = 0;
    return OSH_OK;
}

/* Allocates j->codes, and sets them to the pruned weight w [O, I], rounded to the dtype of j->w.
 * Sets j->nmse to |w - j->w|^2 / |j->w|^2. If keep_w is false, copies the pruned weight to j->w and
 * j->device_w. */
static osh_status write_pruned(osh_ctx *cx, osh_linear_job *j, const float *w)
{
    osh_status rc = OSH_OK;
    OSH_TRY(new_pruned(cx, j));
    osh_from_f32(j->codes, j->w->dtype, w, osh_tensor_numel(j->w));
    compare_pruned(j);
    if (!j->keep_w && j->device_w) OSH_TRY(osh_tensor_copy(cx, j->device_w, j->w));
done:
    return rc;
}

/* True if a device that has the Hessian can prune the weights itself. If not, the host prunes
 * them. */
static bool stays_there(const prune *p, const osh_linear_job *jobs)
{
    osh_prune_solve_args a = sparse_args(p, jobs);
    return osh_prune_takes_device(&a);
}

static osh_status prune_compress(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                                 osh_tensor *h, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    const prune *p = m->args;
    osh_prune_factor f = {0}; // own
    float *w = NULL;          // own: [O, I] the weights in f32
    bool sparsegpt = prune_kind_of(m) == PRUNE_SPARSEGPT;
    if (sparsegpt)
        OSH_TRY(osh_prune_factor_fill(
            cx, &f, h, (osh_prune_damping){p->dampening_frac, n_samples, stays_there(p, jobs)}));
    for (int k = 0; k < n; k++) {
        osh_linear_job *j = &jobs[k];
        int64_t numel = osh_tensor_numel(j->w);
        j->nearest = -1, j->losses = (osh_losses){0}, j->fallback = NULL;
        if (f.u && f.device) {
            OSH_TRY(solve_there(cx, p, j, &f));
            OSH_TRY(osh_linear_job_done(cx, j));
            continue;
        }
        if (!(w = osh_alloc(cx, (size_t)numel * sizeof *w)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory to prune %s", j->name);
        osh_to_f32(w, j->w->data, j->w->dtype, numel);
        OSH_TRY(sparsegpt ? solve_sparse(cx, p, j, w, &f) : mask_job(cx, m, j, w));
        OSH_TRY(write_pruned(cx, j, w));
        osh_free(cx, w), w = NULL;
        OSH_TRY(osh_linear_job_done(cx, j));
    }
done:
    osh_prune_factor_deinit(cx, &f);
    osh_free(cx, w);
    return rc;
}

static size_t prune_needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                          size_t *device)
{
    const prune *p = m->args;
    size_t kept = 0, peak = 0;
    if (n && prune_kind_of(m) == PRUNE_SPARSEGPT) {
        int64_t I = jobs->w->shape[1];
        bool stays = stays_there(p, jobs);
        kept = osh_prune_factor_bytes(I, n_threads, (osh_prune_place){device, stays}, &peak);
        if (device) *device = osh_prune_factor_device_bytes(I);
        for (int k = 0; device && stays && k < n; k++) {
            osh_prune_solve_args a = sparse_args(p, &jobs[k]);
            size_t there = osh_prune_solve_device_bytes(&a);
            if (there > *device) *device = there;
        }
    } else if (device) {
        *device = 0;
    }
    for (int k = 0; k < n; k++) {
        int64_t O = jobs[k].w->shape[0], I = jobs[k].w->shape[1];
        osh_prune_solve_args a = sparse_args(p, &jobs[k]);
        size_t result = osh_mem_gross(osh_tensor_bytes(jobs[k].w));
        size_t w = osh_mem_gross((size_t)(O * I) * sizeof(float)), work = 0;
        if (prune_kind_of(m) == PRUNE_SPARSEGPT)
            work = osh_prune_solve_bytes(&a, n_threads) + osh_mem_gross((size_t)O * sizeof(double));
        if (prune_kind_of(m) == PRUNE_WANDA) work = osh_prune_rows_bytes(I, n_threads);
        // the scratch is freed before the result is allocated, so only the larger one is counted
        size_t most = work > result ? work : result;
        if (kept + w + most > peak) peak = kept + w + most;
        if (!jobs[k].done) kept += result;
    }
    return peak;
}

static const osh_solver prune_solver = {
    .wants = prune_wants, .compress = prune_compress, .needs = prune_needs, .propagates = true,
};
static const osh_pruner prune_pruner = {
    .rule = prune_rule, .sparsity = prune_sparsity, .takes = prune_takes, .owl = prune_owl,
};
#define PRUNE(x, called, table, more)                                                              \
    const osh_modifier_type osh_modifier_##x = {                                                   \
        .name = called, .fields = table, .bytes = sizeof(prune), .key = prune_key,                 \
        .keys = "targets, ignore" more, .resolve = prune_resolve, .end = prune_end,                \
        .asks = prune_asks, .solver = &prune_solver, .pruner = &prune_pruner,                      \
    }
PRUNE(sparsegpt, "SparseGPTModifier", sparsegpt_fields, ", sparsity, mask_structure");
PRUNE(wanda, "WandaPruningModifier", no_fields, ", sparsity, mask_structure");
PRUNE(magnitude, "MagnitudePruningModifier", no_fields, ", final_sparsity, mask_structure");
PRUNE(constant, "ConstantPruningModifier", no_fields, "");
