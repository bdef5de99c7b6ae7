/* gptq.c - implements GPTQModifier: Frantar et al., "GPTQ: Accurate Post-Training Quantization for
 * Generative Pre-trained Transformers" (arXiv 2210.17323), as in
 * llmcompressor/modifiers/gptq/{base,gptq_quantize}.py (the reference). The reference multiplies
 * the Hessian H = X^T X by 2/n, which has no effect except in dead columns. It does these steps for
 * the Linears that read one input X:
 *
 *   - sort the columns by descending diag H (actorder static; ties by index)
 *   - in dead columns (diag 0), set diag to 1 and the weights to 0
 *   - add dampening_frac * mean(diag) to diag
 *   - compute the upper triangle U with U^T U = H^-1
 *   - run the column loop with U (solver/gptq_solve.h)
 *
 * Scales are computed from the whole, unpermuted weight before the first column is solved. All
 * Linears with one input share H, the ordering and U. If H cannot be factored, the damping is
 * multiplied by ten, up to three times. If dampening_frac is 0, the dampings 0.01, 0.1 and 1 are
 * tried instead. If this also fails, the weight is rounded to nearest, and the job gets a message.
 *
 * Three options are not in LLM Compressor and are off by default: the keys scale_search and refine
 * (gptq_scales.h, gptq_refine.h), and target 'original'. With this target the solve approximates W
 * + W S with scales of W + W S (target.h). The reported error is then relative to W, and the
 * objective is relative to W + W S. */
#include "modifiers/gptq.h"
#include "modifiers/target.h"
#include "solver/columns.h"
#include "quant/observer.h"

#include <string.h>

typedef osh_gptq gptq;
typedef osh_gptq_factor factor;
typedef osh_gptq_job solve;

static const osh_field fields[] = {
    {.name = "block_size", .type = OSH_F_INT, .offset = offsetof(gptq, block_size), .dflt = "128",
     .min = 1, .max = 65536, .doc = "columns of a block, after which later columns are updated"},
    {.name = "dampening_frac", .type = OSH_F_FLOAT, .offset = offsetof(gptq, dampening_frac),
     .dflt = "0.01", .min = 0, .max = 1, .doc = "share of mean(diag H) that is added to diag H"},
    {.name = "target", .type = OSH_F_STR, .offset = offsetof(gptq, target), .dflt = "quantized",
     .values = "quantized|original", .doc = "model whose inputs give the target output of a layer"},
    {0},
};

static osh_status key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v, bool *known,
                      const char *what)
{
    osh_status rc = OSH_OK;
    gptq *g = m->args;
    OSH_TRY(osh_gptq_quality_key(cx, g, key, v, known, what));
    if (*known) goto done;
    *known = !strcmp(key, "actorder");
    if (!*known) goto done;
    const osh_yaml *s = v->kind == OSH_Y_SEQ && v->tag && v->n == 1
                            ? v->items[0]
                            /* Python's yaml module writes an enum as a list of one item with a
                             * tag. */
                            : v;
    if (s->kind == OSH_Y_NULL || (s->kind == OSH_Y_BOOL && !s->b)) g->actorder = ACTORDER_NULL;
    else if (s->kind == OSH_Y_STR && !strcmp(s->text, "static")) g->actorder = ACTORDER_STATIC;
    else if (s->kind == OSH_Y_STR && !strcmp(s->text, "weight")) g->actorder = ACTORDER_WEIGHT;
    else
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s:%d:%d: actorder '%s': want static, weight or null (group and dynamic stored a "
                 "column order that compressed-tensors 0.19 and vLLM no longer load)",
                 what, s->line, s->column, s->text ? s->text : "(a list or map)");
done:
    return rc;
}

/* Merges the actorder of the modifier with the actorder of each scheme, like resolve_actorder of
 * base.py. A value of the modifier replaces the value of the scheme. A null in the modifier is an
 * error if the scheme has a value. "static" and "weight" have the same effect, but stay different
 * values, because config.json shows the value of the recipe. */
