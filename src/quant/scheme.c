/* scheme.c - sets and checks the members of QuantizationArgs and QuantizationScheme. Rules and
 * defaults are those of compressed_tensors/quantization/quant_args.py, quant_scheme.py and
 * quant_config.py. A value that compressed-tensors refuses is the error OSH_E_USAGE. A value that
 * only this program does not support is the error OSH_E_UNSUPPORTED. */
#include "quant/scheme_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "quant/format.h"
#include "quant/observer.h"

void osh_q_args_init(osh_q_args *a)
{
    *a = (osh_q_args){.present = true,
                      .bits = 8,
                      .type = OSH_Q_INT,
                      .strategy = OSH_Q_STRATEGY_NONE,
                      .symmetric = true};
}

static osh_status set_int(osh_ctx *cx, int64_t *out, const char *text, int64_t min,
                          const char *where, const char *key)
{
    char *end;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || v < min || v > 1 << 24)
        return osh_fail(cx, OSH_E_USAGE, "%s: %s is '%s', want a whole number from %lld to %d",
                        where, key, text, (long long)min, 1 << 24);
    *out = v;
    return OSH_OK;
}

static osh_status set_bool(osh_ctx *cx, bool *out, const char *text, const char *where,
                           const char *key)
{
    *out = !strcasecmp(text, "true");
    if (*out || !strcasecmp(text, "false")) return OSH_OK;
    return osh_fail(cx, OSH_E_USAGE, "%s: %s is '%s', want true or false", where, key, text);
}

static osh_status set_num_bits(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    int64_t v = 0;
    osh_status rc = text ? set_int(cx, &v, text, 1, where, "num_bits")
                         : osh_fail(cx, OSH_E_USAGE, "%s: num_bits is null", where);
    if (!rc) a->bits = (int)v;
    return rc;
}

static osh_status set_type(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    if (text && !strcasecmp(text, "int"))
        a->type = OSH_Q_INT;
    else if (text && !strcasecmp(text, "float"))
        a->type = OSH_Q_FLOAT;
    else
        return osh_fail(cx, OSH_E_USAGE, "%s: type is '%s', want int or float", where,
                        text ? text : "null");
    return OSH_OK;
}

static osh_status set_symmetric(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    return set_bool(cx, &a->symmetric, text ? text : "null", where, "symmetric");
}

static osh_status set_strategy(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    static const char *const names[] = {"tensor", "channel",      "group",    "block",
                                        "token",  "tensor_group", "attn_head"};
    a->strategy = OSH_Q_STRATEGY_NONE;
    if (!text) return OSH_OK;
    for (int i = 0; i < OSH_Q_STRATEGY_NONE; i++)
        if (!strcasecmp(text, names[i])) {
            a->strategy = (osh_q_strategy)i;
            return OSH_OK;
        }
    return osh_fail(cx, OSH_E_USAGE,
                    "%s: strategy is '%s', want tensor, channel, group, block, token, tensor_group "
                    "or attn_head",
                    where, text);
}

static osh_status set_group_size(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    a->group_size = 0;
    if (!text) return OSH_OK;
    osh_status rc = set_int(cx, &a->group_size, text, -1, where, "group_size");
    if (!rc && !a->group_size)
        rc = osh_fail(cx, OSH_E_USAGE,
                      "%s: group_size is 0, want a positive number, -1 (channel) or null", where);
    return rc;
}

static osh_status set_block(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    int n = 0;
    long rows = 0, cols = 0;
    a->block[0] = a->block[1] = 0;
    if (!text) return OSH_OK;
    if (sscanf(text, "%ldx%ld%n", &rows, &cols, &n) != 2 || text[n] || rows < 1 || cols < 1 ||
        rows > 1 << 24 || cols > 1 << 24)
        return osh_fail(cx, OSH_E_USAGE,
                        "%s: block_structure is '%s', want two positive numbers [rows, columns]",
                        where, text);
    a->block[0] = rows, a->block[1] = cols;
    return OSH_OK;
}

static osh_status set_dynamic(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    bool b = false;
    if (text && !strcasecmp(text, "local")) {
        a->dynamic = OSH_Q_LOCAL;
        return OSH_OK;
    }
    osh_status rc = set_bool(cx, &b, text ? text : "null", where, "dynamic");
    a->dynamic = b ? OSH_Q_DYNAMIC : OSH_Q_STATIC;
    return rc;
}

