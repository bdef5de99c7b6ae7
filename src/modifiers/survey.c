/* survey.c - see survey.h. Of a weight W [O, I] with inputs of Hessian H, a candidate that rounds W to Q loses about
 *
 *   sum over rows and columns of (Q - W)^2 c_j
 *
 * each row times what the model's loss cares for its output, where that is known (osh_linear_job's care).
 * GPTQ: c_j = 1 / U_jj^2 with U of gptq.c. The column loop leaves at each column a rounding error of its own, which is
 * as large as that of rounding to nearest, and what it costs when the columns behind it make up for what they can is
 * c_j: so one factorization serves all candidates. Rounding to nearest: c_j = H_jj, as if errors of different columns
 * had nothing to do with each other. That is taken of OSH_SURVEY_BITS bits for either: what rounding so does to the
 * model's predictions can be measured, and says what a loss of this Linear is worth. */
#include "modifiers/survey.h"

#include <stdio.h>
#include <string.h>

#include "modifiers/gptq.h"
#include "quant/observer.h"

enum { ROWS = 32 };

bool osh_survey_scheme(osh_q_scheme *out, const osh_modifier *m, const osh_q_scheme *s, int k)
{
    *out = *s;
    if (k >= (m->n_candidates ? m->n_candidates : OSH_CANDIDATES)) return false;
    out->weights.bits = m->n_candidates ? m->candidates[k] : 2 + k;
    return true;
}

void osh_survey_name(char *out, size_t cap, const osh_modifier *m)
{
    osh_q_scheme s;
    size_t at = 0;
    *out = 0;
    for (int k = 0; osh_survey_scheme(&s, m, &(osh_q_scheme){0}, k) && at < cap; k++)
        at += (size_t)snprintf(out + at, cap - at, "%s%d", k ? " " : "", s.weights.bits);
}

static unsigned wants(const osh_modifier *m, const osh_q_scheme *s)
{
    return s->weights.present ? OSH_STAT_HESSIAN | (osh_scheme_wants(s) & OSH_STAT_SQUARES) : 0;
}

typedef struct scan { // of one weight under one candidate
    const osh_linear_job *j;
    const osh_q_scheme *s;
    const osh_qparams *params;
    const void *codes;
    const float *cost; // [I]
    uint8_t *decoded;  // own: [threads, I] a row, dtype of w
    float *wide;       // own: [threads, 2, I]
    double *loss;      // own: [O]
} scan;

static osh_status scan_rows(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const scan *s = user;
    const osh_tensor *w = s->j->w;
    int64_t O = w->shape[0], I = w->shape[1];
    size_t bytes = (size_t)I * osh_dtype_bytes(w->dtype);
    uint8_t *decoded = s->decoded + (size_t)worker * bytes;
    float *a = s->wide + (size_t)worker * 2 * (size_t)I, *b = a + I;
    (void)cx;
    for (int64_t o = chunk * ROWS; o < O && o < (chunk + 1) * ROWS; o++) {
        double sum = 0;
        osh_q_decode_rows(decoded, w->dtype, s->codes, s->params, &s->s->weights, O, I, o, 1);
        osh_to_f32(a, decoded, w->dtype, I);
        osh_to_f32(b, (const uint8_t *)w->data + (size_t)o * bytes, w->dtype, I);
        for (int64_t i = 0; i < I; i++) sum += (double)s->cost[i] * ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s->loss[o] = sum;
    }
    return OSH_OK;
}

