/* smoothquant.c - implements SmoothQuantModifier: Xiao et al., "SmoothQuant: Accurate and Efficient
 * Post-Training Quantization for Large Language Models" (arXiv 2211.10438), as in
 * llmcompressor/modifiers/transform/smoothquant/base.py. x is the output of a layer, W are the
 * weights of the Linears that read x, and s is the factor of channel c:
 *
 *   a = max x[c] - min x[c]              over all tokens
 *   w = 2 max |W[., c]|                  over all Linears that read x
 *   s = a^strength / w^(1 - strength)    or a if w is 0; at least 1e-5
 *
 * a = 64, w = 4 and strength 0.5 give s = 4: channel c of the layer's weight is divided by 4, and
 * column c of the Linears is multiplied by 4. The algorithm `log_equalization` (arXiv 2308.15987)
 * uses another factor:
 *
 *   s = a / log2(2 + a)
 *
 * Each step is rounded to the model's dtype. */
#include "base/elementary.h"
#include "modifiers/mappings.h"
#include "modifiers/recipe_quant.h"
#include "ops/kernel.h"

#include <string.h>

static const float least = 1e-5f;
extern const osh_modifier_type osh_modifier_log_equalization;

typedef struct smoothquant {
    double strength;
    char *algorithm;       // own: name of the algorithm; NULL: the default of the modifier
    osh_mapping *mappings; // own
    size_t n;
    /* True if the recipe has the key `mappings`. Then the mappings of the model's graph are not
     * used. */
    bool given;
} smoothquant;

static const osh_field fields[] = {
    {.name = "smoothing_strength", .type = OSH_F_FLOAT, .offset = offsetof(smoothquant, strength),
     .dflt = "0.5", .min = 0, .max = 1,
     .doc = "share of the activations' range that moves to the weights"},
    {.name = "algorithm", .type = OSH_F_STR, .offset = offsetof(smoothquant, algorithm),
     .values = "smoothquant|log_equalization", .doc = "formula for factors"},
    {0},
};

static osh_status smoothquant_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                                  bool *known, const char *what)
{
    osh_status rc = OSH_OK;
    smoothquant *q = m->args;
    *known = true;
    if (!strcmp(key, "mappings")) {
        OSH_TRY(osh_mappings_read(cx, &q->mappings, &q->n, v, what));
        q->given = q->mappings != NULL;
    } else if (!strcmp(key, "ignore")) {
        OSH_TRY(osh_recipe_strs(cx, &m->ignore, v, key, what));
    } else if (!strcmp(key, "num_calibration_steps")) {
        /* the key has no effect, as in LLM Compressor */
        if (v->kind != OSH_Y_NULL)
            osh_log(cx, OSH_LOG_WARN,
                    "%s:%d: num_calibration_steps has no effect: all samples are used; "
                    "--num-calibration-samples sets their number",
                    what, v->line);
    } else if (!strcmp(key, "calibration_function")) {
        if (v->kind != OSH_Y_NULL)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s:%d:%d: calibration_function names a Python function, which cannot be "
                     "called: want null",
                     what, v->line, v->column);
    } else {
        *known = false;
    }
done:
    return rc;
}

static void smoothquant_end(osh_ctx *cx, osh_modifier *m)
{
    smoothquant *q = m->args;
    osh_mappings_free(cx, q->mappings, q->n);
}

static const osh_mapping *smoothquant_mappings(const osh_modifier *m, size_t *n)
{
    const smoothquant *q = m->args;
    *n = q->n;
    return q->given ? q->mappings : NULL;
}

/* Returns x^p with the roundings of torch for a tensor of dtype dt. torch first rounds p to dt. For
 * example, it rounds 0.8 to 0.80078125 if dt is BF16. */
static float power_as_torch(float x, double p, osh_dtype dt)
{
    return x > 0   ? osh_round_to((float)osh_math_pow(x, osh_round_to((float)p, dt)), dt)
           : p > 0 ? 0
                   : 1;
}

static bool uses_log(const osh_modifier *m)
{
    const smoothquant *q = m->args;
    return q->algorithm ? !strcmp(q->algorithm, "log_equalization")
                        : m->type == &osh_modifier_log_equalization;
}

static float factor_smooth(float a, float most, double strength, osh_dtype dt)
{
    float w = osh_round_to(2 * osh_round_to(most, dt), dt);
    return w > 0 ? osh_round_to(
                       power_as_torch(a, strength, dt) / power_as_torch(w, 1 - strength, dt), dt)
                 : a;
}

static float factor_log(float a, osh_dtype dt)
{
    const double ln2 = 0.693147180559945309417;
    return osh_round_to(a / osh_round_to((float)(osh_math_log(osh_round_to(2 + a, dt)) / ln2), dt),
                        dt);
}

static void smoothquant_factors(const osh_modifier *m, float *s, const osh_channels *c)
{
    const smoothquant *q = m->args;
    for (int64_t i = 0; i < c->n; i++) {
        float a = osh_round_to(c->hi[i] - c->lo[i], c->dtype);
        float f = uses_log(m) ? factor_log(a, c->dtype)
                              : factor_smooth(a, c->most[i], q->strength, c->dtype);
        s[i] = f < least ? least : f;
    }
}

static const osh_transform smoothquant_transform = {
    .mappings = smoothquant_mappings, .factors = smoothquant_factors,
};
const osh_modifier_type osh_modifier_smoothquant = {
    .name = "SmoothQuantModifier", .fields = fields, .bytes = sizeof(smoothquant),
    .key = smoothquant_key, .keys = "mappings, ignore", .end = smoothquant_end,
    .transform = &smoothquant_transform,
};
const osh_modifier_type osh_modifier_log_equalization = {
    // the older name of SmoothQuantModifier with algorithm log_equalization
    .name = "LogarithmicEqualizationModifier",
    .fields = fields,
    .bytes = sizeof(smoothquant),
    .key = smoothquant_key,
    .keys = "mappings, ignore",
    .end = smoothquant_end,
    .transform = &smoothquant_transform,
};
