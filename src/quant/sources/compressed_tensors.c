/* compressed_tensors.c - modules as compressed-tensors stores them: X.weight_scale, and a config group that has X as a
 * target. Rows are decoded in the dtype of the scale, as compressed-tensors decompresses. */
#include "base/name.h"
#include "quant/groups.h"
#include "quant/source_impl.h"

#include <string.h>

static osh_status ct_configure(osh_ctx *cx, osh_source *s, const cJSON *q)
{
    return osh_q_config_parse(cx, &s->config, q, s->ck->config->path);
}

static osh_status ct_begin(osh_ctx *cx, void **groups, const osh_source *s)
{
    osh_groups *g = NULL; // own
    osh_status rc = osh_groups_new(cx, &g, s->config);
    *groups = g; // give
    return rc;
}

static void ct_found(osh_ctx *cx, void **groups)
{
    osh_groups_free(cx, *groups);
    *groups = NULL;
}

static bool ct_claims(const osh_st_entry *e, size_t *n) { return (*n = osh_before_tail(e->name, ".weight_scale")) > 0; }

/* Rows and columns: of weight_shape where the format has it, else of the codes' tensor. */
static osh_status find_shape(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    int64_t shape[2];
    osh_tensor *t = NULL; // own
    const osh_ckpt_tensor *s;
    OSH_TRY(osh_source_find_leaf(cx, &s, q, ".", "weight_shape"));
    if (s) {
        OSH_TRY(osh_checkpoint_load(cx, &t, q->source->ck, s->e->name, 1, (int64_t[]){2}));
        if (t->dtype == OSH_I64) memcpy(shape, t->data, sizeof shape);
        else if (t->dtype == OSH_I32) shape[0] = ((int32_t *)t->data)[0], shape[1] = ((int32_t *)t->data)[1];
        else OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s: want I64", s->e->name, osh_dtype_name(t->dtype));
    } else {
        const osh_q_args *a = &q->scheme->weights;
        int bits = a->type == OSH_Q_FLOAT ? a->bits : 8; // of a code; whole bytes hold a row
        const char *leaf = bits < 8 ? "weight_packed" : "weight";
        OSH_TRY(osh_source_find_leaf(cx, &s, q, ".", leaf));
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

/* The stored tensors of a module, in the order of its format. */
static osh_status bind_leaves(osh_ctx *cx, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = q->source->ck;
    const osh_ckpt_tensor *t;
    OSH_TRY(osh_format_infer(cx, &q->format, q->scheme, q->name));
    OSH_TRY(q->format->tensors(cx, q->leaves, &q->n_leaves, &(osh_format_weight){q->scheme, q->O, q->I, q->dtype}));
    OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", "weight_g_idx"));
    if (t) OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: groups of columns in another order are not read", t->e->name);
    for (int i = 0; i < q->n_leaves; i++) {
        const osh_format_tensor *f = &q->leaves[i];
        OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", f->leaf));
        if (!t) OSH_FAIL(cx, OSH_E_FORMAT, "%s.%s is missing: want it for %s", q->name, f->leaf, q->format->name);
        OSH_TRY(osh_source_bind_leaf(cx, q, i, t));
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
        OSH_TRY(osh_source_find_leaf(cx, &t, q, ".", leaf));
        if (!t) OSH_FAIL(cx, OSH_E_FORMAT, "%s.%s is missing: want it for output_activations", q->name, leaf);
        OSH_TRY(osh_checkpoint_load(cx, to, q->source->ck, t->e->name, -1, NULL));
        if (osh_tensor_numel(*to) != 1 || (zero ? (*to)->dtype != OSH_I8 : !osh_dtype_is_float((*to)->dtype)))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s holds %lld %s values, want one of %s", t->e->name,
                     (long long)osh_tensor_numel(*to), osh_dtype_name((*to)->dtype), zero ? "I8" : "a float's dtype");
    }
done:
    return rc;
}

static osh_status ct_find(osh_ctx *cx, osh_source_module *q, const osh_ckpt_tensor *scale)
{
    osh_status rc = OSH_OK;
    int group;
    OSH_TRY(osh_groups_find(cx, &group, *q->state, q->name, strstr(q->name, "embed") ? "Embedding" : "Linear"));
    if (group < 0)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is stored quantized, but no group of quantization_config has it as a target",
                 q->name);
    q->scheme = &q->source->config->schemes[group];
    OSH_TRY(find_shape(cx, q));
    if (q->dtype == OSH_DTYPE_NONE) q->dtype = scale->e->dtype;
    OSH_TRY(bind_leaves(cx, q));
    OSH_TRY(load_outputs(cx, q));
done:
    return rc;
}

const osh_source_type osh_source_compressed_tensors = {
    .methods = {"compressed-tensors"},
    .tails = {".weight", ".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape",
              ".weight_global_scale", ".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale",
              ".output_zero_point"},
    .groups = true, .configure = ct_configure, .begin = ct_begin, .found = ct_found,
    .claims = ct_claims, .find = ct_find, .make_rows = osh_source_rows_make, .bytes = osh_source_rows_bytes,
};
