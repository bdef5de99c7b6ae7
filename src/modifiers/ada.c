/* ada.c - AdaRoundModifier, AdaQuantModifier and AutoRoundModifier: codes are optimized so that the
 * output of a layer stays close to a target (solver/ada.h has the formulas). The arguments are
 * those of AMD Quark's fast fine-tuning and of LLM Compressor.
 *
 * Learning by Linear needs H = X^T X, the statistic of GPTQ, and with target 'original' also (X0 -
 * X)^T X, where X is the input in the quantized model and X0 in the original model. The loss over
 * all inputs is computed from these matrices. So no input is stored, a step uses all samples, and
 * there are no random numbers. Scales and zero points are those of rounding to nearest, unless
 * AdaQuant or AutoRound learns them. */
#include "modifiers/modifier.h"
#include "solver/ada.h"
#include "math/grid.h"
#include "quant/observer.h"
#include "solver/gptq_solve.h"

#include <stdlib.h>
#include <string.h>

typedef struct ada { // arguments of the modifier
    double learning_rate, scale_learning_rate, reg_param, warm_start, drop_ratio;
    int64_t num_iterations, num_batches, log_period;
    bool early_stop, selective_update, update_bias;
    double bias_learning_rate;
    char *target, *mode; // own
    double beta[2];      // the key beta: read by the function ada_key, as is the key lr_adjust,
                         // because the table of fields cannot describe lists
    /* the key lr_adjust: if the error of rounding to nearest exceeds adjust[0], the learning rate
     * is adjust[1]; adjust[1] 0: the key is not given */
    double adjust[2];
    bool minmax;         // for AutoRound: true if the ranges of groups are also learned
    char *unit;          // own: the module whose output error is minimized, "block" or "linear", or
                         // "auto" (block if possible, else linear)
    osh_block_rule block;
} ada;

#define SHARED(rate, steps)                                                                        \
    {.name = "learning_rate",                                                                      \
     .type = OSH_F_FLOAT,                                                                          \
     .offset = offsetof(ada, learning_rate),                                                       \
     .dflt = rate,                                                                                 \
     .min = 0,                                                                                     \
     .max = 10,                                                                                    \
     .doc = "learning rate (Adam) of the real numbers that become codes"},                         \
        {.name = "num_iterations",                                                                 \
         .type = OSH_F_INT,                                                                        \
         .offset = offsetof(ada, num_iterations),                                                  \
         .dflt = steps,                                                                            \
         .min = 1,                                                                                 \
         .max = 1000000,                                                                           \
         .doc = "number of steps"},                                                                \
        {.name = "warm_start",                                                                     \
         .type = OSH_F_FLOAT,                                                                      \
         .offset = offsetof(ada, warm_start),                                                      \
         .dflt = "0.2",                                                                            \
         .min = 0,                                                                                 \
         .max = 1,                                                                                 \
         .doc = "share of first steps without rounding term and early stop"},                      \
        {.name = "drop_ratio",                                                                     \
         .type = OSH_F_FLOAT,                                                                      \
         .offset = offsetof(ada, drop_ratio),                                                      \
         .dflt = "1",                                                                              \
         .min = 0,                                                                                 \
         .max = 1,                                                                                 \
         .doc = "share of input elements taken from the quantized model"},                         \
        {.name = "early_stop",                                                                     \
         .type = OSH_F_BOOL,                                                                       \
         .offset = offsetof(ada, early_stop),                                                      \
         .dflt = "false",                                                                          \
         .doc = "stops when the mean loss of a window of steps no longer falls"},                  \
        {.name = "num_batches",                                                                    \
         .type = OSH_F_INT,                                                                        \
         .offset = offsetof(ada, num_batches),                                                     \
         .dflt = "1",                                                                              \
         .min = 1,                                                                                 \
         .max = 1000000,                                                                           \
         .doc = "steps of the window for early_stop. 1: a tenth of all steps"},                    \
        {.name = "selective_update",                                                               \
         .type = OSH_F_BOOL,                                                                       \
         .offset = offsetof(ada, selective_update),                                                \
         .dflt = "false",                                                                          \
         .doc = "keeps rounding to nearest if learning did not lower the loss"},                   \
        {.name = "log_period",                                                                     \
         .type = OSH_F_INT,                                                                        \
         .offset = offsetof(ada, log_period),                                                      \
         .dflt = "100",                                                                            \
         .min = 1,                                                                                 \
         .max = 1000000,                                                                           \
         .doc = "steps between two losses in the log, at level debug"},                            \
        {.name = "unit",                                                                           \
         .type = OSH_F_STR,                                                                        \
         .offset = offsetof(ada, unit),                                                            \
         .dflt = "linear",                                                                         \
         .values = "auto|block|linear",                                                            \
         .doc = "output that codes learn from, as for AutoRoundModifier"},                         \
        {.name = "batch_size",                                                                     \
         .type = OSH_F_INT,                                                                        \
         .offset = offsetof(ada, block.samples),                                                   \
         .dflt = "0",                                                                              \
         .min = 0,                                                                                 \
         .max = 1000000,                                                                           \
         .doc = "samples of a step, for unit block. 0: 1"},                                        \
    {                                                                                              \
        .name = "target", .type = OSH_F_STR, .offset = offsetof(ada, target), .dflt = "original",  \
        .values = "original|quantized", .doc = "model whose inputs give the target output"         \
    }

