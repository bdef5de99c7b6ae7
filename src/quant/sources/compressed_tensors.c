/* compressed_tensors.c - reads modules that compressed-tensors stored. Such a module X has a tensor
 * X.weight_scale, and a config group has X as a target. Rows are decoded in the dtype of the scale,
 * as in compressed-tensors. */
#include "base/name.h"
#include "quant/groups.h"
#include "quant/source_impl.h"

#include <string.h>

static osh_status ct_configure(osh_ctx *cx, osh_source *s, const cJSON *q)
{
    return osh_q_config_parse(cx, &s->config, q, s->ck->config->quantization_path);
}

/* Fails if an attention module has some of the stored scales and zero points that kv_cache_scheme
 * needs, but not all. */
static osh_status check_attention(osh_ctx *cx, const osh_source *s, const char *module, size_t n)
{
    static const char *const leaves[] = {"k_scale", "v_scale", "q_scale", "k_zero_point",
                                         "v_zero_point"};
    osh_status rc = OSH_OK;
    const osh_q_args *a = &s->config->cache;
    char *name = NULL; // own
    for (size_t k = 0; k < sizeof leaves / sizeof *leaves; k++) {
        bool zero = k > 2;
        if (zero ? a->symmetric : k == 2 && !osh_q_config_queries(s->config)) continue;
        osh_free(cx, name);
        if (!(name = osh_sprintf(cx, "%.*s.%s", (int)n, module, leaves[k])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a scale's name");
        const osh_ckpt_tensor *t = osh_checkpoint_find(s->ck, name);
        if (!t) OSH_FAIL(cx, OSH_E_FORMAT, "%s is missing: want it for kv_cache_scheme", name);
        // any shape is accepted here; `oneshot eval` checks the shape
        osh_format_tensor want = {leaves[k], zero ? OSH_I8 : OSH_BF16, t->e->ndim, {0}};
        memcpy(want.shape, t->e->shape, sizeof want.shape);
        if (t->e->ndim > 2) want.ndim = 0;
        OSH_TRY(osh_format_check(
            cx, &(osh_format_stored){name, t->e->dtype, want.ndim, t->e->shape}, &want));
    }
done:
    osh_free(cx, name);
    return rc;
}

static osh_status check_cache(osh_ctx *cx, const osh_source *s)
{
    static const char *const leaves[] = {".k_scale", ".v_scale", ".q_scale"};
    osh_status rc = OSH_OK;
    for (int64_t i = 0; s->config->cache.present && i < s->ck->n_tensors; i++)
        for (size_t k = 0; k < sizeof leaves / sizeof *leaves; k++) {
            const char *name = s->ck->tensors[i].e->name;
            size_t n = osh_before_tail(name, leaves[k]);
            if (n) OSH_TRY(check_attention(cx, s, name, n));
        }
done:
    return rc;
}

static osh_status ct_begin(osh_ctx *cx, void **groups, const osh_source *s)
{
    osh_groups *g = NULL; // own
    osh_status rc = check_cache(cx, s);
    if (!rc) rc = osh_groups_new(cx, &g, s->config);
    *groups = g; // give
    return rc;
}

static void ct_found(osh_ctx *cx, void **groups)
{
    osh_groups_free(cx, *groups);
    *groups = NULL;
}

static const char *const weight_leaves[] = {"weight_scale",        "weight_packed",
                                            "weight_shape",        "weight_zero_point",
                                            "weight_global_scale", "weight_g_idx"};
enum { N_WEIGHT_LEAVES = sizeof weight_leaves / sizeof *weight_leaves };

/* The member `claims` of osh_source_type. True for tensors that only quantized modules have, and
 * for tensors of 8-bit codes. */
static bool ct_claims(const osh_source *s, const osh_entry *e, size_t *n)
{
    (void)s;
    for (int k = 0; k < N_WEIGHT_LEAVES; k++) {
        *n = osh_before_tail(e->name, weight_leaves[k]);
        if (*n > 1 && e->name[--*n] == '.') return true;
    }
    bool codes = (e->dtype == OSH_I8 || e->dtype == OSH_FP8) && e->ndim > 1;
    return codes && (*n = osh_before_tail(e->name, ".weight")) > 0;
}

static osh_status check_dims(osh_ctx *cx, const osh_entry *e)
{
    if (e->ndim <= 2) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s has %d dimensions, want 2: each expert has codes of its own", e->name,
                    e->ndim);
}

static bool stores_shape(const osh_source_module *q)
{
    return !strcmp(q->format->name, "pack-quantized");
}

/* Sets q->O and q->I from weight_shape. If the format has no weight_shape, they follow from the
 * shape of the codes. */
static osh_status find_shape(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    int64_t shape[2];
    osh_tensor *t = NULL; // own
    const osh_ckpt_tensor *s;
    const osh_q_args *a = &q->scheme->weights;
    // number of stored bits of a code; a row is a whole number of bytes
    int bits = a->type == OSH_Q_FLOAT ? a->bits : 8;
    const char *codes = bits < 8 || stores_shape(q) ? "weight_packed" : "weight";
    OSH_TRY(osh_source_need_leaf(cx, &s, q, codes, q->format->name));
    OSH_TRY(check_dims(cx, s->e));
    if (stores_shape(q)) {
        OSH_TRY(osh_source_need_leaf(cx, &s, q, "weight_shape", q->format->name));
        OSH_TRY(osh_checkpoint_load(cx, &t, q->source->ck, s->e->name, 1, (int64_t[]){2}));
        if (t->dtype == OSH_I64) memcpy(shape, t->data, sizeof shape);
        else if (t->dtype == OSH_I32)
            shape[0] = ((int32_t *)t->data)[0], shape[1] = ((int32_t *)t->data)[1];
        else
            OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s, want I64 or I32", s->e->name,
                     osh_dtype_name(t->dtype));
    } else {
        if (s->e->ndim != 2)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has %d dimensions, want 2", s->e->name, s->e->ndim);
        shape[0] = s->e->shape[0], shape[1] = s->e->shape[1] * 8 / bits;
    }
    if (shape[0] < 1 || shape[1] < 1 || shape[0] > INT32_MAX || shape[1] > INT32_MAX)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s says that %s has %ld rows and %ld columns, want from 1 to %d of each",
                 s->e->name, q->name, (long)shape[0], (long)shape[1], INT32_MAX);
    OSH_TRY(osh_q_scale_shape(cx, &(osh_q_shape){0}, a, shape[0], shape[1], q->name));
    q->O = shape[0], q->I = shape[1];
