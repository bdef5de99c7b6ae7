/* survey.c - estimates the loss of a weight under several schemes. If a candidate rounds a weight W
 * [O, I] to Q, and the inputs have the Hessian H, the loss is about
 *
 *   sum over rows and columns of (Q - W)^2 c_j
 *
 * If the cost of each output for the model's loss is known (`care` of osh_linear_job), the sum of
 * each row is multiplied by the cost of the row's output.
 *
 * For GPTQ, c_j = 1 / U_jj^2 with U of gptq.c. In each column GPTQ makes a rounding error as
 * large as that of rounding to nearest. Later columns compensate a part of this error; the
 * remaining loss is c_j times the squared error. So one factorization is enough for all candidates.
 * For rounding to nearest, c_j = H_jj, as if the errors of different columns were independent. For
 * OSH_SURVEY_BITS bits, c_j is always H_jj. The program can measure how rounding to OSH_SURVEY_BITS
 * bits changes the model's loss. The importance of the Linear is the measured change divided by the
 * estimated loss.
 *
 * Candidates that are named schemes may also round inputs. The loss of rounding an input is the sum
 * of v_j g_j over all columns j. v_j is the variance of the rounding error. g_j is the mean square
 * of the gradient of the loss at column j (care_in). If care_in is unknown, this loss is the sum of
 * W^2 v_j over all rows and columns. In the formula for v_j, s is the distance between neighbouring
 * codes, t is the largest code, and n is the number of columns that share a scale of the inputs.
 * `A` is the sum over all tokens of the largest squared input in the group of column j:
 *
 *   v_j = A (s / t)^2 / 12 + H_jj r
 *   A = max(max_j H_jj, 2 ln(n) mean_j H_jj)
 *
 * If a group is a whole token, `A` is known (OSH_STAT_PEAKS). For smaller groups, `A` is estimated
 * as the larger of two values. The first is right if the group has one outlier channel, the second
 * if the inputs have a normal distribution. r is the mean square of the relative error: 0 for
 * integers, and 0.541 2^(-2 d) / 12 for a float with d mantissa bits. */
#include "modifiers/survey.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "modifiers/gptq.h"
#include "math/grid.h"
#include "quant/observer.h"

enum { ROWS = 32 };

bool osh_survey_scheme(osh_q_scheme *out, const osh_modifier *m, const osh_q_scheme *s, int k)
{
    const osh_candidate *c = m->n_candidates ? &m->candidates[k] : NULL;
    *out = *s;
    if (k >= (c ? m->n_candidates : OSH_CANDIDATES)) return false;
    if (!c || c->bits) out->weights.bits = c ? c->bits : 2 + k;
    else out->weights = c->weights, out->inputs = c->inputs, out->format[0] = 0;
    return true;
}

void osh_survey_label(char out[16], const osh_modifier *m, int k)
{
    const osh_candidate *c = m->n_candidates ? &m->candidates[k] : NULL;
    if (c && !c->bits) snprintf(out, 16, "%s", c->name);
    else snprintf(out, 16, "%d bits", c ? c->bits : 2 + k);
}

bool osh_survey_of_inputs(const osh_modifier *m)
{
    for (int k = 0; k < m->n_candidates; k++)
        /* a named scheme may round inputs in another way than the scheme of the modifier */
        if (!m->candidates[k].bits) return true;
    return false;
}

void osh_survey_name(char *out, size_t cap, const osh_modifier *m)
{
    osh_q_scheme s;
    size_t at = 0;
    *out = 0;
    for (int k = 0; osh_survey_scheme(&s, m, &(osh_q_scheme){0}, k) && at < cap; k++) {
        bool named = m->n_candidates && !m->candidates[k].bits;
        if (named)
            at += (size_t)snprintf(out + at, cap - at, "%s%s", k ? " " : "", m->candidates[k].name);
        else at += (size_t)snprintf(out + at, cap - at, "%s%d", k ? " " : "", s.weights.bits);
    }
}

static unsigned survey_wants(const osh_modifier *m, const osh_q_scheme *s)
{
    unsigned inputs = osh_survey_of_inputs(m) ? OSH_STAT_PEAKS : 0;
    return s->weights.present ? OSH_STAT_HESSIAN | inputs | (osh_scheme_wants(s) & OSH_STAT_SQUARES)
                              : 0;
}

/* Arguments of scan_rows, which computes the loss of each row of a weight under one candidate. */
typedef struct scan {
    const osh_linear_job *j;
    const osh_q_scheme *s;
    const osh_qparams *params;
    /* Codes of the weight under the candidate. NULL: the computed loss is that of a weight whose
     * elements are all 0. */
    const void *codes;
    const float *cost; // [I]
    uint8_t *decoded;  // own: [threads, I] a dequantized row in the dtype of w
    float *wide;       // own: [threads, 2, I] the dequantized row and the row of w, in F32
    double *loss;      // own: [O] loss of each row
} scan;

