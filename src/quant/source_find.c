/* source_find.c - the quantized modules of a source: by the scales beside them, and what its quant_method says of them.
 *
 *   compressed-tensors          X.weight_scale, and a config group that has X as a target
 *   fp8, fbgemm_fp8, modelopt   X.weight in F8_E4M3 with X.weight_scale_inv or X.weight_scale: of one number, of a row
 *                               each, or of blocks; F8_E8M0 and U8 are exponents + 127
 *                               experts in one tensor: X in three dimensions with X_scale_inv or X_scale, or as above
 *   mxfp4                       X_blocks, X_scales: experts in one tensor
 *
 * A scale may lie in another shard than the codes. */
#include "base/name.h"
#include "quant/groups.h"
#include "quant/source_impl.h"

#include <string.h>

/* *t: <module>.<leaf>; NULL: there is none. */
static osh_status find_leaf(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_checkpoint *ck, const char *module,
                            const char *leaf)
{
    char *name = osh_sprintf(cx, "%s.%s", module, leaf); // own
    if (!name) return osh_fail(cx, OSH_E_NOMEM, "no memory for %s", module);
    *t = osh_checkpoint_find(ck, name);
    osh_free(cx, name);
    return OSH_OK;
}

/* Rows and columns: of weight_shape where the format has it, else of the codes' tensor. */
static osh_status find_shape(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    int64_t shape[2];
    osh_tensor *t = NULL; // own
    const osh_ckpt_tensor *s;
    OSH_TRY(find_leaf(cx, &s, q->source->ck, q->name, "weight_shape"));
    if (s) {
        OSH_TRY(osh_checkpoint_load(cx, &t, q->source->ck, s->e->name, 1, (int64_t[]){2}));
        if (t->dtype == OSH_I64) memcpy(shape, t->data, sizeof shape);
        else if (t->dtype == OSH_I32) shape[0] = ((int32_t *)t->data)[0], shape[1] = ((int32_t *)t->data)[1];
        else OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s: want I64", s->e->name, osh_dtype_name(t->dtype));
    } else {
        const osh_q_args *a = &q->scheme->weights;
        int bits = a->type == OSH_Q_FLOAT ? a->bits : 8; // of a code; whole bytes hold a row
        const char *leaf = bits < 8 ? "weight_packed" : "weight";
        OSH_TRY(find_leaf(cx, &s, q->source->ck, q->name, leaf));
        if (!s || s->e->ndim != 2)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has neither weight_shape nor a 2-D %s", q->name, leaf);
        shape[0] = s->e->shape[0], shape[1] = s->e->shape[1] * 8 / bits;
    }
    if (shape[0] < 1 || shape[1] < 1 || shape[0] > INT32_MAX || shape[1] > INT32_MAX)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %ld rows and %ld columns", q->name, (long)shape[0], (long)shape[1]);
    q->O = shape[0], q->I = shape[1];
done:
    osh_tensor_free(cx, t);
    return rc;
}

/* A stored tensor takes the place of a leaf: as many elements. */
static osh_status bind_leaf(osh_ctx *cx, osh_source_module *q, int leaf, const osh_ckpt_tensor *t)
{
    osh_status rc = OSH_OK;
    const osh_format_tensor *f = &q->leaves[leaf];
    int64_t numel = 0, want = 0;
    osh_shape_numel(&numel, t->e->ndim, t->e->shape);
    osh_shape_numel(&want, f->ndim, f->shape);
    if (numel != want)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %ld elements, %s wants %ld", t->e->name, (long)numel, q->format->name,
                 (long)want);
    q->parts[leaf] = *t;
done:
    return rc;
}