done:
    osh_tensor_free(cx, t);
    return rc;
}

static bool has_leaf(const osh_source_module *q, const char *leaf)
{
    for (int i = 0; i < q->n_leaves; i++)
        if (!strcmp(q->leaves[i].leaf, leaf)) return true;
    return false;
}

/* Fails if the scheme is symmetric but a stored zero point is not 0. compressed-tensors would
 * subtract such a zero point. */
static osh_status check_zero(osh_ctx *cx, const osh_source_module *q, const osh_ckpt_tensor *t)
{
    osh_status rc = OSH_OK;
    osh_tensor *zero = NULL; // own
    OSH_TRY(osh_checkpoint_load(cx, &zero, q->source->ck, t->e->name, -1, NULL));
    for (size_t i = 0; i < osh_tensor_bytes(zero); i++)
        if (((const uint8_t *)zero->data)[i])
            OSH_FAIL(
                cx, OSH_E_FORMAT,
                "%s has a value that is not 0, but the weights of %s are symmetric: want only 0",
                t->e->name, q->scheme->group_name);
done:
    osh_tensor_free(cx, zero);
    return rc;
}

/* Fails if the module has a tensor that is not part of its format, because a loader could use
 * it. */
static osh_status check_extra_tensors(osh_ctx *cx, const osh_source_module *q)
{
    static const char *const codes[] = {"weight", "weight_packed", "weight_global_scale"};
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t;
    OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", "weight_g_idx"));
    if (t)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: groups of columns in another order are not supported",
                 t->e->name);
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
        if (has_leaf(q, codes[k])) continue;
        OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", codes[k]));
        if (t)
            OSH_FAIL(cx, OSH_E_FORMAT, "found %s, but %s is stored as %s, which has no such tensor",
                     t->e->name, q->name, q->format->name);
    }
    OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", "weight_zero_point"));
    if (t && !has_leaf(q, "weight_zero_point")) OSH_TRY(check_zero(cx, q, t));
done:
    return rc;
}

