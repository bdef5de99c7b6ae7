/* verify_weights.c - checks codes and scales of a quantized module against the source's weight
 * w [O, I].
 *
 *   scale, zero   are computed again from the minima and maxima of w, and must have the same bits.
 *                 Rounding and GPTQ both compute them from all of w
 *   rounding      every code is the nearest one
 *   GPTQ          codes are not the nearest, because each code compensates the rounding errors of
 *                 other codes. So the squared error of the whole weight is bounded by
 *                     sum (w - dq)^2 <= FACTOR sum ((w - rtn)^2 + s^2 / 12)
 *                 where dq is decoded from the codes, rtn is w rounded to nearest, s is the scale.
 *                 The bound of a row uses ROW_FACTOR instead of FACTOR. One row in ROWS may exceed
 *                 the bound: if the output of a row is large for every token, the other weights
 *                 of the row compensate the error of that output. The error of an element is at
 *                 most 16 scales, or half of the range of its codes if this is larger. (At 4 bits,
 *                 clamping can cause an error of 16 scales.)
 *                 Columns of dq that have only zeros do not count: GPTQ sets a column to 0 if its
 *                 input is 0 for all tokens.
 *                 Measurements on two models, with 2 to 8 bits, 8 to 16384 tokens, and groups from
 *                 16 columns to whole rows: the largest factor of a weight was 4.4. One row of 576
 *                 had a factor of 64 or more. The largest error of an element was 27 scales, with
 *                 8 bits
 *   both          |w - dq|^2 / |w|^2 is the error that the run recorded
 *
 *   pruned by the weight alone (magnitude, constant)   w is pruned again in the same way, and then
 *                 all checks above apply
 *   Wanda         the mask depends on data. Kept values are the source's, so the recorded error is
 *                 the error against w. verify_direction.c has more rules, as for SparseGPT
 *   SparseGPT     kept values change, too, and the recorded error is the error against a changed
 *                 weight, which `oneshot verify` cannot compute. verify_direction.c has the
 *                 rules */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "quant/observer.h"
#include "verify/verify.h"

#define FACTOR 16.0
#define ROW_FACTOR 64.0
enum { ROWS = 64 };
enum { MAX_PER_MODULE = 3 }; // largest number of findings of one kind for one module

/* True if c is a valid integer code of a->bits bits. */
static bool args_have_code(const osh_q_args *a, int c)
{
    return c >= -(1 << (a->bits - 1)) && c < 1 << (a->bits - 1);
}

/* Adds a finding for each scale that is negative but must not be. */
static osh_status scales_check_signs(osh_ctx *cx, osh_verify *v, const char *module,
                                     const osh_qparams *p)
{
    osh_status rc = OSH_OK;
    int n = 0;
    for (int64_t i = 0; i < osh_tensor_numel(p->scale) && n < MAX_PER_MODULE; i++) {
        float s = osh_tensor_at(p->scale, i);
        if (!(s < 0)) continue;
        n++;
        OSH_TRY(osh_verify_add(cx, v, module, "a positive number", "weight_scale %lld is %g",
                               (long long)i, (double)s));
    }
done:
    return rc;
}

osh_status osh_verify_params(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a,
                             const osh_qparams *p)
{
    osh_status rc = OSH_OK;
    int n = 0;
    bool floats = a->type == OSH_Q_FLOAT;
    // Without a plan the modifier is unknown. Negative scales are then accepted if the scheme
    // allows them.
    bool signs = osh_q_may_be_signed(a);
    if (a->strategy == OSH_Q_TENSOR_GROUP && !(p->global > 0 && isfinite(p->global)))
        OSH_TRY(osh_verify_add(cx, v, module, "a positive number", "weight_global_scale is %g",
                               (double)p->global));
    for (int64_t i = 0; i < osh_tensor_numel(p->scale) && n < MAX_PER_MODULE; i++) {
        float s = osh_tensor_at(p->scale, i);
        if ((s > 0 || (s < 0 && signs)) && isfinite(s)) continue;
        n++;
        OSH_TRY(osh_verify_add(cx, v, module,
                               signs ? "a number that is not 0" : "a positive number",
                               "weight_scale %lld is %g", (long long)i, (double)s));
    }
    n = 0;
    for (int64_t i = 0; p->zero && i < osh_tensor_numel(p->zero) && n < MAX_PER_MODULE; i++) {
        int z = ((const int8_t *)p->zero->data)[i];
        if (floats ? z == 0 : args_have_code(a, z)) continue;
        n++;
        OSH_TRY(osh_verify_add(cx, v, module, "a code of the scheme's bits",
                               "weight_zero_point %lld is %d", (long long)i, z));
    }
done:
    return rc;
}