/* The stored tensors of a module, in the order of its format. */
static osh_status bind_leaves(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = q->source->ck;
    const osh_ckpt_tensor *t;
    OSH_TRY(osh_format_infer(cx, &q->format, q->scheme, q->name));
    OSH_TRY(q->format->tensors(cx, q->leaves, &q->n_leaves, &(osh_format_weight){q->scheme, q->O, q->I, q->dtype}));
    OSH_TRY(find_leaf(cx, &t, ck, q->name, "weight_g_idx"));
    if (t) OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: groups of columns in another order are not read", t->e->name);
    for (int i = 0; i < q->n_leaves; i++) {
        const osh_format_tensor *f = &q->leaves[i];
        OSH_TRY(find_leaf(cx, &t, ck, q->name, f->leaf));
        if (!t) OSH_FAIL(cx, OSH_E_FORMAT, "%s.%s is missing: want it for %s", q->name, f->leaf, q->format->name);
        OSH_TRY(bind_leaf(cx, q, i, t));
        if (t->e->ndim > 2)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s has %d dimensions: want 2, of experts codes each by itself", t->e->name,
                     t->e->ndim);
        if (strncmp(f->leaf, "input_", 6)) continue;
        q->parts[i] = (osh_ckpt_tensor){0}; // nothing of the weight
        osh_tensor **to = strcmp(f->leaf, "input_zero_point") ? &q->in_scale : &q->in_zero;
        OSH_TRY(osh_checkpoint_load(cx, to, ck, t->e->name, -1, NULL));
    }
done:
    return rc;
}

/* Of what the module makes. */
static osh_status load_outputs(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = &q->scheme->outputs;
    const osh_ckpt_tensor *t;
    for (int zero = 0; a->present && a->dynamic == OSH_Q_STATIC && zero < 2 - a->symmetric; zero++) {
        const char *leaf = zero ? "output_zero_point" : "output_scale";
        osh_tensor **to = zero ? &q->out_zero : &q->out_scale;
        OSH_TRY(find_leaf(cx, &t, q->source->ck, q->name, leaf));
        if (!t) OSH_FAIL(cx, OSH_E_FORMAT, "%s.%s is missing: want it for output_activations", q->name, leaf);
        OSH_TRY(osh_checkpoint_load(cx, to, q->source->ck, t->e->name, -1, NULL));
        if (osh_tensor_numel(*to) != 1 || (zero ? (*to)->dtype != OSH_I8 : !osh_dtype_is_float((*to)->dtype)))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s holds %lld %s values, want one of %s", t->e->name,
                     (long long)osh_tensor_numel(*to), osh_dtype_name((*to)->dtype), zero ? "I8" : "a float's dtype");
    }
done:
    return rc;
}

/* The next of s->mods, and its name: the first n bytes. */
static osh_status module_new(osh_ctx *cx, osh_source_module **out, osh_source *s, const char *name, size_t n)
{
    osh_status rc = OSH_OK;
    osh_source_module *q = &s->mods[s->n++];
    q->source = s;
    if (!(q->name = osh_sprintf(cx, "%.*s", (int)n, name))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
    OSH_TRY(osh_map_put(cx, s->by_name, q->name, n, s->n - 1));
    q->dtype = s->ck->config->dtype;
    *out = q;
done:
    return rc;
}

static osh_status add_compressed(osh_ctx *cx, osh_source *s, osh_groups *g, const osh_ckpt_tensor *scale, size_t n)
{
    osh_status rc = OSH_OK;
    osh_source_module *q;
    int group;
    OSH_TRY(module_new(cx, &q, s, scale->e->name, n));
    OSH_TRY(osh_groups_find(cx, &group, g, q->name, strstr(q->name, "embed") ? "Embedding" : "Linear"));
    if (group < 0)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is stored quantized, but no group of quantization_config has it as a target",
                 q->name);
    q->scheme = &s->config->schemes[group];
    OSH_TRY(find_shape(cx, q));
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = scale->e->dtype;
    OSH_TRY(bind_leaves(cx, q));
    OSH_TRY(load_outputs(cx, q));
done:
    return rc;
}

