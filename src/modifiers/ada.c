/* ada.c - implements AdaRoundModifier, AdaQuantModifier and AutoRoundModifier, which optimize codes
 * so that the output of a layer stays close to a target. solver/ada.h has the formulas. The
 * arguments are those of AMD Quark's fast fine-tuning and of LLM Compressor.
 *
 * X is the input of a Linear in the quantized model, and X0 is the same input in the original
 * model. Learning by Linear needs H = X^T X, the statistic of GPTQ. With target 'original' it also
 * needs (X0 - X)^T X. The loss over all inputs follows from these matrices. So no input is stored,
 * each step uses all samples, and no random numbers are needed. Scales and zero points are those of
 * rounding to nearest, except where AdaQuant or AutoRound learns them. If the passes run on a GPU,
 * the matrices are copied to host memory, and the host learns Linear by Linear. */
#include "modifiers/ada.h"
#include "math/grid.h"
#include "quant/observer.h"
#include "solver/gptq_solve.h"

#include <stdlib.h>
#include <string.h>

static unsigned ada_wants(const osh_modifier *m, const osh_q_scheme *s)
{
    unsigned w = s->weights.present ? OSH_STAT_HESSIAN : 0;
    if (w && osh_ada_targets_original(m->args, false)) w |= OSH_STAT_SHIFT;
    return w | osh_scheme_wants(s);
}

static unsigned ada_freedom(const osh_modifier *m)
{
    if (osh_is_autoround(m) && !osh_ada_is_nearest(m))
        return OSH_FREE_TARGET | OSH_FREE_SCALES | OSH_FREE_SIGNS;
    return OSH_FREE_TARGET | (osh_ada_learns_scales(m) ? OSH_FREE_SCALES : 0);
}

static const char *ada_step_name(const osh_modifier *m, int k)
{
    (void)m;
    return k ? "learned" : "nearest";
}

/* ---- work ---- */

static osh_ada_rule ada_rule_of(const osh_modifier *m)
{
    const ada *a = m->args;
    return (osh_ada_rule){.kind = osh_ada_kind_of(m), .steps = a->num_iterations,
                          .rate = a->learning_rate,
                          .scale_rate = osh_ada_learns_scales(m) ? a->scale_learning_rate : 0,
                          .reg = a->reg_param, .from = a->beta[0], .to = a->beta[1],
                          .warm = a->warm_start, .window = osh_ada_window(a),
                          .selective = a->selective_update};
}

