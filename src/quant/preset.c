/* preset.c - defines the table of presets, which are named schemes
 * (compressed_tensors/quantization/quant_scheme.py, PRESET_SCHEMES). A row contains only
 * quantization arguments. The targets come from the recipe, and osh_format_infer chooses the
 * storage format. */
#include "quant/scheme.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/foreign.h"
#include "base/near.h"

#define INT_GROUP(b)                                                                               \
    {                                                                                              \
        .present = true, .bits = b, .type = OSH_Q_INT, .strategy = OSH_Q_GROUP, .group_size = 128, \
        .symmetric = true                                                                          \
    }
#define INT_TOKEN(b)                                                                               \
    {                                                                                              \
        .present = true, .bits = b, .type = OSH_Q_INT, .strategy = OSH_Q_TOKEN, .symmetric = true, \
        .dynamic = OSH_Q_DYNAMIC                                                                   \
    }
#define FP8_OF(...)                                                                                \
    {                                                                                              \
        .present = true, .bits = 8, .type = OSH_Q_FLOAT, .symmetric = true, __VA_ARGS__            \
    }

#define NVFP4_OF(...)                                                                              \
    {                                                                                              \
        .present = true, .bits = 4, .type = OSH_Q_FLOAT, .strategy = OSH_Q_TENSOR_GROUP,           \
        .group_size = 16, .symmetric = true, .scale_dtype = OSH_Q_SCALE_E4M3, __VA_ARGS__          \
    }
#define MX_OF(b, ...)                                                                              \
    {                                                                                              \
        .present = true, .bits = b, .type = OSH_Q_FLOAT, .strategy = OSH_Q_GROUP,                  \
        .group_size = 32, .symmetric = true, .scale_dtype = OSH_Q_SCALE_E8M0, __VA_ARGS__          \
    }

typedef struct preset {
    const char *name;
    osh_q_args weights, inputs;
} preset;

static const preset presets[] = {
    {"W4A16", INT_GROUP(4), {0}},
    {"W4A16_ASYM",
     {.present = true, .bits = 4, .type = OSH_Q_INT, .strategy = OSH_Q_GROUP, .group_size = 128},
     {0}},
    {"W8A16", INT_GROUP(8), {0}},
    {"W8A8",
     {.present = true, .bits = 8, .type = OSH_Q_INT, .strategy = OSH_Q_CHANNEL, .symmetric = true},
     INT_TOKEN(8)},
    {"INT8",
     {.present = true, .bits = 8, .type = OSH_Q_INT, .strategy = OSH_Q_CHANNEL, .symmetric = true},
     INT_TOKEN(8)},
    {"FP8", FP8_OF(.strategy = OSH_Q_TENSOR),
     FP8_OF(.strategy = OSH_Q_TENSOR, .observer = "static_minmax")},
    {"FP8_DYNAMIC", FP8_OF(.strategy = OSH_Q_CHANNEL),
     FP8_OF(.strategy = OSH_Q_TOKEN, .dynamic = OSH_Q_DYNAMIC)},
    {"FP8_BLOCK", FP8_OF(.strategy = OSH_Q_BLOCK, .block = {128, 128}),
     FP8_OF(.strategy = OSH_Q_GROUP, .group_size = 128, .dynamic = OSH_Q_DYNAMIC)},
    {"W4AFP8", INT_GROUP(4), FP8_OF(.strategy = OSH_Q_TOKEN, .dynamic = OSH_Q_DYNAMIC)},
    {"W2A16", INT_GROUP(2), {0}},
    {"W3A16", INT_GROUP(3), {0}},
    {"W5A16", INT_GROUP(5), {0}},
    {"W6A16", INT_GROUP(6), {0}},
    {"W7A16", INT_GROUP(7), {0}},
    {"W2A8", INT_GROUP(2), INT_TOKEN(8)},
    {"W3A8", INT_GROUP(3), INT_TOKEN(8)},
    {"W4A8", INT_GROUP(4), INT_TOKEN(8)},
    {"W5A8", INT_GROUP(5), INT_TOKEN(8)},
    {"W6A8", INT_GROUP(6), INT_TOKEN(8)},
    {"W7A8", INT_GROUP(7), INT_TOKEN(8)},
    {"W2A4", INT_GROUP(2), INT_TOKEN(4)},
    {"W3A4", INT_GROUP(3), INT_TOKEN(4)},
    {"W4A4", INT_GROUP(4), INT_TOKEN(4)},
    {"NVFP4A16", NVFP4_OF(.dynamic = OSH_Q_STATIC), {0}},
    {"NVFP4", NVFP4_OF(.dynamic = OSH_Q_STATIC),
     NVFP4_OF(.dynamic = OSH_Q_LOCAL, .observer = "static_minmax")},
    {"MXFP4A16", MX_OF(4, .dynamic = OSH_Q_STATIC), {0}},
    {"MXFP4", MX_OF(4, .dynamic = OSH_Q_STATIC), MX_OF(4, .dynamic = OSH_Q_DYNAMIC)},
    {"MXFP8A16", MX_OF(8, .dynamic = OSH_Q_STATIC), {0}},
    {"MXFP8", MX_OF(8, .dynamic = OSH_Q_STATIC), MX_OF(8, .dynamic = OSH_Q_DYNAMIC)},
    {"MXFP4XFP8", MX_OF(4, .dynamic = OSH_Q_STATIC),
     FP8_OF(.strategy = OSH_Q_GROUP, .group_size = 128, .dynamic = OSH_Q_DYNAMIC)},
    {"MXFP6A16", MX_OF(6, .dynamic = OSH_Q_STATIC), {0}},
    {"MXFP6A8", MX_OF(6, .dynamic = OSH_Q_STATIC), MX_OF(8, .dynamic = OSH_Q_DYNAMIC)},
    {"UNQUANTIZED", {0}, {0}},
};
static const char known[] = "W4A16, W4A16_ASYM, W8A16, W8A8 (INT8), FP8, FP8_DYNAMIC, FP8_BLOCK, "
                            "W4AFP8, W{2..7}A16, W{2..7}A8, W{2..4}A4, NVFP4, NVFP4A16, "
                            "MXFP4, MXFP4A16, MXFP4XFP8, MXFP6A8, MXFP6A16, MXFP8, MXFP8A16";