static const osh_field round_fields[] = {
    SHARED("0.1", "1000"),
    {.name = "reg_param", .type = OSH_F_FLOAT, .offset = offsetof(ada, reg_param), .dflt = "0.01",
     .min = 0, .max = 1e6, .doc = "weight of the rounding term in the loss"},
    {0},
};
static const osh_field quant_fields[] = {
    SHARED("1e-5", "3000"),
    {.name = "mode", .type = OSH_F_STR, .offset = offsetof(ada, mode), .dflt = "joint",
     .values = "joint|weights", .doc = "learned numbers: weights and scales, or only weights"},
    {.name = "scale_learning_rate", .type = OSH_F_FLOAT,
     .offset = offsetof(ada, scale_learning_rate), .dflt = "1e-3", .min = 0, .max = 1,
     .doc = "learning rate (Adam) of scales, relative to their values"},
    {.name = "update_bias", .type = OSH_F_BOOL, .offset = offsetof(ada, update_bias),
     .dflt = "false", .doc = "learns biases of Linears too, for unit block"},
    {.name = "bias_learning_rate", .type = OSH_F_FLOAT, .offset = offsetof(ada, bias_learning_rate),
     .dflt = "1e-3", .min = 0, .max = 10, .doc = "learning rate (Adam) of biases"},
    {0},
};
static const osh_field auto_fields[] = {
    {.name = "iters", .type = OSH_F_INT, .offset = offsetof(ada, num_iterations), .dflt = "200",
     .min = 0, .max = 1000000, .doc = "number of steps. 0: weights are rounded to nearest"},
    {.name = "enable_minmax_tuning", .type = OSH_F_BOOL, .offset = offsetof(ada, minmax),
     .dflt = "true", .doc = "learns the range of each group, so its scale"},
    {.name = "log_period", .type = OSH_F_INT, .offset = offsetof(ada, log_period), .dflt = "100",
     .min = 1, .max = 1000000, .doc = "steps between two losses in the log, at level debug"},
    {.name = "target", .type = OSH_F_STR, .offset = offsetof(ada, target),
     .values = "original|quantized",
     .doc = "model whose inputs give the target output (default: original for a block, quantized "
            "for a Linear)"},
    {.name = "unit", .type = OSH_F_STR, .offset = offsetof(ada, unit), .dflt = "auto",
     .values = "auto|block|linear",
     .doc = "output that codes learn from: of a decoder layer (block) or of each Linear. auto: "
            "block if possible"},
    {.name = "batch_size", .type = OSH_F_INT, .offset = offsetof(ada, block.samples), .dflt = "0",
     .min = 0, .max = 1000000, .doc = "samples of a step, for unit block. 0: 8"},
    {0},
};
extern const osh_modifier_type osh_modifier_adaround, osh_modifier_adaquant, osh_modifier_autoround;
static bool is_adaround(const osh_modifier *m) { return m->type == &osh_modifier_adaround; }
static bool is_autoround(const osh_modifier *m) { return m->type == &osh_modifier_autoround; }
static osh_ada_kind ada_kind_of(const osh_modifier *m)
{
    return is_autoround(m) ? OSH_ADA_SIGN : is_adaround(m) ? OSH_ADA_ROUND : OSH_ADA_QUANT;
}