static osh_status gptq_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    gptq *g = m->args;
    static const osh_actorder as_scheme[] = {OSH_ACTORDER_STATIC, OSH_ACTORDER_UNSET,
                                             OSH_ACTORDER_STATIC, OSH_ACTORDER_WEIGHT};
    static const char *const spell[] = {"null", "static", "weight"};
    for (size_t i = 0; i < m->n_schemes; i++) {
        osh_q_args *a = &m->schemes[i].weights;
        if (!a->present) continue;
        if (g->scale_search && osh_observer_searches(a))
            OSH_FAIL(
                cx, OSH_E_USAGE,
                "GPTQModifier.scale_search and observer %s of %s both choose scales: want one of "
                "them",
                a->observer, m->schemes[i].group_name);
        bool conflict =
            a->actorder != OSH_ACTORDER_UNSET && as_scheme[g->actorder] == OSH_ACTORDER_UNSET;
        if (a->actorder == OSH_ACTORDER_UNSET || (g->actorder != ACTORDER_DEFAULT && !conflict))
            a->actorder = as_scheme[g->actorder];
        if (conflict)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "GPTQModifier.actorder is %s but that of %s is %s: they must be the same",
                     spell[as_scheme[g->actorder]], m->schemes[i].group_name, spell[a->actorder]);
    }
done:
    return rc;
}

bool osh_gptq_is_original(const gptq *g) { return !strcmp(g->target, "original"); }

static unsigned gptq_wants(const osh_modifier *m, const osh_q_scheme *s)
{
    unsigned w = s->weights.present ? OSH_STAT_HESSIAN : 0;
    if (w && osh_gptq_is_original(m->args)) w |= OSH_STAT_SHIFT;
    return w | osh_scheme_wants(s);
}

static unsigned gptq_freedom(const osh_modifier *m)
{
    const gptq *g = m->args;
    bool free = osh_gptq_is_original(g) || g->tune.steps;
    unsigned scales = free || g->scale_search || g->n_refine ? OSH_FREE_SCALES : 0;
    unsigned zeros = free || g->n_refine ? OSH_FREE_ZEROS : 0;
    return scales | zeros | (free ? OSH_FREE_TARGET : 0);
}

/* Returns the index of the scale for column `column` of the weight, counted in a row of scales. */
static int64_t scale_column(const osh_q_args *a, int64_t column, int64_t I)
{
    return column / osh_q_scale_cols(a, I);
}

static void solve_deinit(osh_ctx *cx, solve *s)
{
    osh_free(cx, s->scale);
    osh_free(cx, s->zero);
    osh_free(cx, s->col_scale);
    osh_free(cx, s->loss);
}

static osh_status solve_fill(osh_ctx *cx, solve *s, const factor *f, const osh_linear_job *j,
                             int64_t O, int64_t I)
{
    osh_status rc = OSH_OK;
    const osh_tensor *sc = j->params.scale;
    int64_t n_scales = osh_tensor_numel(sc);
    OSH_NEW(cx, s->col_scale, I);
    OSH_NEW(cx, s->loss, O);
    OSH_NEW(cx, s->scale, n_scales);
    for (int64_t i = 0; i < n_scales; i++) s->scale[i] = osh_q_scale_value(&j->params, i);
    if (j->params.zero) {
        OSH_NEW(cx, s->zero, n_scales);
        for (int64_t i = 0; i < n_scales; i++)
            s->zero[i] = ((const int8_t *)j->params.zero->data)[i];
    }
    for (int64_t i = 0; i < I; i++)
        s->col_scale[i] = (int32_t)scale_column(&j->scheme->weights, f->perm[i], I);
done:
    return rc;
}