static osh_status set_actorder(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    if (!text || !strcasecmp(text, "false"))
        a->actorder = OSH_ACTORDER_UNSET;
    else if (!strcmp(text, "static"))
        a->actorder = OSH_ACTORDER_STATIC;
    else if (!strcmp(text, "weight"))
        a->actorder = OSH_ACTORDER_WEIGHT;
    else if (!strcasecmp(text, "group") || !strcasecmp(text, "dynamic") ||
             !strcasecmp(text, "true"))
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "%s: actorder: %s regroups columns and needs a stored weight_g_idx, which "
                        "compressed-tensors 0.19 and vLLM "
                        "refuse; want static, weight or null",
                        where, text);
    else
        return osh_fail(cx, OSH_E_USAGE, "%s: actorder is '%s', want static, weight or null", where,
                        text);
    return OSH_OK;
}

static osh_status set_scale_dtype(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    osh_dtype dt = text ? osh_dtype_of_name(text) : OSH_DTYPE_NONE;
    a->scale_dtype = dt == OSH_FP8  ? OSH_Q_SCALE_E4M3
                     : dt == OSH_U8 ? OSH_Q_SCALE_E8M0
                                    : OSH_Q_SCALE_PLAIN;
    if (!text || a->scale_dtype != OSH_Q_SCALE_PLAIN) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s: scale_dtype %s is not supported, want torch.float8_e4m3fn (NVFP4), "
                    "torch.uint8 (MX) or null",
                    where, text);
}

static osh_status set_zp_dtype(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    if (text && strlen(text) >= sizeof a->zp_dtype)
        return osh_fail(cx, OSH_E_USAGE, "%s: zp_dtype is '%s', want torch.int8", where, text);
    snprintf(a->zp_dtype, sizeof a->zp_dtype, "%s%s",
             text && strncmp(text, "torch.", 6) ? "torch." : "", text ? text : "");
    return OSH_OK;
}

/* Sets the observer by its name. The case of the letters is ignored, as in LLM Compressor. */
static osh_status args_set_observer(osh_ctx *cx, osh_q_args *a, const char *text, const char *where)
{
    if (text && strlen(text) >= sizeof a->observer)
        return osh_fail(cx, OSH_E_USAGE, "%s: unknown observer '%s'", where, text);
    snprintf(a->observer, sizeof a->observer, "%s", text ? text : "");
    for (char *c = a->observer; *c; c++) *c = (char)tolower((unsigned char)*c);
    return OSH_OK;
}

/* Accepts only the texts null and {} (an empty map) as observer_kwargs. The items of other maps are
 * set one by one with osh_q_observer_kwarg. */
static osh_status set_observer_kwargs(osh_ctx *cx, osh_q_args *a, const char *text,
                                      const char *where)
{
    if (!text || !*text || !strcmp(text, "{}")) return OSH_OK;
    return osh_fail(cx, OSH_E_USAGE, "%s: observer_kwargs is '%s', want a map", where, text);
}

static const struct {
    const char *key;
    osh_status (*set)(osh_ctx *, osh_q_args *, const char *, const char *);
} setters[] = {
    {"num_bits", set_num_bits},       {"type", set_type},
    {"symmetric", set_symmetric},     {"strategy", set_strategy},
    {"group_size", set_group_size},   {"block_structure", set_block},
    {"dynamic", set_dynamic},         {"actorder", set_actorder},
    {"scale_dtype", set_scale_dtype}, {"zp_dtype", set_zp_dtype},
    {"observer", args_set_observer},  {"observer_kwargs", set_observer_kwargs},
};

osh_status osh_q_args_set(osh_ctx *cx, osh_q_args *a, const char *key, const char *text,
                          const char *where)
{
    const size_t n = sizeof setters / sizeof setters[0];
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, setters[i].key)) return setters[i].set(cx, a, text, where);
    osh_buf known;
    osh_buf_init(&known, 1024);
    for (size_t i = 0; i < n; i++)
        osh_buf_printf(cx, &known, "%s%s", i ? ", " : "", setters[i].key);
    osh_status rc = osh_fail(cx, OSH_E_USAGE, "%s: unknown key '%s', want %s", where, key,
                             known.data ? known.data : "");
    osh_buf_deinit(cx, &known);
    return rc;
}

/* Checks the strategy, and the other arguments that it needs. If no strategy is set, derives the
 * strategy from the other arguments. */
