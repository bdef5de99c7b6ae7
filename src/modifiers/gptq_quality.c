/* gptq_quality.c - reads and runs the keys of GPTQModifier that LLM Compressor does not have: a
 * search for scales before the column loop, and steps after the loop that lower the loss. These
 * keys do not change the format of the output, so inference engines use the same kernels for it.
 *
 *   scale_search: ldl
 *   refine: [rescale, descend, fit_scales]
 *   tune: {steps: 192, rows: 4, code_rate: 0.01, rate: 0.0015}
 *
 * The values of `scale_search` choose the scales. With `none` they come from the whole range, as in
 * LLM Compressor. With `mse` they have the smallest error of the weights. `ldl` is like `mse`, but
 * an error in column j costs 1 / U_jj^2. `refine` has at most eight steps, which are done in the
 * order of the list (solver/gptq_refine.h). `tune` works after all solves (learn/tune.h). */
#include "modifiers/gptq.h"
#include "modifiers/target.h"
#include "solver/columns.h"

#include <string.h>

static const char *const searches[] = {
    [SEARCH_NONE] = "none", [SEARCH_MSE] = "mse", [SEARCH_LDL] = "ldl"};
static const char *const steps[OSH_N_REFINES] = {
    [OSH_REFINE_RESCALE] = "rescale",
    [OSH_REFINE_DESCEND] = "descend",
    [OSH_REFINE_FIT_SCALES] = "fit_scales",
};

const char *osh_gptq_step_name(const osh_modifier *m, int k)
{
    const osh_gptq *g = m->args;
    return k == 0 ? "solve" : steps[g->refine[k - 1]];
}

static const osh_field tune_fields[] = {
    {.name = "steps", .type = OSH_F_INT, .offset = offsetof(osh_tune_rule, steps), .dflt = "192",
     .min = 0, .max = 1000000, .doc = "number of steps. 0: no tuning"},
    {.name = "rows", .type = OSH_F_INT, .offset = offsetof(osh_tune_rule, rows), .dflt = "4",
     .min = 1, .max = 65536, .doc = "samples of a step"},
    {.name = "code_rate", .type = OSH_F_FLOAT, .offset = offsetof(osh_tune_rule, code_rate),
     .dflt = "0.01", .min = 0, .max = 1,
     .doc = "learning rate of codes: about the farthest that a step moves one"},
    {.name = "rate", .type = OSH_F_FLOAT, .offset = offsetof(osh_tune_rule, rate), .dflt = "0.0015",
     .min = 0, .max = 1, .doc = "learning rate of scales and norms, relative to their values"},
    {0},
};

const osh_tune_rule *osh_gptq_tunes(const osh_modifier *m)
{
    return &((const osh_gptq *)m->args)->tune;
}

osh_status osh_gptq_best(osh_ctx *cx, osh_modifier *m)
{
    osh_gptq *g = m->args;
    g->scale_search = SEARCH_LDL;
    g->refine[0] = OSH_REFINE_RESCALE, g->refine[1] = OSH_REFINE_DESCEND,
    g->refine[2] = OSH_REFINE_FIT_SCALES;
    g->n_refine = 3;
    osh_status rc = osh_fields_default(cx, tune_fields, &g->tune);
    g->tune.may = true;
    return rc ? rc : osh_field_set(cx, osh_field_find(m->type->fields, "target"), g, "original");
}

static osh_status read_search(osh_ctx *cx, osh_gptq *g, const osh_yaml *v, const char *what)
{
    osh_status rc = OSH_OK;
    size_t i = 0, n = sizeof searches / sizeof *searches;
    g->scale_search = SEARCH_NONE;
    if (v->kind == OSH_Y_NULL) goto done;
    while (i < n && !(v->kind == OSH_Y_STR && !strcmp(v->text, searches[i]))) i++;
    if (i == n)
        OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: scale_search '%s': want none, mse or ldl", what,
                 v->line, v->column, v->text ? v->text : "(a list or map)");
    g->scale_search = (int64_t)i;
done:
    return rc;
}