/* ---- keys ---- */

/* Keys of AMD Quark that cause an error, each with the reason for the error message. */
static const char *const refused[][2] = {
    {"data_size", "a step uses all samples: want --num-calibration-samples"},
    {"dynamic_batch", "a step uses all samples at once: remove the key"},
    {"output_qdq", "outputs are not quantized by this version: remove the key"},
    {"output_index", "the compared output is that of a Linear: remove the key"},
    {"target_op_type", "only Linears are quantized: want targets"},
    {"ref_model_path", "the reference is the model itself: remove the key"},
    {"parallel", "use --propagate-error false for inputs without the errors of earlier layers"},
    {"optim_device", "learning runs on the CPU: remove the key"},
    {"infer_device", "use --device to choose where the model runs"},
    {"cache_dir", "use --scratch-dir for the directory of temporary files"},
    {"num_workers", "use --num-workers for the threads that read values of the disk tier"},
    {"pin_memory", "use --pin-memory for page-locked memory of values"},
    {"use_gds", "use --use-gds to let the GPU read values of the disk tier"},
    {"select_max_mem_layer", "use --only-largest-layer to run only the largest subgraph"},
};

static osh_status read_pair(osh_ctx *cx, double to[2], const osh_yaml *v, const char *key,
                            double least, const char *what)
{
    for (int k = 0; k < 2; k++) {
        const char *text = v->kind == OSH_Y_SEQ && v->n == 2 ? v->items[k]->text : NULL;
        char *end = NULL;
        double x = text ? strtod(text, &end) : -1;
        if (!text || end == text || *end || !(x >= least && x <= 1e6))
            return osh_fail(cx, OSH_E_USAGE,
                            "%s:%d:%d: %s: want a list of two numbers of at least %g", what,
                            v->line, v->column, key, least);
        to[k] = x;
    }
    return OSH_OK;
}

static osh_status ada_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                          bool *known, const char *what)
{
    ada *a = m->args;
    *known = true;
    if (is_adaround(m) && !strcmp(key, "beta_range"))
        return read_pair(cx, a->beta, v, key, 1, what);
    if (!strcmp(key, "lr_adjust") && v->kind == OSH_Y_NULL) return OSH_OK;
    if (!strcmp(key, "lr_adjust")) return read_pair(cx, a->adjust, v, key, 0, what);
    if (!strcmp(key, "mem_opt_level") || !strcmp(key, "fixed_seed")) {
        osh_log(cx, OSH_LOG_INFO, "%s:%d: %s decides nothing here and is ignored: %s", what,
                v->line, key,
                *key == 'f' ? "random numbers are always the same; for unit block, see --seed"
                            : "no inputs are stored, only sums over them; for values between "
                              "subgraphs, see --mem-opt-level");
        return OSH_OK;
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(key, refused[i][0]))
            return osh_fail(cx, OSH_E_UNSUPPORTED, "%s:%d:%d: %s of %s: %s", what, v->line,
                            v->column, key, m->type->name, refused[i][1]);
    *known = false;
    return OSH_OK;
}

/* Reads the keys of AutoRoundModifier that the table of fields cannot describe. Sets *known to
 * false if `key` is none of them. */