static osh_status solve_prepare(osh_ctx *cx, osh_gptq_solve_args *a, solve *s, const gptq *g,
                                const factor *f, const osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    const osh_q_args *q = &j->scheme->weights;
    const osh_tensor *sc = j->params.scale;
    int64_t O = j->w->shape[0], I = j->w->shape[1];

    OSH_TRY(solve_fill(cx, s, f, j, O, I));
    *a = (osh_gptq_solve_args){
        .w = f->device ? j->device_w : j->w,
        .target = j->target,
        .perm = f->perm,
        .dead = f->dead,
        .codes = j->codes,
        .u = f->u,
        .scale = s->scale,
        .zero = s->zero,
        .col_scale = s->col_scale,
        .O = O,
        .I = I,
        .n_scale_cols = sc->ndim == 2 ? sc->shape[1] : 1,
        .row_block = osh_q_scale_rows(q, O),
        .block_size = g->block_size,
        .bits = q->bits,
        .fp8 = q->type == OSH_Q_FLOAT,
        .dq_dtype = osh_job_scale_rule(j).dtype,
        .loss = s->loss,
        .keep_zeros = j->pruned,
        // if w_out is NULL, osh_job_finish writes the dequantized weight
        .w_out = f->device && !j->keep_w && osh_gptq_is_plain(g) ? j->device_w : NULL,
        .squares = f->device ? s->squares : NULL,
        .packed = j->packed,
    };
done:
    return rc;
}

static void solve_conclude(osh_linear_job *j, const solve *s, const factor *f)
{
    j->fallback = f->ladder->says[f->n_damped];
    if (f->shift && !j->target && !j->fallback)
        j->fallback = "target 'original' is not finite: solved without";
    j->nmse = s->squares[1] > 0 ? s->squares[0] / s->squares[1] : 0;
    j->objective = 0;
    // Loss of the solved codes, summed over the judged rows. These are the rows for which the loss
    // of rounding to nearest is known.
    double judged = 0;
    for (int64_t o = 0, O = j->w->shape[0]; o < O; o++) {
        j->objective += 2 * s->loss[o];
        if (osh_gptq_judges(O, o)) judged += 2 * s->loss[o];
    }
    // The ratio of the two losses (rounding to nearest, solved codes) is assumed to be the same in
    // the judged rows and in all other rows.
    if (j->nearest >= 0 && judged > 0) j->nearest *= j->objective / judged;
    if (j->losses.n) j->objective = j->losses.of[j->losses.n - 1];
}

static osh_status solve_job(osh_ctx *cx, const gptq *g, const factor *f, osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    solve s = {0}; // own
    osh_gptq_solve_args a;
    OSH_TRY(solve_prepare(cx, &a, &s, g, f, j));
    OSH_TRY(osh_gptq_column_of(f->device)->solve(cx, f->device, &a, 1));
    if (g->n_refine) OSH_TRY(osh_gptq_refine_job(cx, g, f, &s, j));
    solve_conclude(j, &s, f);
done:
    solve_deinit(cx, &s);
    return rc;
}

/* Computes the codes of a job whose H could not be factored. Rounds to nearest, and sets dead
 * columns to 0, like the reference with Hinv = I. The code for a weight of 0 is the zero point. If
 * all columns are dead, none of them is set to 0, unlike in the reference. */
static osh_status round_unsolved(osh_ctx *cx, const osh_modifier *m, const factor *f,
                                 osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    const osh_q_args *q = &j->scheme->weights;
    const int8_t *zero = j->params.zero ? j->params.zero->data : NULL;
    int64_t cols = j->params.scale->ndim == 2 ? j->params.scale->shape[1] : 1, O = j->w->shape[0];
    int64_t band = osh_q_scale_rows(q, O);
    OSH_TRY(osh_q_encode(cx, j->codes, j->w, &j->params, q, m->arithmetic));
    if (f->n_dead == f->I) {
        j->fallback = "its inputs were all 0: rounded to nearest";
        goto done;
    }
    for (int64_t o = 0; o < O; o++)
        for (int64_t i = 0; i < f->I; i++)
            if (f->dead[i])
                ((int8_t *)j->codes)[o * f->I + i] =
                    zero ? zero[o / band * cols + scale_column(q, i, f->I)] : 0;
    j->fallback = f->overflow ? "Hessian not finite, its inputs are too large: rounded to nearest"
                              : f->ladder->gave_up;
done:
    return rc;
}