static osh_status read_refine(osh_ctx *cx, osh_gptq *g, const osh_yaml *v, const char *what)
{
    osh_status rc = OSH_OK;
    g->n_refine = 0;
    if (v->kind == OSH_Y_NULL) goto done;
    if (v->kind != OSH_Y_SEQ || v->n > OSH_GPTQ_REFINES)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s:%d:%d: refine: want a list of at most %d of rescale, descend and fit_scales",
                 what, v->line, v->column, OSH_GPTQ_REFINES);
    for (size_t k = 0; k < v->n; k++) {
        const osh_yaml *s = v->items[k];
        int i = 0;
        while (i < OSH_N_REFINES && !(s->kind == OSH_Y_STR && !strcmp(s->text, steps[i]))) i++;
        if (i == OSH_N_REFINES)
            OSH_FAIL(cx, OSH_E_USAGE, "%s:%d:%d: refine '%s': want rescale, descend or fit_scales",
                     what, s->line, s->column, s->text ? s->text : "(a list or map)");
        g->refine[g->n_refine++] = (osh_refine)i;
    }
done:
    return rc;
}

/* Reads the value of the key `tune`, which is a number of steps or a map. */
static osh_status read_tune(osh_ctx *cx, osh_gptq *g, const osh_yaml *v, const char *what)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_fields_default(cx, tune_fields, &g->tune));
    g->tune.may = false;
    if (v->kind == OSH_Y_NULL || (v->kind == OSH_Y_BOOL && !v->b)) g->tune.steps = 0;
    else if (v->kind == OSH_Y_INT) OSH_TRY(osh_field_set(cx, tune_fields, &g->tune, v->text));
    else if (v->kind != OSH_Y_MAP)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "%s:%d:%d: tune '%s': want a number of steps, or a map of steps, rows, code_rate and "
            "rate",
            what, v->line, v->column, v->text ? v->text : "(a list)");
    for (size_t k = 0; v->kind == OSH_Y_MAP && k < v->n; k++) {
        const osh_yaml *x = v->items[k];
        const osh_field *f = osh_field_find(tune_fields, v->keys[k]->text);
        if (!f || !x->text)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s:%d:%d: tune does not support this value or key '%s': want numbers for "
                     "steps, rows, code_rate and rate",
                     what, x->line, x->column, v->keys[k]->text);
        OSH_TRY(osh_field_set(cx, f, &g->tune, x->text));
    }
done:
    if (rc) osh_note(cx, "reading tune at %s:%d:%d", what, v->line, v->column);
    return rc;
}

osh_status osh_gptq_quality_key(osh_ctx *cx, osh_gptq *g, const char *key, const osh_yaml *v,
                                bool *known, const char *what)
{
    *known = true;
    if (!strcmp(key, "scale_search")) return read_search(cx, g, v, what);
    if (!strcmp(key, "refine")) return read_refine(cx, g, v, what);
    if (!strcmp(key, "tune")) return read_tune(cx, g, v, what);
    *known = false;
    return OSH_OK;
}

/* ---- work ---- */

int64_t osh_gptq_scale_columns(const osh_q_args *q, int64_t I)
{
    int64_t n = osh_q_scale_cols(q, I);
    return (I + n - 1) / n;
}

osh_status osh_gptq_keep_hessian(osh_ctx *cx, osh_gptq_factor *f, const osh_tensor *h)
{
    osh_status rc = OSH_OK;
    OSH_TRY(
        osh_tensor_new_on(cx, &f->h, (osh_where){h->device, OSH_LIFE_SHORT}, OSH_F32, 2, h->shape));
    OSH_TRY(osh_tensor_copy(cx, f->h, h));
    // without perm, `permute` only makes f->h symmetric
    OSH_TRY(osh_gptq_column_of(h->device)->permute(cx, f->h, NULL));
done:
    if (rc) osh_note(cx, "copying the Hessian for the steps after the column loop");
    return rc;
}

/* Copies the f32 scales and zero points to j->params, rounded to their stored dtypes. */
static void put_params(osh_linear_job *j, const float *scale, const float *zero)
{
    int64_t n = osh_tensor_numel(j->params.scale);
    for (int64_t i = 0; i < n; i++) osh_q_scale_put(&j->params, i, scale[i]);
    for (int64_t i = 0; zero && i < n; i++) ((int8_t *)j->params.zero->data)[i] = (int8_t)zero[i];
}