static osh_status auto_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                           bool *known, const char *what)
{
    static const char *const nothing[][2] = {
        {"enable_torch_compile", "nothing is compiled"},
        {"device_ids", "learning runs on the CPU"},
        {"disable_opt_rtn",
         "learning begins with rounding to nearest, which is the result without steps: for "
         "searched ranges, want observer: imatrix_mse"},
    };
    ada *a = m->args;
    char *end = NULL;
    *known = true;
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        if (strcmp(key, nothing[i][0])) continue;
        osh_log(cx, OSH_LOG_INFO, "%s:%d: %s decides nothing here and is ignored: %s", what,
                v->line, key, nothing[i][1]);
        return OSH_OK;
    }
    *known = !strcmp(key, "lr");
    if (!*known || v->kind == OSH_Y_NULL) return OSH_OK;
    a->learning_rate = v->text ? strtod(v->text, &end) : 0;
    if (v->text && end != v->text && !*end && a->learning_rate > 0 && a->learning_rate <= 1)
        return OSH_OK;
    return osh_fail(cx, OSH_E_USAGE,
                    "%s:%d:%d: lr '%s': want a number above 0 and up to 1, or null", what, v->line,
                    v->column, v->text ? v->text : "(a list or map)");
}

static osh_status want_integers(osh_ctx *cx, const osh_modifier *m, const osh_q_scheme *s)
{
    if (s->weights.type == OSH_Q_INT) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s learns codes that are whole numbers, but %s has float codes: want "
                    "integers",
                    m->type->name, s->group_name);
}

static bool targets_original(const ada *a, bool block)
{
    return a->target ? !strcmp(a->target, "original") : block;
}

/* Returns the number of steps over which early_stop averages the loss (osh_ada_rule.window), or 0
 * if learning does not stop early. */
static int64_t window_of(const ada *a)
{
    int64_t tenth = a->num_iterations > 10 ? a->num_iterations / 10 : 1;
    return !a->early_stop ? 0 : a->num_batches > 1 ? a->num_batches : tenth;
}

/* Sets a->block, the rule for learning by block. Fails if the recipe requires learning by block
 * together with target 'quantized'. Without learning by block, a->block.steps remains 0. */
static osh_status block_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    ada *a = m->args;
    const char *not = !targets_original(a, true) ? "target: quantized" : NULL;
    a->block.may = strcmp(a->unit, "block") != 0;
    if (!strcmp(a->unit, "linear") || (a->block.may && not)) goto done;
    if (not)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: unit block with %s is not made by this version: want one of the two",
                 m->type->name, not);
    a->block.steps = a->num_iterations, a->block.period = a->log_period;
    a->block.kind = ada_kind_of(m), a->block.sum = !is_autoround(m);
    a->block.window = window_of(a), a->block.warm = a->warm_start,
    a->block.selective = a->selective_update;
    a->block.above = a->adjust[0], a->block.rate = a->adjust[1];
    a->block.bias_rate = a->update_bias ? a->bias_learning_rate : 0;
    a->block.share = is_autoround(m) ? 1 : a->drop_ratio;
    if (!a->block.samples) a->block.samples = is_autoround(m) ? 8 : 1;
done:
    return rc;
}

static bool ada_is_nearest(const osh_modifier *m)
{
    return ((const ada *)m->args)->num_iterations == 0;
}

static osh_status auto_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    ada *a = m->args;
    int bits = 8;
    for (size_t i = 0; i < m->n_schemes; i++) {
        const osh_q_args *q = &m->schemes[i].weights;
        if (!q->present) continue;
        if (q->bits < bits) bits = q->bits;
        OSH_TRY(want_integers(cx, m, &m->schemes[i]));
    }
    if (a->learning_rate <= 0)
        a->learning_rate =
            (a->num_iterations >= 1000 && bits <= 3 ? 2.0 : 1.0) / (double)a->num_iterations;
    if (a->block.samples && !strcmp(a->unit, "linear"))
        osh_log(cx, OSH_LOG_INFO,
                "%s: batch_size %lld decides nothing with unit: linear, where each step uses all "
                "samples",
                m->type->name, (long long)a->block.samples);
    OSH_TRY(block_resolve(cx, m));
