/* fp8.c - reads F8_E4M3 weights of the methods fp8, fbgemm_fp8 and modelopt, which have no config
 * groups:
 *
 *   X.weight   has its scales in X.weight_scale_inv, X.weight_scale or X.scale (DeepSeek V4)
 *   X          has the codes of all experts in 3 dimensions, and its scales in X_scale_inv,
 *              X_scale, or a tensor as above
 *
 * There is one scale, or one for each row or block. A scale in F8_E8M0 or U8 is stored as its
 * exponent + 127. The codes are decoded in F32, then rounded to the model's dtype, as in
 * transformers' Fp8Dequantize. */
#include "base/name.h"
#include "quant/source_impl.h"

#include <string.h>

/* Reads weight_block_size to block = {rows, columns}. Sets both numbers to 0 if config.json does
 * not have the key. */
static osh_status read_fp8_block(osh_ctx *cx, int64_t block[2], const osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    const cJSON *size =
        cJSON_GetObjectItemCaseSensitive(c->quantization_config, "weight_block_size");
    block[0] = block[1] = 0;
    if (!size || cJSON_IsNull(size)) goto done;
    for (int d = 0; d < 2; d++) {
        const cJSON *n = cJSON_GetArrayItem(size, d);
        if (!cJSON_IsNumber(n) || !(n->valuedouble >= 1 && n->valuedouble <= 1 << 20) ||
            cJSON_GetArraySize(size) != 2)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: weight_block_size is not a list of two positive numbers",
                     c->quantization_path);
        block[d] = (int64_t)n->valuedouble;
    }
done:
    return rc;
}

static osh_status fp8_configure(osh_ctx *cx, osh_source *s, const cJSON *q)
{
    osh_status rc = OSH_OK;
    const char *algo = NULL, *path = s->ck->config->quantization_path;
    int64_t block[2];
    OSH_TRY(osh_json_str_or(cx, &algo, q, "quant_algo", "FP8", path));
    if (strcmp(algo, "FP8"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quant_method %s with quant_algo '%s': want FP8", path,
                 s->method, algo);
    OSH_TRY(read_fp8_block(cx, block, s->ck->config));
done:
    return rc;
}

static bool fp8_claims(const osh_source *s, const osh_entry *e, size_t *n)
{
    if ((*n = osh_before_tail(e->name, ".weight_scale_inv")) > 0) return true;
    if ((*n = osh_before_tail(e->name, ".weight_scale")) > 0) return true;
    if ((*n = osh_before_tail(e->name, ".scale")) > 0)
        return osh_source_weight_is(s, e->name, *n, OSH_FP8);
    return e->dtype == OSH_FP8 && (*n = osh_before_tail(e->name, ".weight")) > 0;
}

/* The member `claims` of osh_source_type, for tensors that fp8_claims refuses. True for each FP8
 * tensor. Also true for each scale (its name ends in _scale_inv) whose weight is missing or is not
 * FP8. bare_find then accepts the tensors of experts, and fails for all others. */
static bool bare_claims(const osh_source *s, const osh_entry *e, size_t *n)
{
    int64_t i;
    *n = strlen(e->name);
    if (e->dtype == OSH_FP8) return true;
    if (!(*n = osh_before_tail(e->name, "_scale_inv"))) return false;
    return e->ndim > 1 || osh_map_get(s->ck->by_name, e->name, *n, &i);
}

/* Sets `shape` to the shape of a matrix with the scales of all experts, one expert after the
 * other. */
static osh_status lay_flat(osh_ctx *cx, int64_t shape[2], int *ndim, const osh_source_module *q,
                           const osh_entry *scale)
{
    int64_t E = q->experts, R = q->O / E, n = scale->ndim == 3 ? scale->shape[1] : 1;
    bool whole =
        scale->shape[0] == E && n > 0 && R % n == 0 && (scale->ndim == 1 || scale->ndim == 3);
    if (!whole)
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s has %d dimensions, the first of size %lld: want size %lld, and 1 "
                        "dimension, or 3 with blocks that divide %lld rows",
                        scale->name, scale->ndim, (long long)scale->shape[0], (long long)E,
                        (long long)R);
    shape[0] = E * n, shape[1] = scale->ndim == 3 ? scale->shape[2] : 1, *ndim = 2;
    return OSH_OK;
}

/* Derives the scheme of a module from the shape of its scales. Blocks have the size
 * weight_block_size. If it is not given, all blocks have equal size. */