static double sum_of_rows(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* Applies the key lr_adjust. If rounding to nearest gives the output of the Linear a mean squared
 * error above m->adjust[0], sets the learning rate to m->adjust[1]. */
static osh_status adjust_rate(osh_ctx *cx, const ada *m, osh_ada_args *a)
{
    osh_ada_rule rule = a->rule;
    osh_status rc = OSH_OK;
    if (m->adjust[1] <= 0) return rc;
    a->rule.steps = 0;
    if ((rc = osh_ada(cx, a))) return rc;
    a->rule = rule;
    if (sum_of_rows(a->nearest, a->O) / (a->n_tokens * (double)a->O) > m->adjust[0])
        a->rule.rate = m->adjust[1];
    return rc;
}

static void log_curve(osh_ctx *cx, const osh_linear_job *j, const osh_ada_args *a)
{
    int64_t n = osh_ada_points(a->rule.steps, a->period);
    for (int64_t k = 0; k < n; k++)
        osh_log(cx, OSH_LOG_DEBUG, "%s: step %lld: loss %.7g", j->name, (long long)(k * a->period),
                a->curve[k]);
}

/* Sets j->losses. With target 'original' the loss of the unrounded weight is subtracted from each
 * loss, so a loss may be negative. With this target j->nearest and j->objective become -1
 * (unknown), and the totals in the report do not include the job. */
static void report_losses(osh_linear_job *j, const osh_ada_args *a)
{
    j->losses =
        (osh_losses){.n = 2, .of = {sum_of_rows(a->nearest, a->O), sum_of_rows(a->learned, a->O)}};
    j->objective = j->nearest = -1;
    if (!a->shift) j->nearest = j->losses.of[0], j->objective = j->losses.of[1];
}

static void args_free(osh_ctx *cx, osh_ada_args *a)
{
    osh_free(cx, a->scale);
    osh_free(cx, a->zero);
    a->scale = a->zero = NULL;
}

/* Sets *a to the arguments of osh_ada for a job whose params and codes are those of rounding to
 * nearest. The caller must free a->scale and a->zero with args_free. */
static osh_status args_new(osh_ctx *cx, const osh_modifier *m, const osh_linear_job *j,
                           osh_ada_args *a)
{
    osh_status rc = OSH_OK;
    const ada *args = m->args;
    const osh_q_args *q = &j->scheme->weights;
    int64_t O = j->w->shape[0], I = j->w->shape[1], n_scales = osh_tensor_numel(j->params.scale);
    *a = (osh_ada_args){.rule = ada_rule_of(m), .w = j->w,
                        .n_tokens = (double)(j->n_tokens > 0 ? j->n_tokens : 1), .codes = j->codes,
                        .O = O, .I = I, .group = osh_q_scale_cols(q, I),
                        .row_block = osh_q_scale_rows(q, O), .scales = osh_job_scale_rule(j),
                        .keep_zeros = j->pruned,
                        .period = args->log_period};
    if (osh_is_autoround(m))
        a->rule.scale_rate = osh_ada_learns_range(m, q) ? args->learning_rate : 0;
    a->rule.whole_range = osh_q_observer_is_plain(q);
    a->rule.signed_scales =
        osh_is_autoround(m) && osh_q_may_be_signed(q) && osh_q_observer_is_plain(q);
    OSH_NEW(cx, a->scale, n_scales);
    for (int64_t i = 0; i < n_scales; i++) a->scale[i] = osh_q_scale_value(&j->params, i);
    if (!j->params.zero) goto done;
    OSH_NEW(cx, a->zero, n_scales);
    for (int64_t i = 0; i < n_scales; i++) a->zero[i] = ((const int8_t *)j->params.zero->data)[i];
done:
    return rc;
}

/* Copies the learned scales and zero points to j->params. */
static void args_take(const osh_ada_args *a, osh_linear_job *j)
{
    int64_t n = osh_tensor_numel(j->params.scale);
    for (int64_t i = 0; i < n && (a->rule.scale_rate > 0 || a->rule.signed_scales); i++)
        osh_q_scale_put(&j->params, i, a->scale[i]);
    for (int64_t i = 0; a->zero && i < n; i++)
        ((int8_t *)j->params.zero->data)[i] = (int8_t)a->zero[i];
}

static const char diverged_text[] =
    "learning diverged: rounded to nearest; want a smaller learning rate";

static osh_status learn_job(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j,
                            const osh_tensor *h, const osh_tensor *shift)
{
    osh_status rc = OSH_OK;
    osh_ada_args a = {0}; // own: a.scale, a.zero
    double *sums = NULL;  // own: one allocation with a.nearest [O], a.learned [O] and a.curve
    OSH_TRY(args_new(cx, m, j, &a));
    a.h = h->data, a.shift = shift ? shift->data : NULL;
    OSH_NEW(cx, sums, 2 * a.O + osh_ada_points(a.rule.steps, a.period));
    a.nearest = sums, a.learned = sums + a.O, a.curve = sums + 2 * a.O;
    OSH_NEW(cx, a.diverged, a.O);
    OSH_TRY(adjust_rate(cx, m->args, &a));
    OSH_TRY(osh_ada(cx, &a));
    args_take(&a, j);
    log_curve(cx, j, &a);
    report_losses(j, &a);
    for (int64_t r = 0; r < a.O; r++)
        if (a.diverged[r]) j->fallback = diverged_text;
done:
    osh_free(cx, a.diverged);
    args_free(cx, &a);
    osh_free(cx, sums);
    return rc;
}

/* Allocates the params and the codes of a job, and sets them to the result of rounding to
 * nearest. */
static osh_status round_to_nearest(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    const osh_q_args *q = &j->scheme->weights;
    OSH_TRY(osh_q_weight_params(cx, &j->params, j->w, q, m->arithmetic, j->name));
    if (!(j->codes = osh_alloc(cx, (size_t)osh_tensor_numel(j->w))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the codes of %s", j->name);
    OSH_TRY(osh_q_encode(cx, j->codes, j->w, &j->params, q, m->arithmetic));
done:
    return rc;
}

static const osh_block_rule *ada_blocks(const osh_modifier *m)
{
    const osh_block_rule *r = &((const ada *)m->args)->block;
    return r->steps ? r : NULL;
}

static double ada_share(const osh_modifier *m)
{
    return osh_is_autoround(m) ? 1 : ((const ada *)m->args)->drop_ratio;
}

static osh_status ada_learns(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a)
{
    osh_status rc = round_to_nearest(cx, m, j);
    return rc ? rc : args_new(cx, m, j, a);
}

static void ada_learned(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a)
{
    if (a->scale && j->params.scale) args_take(a, j);
    args_free(cx, a);
}

/* If t is on a device, sets *own to a copy in host memory. Otherwise, or if t is NULL, *own does
 * not change. */
static osh_status fetch_matrix(osh_ctx *cx, osh_tensor **own, const osh_tensor *t)
{
    osh_status rc = OSH_OK;
    if (!t || !t->device) goto done;
    OSH_TRY(osh_tensor_new(cx, own, t->dtype, t->ndim, t->shape));
    OSH_TRY(osh_tensor_copy(cx, *own, t));
done:
    return rc;
}

static osh_status ada_compress(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                               osh_tensor *h, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    osh_tensor *host[2] = {NULL, NULL}; // own: copies of h and of the shift, if these are on a GPU
    (void)n_samples;
    OSH_TRY(fetch_matrix(cx, &host[0], h));
    OSH_TRY(fetch_matrix(cx, &host[1], jobs->shift));
    if (host[0]) h = host[0];
    OSH_TRY(osh_gptq_permute(cx, h, NULL));
    for (osh_linear_job *j = jobs; j < jobs + n; j++) {
        OSH_TRY(round_to_nearest(cx, m, j));
        OSH_TRY(learn_job(cx, m, j, h, host[1] ? host[1] : j->shift));
        OSH_TRY(osh_job_finish(cx, j, !j->keep_w));
        OSH_TRY(osh_linear_job_done(cx, j));
    }
done:
    for (int k = 0; k < 2; k++) osh_tensor_free(cx, host[k]);
    if (rc) osh_note(cx, "learning the codes of %s", jobs->name);
    return rc;
}

static size_t ada_larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t ada_needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                        size_t *device)
{
    const ada *args = m->args;
    int64_t I = n ? jobs->w->shape[1] : 0,
            points = osh_ada_points(args->num_iterations, args->log_period);
    size_t kept = 0, peak = osh_gptq_permute_bytes(I, n_threads), copies = 0;
    if (device)
        *device = 0,
        copies = (jobs->shift ? 2 : 1) * osh_tensor_gross((size_t)(I * I) * sizeof(float));
    for (const osh_linear_job *j = jobs; j < jobs + n; j++) {
        const osh_q_args *q = &j->scheme->weights;
        int64_t O = j->w->shape[0];
        size_t result = osh_job_result_bytes(j), scales = osh_job_params_bytes(j);
        size_t learn = osh_mem_gross((size_t)(2 * O + points) * sizeof(double)) +
                       osh_mem_gross((size_t)O * sizeof(bool)) + scales +
                       osh_ada_bytes(O, I, osh_q_scale_cols(q, I), points, n_threads);
        size_t run = ada_larger(ada_larger(learn, scales + osh_job_search_bytes(j)),
                                osh_job_finish_bytes(j, n_threads));
        peak = ada_larger(peak, kept + result + run);
        if (!j->done) kept += result;
    }
    return copies + peak;
}

/* Returns the number of operations of all learning steps. For each element of the weight, a step
 * needs `2 * I` operations for the matrix product with H. It also needs about 20 slower operations,
 * which count as 80. */
static double ada_flops(const osh_modifier *m, int64_t O, int64_t I)
{
    return (double)((const ada *)m->args)->num_iterations * (double)O * (double)I *
           (2 * (double)I + 80);
}

static const osh_solver ada_solver = {
    .wants = ada_wants, .compress = ada_compress, .needs = ada_needs, .flops = ada_flops,
    .propagates = true,
};
static const osh_quantizer ada_quantizer = {
    .is_nearest = osh_ada_is_nearest, .freedom = ada_freedom, .step = ada_step_name,
};
static const osh_learner ada_learner = {
    .blocks = ada_blocks, .learns = ada_learns, .learned = ada_learned, .share = ada_share,
};
#define ADA(x, called, table, own, keyed)                                                          \
    const osh_modifier_type osh_modifier_##x = {                                                   \
        .name = called, .fields = table, .bytes = sizeof(ada), .key = osh_##own##_key,             \
        .keys = keyed, .resolve = osh_##own##_resolve, .solver = &ada_solver,                      \
        .quantizer = &ada_quantizer, .learner = &ada_learner,                                      \
    }
ADA(adaround, "AdaRoundModifier", osh_ada_round_fields, ada, "beta_range, lr_adjust");
ADA(adaquant, "AdaQuantModifier", osh_ada_quant_fields, ada, "lr_adjust");
ADA(autoround, "AutoRoundModifier", osh_ada_auto_fields, auto, "lr");