done:
    return rc;
}

/* True if the ranges of groups are learned, which requires that each scale belongs to one row. */
static bool learns_range(const osh_modifier *m, const osh_q_args *q)
{
    return is_autoround(m) && ((const ada *)m->args)->minmax && q->strategy != OSH_Q_TENSOR &&
           q->strategy != OSH_Q_BLOCK;
}

static bool learns_scales(const osh_modifier *m)
{
    const ada *a = m->args;
    if (is_autoround(m)) return a->minmax;
    return !is_adaround(m) && !strcmp(a->mode, "joint") && a->scale_learning_rate > 0;
}

static osh_status ada_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    ada *a = m->args;
    if (a->beta[0] == 0) a->beta[0] = 20, a->beta[1] = 2;
    if (a->learning_rate <= 0)
        OSH_FAIL(cx, OSH_E_USAGE, "%s.learning_rate is 0: nothing would be learned", m->type->name);
    if (a->drop_ratio != 1 && !targets_original(a, true))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s.drop_ratio is %g with target: quantized, which has no values of the original "
                 "model: want target: original, or 1",
                 m->type->name, a->drop_ratio);
    for (size_t i = 0; i < m->n_schemes; i++) {
        const osh_q_args *q = &m->schemes[i].weights;
        if (!q->present) continue;
        OSH_TRY(want_integers(cx, m, &m->schemes[i]));
        if (learns_scales(m) && (q->strategy == OSH_Q_TENSOR || q->strategy == OSH_Q_BLOCK))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s learns scales of rows, and rows of %s share theirs: want strategy group "
                     "or channel, or mode: weights",
                     m->type->name, m->schemes[i].group_name);
    }
    if (a->block.samples && !strcmp(a->unit, "linear"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "batch_size of %s: a step of a Linear takes all samples at once, from sums over "
                 "them: want it left out, or unit: block",
                 m->type->name);
    if (a->update_bias && strcmp(a->unit, "block"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "update_bias of %s: of a Linear alone sums over its inputs are kept, and none has "
                 "a part for a bias: want unit: block",
                 m->type->name);
    OSH_TRY(block_resolve(cx, m));
done:
    return rc;
}

static unsigned ada_wants(const osh_modifier *m, const osh_q_scheme *s)
{
    unsigned w = s->weights.present ? OSH_STAT_HESSIAN : 0;
    if (w && targets_original(m->args, false)) w |= OSH_STAT_SHIFT;
    return w | osh_scheme_wants(s);
}

static unsigned ada_freedom(const osh_modifier *m)
{
    if (is_autoround(m) && !ada_is_nearest(m))
        return OSH_FREE_TARGET | OSH_FREE_SCALES | OSH_FREE_SIGNS;
    return OSH_FREE_TARGET | (learns_scales(m) ? OSH_FREE_SCALES : 0);
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
    return (osh_ada_rule){.kind = ada_kind_of(m), .steps = a->num_iterations,
                          .rate = a->learning_rate,
                          .scale_rate = learns_scales(m) ? a->scale_learning_rate : 0,
                          .reg = a->reg_param, .from = a->beta[0], .to = a->beta[1],
                          .warm = a->warm_start, .window = window_of(a),
                          .selective = a->selective_update};
}

static double sum_of_rows(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* Sets the learning rate to that of lr_adjust if rounding to nearest gives the Linear's output a
 * mean squared error above m->adjust[0]. */
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

/* Sets the losses of the job. With target 'original' a loss is relative to the loss of the
 * unrounded weight, so it may be negative. In this case j->nearest and j->objective become -1
 * (unknown), so that the totals in the report do not include the loss. */
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
    osh_grid grid = osh_grid_of(q->bits, false);
    int64_t O = j->w->shape[0], I = j->w->shape[1], n_scales = osh_tensor_numel(j->params.scale);
    *a = (osh_ada_args){.rule = ada_rule_of(m), .w = j->w,
                        .n_tokens = (double)(j->n_tokens > 0 ? j->n_tokens : 1), .codes = j->codes,
                        .O = O, .I = I, .group = osh_q_scale_cols(q, I),
                        .row_block = osh_q_scale_rows(q, O), .lo = grid.lo, .hi = grid.hi,
                        .dtype = j->params.scale->dtype, .keep_zeros = j->pruned,
                        .period = args->log_period};
    if (is_autoround(m)) a->rule.scale_rate = learns_range(m, q) ? args->learning_rate : 0;
    a->rule.signed_scales = is_autoround(m) && osh_q_may_be_signed(q) && osh_q_observer_is_plain(q);
    OSH_NEW(cx, a->scale, n_scales);
    for (int64_t i = 0; i < n_scales; i++) a->scale[i] = osh_q_scale_value(&j->params, i);
    if (!j->params.zero) goto done;
    OSH_NEW(cx, a->zero, n_scales);
    for (int64_t i = 0; i < n_scales; i++) a->zero[i] = ((const int8_t *)j->params.zero->data)[i];
done:
    return rc;
}

/* Copies the learned scales and zero points to the job's params. */
static void args_take(const osh_ada_args *a, osh_linear_job *j)
{
    int64_t n = osh_tensor_numel(j->params.scale);
    if (a->rule.scale_rate > 0 || a->rule.signed_scales)
        osh_from_f32(j->params.scale->data, a->dtype, a->scale, n);
    for (int64_t i = 0; a->zero && i < n; i++)
        ((int8_t *)j->params.zero->data)[i] = (int8_t)a->zero[i];
}

static const char diverged_text[] =
    "learning diverged: rounded to nearest; want a smaller learning rate";

static osh_status learn_job(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j,
                            const osh_tensor *h)
{
    osh_status rc = OSH_OK;
    osh_ada_args a = {0}; // own: a.scale, a.zero
    double *sums = NULL;  // own: one allocation with a.nearest [O], a.learned [O] and a.curve
    OSH_TRY(args_new(cx, m, j, &a));
    a.h = h->data, a.shift = j->shift ? j->shift->data : NULL;
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

/* Allocates the params and the codes of a job and sets them by rounding to nearest. */
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
    return is_autoround(m) ? 1 : ((const ada *)m->args)->drop_ratio;
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

static osh_status ada_compress(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                               osh_tensor *h, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    (void)n_samples;
    OSH_TRY(osh_gptq_permute(cx, h->data, h->shape[0], NULL));
    for (osh_linear_job *j = jobs; j < jobs + n; j++) {
        OSH_TRY(round_to_nearest(cx, m, j));
        OSH_TRY(learn_job(cx, m, j, h));
        OSH_TRY(osh_job_finish(cx, j, !j->keep_w));
        OSH_TRY(osh_linear_job_done(cx, j));
    }
done:
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
    size_t kept = 0, peak = osh_gptq_permute_bytes(I, n_threads);
    if (device) *device = 0;
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
    return peak;
}

/* Returns the number of operations of all steps. A step takes, for each element of the weight, 2 I
 * operations for the matrix product with H, and 80 for about 20 slower operations. */
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
    .is_nearest = ada_is_nearest, .freedom = ada_freedom, .step = ada_step_name,
};
static const osh_learner ada_learner = {
    .blocks = ada_blocks, .learns = ada_learns, .learned = ada_learned, .share = ada_share,
};
#define ADA(x, called, table, own, keyed)                                                          \
    const osh_modifier_type osh_modifier_##x = {                                                   \
        .name = called, .fields = table, .bytes = sizeof(ada), .key = own##_key, .keys = keyed,    \
        .resolve = own##_resolve, .host_only = true, .solver = &ada_solver,                        \
        .quantizer = &ada_quantizer, .learner = &ada_learner,                                      \
    }
ADA(adaround, "AdaRoundModifier", round_fields, ada, "beta_range, lr_adjust");
ADA(adaquant, "AdaQuantModifier", quant_fields, ada, "lr_adjust");
ADA(autoround, "AutoRoundModifier", auto_fields, auto, "lr");
