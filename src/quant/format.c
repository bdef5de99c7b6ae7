/* format.c - chooses the storage format of a scheme (compressed_tensors/compressors/format.py), and
 * contains functions that all formats use. */
#include "quant/format.h"
#include "quant/formats/common.h"

#include <stdio.h>
#include <string.h>

#include "base/name.h"

#define OSH_FORMAT(n) extern const osh_format osh_format_##n;
#include "quant/formats.def"
#undef OSH_FORMAT

const osh_format *const osh_formats[] = {
#define OSH_FORMAT(n) &osh_format_##n,
#include "quant/formats.def"
#undef OSH_FORMAT
    NULL,
};

const osh_format *osh_format_find(const char *name)
{
    for (int i = 0; osh_formats[i]; i++)
        if (!strcmp(name, osh_formats[i]->name)) return osh_formats[i];
    return NULL;
}

osh_status osh_format_infer(osh_ctx *cx, const osh_format **out, const osh_q_scheme *s,
                            const char *what)
{
    osh_status rc = OSH_OK;
    bool is_int = s->weights.type == OSH_Q_INT;
    const char *name = is_int ? (s->inputs.present ? "int-quantized" : "pack-quantized")
                              : (s->inputs.present ? "float-quantized" : "naive-quantized");
    const char *only = s->weights.strategy == OSH_Q_TENSOR_GROUP       ? "nvfp4-pack-quantized"
                       : s->weights.scale_dtype != OSH_Q_SCALE_E8M0    ? NULL
                       : osh_q_is_fp4(&s->weights)                     ? "mxfp4-pack-quantized"
                       : osh_q_is_fp6(&s->weights)                     ? "mxfp6-pack-quantized"
                                                                       : "mxfp8-quantized";
    if (only) name = only;

    if (!s->weights.present)
        OSH_FAIL(cx, OSH_E_USAGE, "%s: no weights, so no storage format", what);
    if (s->format[0]) name = s->format;
    *out = osh_format_find(name);
    if (!*out)
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "%s: format %s is not supported, want pack-quantized, int-quantized, float-quantized, "
            "naive-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized, mxfp6-pack-quantized or "
            "mxfp8-quantized",
            what, name);
    if (only && strcmp(name, only))
        OSH_FAIL(cx, OSH_E_USAGE, "%s: format %s cannot hold these weights, want %s", what, name,
                 only);
    if (!only && (!strncmp(name, "nvfp4", 5) || !strncmp(name, "mxfp", 4)))
        OSH_FAIL(cx, OSH_E_USAGE, "%s: format %s wants weights of %s", what, name,
                 *name == 'n'
                     ? "type float, 4 bits, strategy tensor_group, group_size 16, scale_dtype "
                       "torch.float8_e4m3fn"
                     : "type float, strategy group, group_size 32, scale_dtype torch.uint8");
    if (!is_int && (!strcmp(name, "pack-quantized") || !strcmp(name, "int-quantized")))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: format %s cannot hold float weights, want float-quantized or naive-quantized",
                 what, name);
    if (is_int && !strcmp(name, "float-quantized"))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: format float-quantized cannot hold integer weights, want pack-quantized or "
                 "int-quantized",
                 what);
done:
    return rc;
}

static const osh_q_shape one = {1, {1, 0}};

void osh_format_add(osh_format_tensor *out, int *n, const char *leaf, osh_dtype dtype,
                    const osh_q_shape *shape)
{
    out[(*n)++] = (osh_format_tensor){leaf, dtype, shape->ndim, {shape->dim[0], shape->dim[1]}};
}

void osh_format_add_input(osh_format_tensor *out, int *n, const osh_q_scheme *s, osh_dtype dt)
{
    if (!s->inputs.present || s->inputs.dynamic == OSH_Q_DYNAMIC) return;
    if (s->inputs.dynamic == OSH_Q_LOCAL) {
        osh_format_add(out, n, "input_global_scale", OSH_F32, &one);
        return;
    }
    osh_format_add(out, n, "input_scale", dt, &one);
    if (!s->inputs.symmetric) osh_format_add(out, n, "input_zero_point", OSH_I8, &one);
}

void osh_format_add_output(osh_format_tensor *out, int *n, const osh_q_scheme *s, osh_dtype dt)
{
    if (!s->outputs.present || s->outputs.dynamic != OSH_Q_STATIC) return;
    osh_format_add(out, n, "output_scale", dt, &one);
    if (!s->outputs.symmetric) osh_format_add(out, n, "output_zero_point", OSH_I8, &one);
}