osh_status osh_verify_codes(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a,
                            const uint8_t *codes, const int64_t *shape)
{
    osh_status rc = OSH_OK;
    int64_t I = shape[1];
    int n = 0;
    bool floats = a->type == OSH_Q_FLOAT, fp8 = floats && a->bits == 8;
    for (int64_t i = 0; i < shape[0] * I && n < MAX_PER_MODULE; i++) {
        int c = (int8_t)codes[i];
        if (fp8      ? (codes[i] & 0x7f) != 0x7f
            : floats ? codes[i] < 1 << a->bits
                     : args_have_code(a, c))
            continue;
        n++;
        OSH_TRY(osh_verify_add(cx, v, module, "a code of the scheme's bits",
                               "the code of row %lld, column %lld is %d", (long long)(i / I),
                               (long long)(i % I), c));
    }
done:
    return rc;
}

typedef struct stored { // a module: its stored tensors in the output, and its weight in the source
    osh_tensor *raw[OSH_FORMAT_MAX_TENSORS]; // own
    osh_qparams params;                      // own
    uint8_t *codes;                          // own
    osh_tensor *w;                           // own: weight of the module in the source
} stored;

static void module_stored_deinit(osh_ctx *cx, stored *s)
{
    for (int k = 0; k < OSH_FORMAT_MAX_TENSORS; k++) osh_tensor_free(cx, s->raw[k]);
    osh_qparams_deinit(cx, &s->params);
    osh_free(cx, s->codes);
    osh_tensor_free(cx, s->w);
}