static osh_status fp8_scheme(osh_ctx *cx, osh_source_module *q, const osh_entry *scale)
{
    osh_status rc = OSH_OK;
    osh_q_args *a = &q->own.weights;
    int64_t given[2], numel = 0, shape[2] = {scale->shape[0], scale->shape[1]};
    int ndim = scale->ndim;
    OSH_TRY(read_fp8_block(cx, given, q->source->ck->config));
    osh_shape_numel(&numel, ndim, scale->shape);
    if (q->experts && numel > 1) OSH_TRY(lay_flat(cx, shape, &ndim, q, scale));
    q->powers = scale->dtype == OSH_FP8_E8M0 || scale->dtype == OSH_U8;
    osh_q_args_init(a);
    a->bits = 8, a->type = OSH_Q_FLOAT, a->symmetric = true;
    if (numel == 1) {
        a->strategy = OSH_Q_TENSOR;
    } else if (numel == q->O && shape[0] == q->O && ndim <= 2) {
        a->strategy = OSH_Q_CHANNEL;
    } else if (ndim == 2 && shape[0] > 0 && shape[1] > 0) {
        a->strategy = OSH_Q_BLOCK;
        for (int d = 0; d < 2; d++) {
            int64_t n = d ? q->I : q->O;
            // For experts, blocks of equal size have precedence over weight_block_size, because an
            // expert may be smaller than one block.
            bool even = q->experts && n % shape[d] == 0;
            a->block[d] = given[0] && !even ? given[d] : n / shape[d];
            if (a->block[d] > 0 && (n + a->block[d] - 1) / a->block[d] == shape[d]) continue;
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s has the shape [%lld, %lld], which does not fit blocks of [%lld, %lld] in "
                     "a weight [%lld, %lld]",
                     scale->name, (long long)shape[0], (long long)shape[1],
                     (long long)(given[0] ? given[0] : q->O / shape[0]),
                     (long long)(given[0] ? given[1] : q->I / shape[1]), (long long)q->O,
                     (long long)q->I);
        }
    } else {
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s has %d dimensions and %lld elements, want 1, %lld or one for each block",
                 scale->name, scale->ndim, (long long)numel, (long long)q->O);
    }
    if (scale->dtype != OSH_F32 && scale->dtype != OSH_BF16 && scale->dtype != OSH_F16 &&
        !q->powers)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s is %s: want F32, BF16, F16, F8_E8M0 or U8", scale->name,
                 osh_dtype_name(scale->dtype));
    q->scheme = &q->own, q->wide = true;
done:
    return rc;
}

/* Finds the tensor of codes of a module: an F8_E4M3 matrix, or a 3-dimensional F8_E4M3 tensor of
 * experts. */
static osh_status find_codes(osh_ctx *cx, const osh_ckpt_tensor **codes, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_source_find_leaf(cx, codes, q, q->bare ? "" : ".", q->bare ? "" : "weight"));
    if (!*codes)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s%s is missing: want it for the existing scale", q->name,
                 q->bare ? "" : ".weight");
    const osh_entry *e = (*codes)->e;
    if (e->dtype != OSH_FP8)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s although it has a scale, want F8_E4M3", e->name,
                 osh_dtype_name(e->dtype));
    if (q->bare && e->ndim != 3)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s is F8_E4M3 but not the weight of a module: not supported", e->name);
    if (e->ndim != 2 && e->ndim != 3)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s is F8_E4M3 with %d dimensions: want 2, or 3 of experts",
                 e->name, e->ndim);
    if (e->ndim == 3) q->experts = e->shape[0];
    q->O = e->ndim == 3 ? e->shape[0] * e->shape[1] : e->shape[0], q->I = e->shape[e->ndim - 1];
    if (q->O < 1 || q->I < 1) OSH_FAIL(cx, OSH_E_FORMAT, "%s has no elements", e->name);
done:
    return rc;
}

static osh_status fp8_find(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *codes, *scale, *other;
    const char *sep = q->bare ? "_" : ".weight_";
    OSH_TRY(find_codes(cx, &codes, q));
    OSH_TRY(osh_source_find_leaf(cx, &scale, q, sep, "scale_inv"));
    OSH_TRY(osh_source_find_leaf(cx, &other, q, sep, "scale"));
    if (!scale) scale = other, other = NULL;
    if (!scale && !q->bare) OSH_TRY(osh_source_find_leaf(cx, &scale, q, ".", "scale"));
    if (!scale)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s is F8_E4M3, but its scale is missing: want %s%sscale_inv or %s%sscale",
                 codes->e->name, q->name, sep, q->name, sep);
    if (other)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has both %s and %s", q->name, scale->e->name,
                 other->e->name);
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = OSH_BF16;
    OSH_TRY(fp8_scheme(cx, q, scale->e));
    q->format = osh_format_find("naive-quantized");
    OSH_TRY(q->format->tensors(cx, q->leaves, &q->n_leaves,
                               &(osh_format_weight){q->scheme, q->O, q->I, q->dtype}));
    OSH_TRY(osh_source_bind_leaf(cx, q, 0, codes));
    OSH_TRY(osh_source_bind_leaf(cx, q, 1, scale));
done:
    return rc;
}

static osh_status bare_find(osh_ctx *cx, osh_source_module *q)
{
    q->bare = true;
    return fp8_find(cx, q);
}

const osh_source_type osh_source_fp8 = {
    .methods = {"fp8", "fbgemm_fp8"},
    .tails = {".weight", ".weight_scale_inv", ".weight_scale", ".scale", ".input_scale",
              ".input_scale_ub", ".activation_scale", ".output_scale"},
    .configure = fp8_configure,
    .claims = fp8_claims, .find = fp8_find, .make_rows = osh_source_rows_make,
    .bytes = osh_source_rows_bytes,
};

const osh_source_type osh_source_fp8_bare = {
    .tails = {"", "_scale_inv", "_scale", "_activation_scale"}, .claims = bare_claims,
    .find = bare_find, .make_rows = osh_source_rows_make, .bytes = osh_source_rows_bytes,
};