/* Sets j->nearest to the loss of rounding to nearest, summed over the judged rows
 * (osh_gptq_judges). From this sum solve_conclude estimates the loss of all rows. */
static osh_status judge_rounding(osh_ctx *cx, const gptq *g, const factor *f, osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    solve s = {0}; // own
    osh_gptq_solve_args a;
    OSH_TRY(solve_prepare(cx, &a, &s, g, f, j));
    a.nearest = true;
    OSH_TRY(osh_gptq_solve(cx, &a));
    j->nearest = 0;
    for (int64_t o = 0; o < a.O; o++)
        if (osh_gptq_judges(a.O, o)) j->nearest += 2 * s.loss[o];
done:
    solve_deinit(cx, &s);
    return rc;
}

/* Computes the target, scales and zero points of a job, and allocates memory for its codes.
 * `packed`: true if the codes will be packed. */
static osh_status begin_job(osh_ctx *cx, const osh_modifier *m, const factor *f, osh_linear_job *j,
                            bool packed)
{
    osh_status rc = OSH_OK;
    const gptq *g = m->args;
    if (f->n_dead && f->n_dead < f->I)
        osh_log(cx, OSH_LOG_WARN,
                "%s: %lld of %lld input channels were 0 for all tokens: their weights become 0",
                j->name, (long long)f->n_dead, (long long)f->I);
    if (f->shift) OSH_TRY(osh_target_new(cx, j, f->shift));
    if (j->target) rc = osh_target_params(cx, j, m->arithmetic);
    if (rc == OSH_E_NUMERIC) { // a value of the target W + W S exceeds the range of f32
        rc = OSH_OK;
        osh_error_clear(cx);
        osh_target_free(cx, j);
    }
    if (rc) goto done;
    if (!j->target)
        OSH_TRY(
            osh_q_weight_params(cx, &j->params, j->w, &j->scheme->weights, m->arithmetic, j->name));
    if (f->u && !f->device) OSH_TRY(judge_rounding(cx, g, f, j));
    if (g->scale_search && f->u) OSH_TRY(osh_gptq_search_scales(cx, g, f, j));
    j->packed = packed;
    j->codes = osh_alloc(cx, osh_job_codes_bytes(j, packed));
    if (!j->codes) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the codes of %s", j->name);
done:
    return rc;
}

static osh_status compress_job(osh_ctx *cx, const osh_modifier *m, const factor *f,
                               osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    OSH_TRY(begin_job(cx, m, f, j, false));
    OSH_TRY(f->u ? solve_job(cx, m->args, f, j) : round_unsolved(cx, m, f, j));
    osh_target_free(cx, j);
    OSH_TRY(osh_job_finish(cx, j, !j->keep_w));
done:
    if (rc) osh_note(cx, "solving %s", j->name);
    return rc;
}

/* Jobs of one input. The columns of a job are solved in one of two orders. The solve handles only
 * the jobs with one of these orders, and skips the others.
 * ordered true: it solves jobs with the order of the descending diagonal of H.
 * ordered false: it solves jobs with the order of the checkpoint. */
typedef struct ordered_jobs {
    const osh_modifier *m;
    const factor *f;
    osh_linear_job *jobs;
    bool ordered;
} ordered_jobs;

static bool ordered_has(const ordered_jobs *o, int64_t k)
{
    return o->jobs[k].scheme->weights.present && osh_gptq_is_ordered(&o->jobs[k]) == o->ordered;
}

static osh_status ordered_chunk(osh_ctx *cx, void *user, int64_t k, int worker)
{
    const ordered_jobs *o = user;
    (void)worker;
    return ordered_has(o, k) ? compress_job(cx, o->m, o->f, &o->jobs[k]) : OSH_OK;
}