/* *t: the scale of codes in FP8; NULL: there is none. */
static osh_status find_scale(osh_ctx *cx, const osh_ckpt_tensor **t, const osh_source_module *q, const char *sep,
                             const char *leaf)
{
    char *name = osh_sprintf(cx, "%s%s%s", q->name, sep, leaf); // own
    if (!name) return osh_fail(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    *t = osh_checkpoint_find(q->source->ck, name);
    osh_free(cx, name);
    return OSH_OK;
}

/* shape: of the scales of experts that lie one behind the other. Their rows begin with a scale each. */
static osh_status lay_flat(osh_ctx *cx, int64_t shape[2], int *ndim, const osh_source_module *q,
                           const osh_st_entry *scale)
{
    int64_t E = q->experts, R = q->O / E, n = scale->ndim == 3 ? scale->shape[1] : 1;
    bool whole = scale->shape[0] == E && n > 0 && R % n == 0 && (scale->ndim == 1 || scale->ndim == 3);
    if (!whole)
        return osh_fail(cx, OSH_E_FORMAT, "%s has %d dimensions and %lld of the first: want %lld, or with rows and "
                        "columns whose blocks fill %lld rows", scale->name, scale->ndim, (long long)scale->shape[0],
                        (long long)E, (long long)R);
    shape[0] = E * n, shape[1] = scale->ndim == 3 ? scale->shape[2] : 1, *ndim = 2;
    return OSH_OK;
}

/* What the scale's shape says; blocks of weight_block_size, else those that divide the weight. */
static osh_status fp8_scheme(osh_ctx *cx, osh_source_module *q, const osh_st_entry *scale)
{
    osh_status rc = OSH_OK;
    osh_q_args *a = &q->own.weights;
    const int64_t *given = q->source->block;
    int64_t numel = 0, shape[2] = {scale->shape[0], scale->shape[1]};
    int ndim = scale->ndim;
    osh_shape_numel(&numel, ndim, scale->shape);
    if (q->experts && numel > 1) OSH_TRY(lay_flat(cx, shape, &ndim, q, scale));
    osh_q_args_init(a);
    a->bits = 8, a->type = OSH_Q_FLOAT, a->symmetric = true;
    if (numel == 1) {
        a->strategy = OSH_Q_TENSOR;
    } else if (numel == q->O && shape[0] == q->O) {
        a->strategy = OSH_Q_CHANNEL;
    } else if (ndim == 2 && shape[0] > 0 && shape[1] > 0) {
        a->strategy = OSH_Q_BLOCK;
        for (int d = 0; d < 2; d++) {
            int64_t n = d ? q->I : q->O;
            bool even = q->experts && n % shape[d] == 0; // an expert may be smaller than a block
            a->block[d] = given[0] && !even ? given[d] : n / shape[d];
            if (a->block[d] > 0 && (n + a->block[d] - 1) / a->block[d] == shape[d]) continue;
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has the shape [%lld, %lld], which blocks of [%lld, %lld] of a weight "
                     "[%lld, %lld] do not have", scale->name, (long long)shape[0], (long long)shape[1],
                     (long long)(given[0] ? given[0] : q->O / shape[0]),
                     (long long)(given[0] ? given[1] : q->I / shape[1]), (long long)q->O, (long long)q->I);
        }
    } else {
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %d dimensions and %lld elements, want 1, %lld or those of blocks",
                 scale->name, scale->ndim, (long long)numel, (long long)q->O);
    }
    if (scale->dtype != OSH_F32 && scale->dtype != OSH_BF16 && scale->dtype != OSH_F16 && !osh_source_is_powers(scale))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s is %s: want F32, BF16, F16, F8_E8M0 or U8", scale->name,
                 osh_dtype_name(scale->dtype));
    q->scheme = &q->own;
done:
    return rc;
}

/* The first n bytes of the codes' name: their module's, or all of it, of experts. */
static osh_status add_fp8(osh_ctx *cx, osh_source *s, const osh_ckpt_tensor *codes, size_t n)
{
    osh_status rc = OSH_OK;
    osh_source_module *q;
    const osh_ckpt_tensor *scale, *other;
    const int64_t *shape = codes->e->shape;
    OSH_TRY(module_new(cx, &q, s, codes->e->name, n));
    q->bare = n == strlen(codes->e->name);
    const char *sep = q->bare ? "_" : ".weight_";
    if (codes->e->ndim != 2 && codes->e->ndim != 3)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s is F8_E4M3 with %d dimensions: want 2, or 3 of experts", codes->e->name,
                 codes->e->ndim);
    if (codes->e->ndim == 3) q->experts = shape[0];
    q->O = codes->e->ndim == 3 ? shape[0] * shape[1] : shape[0], q->I = shape[codes->e->ndim - 1];
    if (q->O < 1 || q->I < 1) OSH_FAIL(cx, OSH_E_FORMAT, "%s has no elements", codes->e->name);
    OSH_TRY(find_scale(cx, &scale, q, sep, "scale_inv"));
    OSH_TRY(find_scale(cx, &other, q, sep, "scale"));
    if (!scale) scale = other, other = NULL;
    if (!scale)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is F8_E4M3, but there is neither %s%sscale_inv nor %s%sscale", codes->e->name,
                 q->name, sep, q->name, sep);
    if (other) OSH_FAIL(cx, OSH_E_FORMAT, "%s has both %s and %s", q->name, scale->e->name, other->e->name);
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = OSH_BF16;
    OSH_TRY(fp8_scheme(cx, q, scale->e));
    q->format = osh_format_find("naive-quantized");
    OSH_TRY(q->format->tensors(cx, q->leaves, &q->n_leaves, &(osh_format_weight){q->scheme, q->O, q->I, q->dtype}));
    OSH_TRY(bind_leaf(cx, q, 0, codes));
    OSH_TRY(bind_leaf(cx, q, 1, scale));
