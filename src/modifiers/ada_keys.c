/* ada_keys.c - reads and checks the keys of AdaRoundModifier, AdaQuantModifier and
 * AutoRoundModifier. */
#include "modifiers/ada.h"
#include "math/grid.h"
#include "modifiers/recipe_quant.h"
#include "quant/observer.h"

#include <stdlib.h>
#include <string.h>

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

const osh_field osh_ada_round_fields[] = {
    SHARED("0.1", "1000"),
    {.name = "reg_param", .type = OSH_F_FLOAT, .offset = offsetof(ada, reg_param), .dflt = "0.01",
     .min = 0, .max = 1e6, .doc = "weight of the rounding term in the loss"},
    {0},
};
const osh_field osh_ada_quant_fields[] = {
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
const osh_field osh_ada_auto_fields[] = {
    {.name = "iters", .type = OSH_F_INT, .offset = offsetof(ada, num_iterations), .dflt = "200",
     .min = 0, .max = 1000000, .doc = "number of steps. 0: weights are rounded to nearest"},
    {.name = "enable_minmax_tuning", .type = OSH_F_BOOL, .offset = offsetof(ada, minmax),
     .dflt = "true", .doc = "learns the range of each group, so its scale (integers and NVFP4)"},
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
/* ---- keys ---- */

/* Keys of AMD Quark that this program refuses, each with the reason, which is a part of the error
 * message. */
static const char *const refused[][2] = {
    {"data_size", "a step uses all samples: want --num-calibration-samples"},
    {"dynamic_batch", "a step uses all samples at once: remove the key"},
    {"output_qdq", "quantized outputs are not supported: remove the key"},
    {"output_index", "the compared output is that of a Linear: remove the key"},
    {"target_op_type", "only Linears are quantized: want targets"},
    {"ref_model_path", "the reference is the model itself: remove the key"},
    {"parallel", "use --propagate-error false for inputs without the errors of earlier layers"},
    {"optim_device", "use --device to choose where learning runs"},
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

osh_status osh_ada_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                          bool *known, const char *what)
{
    ada *a = m->args;
    *known = true;
    if (osh_is_adaround(m) && !strcmp(key, "beta_range"))
        return read_pair(cx, a->beta, v, key, 1, what);
    if (!strcmp(key, "lr_adjust") && v->kind == OSH_Y_NULL) return OSH_OK;
    if (!strcmp(key, "lr_adjust")) return read_pair(cx, a->adjust, v, key, 0, what);
    if (!strcmp(key, "mem_opt_level") || !strcmp(key, "fixed_seed")) {
        osh_log(cx, OSH_LOG_INFO, "%s:%d: %s has no effect here: %s", what, v->line, key,
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

osh_status osh_auto_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                           bool *known, const char *what)
{
    static const char *const nothing[][2] = {
        {"enable_torch_compile", "nothing is compiled"},
        {"device_ids", "use --device to choose where learning runs"},
        {"disable_opt_rtn",
         "learning begins with rounding to nearest, which is the result without steps: for "
         "searched ranges, want observer: imatrix_mse"},
    };
    ada *a = m->args;
    char *end = NULL;
    *known = true;
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        if (strcmp(key, nothing[i][0])) continue;
        osh_log(cx, OSH_LOG_INFO, "%s:%d: %s has no effect here: %s", what, v->line, key,
                nothing[i][1]);
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

bool osh_ada_targets_original(const ada *a, bool block)
{
    return a->target ? !strcmp(a->target, "original") : block;
}

int64_t osh_ada_window(const ada *a)
{
    int64_t tenth = a->num_iterations > 10 ? a->num_iterations / 10 : 1;
    return !a->early_stop ? 0 : a->num_batches > 1 ? a->num_batches : tenth;
}

/* Sets a->block, the rules for learning by block. Fails if the recipe requires learning by block
 * and has target 'quantized'. If nothing is learned by block, a->block.steps remains 0. */
static osh_status block_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    ada *a = m->args;
    const char *not = !osh_ada_targets_original(a, true) ? "target: quantized" : NULL;
    a->block.may = strcmp(a->unit, "block") != 0;
    if (!strcmp(a->unit, "linear") || (a->block.may && not)) goto done;
    if (not)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: unit block with %s is not supported: want one of the two",
                 m->type->name, not);
    a->block.steps = a->num_iterations, a->block.period = a->log_period;
    a->block.kind = osh_ada_kind_of(m), a->block.sum = !osh_is_autoround(m);
    a->block.window = osh_ada_window(a), a->block.warm = a->warm_start,
    a->block.selective = a->selective_update;
    a->block.above = a->adjust[0], a->block.rate = a->adjust[1];
    a->block.bias_rate = a->update_bias ? a->bias_learning_rate : 0;
    a->block.share = osh_is_autoround(m) ? 1 : a->drop_ratio;
    if (!a->block.samples) a->block.samples = osh_is_autoround(m) ? 8 : 1;
done:
    return rc;
}

bool osh_ada_is_nearest(const osh_modifier *m)
{
    return ((const ada *)m->args)->num_iterations == 0;
}

osh_status osh_auto_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    ada *a = m->args;
    int bits = 8;
    for (size_t i = 0; i < m->n_schemes; i++) {
        const osh_q_args *q = &m->schemes[i].weights;
        if (!q->present) continue;
        if (q->bits < bits) bits = q->bits;
    }
    if (a->learning_rate <= 0)
        a->learning_rate =
            (a->num_iterations >= 1000 && bits <= 3 ? 2.0 : 1.0) / (double)a->num_iterations;
    if (a->block.samples && !strcmp(a->unit, "linear"))
        osh_log(cx, OSH_LOG_INFO,
                "%s: batch_size %lld has no effect with unit: linear, because each step uses all "
                "samples",
                m->type->name, (long long)a->block.samples);
    OSH_TRY(block_resolve(cx, m));
done:
    return rc;
}

bool osh_ada_learns_range(const osh_modifier *m, const osh_q_args *q)
{
    bool fine = q->type == OSH_Q_INT || (osh_q_is_fp4(q) && q->scale_dtype != OSH_Q_SCALE_E8M0);
    return osh_is_autoround(m) && ((const ada *)m->args)->minmax && fine &&
           q->strategy != OSH_Q_TENSOR && q->strategy != OSH_Q_BLOCK;
}

bool osh_ada_learns_scales(const osh_modifier *m)
{
    const ada *a = m->args;
    if (osh_is_autoround(m)) return a->minmax;
    return !osh_is_adaround(m) && !strcmp(a->mode, "joint") && a->scale_learning_rate > 0;
}

osh_status osh_ada_resolve(osh_ctx *cx, osh_modifier *m)
{
    osh_status rc = OSH_OK;
    ada *a = m->args;
    if (a->beta[0] == 0) a->beta[0] = 20, a->beta[1] = 2;
    if (a->learning_rate <= 0)
        OSH_FAIL(cx, OSH_E_USAGE, "%s.learning_rate is 0: nothing would be learned", m->type->name);
    if (a->drop_ratio != 1 && !osh_ada_targets_original(a, true))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s.drop_ratio is %g, but target: quantized has no values of the original model: "
                 "want target: original, or 1",
                 m->type->name, a->drop_ratio);
    for (size_t i = 0; i < m->n_schemes; i++) {
        const osh_q_args *q = &m->schemes[i].weights;
        if (!q->present) continue;
        if (osh_ada_learns_scales(m) && (q->strategy == OSH_Q_TENSOR || q->strategy == OSH_Q_BLOCK))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s learns scales of rows, and rows of %s share theirs: want strategy group "
                     "or channel, or mode: weights",
                     m->type->name, m->schemes[i].group_name);
        if (osh_ada_learns_scales(m) && q->scale_dtype == OSH_Q_SCALE_E8M0)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s learns scales by small steps, and those of %s are powers of two: want "
                     "another scheme, or mode: weights",
                     m->type->name, m->schemes[i].group_name);
    }
    if (a->block.samples && !strcmp(a->unit, "linear"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "batch_size of %s: with unit: linear, each step uses all samples, from sums over "
                 "them: want no batch_size, or unit: block",
                 m->type->name);
    if (a->update_bias && strcmp(a->unit, "block"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "update_bias of %s: unit: linear keeps sums over the inputs of a Linear, and "
                 "these have no part for a bias: want unit: block",
                 m->type->name);
    OSH_TRY(block_resolve(cx, m));
done:
    return rc;
}