static osh_status ordered_take(osh_ctx *cx, void *user, int64_t k)
{
    const ordered_jobs *o = user;
    return ordered_has(o, k) ? osh_linear_job_done(cx, &o->jobs[k]) : OSH_OK;
}

osh_status osh_gptq_solve_parts(osh_ctx *cx, const osh_modifier *m, const osh_gptq_part *parts,
                                int n)
{
    osh_status rc = OSH_OK;
    solve *s = NULL;               // own
    osh_gptq_solve_args *a = NULL; // own
    OSH_NEW(cx, s, n);
    OSH_NEW(cx, a, n);
    for (int k = 0; k < n; k++) {
        OSH_TRY(begin_job(cx, m, parts[k].f, parts[k].j, parts[k].j->pack));
        OSH_TRY(solve_prepare(cx, &a[k], &s[k], m->args, parts[k].f, parts[k].j));
    }
    OSH_TRY(osh_gptq_column_of(parts->f->device)->solve(cx, parts->f->device, a, n));
    for (int k = 0; k < n; k++)
        solve_conclude(parts[k].j, &s[k], parts[k].f), osh_target_free(cx, parts[k].j);
    for (int k = 0; k < n; k++) solve_deinit(cx, &s[k]), s[k] = (solve){0};
    for (int k = 0; k < n; k++) OSH_TRY(osh_linear_job_done(cx, parts[k].j));
done:
    if (rc) osh_note(cx, n > 1 ? "solving %s and others with it" : "solving %s", parts->j->name);
    for (int k = 0; s && k < n; k++) solve_deinit(cx, &s[k]);
    osh_free(cx, s);
    osh_free(cx, a);
    return rc;
}

static osh_status compress_together(osh_ctx *cx, const osh_modifier *m, const factor *f,
                                    osh_linear_job *jobs, const osh_gptq_piece *p)
{
    osh_status rc = OSH_OK;
    osh_gptq_part *parts = NULL; // own
    int n = 0;
    OSH_NEW(cx, parts, p->end - p->from);
    for (int k = p->from; k < p->end; k++)
        if (osh_gptq_together(&jobs[p->lead], &jobs[k])) parts[n++] = (osh_gptq_part){f, &jobs[k]};
    OSH_TRY(osh_gptq_solve_parts(cx, m, parts, n));
done:
    osh_free(cx, parts);
    return rc;
}

typedef struct collected { // statistics of the input of some jobs, over n_samples samples
    osh_tensor *h, *shift; // views: the Hessian, and the statistic OSH_STAT_SHIFT or NULL
    int64_t n_samples;
} collected;

/* If `ordered` is true, solves only the jobs whose columns are ordered by the descending diagonal
 * of H. Otherwise, solves only the jobs whose columns have the order of the checkpoint. Overwrites
 * the tensors of s. */
static osh_status compress_ordered(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                                   const collected *s, bool ordered)
{
    osh_status rc = OSH_OK;
    const gptq *g = m->args;
    osh_tensor *h = s->h;
    factor f = {.I = h->shape[0], .device = h->device}; // own
    OSH_TRY(osh_gptq_make_factor(cx, &f, h, ordered, g, 0.5f * (float)s->n_samples));
    if (f.u && s->shift) {
        OSH_TRY(osh_target_shift(cx, s->shift, f.u, f.perm));
        f.shift = s->shift;
    }
    if (f.u && !f.device) OSH_TRY(osh_gptq_mirror(cx, h->data, f.I));
    ordered_jobs own = {m, &f, jobs, ordered};
    int at_once = f.device ? 1 : osh_jobs_at_once(jobs, n, osh_threads(cx));
    if (at_once > 1) {
        OSH_TRY(
            osh_parallel_apart(cx, n, at_once, &(osh_apart){ordered_chunk, ordered_take, &own}));
        goto done;
    }
    for (int k = 0; k < n; k++) {
        if (!ordered_has(&own, k)) continue;
        bool alone = !f.u || !f.device || !osh_gptq_is_plain(g);
        if (alone) OSH_TRY(compress_job(cx, m, &f, &jobs[k]));
        if (alone) OSH_TRY(osh_linear_job_done(cx, &jobs[k]));
        for (int from = k, end; !alone && osh_gptq_is_first(jobs, k) && from < n; from = end) {
            end = osh_gptq_piece_end(jobs, n, k, from);
            OSH_TRY(compress_together(cx, m, &f, jobs, &(osh_gptq_piece){k, from, end}));
        }
    }
done:
    osh_gptq_factor_deinit(cx, &f);
    return rc;
}