/* Returns the weight that the solve approximates, in the memory that the solve uses (host or
 * device). */
static const osh_tensor *weight_there(const osh_gptq_factor *f, const osh_linear_job *j)
{
    return f->device && !j->target ? j->device_w : osh_target_of(j);
}

osh_status osh_gptq_search_scales(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f,
                                  osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    const osh_q_args *q = &j->scheme->weights;
    int64_t O = j->w->shape[0], I = j->w->shape[1], n = osh_tensor_numel(j->params.scale);
    float *scale = NULL, *zero = NULL; // own
    OSH_NEW(cx, scale, n);
    if (!q->symmetric) OSH_NEW(cx, zero, n);
    const float *cost = g->scale_search == SEARCH_LDL ? f->cost : NULL;
    osh_gptq_scales_args a = {.w = weight_there(f, j), .dead = f->dead, .weight = cost, .O = O,
                              .I = I, .group = osh_q_scale_cols(q, I),
                              .row_block = osh_q_scale_rows(q, O), .rule = osh_job_scale_rule(j),
                              .scale = scale, .zero = zero};
    OSH_TRY(osh_gptq_column_of(f->device)->scales(cx, f->device, &a));
    put_params(j, scale, zero);
done:
    osh_free(cx, scale);
    osh_free(cx, zero);
    return rc;
}

osh_status osh_gptq_refine_job(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f,
                               osh_gptq_job *s, osh_linear_job *j)
{
    const osh_q_args *q = &j->scheme->weights;
    int64_t O = j->w->shape[0], I = j->w->shape[1];
    osh_gptq_refine_args a = {.w = weight_there(f, j), .dead = f->dead, .h = f->h->data,
                              .perm = f->perm, .codes = j->codes, .scale = s->scale,
                              .zero = s->zero, .O = O, .I = I, .group = osh_q_scale_cols(q, I),
                              .row_block = osh_q_scale_rows(q, O), .rule = osh_job_scale_rule(j),
                              .steps = g->refine, .n_steps = g->n_refine, .loss = j->losses.of,
                              .all = &j->losses.all};
    osh_status rc = osh_gptq_column_of(f->device)->refine(cx, f->device, &a);
    if (rc) return rc;
    j->losses.n = g->n_refine + 1;
    put_params(j, s->scale, s->zero);
    return rc;
}

static size_t quality_larger(size_t a, size_t b) { return a > b ? a : b; }

size_t osh_gptq_quality_bytes(const osh_gptq *g, const osh_linear_job *j, int n_threads,
                              size_t *arena)
{
    const osh_q_args *q = &j->scheme->weights;
    int64_t O = j->w->shape[0], I = j->w->shape[1], group = osh_q_scale_cols(q, I),
            rows = osh_q_scale_rows(q, O);
    size_t params = osh_job_params_bytes(j), search = 0, refine = 0;
    if (arena) *arena = g->scale_search ? osh_gptq_scales_device_bytes(O, I, group, rows) : 0;
    if (arena && g->n_refine)
        *arena = quality_larger(*arena, osh_gptq_refine_device_bytes(O, I, group, rows));
    if (g->scale_search)
        search = params + (arena ? 0 : osh_gptq_scales_bytes(O, I, group, rows, n_threads));
    if (g->n_refine)
        refine = params + osh_mem_gross((size_t)I * 4) + osh_mem_gross((size_t)O * sizeof(double)) +
                 (arena ? osh_gptq_refine_device_host_bytes(O, I, group, rows, n_threads)
                        : osh_gptq_refine_bytes(O, I, group, rows, n_threads));
    return quality_larger(search, refine);
}

size_t osh_gptq_kept_bytes(const osh_gptq *g, int64_t I, size_t *arena)
{
    size_t h = g->n_refine ? (size_t)(I * I) * sizeof(float) : 0,
           row = osh_mem_gross((size_t)I * sizeof(float));
    if (arena) *arena = h ? osh_arena_gross(h) : 0;
    return (h && !arena ? osh_mem_gross(h) : 0) +
           (h ? osh_mem_gross(sizeof(osh_tensor)) + row : 0) +
           (g->scale_search == SEARCH_LDL ? 2 * row : 0);
}