done:
    return rc;
}

static osh_status add_mxfp4(osh_ctx *cx, osh_source *s, const osh_ckpt_tensor *blocks, size_t n)
{
    osh_status rc = OSH_OK;
    osh_source_module *q;
    const osh_st_entry *b = blocks->e;
    char *name = NULL; // own
    OSH_TRY(module_new(cx, &q, s, b->name, n));
    if (!(name = osh_sprintf(cx, "%s_scales", q->name))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    const osh_ckpt_tensor *scales = osh_checkpoint_find(s->ck, name);
    if (!scales) OSH_FAIL(cx, OSH_E_FORMAT, "%s is missing: want it for %s", name, b->name);
    const osh_st_entry *e = scales->e;
    if (b->dtype != OSH_U8 || b->ndim != 4 || b->shape[3] != 16)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s with %d dimensions: want U8 [experts, rows, groups, 16]", b->name,
                 osh_dtype_name(b->dtype), b->ndim);
    if (e->dtype != OSH_U8 || e->ndim != 3 || memcmp(e->shape, b->shape, 3 * sizeof *e->shape))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s with %d dimensions: want U8 [%lld, %lld, %lld]", name,
                 osh_dtype_name(e->dtype), e->ndim, (long long)b->shape[0], (long long)b->shape[1],
                 (long long)b->shape[2]);
    if (b->shape[0] < 1 || b->shape[1] < 1 || b->shape[2] < 1) OSH_FAIL(cx, OSH_E_FORMAT, "%s is empty", b->name);
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = OSH_BF16;
    q->O = b->shape[2] * 32, q->I = b->shape[1], q->experts = b->shape[0], q->bare = true;
    q->parts[0] = *blocks, q->parts[1] = *scales, q->n_leaves = 2;
done:
    osh_free(cx, name);
    return rc;
}

static osh_status find_compressed(osh_ctx *cx, osh_source *s)
{
    osh_status rc = OSH_OK;
    osh_groups *g = NULL; // own
    int64_t n_stored = s->ck->n_tensors;
    size_t n;
    OSH_TRY(osh_groups_new(cx, &g, s->config));
    for (int64_t i = 0; i < n_stored; i++)
        if ((n = osh_before_tail(s->ck->tensors[i].e->name, ".weight_scale")))
            OSH_TRY(add_compressed(cx, s, g, &s->ck->tensors[i], n));
done:
    osh_groups_free(cx, g);
    return rc;
}

osh_status osh_source_find_modules(osh_ctx *cx, osh_source *s)
{
    osh_status rc = OSH_OK;
    int64_t n_stored = s->ck->n_tensors;
    OSH_NEW(cx, s->mods, n_stored);
    if (s->config) OSH_TRY(find_compressed(cx, s));
    for (int64_t i = 0; i < n_stored && !s->config; i++) {
        const osh_ckpt_tensor *t = &s->ck->tensors[i];
        size_t n;
        if (t->e->dtype == OSH_FP8 && (n = osh_before_tail(t->e->name, ".weight"))) OSH_TRY(add_fp8(cx, s, t, n));
        else if ((n = osh_before_tail(t->e->name, "_blocks"))) OSH_TRY(add_mxfp4(cx, s, t, n));
        else if (t->e->dtype == OSH_FP8 && t->e->ndim == 3) OSH_TRY(add_fp8(cx, s, t, strlen(t->e->name)));
        else if (t->e->dtype == OSH_FP8)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s is F8_E4M3 and the weight of no module: it is not read", t->e->name);
    }
    if (!s->n && !(s->config && (s->config->cache.present || s->config->transforms.n)))
        osh_log(cx, OSH_LOG_WARN, "%s has a quantization_config and no quantized tensor", s->ck->dir);
done:
    return rc;
}