static osh_status module_stored_load(osh_ctx *cx, stored *s, osh_verify *v, const osh_linear *l)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = v->plan;
    osh_format_weight weight = osh_linear_stored(l);
    for (int k = 0; k < l->out.n; k++) {
        const osh_ckpt_tensor *t =
            osh_checkpoint_find(v->ck, p->manifest.out[l->out.first + k].name);
        OSH_TRY(osh_tensor_new(cx, &s->raw[k], t->e->dtype, t->e->ndim, t->e->shape));
        OSH_TRY(osh_checkpoint_read(cx, s->raw[k]->data, v->ck, t));
    }
    if (!(s->codes = osh_alloc(cx, (size_t)(l->O * l->I))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for codes");
    OSH_TRY(
        l->format->unpack(cx, s->codes, &s->params, &weight, (const osh_tensor *const *)s->raw));
    OSH_TRY(osh_tensor_new(cx, &s->w, l->dtype, 2, (int64_t[]){l->O, l->I}));
    OSH_TRY(osh_checkpoint_read(cx, s->w->data, p->in.ck, &p->in.ck->tensors[l->tensor]));
done:
    return rc;
}

static osh_status module_compare_params(osh_ctx *cx, osh_verify *v, const osh_linear *l,
                                        const stored *s, const osh_qparams *want)
{
    osh_status rc = OSH_OK;
    int n = 0;
    char text[64];
    if (s->params.global != want->global) {
        snprintf(text, sizeof text, "%.9g, computed from the source's weights",
                 (double)want->global);
        OSH_TRY(osh_verify_add(cx, v, l->name, text, "weight_global_scale is %.9g",
                               (double)s->params.global));
    }
    for (int64_t i = 0; i < osh_tensor_numel(want->scale) && n < MAX_PER_MODULE; i++) {
        float a = osh_tensor_at(s->params.scale, i), b = osh_tensor_at(want->scale, i);
        if (a == b) continue;
        n++;
        snprintf(text, sizeof text, "%.9g, computed from the source's weight", (double)b);
        OSH_TRY(osh_verify_add(cx, v, l->name, text, "weight_scale %lld is %.9g", (long long)i,
                               (double)a));
    }
    n = 0;
    for (int64_t i = 0;
         want->zero && s->params.zero && i < osh_tensor_numel(want->zero) && n < MAX_PER_MODULE;
         i++) {
        int a = ((const int8_t *)s->params.zero->data)[i],
            b = ((const int8_t *)want->zero->data)[i];
        if (a == b) continue;
        n++;
        snprintf(text, sizeof text, "%d, computed from the source's weight", b);
        OSH_TRY(
            osh_verify_add(cx, v, l->name, text, "weight_zero_point %lld is %d", (long long)i, a));
    }
done:
    return rc;
}

static osh_status module_compare_codes(osh_ctx *cx, osh_verify *v, const osh_linear *l,
                                       const stored *s, const uint8_t *nearest)
{
    osh_status rc = OSH_OK;
    int n = 0;
    char text[64];
    bool floats = l->scheme->weights.type == OSH_Q_FLOAT;
    int magnitude = (1 << (l->scheme->weights.bits - 1)) - 1;
    for (int64_t i = 0; i < l->O * l->I && n < MAX_PER_MODULE; i++) {
        bool zeros = floats && !(s->codes[i] & magnitude) && !(nearest[i] & magnitude);
        if (s->codes[i] == nearest[i] || zeros) continue;
        n++;
        snprintf(text, sizeof text, "%d, the nearest code",
                 floats ? nearest[i] : (int8_t)nearest[i]);
        OSH_TRY(osh_verify_add(cx, v, l->name, text, "the code of row %lld, column %lld is %d",
                               (long long)(i / l->I), (long long)(i % l->I),
                               floats ? s->codes[i] : (int8_t)s->codes[i]));
    }
done:
    return rc;
}

/* Results of comparing three weights of a module: w in the source, dq decoded from the codes of the
 * output, and rtn (w rounded to nearest). */
typedef struct errors {
    float *w, *dq, *rtn; // own [I]: the current row of w, dq and rtn
    bool *live;          // own [I]: true for live columns, in which dq has a value that is not 0
    /* |w - dq|^2 and |w|^2 of the whole weight; dq: dequantized weight. */
    double err, norm;
    double removed;      // fraction of the source's |w|^2 that pruning removed
    /* Sums over the live columns of all rows.
     * live_err: squared error of the dequantized weight.
     * expected: squared error of rounding to nearest, plus s^2 / 12 for each element, where s is
     * its scale. */
    double live_err, expected;
    /* worst_row: largest squared error of a row, divided by its `expected`.
     * worst_steps: largest error of an element, divided by its scale. */
    double worst_row, worst_steps;
    double square;       // |dq|^2
    osh_direction_row *rows; // own [O]
    /* bad_row: row that has the error worst_row.
     * step_row, step_col: position of the element that has the error worst_steps.
     * n_bad: number of rows whose error exceeds ROW_FACTOR times `expected`. */
    int64_t bad_row, step_row, step_col, n_bad;
} errors;

static void errors_deinit(osh_ctx *cx, errors *e)
{
    osh_free(cx, e->w);
    osh_free(cx, e->dq);
    osh_free(cx, e->rtn);
    osh_free(cx, e->live);
    osh_free(cx, e->rows);
}

static void errors_read_row(float *to, const osh_tensor *t, int64_t r, int64_t I)
{
    osh_to_f32(to, (const char *)t->data + (size_t)(r * I) * osh_dtype_bytes(t->dtype), t->dtype,
               I);
}

/* Adds two squared errors of row r to the sums of the weight: the error of dq, and the error of
 * rounding to nearest. Updates the worst row and the worst element. */
static void errors_measure_row(errors *e, const osh_linear *l, const osh_qparams *p, int64_t r)
{
    const osh_q_args *a = &l->scheme->weights;
    int64_t seg = osh_q_scale_cols(a, l->I), band = osh_q_scale_rows(a, l->O);
    int64_t per_band = (l->I + seg - 1) / seg;
    for (int64_t c = 0; c < l->I; c++) {
        double d = (double)e->w[c] - e->dq[c];
        e->err += d * d, e->norm += (double)e->w[c] * e->w[c];
        e->square += (double)e->dq[c] * e->dq[c];
    }
    double err = 0, expected = 0;
    for (int64_t c0 = 0; c0 < l->I; c0 += seg) {
        double s = (double)osh_tensor_at(p->scale, r / band * per_band + c0 / seg) /
                   (p->global ? p->global : 1);
        int64_t end = c0 + seg < l->I ? c0 + seg : l->I;
        for (int64_t c = c0; c < end; c++) {
            double d = (double)e->w[c] - e->dq[c], q = (double)e->w[c] - e->rtn[c];
            if (!e->live[c]) continue;
            err += d * d, expected += q * q + s * s / 12;
            if (fabs(d) > e->worst_steps * s)
                e->worst_steps = fabs(d) / s, e->step_row = r, e->step_col = c;
        }
    }
    e->live_err += err, e->expected += expected;
    if (expected > 0 && err / expected > e->worst_row)
        e->worst_row = err / expected, e->bad_row = r;
    e->n_bad += err > ROW_FACTOR * expected;
}

static osh_status errors_measure(osh_ctx *cx, osh_verify *v, errors *e, const osh_linear *l,
                                 const stored *s, const uint8_t *nearest)
{
    osh_status rc = OSH_OK;
    osh_tensor *dq = NULL, *rtn = NULL; // own
    OSH_NEW(cx, e->w, l->I);
    OSH_NEW(cx, e->dq, l->I);
    OSH_NEW(cx, e->rtn, l->I);
    OSH_NEW(cx, e->live, l->I);
    OSH_NEW(cx, e->rows, l->O);
    osh_dtype dt = s->params.global ? l->dtype : s->params.scale->dtype;
    OSH_TRY(osh_tensor_new(cx, &dq, dt, 2, s->w->shape));
    OSH_TRY(osh_tensor_new(cx, &rtn, dt, 2, s->w->shape));
    OSH_TRY(osh_q_decode(cx, dq, s->codes, &s->params, &l->scheme->weights));
    OSH_TRY(osh_q_decode(cx, rtn, nearest, &s->params, &l->scheme->weights));
    if (l->prune.modifier >= 0)
        OSH_TRY(osh_verify_zeros(cx, v, (int)(l - v->plan->match.linears), dq, NULL));
    for (int64_t r = 0; r < l->O; r++) {
        errors_read_row(e->dq, dq, r, l->I);
        for (int64_t c = 0; c < l->I; c++) e->live[c] |= e->dq[c] != 0;
    }
    for (int64_t r = 0; r < l->O; r++) {
        errors_read_row(e->w, s->w, r, l->I);
        errors_read_row(e->dq, dq, r, l->I);
        errors_read_row(e->rtn, rtn, r, l->I);
        errors_measure_row(e, l, &s->params, r);
        osh_direction_row_fill(&e->rows[r], e->w, e->dq, e->live, l->I);
    }
done:
    osh_tensor_free(cx, dq);
    osh_tensor_free(cx, rtn);
    return rc;
}

/* Compares the measured errors with their bounds. `solved`: true if codes need not be the nearest.
 * `target`: true if the codes are those of a changed weight, which `oneshot verify` cannot
 * compute. */
static osh_status errors_check(osh_ctx *cx, osh_verify *v, const osh_linear *l, const errors *e,
                               bool solved, bool target)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = &l->scheme->weights;
    double nmse = e->norm > 0 ? e->err / e->norm : 0, was = osh_verify_recorded(v, l->name);
    nmse = e->removed + nmse * (1 - e->removed);
    double steps = a->type == OSH_Q_FLOAT ? 448 : a->bits > 5 ? 1 << (a->bits - 1) : 16;
    double ratio = e->expected > 0 ? e->live_err / e->expected : 0;
    char text[80];
    bool pruned = l->prune.modifier >= 0;
    osh_prune_rule rule = {.exact = true};
    if (pruned)
        rule =
            osh_modifier_prune_rule(&v->plan->in.recipe->modifiers[l->prune.modifier],
                                    l->prune.sparsity);
    if (rule.exact && v->manifest && !(fabs(nmse - was) <= 1e-9 * was + 1e-30)) {
        snprintf(text, sizeof text, "%.9g, which the run recorded", was);
        OSH_TRY(osh_verify_add(cx, v, l->name, text, "the relative squared error is %.9g", nmse));
    }
    osh_log(cx, OSH_LOG_DEBUG,
            "%s: squared error %.2f times that of rounding, of a row %.2f; of an element %.2f "
            "scales",
            l->name, ratio, e->worst_row, e->worst_steps);
    if (pruned && target)
        OSH_TRY(osh_verify_direction(cx, v, l, e->rows,
                                     rule.m ? (double)rule.n / (double)rule.m : rule.sparsity));
    if (target && rule.exact && nmse > 1)
        OSH_TRY(osh_verify_add(cx, v, l->name, "at most 1", "the relative squared error is %.3g",
                               nmse));
    if (!solved || target) goto done;
    if (ratio > FACTOR) {
        snprintf(text, sizeof text, "at most %.0f times", FACTOR);
        OSH_TRY(osh_verify_add(cx, v, l->name, text,
                               "the squared error is %.1f times that of rounding", ratio));
    }
    if (e->n_bad > 1 + l->O / ROWS) {
        snprintf(text, sizeof text, "at most %.0f times in all rows except %lld", ROW_FACTOR,
                 (long long)(1 + l->O / ROWS));
        OSH_TRY(osh_verify_add(cx, v, l->name, text,
                               "%lld rows have a larger squared error; in row %lld it is %.1f "
                               "times that of rounding",
                               (long long)e->n_bad, (long long)e->bad_row, e->worst_row));
    }
    if (e->worst_steps > steps) {
        snprintf(text, sizeof text, "at most %.0f", steps);
        OSH_TRY(osh_verify_add(cx, v, l->name, text,
                               "the error of row %lld, column %lld is %.1f scales",
                               (long long)e->step_row, (long long)e->step_col, e->worst_steps));
    }
done:
    return rc;
}