osh_status osh_format_put_input(osh_ctx *cx, void *const *data, const osh_format_weight *w,
                                const osh_format_input *in)
{
    osh_status rc = OSH_OK;
    const osh_q_scheme *s = w->scheme;
    const osh_tensor *in_scale = in ? in->scale : NULL, *in_zero = in ? in->zero : NULL;
    osh_dtype dt = w->dt;
    if (!s->inputs.present || s->inputs.dynamic == OSH_Q_DYNAMIC) goto done;
    if (s->inputs.dynamic == OSH_Q_LOCAL) dt = OSH_F32;
    if (!in_scale || osh_tensor_numel(in_scale) != 1 || in_scale->dtype != dt)
        OSH_FAIL(cx, OSH_E_INTERNAL, "input_scale was not computed, or not in %s",
                 osh_dtype_name(dt));
    memcpy(data[0], in_scale->data, osh_dtype_bytes(dt));
    if (s->inputs.symmetric) goto done;
    if (!in_zero || osh_tensor_numel(in_zero) != 1 || in_zero->dtype != OSH_I8)
        OSH_FAIL(cx, OSH_E_INTERNAL, "input_zero_point was not computed");
    memcpy(data[1], in_zero->data, 1);
done:
    return rc;
}

static void format_shape_text(char *to, size_t room, int ndim, const int64_t *shape)
{
    size_t at = (size_t)snprintf(to, room, "[");
    for (int d = 0; d < ndim && at < room; d++)
        at += (size_t)snprintf(to + at, room - at, d ? ", %lld" : "%lld", (long long)shape[d]);
    if (at < room) snprintf(to + at, room - at, "]");
}

/* True if the tensor `want` is a scale. A stored scale may be F32, BF16 or F16, whatever its dtype
 * in `want`. */
static bool any_float(const osh_format_tensor *want)
{
    bool scale =
        osh_ends_with(want->leaf, strlen(want->leaf), "_scale") && !strstr(want->leaf, "global");
    return scale && osh_dtype_is_float(want->dtype) && want->dtype != OSH_FP8;
}

static bool dtype_fits(const osh_format_tensor *want, osh_dtype dt)
{
    if (dt == want->dtype) return true;
    if (!strcmp(want->leaf, "weight_shape")) return dt == OSH_I32;
    return any_float(want) && (dt == OSH_F32 || dt == OSH_BF16 || dt == OSH_F16);
}

static bool shape_fits(const osh_format_stored *has, const osh_format_tensor *want)
{
    int64_t n_has = 0, n_want = 0;
    if (has->ndim == want->ndim &&
        !memcmp(has->shape, want->shape, (size_t)want->ndim * sizeof *want->shape))
        return true;
    osh_shape_numel(&n_has, has->ndim, has->shape);
    osh_shape_numel(&n_want, want->ndim, want->shape);
    return n_has == 1 && n_want == 1 && strcmp(want->leaf, "weight_global_scale");
}

osh_status osh_format_check(osh_ctx *cx, const osh_format_stored *has,
                            const osh_format_tensor *want)
{
    osh_status rc = OSH_OK;
    const char *dtypes = any_float(want) ? "BF16, F16 or F32" : osh_dtype_name(want->dtype);
    char found[200], wanted[64];
    if (!strcmp(want->leaf, "weight_shape")) dtypes = "I64 or I32";
    if (!dtype_fits(want, has->dtype))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s, want %s", has->name, osh_dtype_name(has->dtype),
                 dtypes);
    if (!shape_fits(has, want)) {
        format_shape_text(found, sizeof found, has->ndim, has->shape);
        format_shape_text(wanted, sizeof wanted, want->ndim, want->shape);
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has the shape %s, want %s", has->name, found, wanted);
    }
done:
    return rc;
}

osh_status osh_format_check_stored(osh_ctx *cx, const osh_tensor *t, const osh_format_tensor *want)
{
    if (!t) return osh_fail(cx, OSH_E_FORMAT, "%s is missing", want->leaf);
    return osh_format_check(cx, &(osh_format_stored){want->leaf, t->dtype, t->ndim, t->shape},
                            want);
}

osh_status osh_format_take_scale(osh_ctx *cx, osh_qparams *p, const osh_tensor *stored,
                                 const osh_format_tensor *want)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_tensor_new(cx, &p->scale, stored->dtype, want->ndim, want->shape));
    memcpy(p->scale->data, stored->data, osh_tensor_bytes(p->scale));
done:
    return rc;
}