/* Sets q->dtype, the dtype of the dense weight, if config.json has no dtype. It is the dtype of the
 * scale, or BF16 if the scales are not floats of 16 or 32 bits, as in compressed-tensors. */
static osh_status find_dtype(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t;
    if (q->dtype != OSH_DTYPE_NONE) goto done;
    OSH_TRY(osh_source_need_leaf(cx, &t, q, "weight_scale", q->format->name));
    bool dense = t->e->dtype == OSH_F32 || t->e->dtype == OSH_BF16 || t->e->dtype == OSH_F16;
    q->dtype = dense ? t->e->dtype : OSH_BF16;
done:
    return rc;
}

/* Finds the stored tensors of a module, and stores them in q->parts in the order of its format. */
static osh_status bind_leaves(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = q->source->ck;
    const osh_ckpt_tensor *t;
    OSH_TRY(q->format->tensors(cx, q->leaves, &q->n_leaves,
                               &(osh_format_weight){q->scheme, q->O, q->I, q->dtype}));
    OSH_TRY(check_extra_tensors(cx, q));
    for (int i = 0; i < q->n_leaves; i++) {
        const osh_format_tensor *f = &q->leaves[i];
        OSH_TRY(osh_source_need_leaf(cx, &t, q, f->leaf, q->format->name));
        OSH_TRY(check_dims(cx, t->e));
        OSH_TRY(osh_source_bind_checked(cx, q, i, t));
        if (strncmp(f->leaf, "input_", 6)) continue;
        q->parts[i] = (osh_ckpt_tensor){0}; // the tensor is not needed to decode the weight
        osh_tensor **to = strcmp(f->leaf, "input_zero_point") ? &q->in_scale : &q->in_zero;
        OSH_TRY(osh_checkpoint_load(cx, to, ck, t->e->name, -1, NULL));
    }
done:
    return rc;
}

/* Loads the stored scale and zero point of the outputs of a module into q->out_scale and
 * q->out_zero. */
static osh_status load_outputs(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    osh_format_tensor f[OSH_FORMAT_MAX_TENSORS];
    const osh_ckpt_tensor *t;
    int n = 0;
    osh_format_add_output(f, &n, q->scheme, q->dtype);
    for (int i = 0; i < n; i++) {
        OSH_TRY(osh_source_need_leaf(cx, &t, q, f[i].leaf, "output_activations"));
        OSH_TRY(osh_format_check(
            cx, &(osh_format_stored){t->e->name, t->e->dtype, t->e->ndim, t->e->shape}, &f[i]));
        OSH_TRY(osh_checkpoint_load(cx, i ? &q->out_zero : &q->out_scale, q->source->ck, t->e->name,
                                    -1, NULL));
    }
done:
    return rc;
}

/* True if a part of the module's name contains "embed" but not "proj". (altup_unembed_projections.0
 * is a Linear.) */
static bool is_named_embedding(const char *name)
{
    const char *at = name;
    while ((at = strstr(at, "embed"))) {
        const char *first = at, *proj;
        size_t n = strcspn(at, ".");
        while (first > name && first[-1] != '.') first--;
        proj = strstr(first, "proj");
        if (!proj || proj >= at + n) return true;
        at += n;
    }
    return false;
}

static osh_status ct_find(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    int group;
    OSH_TRY(osh_groups_find(cx, &group, *q->state, q->name,
                            is_named_embedding(q->name) ? "Embedding" : "Linear"));
    if (group < 0)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s is stored quantized, but no group of quantization_config has it as a target",
                 q->name);
    q->scheme = &q->source->config->schemes[group];
    OSH_TRY(osh_format_infer(cx, &q->format, q->scheme, q->name));
    OSH_TRY(find_shape(cx, q));
    OSH_TRY(find_dtype(cx, q));
    OSH_TRY(bind_leaves(cx, q));
    OSH_TRY(load_outputs(cx, q));
done:
    return rc;
}

const osh_source_type osh_source_compressed_tensors = {
    .methods = {"compressed-tensors"},
    .tails = {".weight", ".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape",
              ".weight_global_scale", ".input_scale", ".input_zero_point", ".input_global_scale",
              ".output_scale", ".output_zero_point"},
    .groups = true, .configure = ct_configure, .begin = ct_begin, .found = ct_found,
    .claims = ct_claims, .find = ct_find, .make_rows = osh_source_rows_make,
    .bytes = osh_source_rows_bytes,
};