/* If the pruning method needs no calibration data, prunes w again. Sets *known to true, and
 * *removed to the fraction of |w|^2 that pruning removes. For other methods, sets *known to
 * false. */
static osh_status module_prune_source(osh_ctx *cx, bool *known, double *removed, osh_verify *v,
                                      const osh_linear *l, osh_tensor *w)
{
    osh_status rc = OSH_OK;
    const osh_modifier *by = &v->plan->in.recipe->modifiers[l->prune.modifier];
    osh_linear_job job = {
        .name = l->name, .scheme = l->scheme, .w = w, .sparsity = l->prune.sparsity};
    *known = !by->type->solver->wants(by, l->scheme);
    if (!*known) goto done;
    OSH_TRY(by->type->solver->compress(cx, by, &job, 1, NULL, 0));
    *removed = job.nmse;
done:
    osh_linear_job_deinit(cx, &job);
    return rc;
}

osh_status osh_verify_linear(osh_ctx *cx, osh_verify *v, int linear)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = v->plan;
    const osh_linear *l = &p->match.linears[linear];
    const osh_q_args *a = &l->scheme->weights;
    const osh_modifier *m = &p->in.recipe->modifiers[l->modifier];
    if (l->kept) return osh_verify_kept(cx, v, linear);
    if (l->scheme_index < 0) return osh_verify_pruned(cx, v, linear);
    bool solved = m->type->solver->propagates, known = true, zero = false;
    unsigned freedom = osh_modifier_freedom(m);
    // the scales of this observer depend on calibration data, so the source does not determine them
    if (osh_observer_weighs(a)) freedom |= OSH_FREE_SCALES;
    stored s = {0};        // own
    osh_qparams want = {0}; // own
    errors e = {0};        // own
    uint8_t *nearest = NULL; // own
    size_t before = v->n;
    OSH_TRY(module_stored_load(cx, &s, v, l));
    if (!(freedom & OSH_FREE_SIGNS)) OSH_TRY(scales_check_signs(cx, v, l->name, &s.params));
    if (l->prune.modifier >= 0) OSH_TRY(module_prune_source(cx, &known, &e.removed, v, l, s.w));
    if (!known) // the codes and scales approximate a changed weight, not that of the source
        solved = true, freedom |= OSH_FREE_SCALES | OSH_FREE_TARGET;
    OSH_TRY(osh_globals_find(cx, v->globals, &linear, 1));
    want.global = osh_globals_of(v->globals, linear);
    OSH_TRY(osh_q_weight_params(cx, &want, s.w, a, p->in.arithmetic, l->name));
    if (!(freedom & OSH_FREE_SCALES)) OSH_TRY(module_compare_params(cx, v, l, &s, &want));
    if (!(nearest = osh_alloc(cx, (size_t)(l->O * l->I))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for codes");
    OSH_TRY(osh_q_encode(cx, nearest, s.w, freedom & OSH_FREE_SCALES ? &s.params : &want, a,
                         p->in.arithmetic));
    if (v->n == before && !solved) OSH_TRY(module_compare_codes(cx, v, l, &s, nearest));
    if (v->n == before) {
        OSH_TRY(errors_measure(cx, v, &e, l, &s, nearest));
        zero = solved && e.norm > 0 && !(e.square > 0);
        if (zero) OSH_TRY(osh_verify_lost(cx, &zero, v, l));
        if (!zero) OSH_TRY(errors_check(cx, v, l, &e, solved, freedom & OSH_FREE_TARGET));
    }
done:
    module_stored_deinit(cx, &s);
    osh_qparams_deinit(cx, &want);
    errors_deinit(cx, &e);
    osh_free(cx, nearest);
    return rc;
}