static osh_status check_strategy(osh_ctx *cx, osh_q_args *a, const char *where, bool is_weight)
{
    osh_status rc = OSH_OK;
    bool dynamic = a->dynamic == OSH_Q_DYNAMIC;

    if (a->strategy == OSH_Q_STRATEGY_NONE)
        a->strategy = a->group_size > 0   ? OSH_Q_GROUP
                      : a->group_size < 0 ? OSH_Q_CHANNEL
                                          : OSH_Q_TENSOR;
    if (osh_q_in_groups(a) && a->group_size <= 0)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: strategy %s without a positive group_size", where,
                 a->strategy == OSH_Q_GROUP ? "group" : "tensor_group");
    if (!osh_q_in_groups(a) && a->group_size > 0)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: group_size %lld needs strategy group", where,
                 (long long)a->group_size);
    if ((a->strategy == OSH_Q_BLOCK) != (a->block[0] > 0))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: strategy block and block_structure go together, found only %s", where,
                 a->block[0] ? "block_structure" : "the strategy");
    if (is_weight) {
        if (a->strategy == OSH_Q_TOKEN)
            OSH_FAIL(cx, OSH_E_USAGE, "%s: strategy token is for activations", where);
        if (a->strategy == OSH_Q_ATTN_HEAD)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s: strategy attn_head is for the inputs of attention, not for weights",
                     where);
        if (a->dynamic != OSH_Q_STATIC)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: dynamic weights are not supported, want dynamic: false", where);
        goto done;
    }
    if (a->strategy == OSH_Q_CHANNEL || a->strategy == OSH_Q_BLOCK)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: strategy %s is for weights, want tensor, token or group",
                 where, a->strategy == OSH_Q_CHANNEL ? "channel" : "block");
    if (a->strategy == OSH_Q_TOKEN && !dynamic)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: strategy token needs dynamic: true", where);
    if (a->strategy == OSH_Q_ATTN_HEAD && a->dynamic != OSH_Q_STATIC)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: strategy attn_head needs dynamic: false", where);
    if (a->strategy == OSH_Q_TENSOR_GROUP && a->dynamic != OSH_Q_LOCAL)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: strategy tensor_group of activations wants dynamic: local", where);
    if (a->dynamic == OSH_Q_LOCAL && a->strategy != OSH_Q_TENSOR_GROUP)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: dynamic: local needs strategy tensor_group", where);
    if (a->strategy == OSH_Q_GROUP && !dynamic)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: static activations in groups are not supported, want dynamic: true", where);
    if (a->actorder) OSH_FAIL(cx, OSH_E_USAGE, "%s: actorder is for weights", where);
done:
    return rc;
}

/* Checks scale_dtype. Only two families of schemes set it: NVFP4 has FP8 scales relative to a
 * global scale, and MX has scales that are powers of two. */
static osh_status check_scale_dtype(osh_ctx *cx, const osh_q_args *a, const char *where)
{
    osh_status rc = OSH_OK;
    bool relative = a->strategy == OSH_Q_TENSOR_GROUP, power = a->scale_dtype == OSH_Q_SCALE_E8M0;
    if (relative && (!osh_q_is_fp4(a) || a->group_size != 16 || a->scale_dtype != OSH_Q_SCALE_E4M3))
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "%s: strategy tensor_group wants type float, 4 bits, group_size 16 and scale_dtype "
            "torch.float8_e4m3fn, as NVFP4 has them",
            where);
    if (a->scale_dtype == OSH_Q_SCALE_E4M3 && !relative)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: scale_dtype torch.float8_e4m3fn wants strategy tensor_group (NVFP4)", where);
    if (power && (a->type != OSH_Q_FLOAT || a->strategy != OSH_Q_GROUP || a->group_size != 32))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: scale_dtype torch.uint8 wants type float, strategy group and group_size 32 "
                 "(MXFP4, MXFP6, MXFP8)",
                 where);
    if (osh_q_is_fp4(a) && !relative && !power)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: 4-bit float wants strategy tensor_group with groups of 16 (NVFP4), or groups "
                 "of 32 with scale_dtype torch.uint8 (MXFP4)",
                 where);
    if (osh_q_is_fp6(a) && !power)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: 6-bit float wants groups of 32 with scale_dtype torch.uint8 (MXFP6)", where);
done:
    return rc;
}