static osh_status scan_rows(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const scan *s = user;
    const osh_tensor *w = s->j->w;
    int64_t O = w->shape[0], I = w->shape[1];
    size_t bytes = (size_t)I * osh_dtype_bytes(w->dtype);
    uint8_t *decoded = s->decoded + (size_t)worker * bytes;
    float *a = s->wide + (size_t)worker * 2 * (size_t)I, *b = a + I;
    osh_q_coded coded = {s->codes, s->params, &s->s->weights, O, I};
    (void)cx;
    for (int64_t o = chunk * ROWS; o < O && o < (chunk + 1) * ROWS; o++) {
        double sum = 0;
        if (s->codes) osh_q_decode_rows(decoded, w->dtype, &coded, o, 1);
        else memset(decoded, 0, bytes);
        osh_to_f32(a, decoded, w->dtype, I);
        osh_to_f32(b, (const uint8_t *)w->data + (size_t)o * bytes, w->dtype, I);
        for (int64_t i = 0; i < I; i++)
            sum += (double)s->cost[i] * ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s->loss[o] = sum;
    }
    return OSH_OK;
}

static osh_status scan_all(osh_ctx *cx, double *loss, scan *s)
{
    osh_status rc = OSH_OK;
    int64_t O = s->j->w->shape[0];
    OSH_TRY(osh_parallel_for(cx, (O + ROWS - 1) / ROWS, scan_rows, s));
    for (int64_t o = 0; o < O; o++) *loss += s->loss[o] * (s->j->care ? s->j->care[o] : 1);
done:
    return rc;
}

/* Computes v_j [I] of the formula at the top of this file, for inputs that are quantized
 * dynamically with the arguments `a`. diag [I]: diagonal of H. peaks: statistic OSH_STAT_PEAKS; 0:
 * unknown. */
static void input_variances(float *v, const osh_q_args *a, const float *diag, double peaks,
                            int64_t I)
{
    osh_grid grid = osh_grid_of(a->bits, a->type == OSH_Q_FLOAT);
    double step = grid.digits ? ldexp(1, grid.least) : 1, top = grid.hi + (grid.digits ? 0 : 0.5);
    double relative = grid.digits ? 0.541 * ldexp(1, -2 * (grid.digits - 1)) / 12 : 0;
    int64_t seg = osh_q_in_groups(a) && a->group_size < I ? a->group_size : I;
    for (int64_t first = 0; first < I; first += seg) {
        int64_t n = first + seg < I ? seg : I - first;
        double most = 0, sum = 0;
        for (int64_t i = first; i < first + n; i++)
            sum += diag[i], most = diag[i] > most ? diag[i] : most;
        double usual = 2 * log((double)n) * sum / (double)n, all = most > usual ? most : usual;
        if (n == I && peaks > 0) all = peaks;
        for (int64_t i = first; i < first + n; i++)
            v[i] = (float)(all * (step / top) * (step / top) / 12 + diag[i] * relative);
    }
}

/* For each column of a weight, the cost of a squared rounding error. All arrays are own and have I
 * elements. */
typedef struct costs {
    /* weight: c_j of the formula at the top of this file.
     * diag: diagonal of H. input: v_j of the current candidate. `diag` and `input` are NULL if all
     * candidates round inputs in the same way. */
    float *weight, *diag, *input;
    int n;                        // number of Linears that read the input of the weight
} costs;

static osh_status candidate_loss(osh_ctx *cx, double *loss, const osh_modifier *m,
                                 const osh_linear_job *j, const osh_q_scheme *of, const costs *c)
{
    osh_status rc = OSH_OK;
    osh_qparams params = {.global = j->params.global, .importance = j->params.importance}; // own
    int64_t O = j->w->shape[0], I = j->w->shape[1], n = osh_threads(cx);
    void *codes = NULL; // own
    scan s = {.j = j, .s = of, .params = &params, .cost = c->weight};
    OSH_TRY(osh_q_weight_params(cx, &params, j->w, &of->weights, m->arithmetic, j->name));
    OSH_NEW(cx, s.loss, O);
    s.decoded = osh_alloc(cx, (size_t)(n * I) * osh_dtype_bytes(j->w->dtype));
    s.wide = osh_alloc(cx, (size_t)(n * 2 * I) * sizeof *s.wide);
    codes = osh_alloc(cx, (size_t)(O * I));
    if (!s.decoded || !s.wide || !codes)
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory to look at %s", j->name);
    OSH_TRY(osh_q_encode(cx, codes, j->w, &params, &of->weights, m->arithmetic));
    s.codes = codes;
    *loss = 0;
    OSH_TRY(scan_all(cx, loss, &s));
    if (!c->diag || !of->inputs.present) goto done;
    input_variances(c->input, &of->inputs, c->diag, j->peaks, I);
    for (int64_t i = 0; j->care_in && i < I; i++) *loss += j->care_in[i] * c->input[i] / c->n;
    if (j->care_in) goto done;
    s.codes = NULL, s.cost = c->input;
    OSH_TRY(scan_all(cx, loss, &s));
done:
    osh_qparams_deinit(cx, &params);
    osh_free(cx, codes);
    osh_free(cx, s.decoded);
    osh_free(cx, s.wide);
    osh_free(cx, s.loss);
    return rc;
}