const char *osh_q_preset_name(size_t i)
{
    return i < sizeof presets / sizeof *presets ? presets[i].name : NULL;
}

osh_status osh_q_preset(osh_ctx *cx, osh_q_scheme *out, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcasecmp(name, presets[i].name)) continue;
        out->weights = presets[i].weights;
        out->inputs = presets[i].inputs;
        memset(&out->outputs, 0, sizeof out->outputs);
        return OSH_OK;
    }
    osh_near near;
    const char *foreign = osh_foreign(OSH_FOREIGN_SCHEME, name);
    if (foreign) return osh_fail(cx, OSH_E_USAGE, "unknown scheme '%s': %s", name, foreign);
    osh_near_init(&near, name);
    for (size_t i = 0; osh_q_preset_name(i); i++) osh_near_see(&near, osh_q_preset_name(i));
    return osh_fail(cx, OSH_E_USAGE, "unknown scheme '%s', want one of %s%s", name, known,
                    osh_near_hint(&near, ""));
}

osh_status osh_q_args_tell(osh_ctx *cx, osh_buf *b, const char *of, const osh_q_args *a)
{
    static const char *const shares[] = {"tensor", "row",   "group", "block",
                                         "token",  "group", "head"};
    osh_status rc = OSH_OK;
    if (!a->present) goto done;
    OSH_TRY(osh_buf_printf(cx, b, "%s %d-bit %s, a scale for each %s", of, a->bits,
                           a->type == OSH_Q_FLOAT ? "float" : "integer", shares[a->strategy]));
    if (osh_q_in_groups(a)) OSH_TRY(osh_buf_printf(cx, b, " of %lld", (long long)a->group_size));
    if (a->strategy == OSH_Q_BLOCK)
        OSH_TRY(
            osh_buf_printf(cx, b, " of %lldx%lld", (long long)a->block[0], (long long)a->block[1]));
    if (!a->symmetric) OSH_TRY(osh_buf_printf(cx, b, " and a zero point"));
done:
    return rc;
}

static bool args_are_alike(const osh_q_args *a, const osh_q_args *b)
{
    if (!a->present || !b->present) return a->present == b->present;
    bool sized = a->type == OSH_Q_INT && a->strategy == OSH_Q_GROUP;
    return a->bits == b->bits && a->type == b->type && a->strategy == b->strategy &&
           a->symmetric == b->symmetric && a->dynamic == b->dynamic &&
           a->scale_dtype == b->scale_dtype && (sized || a->group_size == b->group_size) &&
           a->block[0] == b->block[0] && a->block[1] == b->block[1];
}

void osh_q_name(char to[OSH_Q_NAME], const osh_q_scheme *s, const char *prefer)
{
    const osh_q_args *w = &s->weights, *in = &s->inputs;
    const preset *found = NULL;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const preset *p = &presets[i];
        bool preferred = prefer && !strcasecmp(prefer, p->name);
        if (!args_are_alike(&p->weights, w) || !args_are_alike(&p->inputs, in)) continue;
        if (!found || preferred) found = p;
    }
    if (found) {
        snprintf(to, OSH_Q_NAME, "%s", found->name);
        return;
    }
    snprintf(to, OSH_Q_NAME, "W%s%dA%s%d%s", w->type == OSH_Q_FLOAT ? "FP" : "", w->bits,
             in->present && in->type == OSH_Q_FLOAT ? "FP" : "", in->present ? in->bits : 16,
             w->symmetric ? "" : "_ASYM");
}