/* Checks all arguments except the observer, which has no effect in a finished checkpoint. */
static osh_status check_values(osh_ctx *cx, osh_q_args *a, const char *where, bool is_weight)
{
    osh_status rc = OSH_OK;

    if (a->type == OSH_Q_FLOAT && a->bits != 8 && a->bits != 6 && a->bits != 4)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: float of %d bits, want 8, 6 or 4", where, a->bits);
    if (a->type == OSH_Q_INT && (a->bits < 2 || a->bits > 8))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: int of %d bits, want 2 to 8", where, a->bits);
    if (a->type == OSH_Q_FLOAT && !a->symmetric)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: asymmetric float is not supported, want symmetric: true", where);
    OSH_TRY(check_strategy(cx, a, where, is_weight));
    if (!is_weight && a->strategy == OSH_Q_TENSOR_GROUP && a->scale_dtype == OSH_Q_SCALE_PLAIN)
        // NVFP4 gets E4M3 if the recipe omits scale_dtype, as in LLM Compressor. The kernels for
        // NVFP4 support only E4M3.
        a->scale_dtype = OSH_Q_SCALE_E4M3;
    OSH_TRY(check_scale_dtype(cx, a, where));
    if (a->symmetric)
        a->zp_dtype[0] = '\0';
    else if (!a->zp_dtype[0])
        snprintf(a->zp_dtype, sizeof a->zp_dtype, "torch.int8");
    else if (strcmp(a->zp_dtype, "torch.int8"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: zp_dtype %s is not supported, want torch.int8", where,
                 a->zp_dtype);
done:
    return rc;
}

osh_status osh_q_args_check(osh_ctx *cx, osh_q_args *a, const char *where, bool is_weight)
{
    osh_status rc = OSH_OK;
    if (!a->present) return OSH_OK;

    OSH_TRY(check_values(cx, a, where, is_weight));
    osh_q_observer_default(a, is_weight);
    if (a->observer[0]) OSH_TRY(osh_q_observer_known(cx, a->observer, where));
done:
    return rc;
}

static osh_status check_scheme(osh_ctx *cx, osh_q_scheme *s, const char *where,
                               osh_status (*check)(osh_ctx *, osh_q_args *, const char *, bool))
{
    osh_status rc = OSH_OK;
    const osh_format *f = NULL; // storage format; view of an entry of osh_formats
    struct {
        osh_q_args *args;
        const char *key;
    } parts[] = {{&s->weights, "weights"},
                 {&s->inputs, "input_activations"},
                 {&s->outputs, "output_activations"}};

    for (int i = 0; i < 3; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s.%s", where, parts[i].key);
        if (parts[i].args->present) OSH_TRY(check(cx, parts[i].args, name, i == 0));
    }
    if (s->outputs.present && !s->weights.present)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: output_activations without weights are not supported",
                 where);
    if (s->outputs.present &&
        (s->outputs.dynamic == OSH_Q_LOCAL || s->outputs.strategy == OSH_Q_ATTN_HEAD))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: output_activations %s are not supported, and LLM Compressor does not "
                 "calibrate them: want dynamic: false with strategy tensor, or dynamic: true",
                 where, s->outputs.dynamic == OSH_Q_LOCAL ? "with dynamic: local" : "by head");
    if (osh_q_of_attention(s)) OSH_TRY(osh_q_cache_check(cx, &s->inputs, where));
    if (s->inputs.strategy == OSH_Q_ATTN_HEAD && s->weights.present)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "%s: input_activations of a Linear have no heads: want another strategy than attn_head",
            where);
    if (s->weights.present) OSH_TRY(osh_format_infer(cx, &f, s, where));
done:
    return rc;
}

osh_status osh_q_scheme_check(osh_ctx *cx, osh_q_scheme *s, const char *where)
{
    return check_scheme(cx, s, where, osh_q_args_check);
}

osh_status osh_q_scheme_check_stored(osh_ctx *cx, osh_q_scheme *s, const char *where)
{
    return check_scheme(cx, s, where, check_values);
}

void osh_q_scheme_deinit(osh_ctx *cx, osh_q_scheme *s)
{
    if (!s) return;
    osh_free(cx, s->group_name);
    for (size_t i = 0; i < s->targets.n; i++) osh_free(cx, s->targets.items[i]);
    osh_free(cx, s->targets.items);
    memset(s, 0, sizeof *s);
}

osh_status osh_q_cache_check(osh_ctx *cx, osh_q_args *a, const char *where)
{
    osh_status rc = OSH_OK;
    if (!a->present) goto done;
    if (a->strategy == OSH_Q_STRATEGY_NONE) a->strategy = OSH_Q_TENSOR;
    if ((a->strategy != OSH_Q_TENSOR && a->strategy != OSH_Q_ATTN_HEAD) || a->group_size > 0)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: keys and values are quantized by strategy tensor or attn_head: want one of "
                 "these",
                 where);
    if (a->bits != 8)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: a cache of %d bits: want 8", where, a->bits);
    if (a->dynamic != OSH_Q_STATIC)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: a cache that is dynamic has no scales to store: want dynamic false", where);
done:
    return rc;
}