extern const osh_modifier_type osh_modifier_gptq;
static bool is_gptq(const osh_modifier *m) { return m->surveyed == &osh_modifier_gptq; }

static osh_status compress(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                           osh_tensor *h, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    int64_t I = h->shape[0];
    osh_q_scheme s;
    costs c = {.n = n};
    OSH_NEW(cx, c.weight, I);
    for (int64_t i = 0; i < I; i++) c.weight[i] = ((const float *)h->data)[i * (I + 1)];
    for (int k = 0; k < n; k++) {
        osh_linear_job *j = &jobs[k];
        j->objective = j->nearest = -1, j->nmse = 0, j->losses = (osh_losses){0};
        s = *j->scheme, s.weights.bits = OSH_SURVEY_BITS;
        OSH_TRY(candidate_loss(cx, &j->losses.all, m, j, &s, &c));
    }
    if (osh_survey_of_inputs(m)) {
        OSH_NEW(cx, c.diag, I);
        OSH_NEW(cx, c.input, I);
        memcpy(c.diag, c.weight, (size_t)I * sizeof *c.diag);
    }
    if (is_gptq(m)) OSH_TRY(osh_gptq_costs(cx, c.weight, m, jobs, h, n_samples));
    for (int k = 0; k < n; k++) {
        osh_linear_job *j = &jobs[k];
        for (int i = 0; osh_survey_scheme(&s, m, j->scheme, i); i++)
            OSH_TRY(candidate_loss(cx, &j->losses.of[j->losses.n++], m, j, &s, &c));
        OSH_TRY(osh_linear_job_done(cx, j));
    }
done:
    osh_free(cx, c.weight);
    osh_free(cx, c.diag);
    osh_free(cx, c.input);
    return rc;
}

static size_t needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                    size_t *device)
{
    size_t peak = 0, I = n ? (size_t)jobs->w->shape[1] : 0, cost = osh_mem_gross(I * sizeof(float));
    if (device) *device = 0;
    for (int k = 0; k < n; k++) {
        const osh_linear_job *j = &jobs[k];
        size_t O = (size_t)j->w->shape[0], rows = (size_t)n_threads * I;
        size_t look = osh_mem_gross(O * sizeof(double)) + osh_mem_gross(O * I) +
                      osh_mem_gross(rows * 2 * sizeof(float)) +
                      osh_mem_gross(rows * osh_dtype_bytes(j->w->dtype));
        osh_q_scheme s;
        for (int i = 0; osh_survey_scheme(&s, m, j->scheme, i); i++) {
            osh_linear_job as = *j;
            as.scheme = &s;
            size_t params = osh_job_params_bytes(&as) + osh_job_search_bytes(&as),
                   run = look > params ? look : params;
            // `look` includes the codes, so only the bytes of scales and zero points are added
            run += osh_job_result_bytes(&as) - osh_mem_gross(O * I);
            if (run > peak) peak = run;
        }
    }
    if (osh_survey_of_inputs(m)) cost *= 3;
    size_t factor = is_gptq(m) ? osh_gptq_costs_bytes((int64_t)I, n_threads) : 0;
    return cost + (factor > peak ? factor : peak);
}

static const osh_solver survey_solver = {
    .wants = survey_wants, .compress = compress, .needs = needs};
static const osh_quantizer survey_quantizer = {0};
static const osh_modifier_type survey = {
    .name = "survey", .solver = &survey_solver, .quantizer = &survey_quantizer};

osh_status osh_survey_begin(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    char *who = NULL; // own
    for (size_t i = 0; i < m->n_schemes; i++) {
        const osh_q_args *a = &m->schemes[i].weights;
        if (a->present && a->type != OSH_Q_INT)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: bits can only be chosen for integers, and the weights of %s are not "
                     "integers: want integers, or no --target-bits and no --target-size",
                     m->type->name, m->schemes[i].group_name);
    }
    for (int k = 0; k < m->n_candidates; k++) {
        const osh_candidate *c = &m->candidates[k];
        osh_q_scheme s = {.weights = c->weights, .inputs = c->inputs};
        if (c->bits) continue;
        if (!(who = osh_q_who_loads(cx, &s, NULL)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory to look at a candidate");
        if (strstr(who, "no kernel of vLLM"))
            osh_log(cx, OSH_LOG_WARN, "candidates: %s: %s", c->name, who);
        osh_free(cx, who), who = NULL;
    }
    m->surveyed = m->type;
    m->type = &survey;
done:
    return rc;
}