static osh_status compress(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                           osh_tensor *h, int64_t n_samples);

/* Quantizes pruned jobs on the host, because only the host can keep zeros (keep_zeros). */
static osh_status compress_pruned(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                                  const osh_tensor *h, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    osh_tensor *copy = NULL; // own: copy of the Hessian in host memory
    OSH_TRY(osh_tensor_new(cx, &copy, h->dtype, h->ndim, h->shape));
    OSH_TRY(osh_tensor_copy(cx, copy, h));
    OSH_TRY(compress(cx, m, jobs, n, copy, n_samples));
done:
    osh_tensor_free(cx, copy);
    return rc;
}

static osh_status compress(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                           osh_tensor *h, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    if (h && h->device && n && jobs->pruned)
        return compress_pruned(cx, m, jobs, n, h, n_samples);
    osh_tensor *stats[2] = {h, n && osh_gptq_is_original(m->args) ? jobs->shift : NULL};
    // Own: copies of the statistics. They are needed if the jobs have both orderings of columns,
    // because solving the jobs of the first ordering overwrites the statistics.
    osh_tensor *copy[2] = {NULL};
    int count[2];
    for (int k = 0; k < n; k++)
        jobs[k].objective = jobs[k].nearest = -1, jobs[k].losses = (osh_losses){0};
    osh_gptq_count_orderings(count, jobs, n);
    for (int k = 0; k < 2 && count[0] && count[1]; k++) {
        if (!stats[k]) continue;
        OSH_TRY(osh_tensor_new_on(cx, &copy[k], (osh_where){h->device, OSH_LIFE_LONG}, OSH_F32, 2,
                                  h->shape));
        OSH_TRY(osh_tensor_copy(cx, copy[k], stats[k]));
    }
    collected all = {stats[0], stats[1], n_samples}, first = all;
    if (count[1]) first = (collected){copy[0], copy[1], n_samples};
    if (count[0]) OSH_TRY(compress_ordered(cx, m, jobs, n, &first, false));
    for (int k = 0; k < 2; k++) osh_tensor_free(cx, copy[k]), copy[k] = NULL;
    if (count[1]) OSH_TRY(compress_ordered(cx, m, jobs, n, &all, true));
done:
    for (int k = 0; k < 2; k++) osh_tensor_free(cx, copy[k]);
    return rc;
}

static const osh_solver gptq_solver = {
    .wants = gptq_wants, .compress = compress, .needs = osh_gptq_needs, .gathers = osh_gptq_gathers,
    .compress_groups = osh_gptq_compress_groups, .needs_groups = osh_gptq_needs_groups,
    .apart = true, .propagates = true,
};
static const osh_quantizer gptq_quantizer = {
    .best = osh_gptq_best, .freedom = gptq_freedom, .step = osh_gptq_step_name,
    .tunes = osh_gptq_tunes,
};
const osh_modifier_type osh_modifier_gptq = {
    .name = "GPTQModifier", .fields = fields, .bytes = sizeof(gptq), .key = key,
    .keys = "actorder, scale_search, refine, tune", .resolve = gptq_resolve,
    .solver = &gptq_solver, .quantizer = &gptq_quantizer,
};