static osh_status lose(osh_ctx *cx, double *loss, const osh_modifier *m, const osh_linear_job *j,
                       const osh_q_scheme *of, const float *cost)
{
    osh_status rc = OSH_OK;
    osh_qparams params = {.global = j->params.global, .importance = j->params.importance}; // own
    int64_t O = j->w->shape[0], I = j->w->shape[1], n = osh_threads(cx);
    void *codes = NULL; // own
    scan s = {.j = j, .s = of, .params = &params, .cost = cost};
    OSH_TRY(osh_q_weight_params(cx, &params, j->w, &of->weights, m->arithmetic, j->name));
    OSH_NEW(cx, s.loss, O);
    s.decoded = osh_alloc(cx, (size_t)(n * I) * osh_dtype_bytes(j->w->dtype));
    s.wide = osh_alloc(cx, (size_t)(n * 2 * I) * sizeof *s.wide);
    codes = osh_alloc(cx, (size_t)(O * I));
    if (!s.decoded || !s.wide || !codes) OSH_FAIL(cx, OSH_E_NOMEM, "no memory to look at %s", j->name);
    OSH_TRY(osh_q_encode(cx, codes, j->w, &params, &of->weights, m->arithmetic));
    s.codes = codes;
    OSH_TRY(osh_parallel_for(cx, (O + ROWS - 1) / ROWS, scan_rows, &s));
    *loss = 0;
    for (int64_t o = 0; o < O; o++) *loss += s.loss[o] * (j->care ? j->care[o] : 1);
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

static osh_status compress(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n, osh_tensor *h,
                           int64_t n_samples)
{
    osh_status rc = OSH_OK;
    int64_t I = h->shape[0];
    osh_q_scheme s;
    float *cost = NULL; // own
    OSH_NEW(cx, cost, I);
    for (int64_t i = 0; i < I; i++) cost[i] = ((const float *)h->data)[i * (I + 1)];
    for (int k = 0; k < n; k++) {
        osh_linear_job *j = &jobs[k];
        j->objective = j->nearest = -1, j->nmse = 0, j->losses = (osh_losses){0};
        s = *j->scheme, s.weights.bits = OSH_SURVEY_BITS;
        OSH_TRY(lose(cx, &j->losses.all, m, j, &s, cost));
    }
    if (is_gptq(m)) OSH_TRY(osh_gptq_costs(cx, cost, m, jobs, h, n_samples));
    for (int k = 0; k < n; k++) {
        osh_linear_job *j = &jobs[k];
        for (int c = 0; osh_survey_scheme(&s, m, j->scheme, c); c++)
            OSH_TRY(lose(cx, &j->losses.of[j->losses.n++], m, j, &s, cost));
        OSH_TRY(osh_linear_job_done(cx, j));
    }
done:
    osh_free(cx, cost);
    return rc;
}

static size_t needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads, size_t *device)
{
    size_t peak = 0, I = n ? (size_t)jobs->w->shape[1] : 0, cost = osh_mem_gross(I * sizeof(float));
    if (device) *device = 0;
    for (int k = 0; k < n; k++) {
        const osh_linear_job *j = &jobs[k];
        size_t O = (size_t)j->w->shape[0], rows = (size_t)n_threads * I;
        size_t look = osh_mem_gross(O * sizeof(double)) + osh_mem_gross(O * I) +
                      osh_mem_gross(rows * 2 * sizeof(float)) + osh_mem_gross(rows * osh_dtype_bytes(j->w->dtype));
        size_t params = osh_job_params_bytes(j) + osh_job_search_bytes(j), run = look > params ? look : params;
        run += osh_job_result_bytes(j) - osh_mem_gross(O * I); // scales and zero points
        if (run > peak) peak = run;
    }
    size_t factor = is_gptq(m) ? osh_gptq_costs_bytes((int64_t)I, n_threads) : 0;
    return cost + (factor > peak ? factor : peak);
}

static const osh_modifier_type survey = {.name = "survey", .wants = wants, .compress = compress, .needs = needs};

osh_status osh_survey_begin(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < m->n_schemes; i++) {
        const osh_q_args *a = &m->schemes[i].weights;
        if (a->present && a->type != OSH_Q_INT)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: the bits of integer weights can be chosen, and those of %s are none: "
                     "want integers, or no --target-bits and no --target-size", m->type->name,
                     m->schemes[i].group_name);
    }
    m->surveyed = m->type;
    m->type = &survey;
done:
    return rc;
}
