/* attributes.c - fills the attributes of a node. They come from the template entry of the node and
 * from the shape of its weight. Attributes of rope also come from config.json. */
#include "graph/rope_freq.h"
#include "graph/template.h"

#include <stdio.h>
#include <string.h>

static osh_status set_number(osh_ctx *cx, const osh_op *op, void *attr, const char *name, double x)
{
    char text[32];
    const osh_field *f = osh_field_find(op->attrs, name);
    if (!f) return osh_fail(cx, OSH_E_FORMAT, "op %s has no attribute %s", op->name, name);
    if (f->type == OSH_F_BOOL)
        snprintf(text, sizeof text, "%s", x != 0 ? "true" : "false");
    else
        snprintf(text, sizeof text, "%.17g", x);
    osh_status rc = osh_field_set(cx, f, attr, text);
    /* OSH_E_USAGE would blame the command line, so it is replaced: the fault is in the template
     * file. */
    return rc == OSH_E_USAGE ? OSH_E_FORMAT : rc;
}

/* Sets the attributes that a template entry lists in its object "attr". A number gets the value of
 * its expression. For a string, the object has the name of a key of config.json, and the attribute
 * gets the value of this key. */
static osh_status set_attrs(osh_ctx *cx, const osh_scope *s, const osh_op *op, void *attr,
                            const cJSON *given)
{
    osh_status rc = OSH_OK;
    const cJSON *a;
    cJSON_ArrayForEach(a, given)
    {
        const osh_field *f = osh_field_find(op->attrs, a->string);
        if (f && f->type == OSH_F_STR) {
            const char *text = NULL;
            if (!cJSON_IsString(a))
                OSH_FAIL(cx, OSH_E_FORMAT, "attribute %s is not a config key", a->string);
            OSH_TRY(osh_scope_str(cx, &text, s, a->valuestring));
            rc = osh_field_set(cx, f, attr, text);
            if (rc) osh_note(cx, "reading %s of %s", a->valuestring, s->config->path);
            /* OSH_E_USAGE would blame the command line, so it is replaced: the fault is in the
             * template or in config.json. */
            if (rc == OSH_E_USAGE) rc = OSH_E_UNSUPPORTED;
        } else {
            double x = 0;
            OSH_TRY(osh_scope_num(cx, &x, s, a));
            rc = set_number(cx, op, attr, a->string, x);
        }
        if (rc) goto done;
    }
done:
    return rc;
}

/* Sets the attributes of an op that are sizes of its weight. (Templates do not repeat these
 * sizes.) */
static osh_status derive_attrs(osh_ctx *cx, const osh_op *op, void *attr, const osh_entry_shape *w)
{
    osh_status rc = OSH_OK;
    static const struct {
        const char *name;
        int dim;
    } sizes[] = {{"out_features", 0}, {"vocab_size", 0}, {"rows", 0}, {"hidden_size", 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].dim < w->ndim && osh_field_find(op->attrs, sizes[i].name))
            OSH_TRY(set_number(cx, op, attr, sizes[i].name, (double)w->dims[sizes[i].dim]));
    if (osh_field_find(op->attrs, "bias")) OSH_TRY(set_number(cx, op, attr, "bias", w->bias));
done:
    return rc;
}

/* Reads a boolean key of a rope entry. A missing key is false. */
static osh_status rope_switch(osh_ctx *cx, bool *on, const osh_scope *s, const cJSON *given,
                              const char *key)
{
    const cJSON *expr = cJSON_GetObjectItemCaseSensitive(given, key);
    double x = 0;
    osh_status rc = expr ? osh_scope_num(cx, &x, s, expr) : OSH_OK;
    *on = x != 0;
    return rc;
}

/* Evaluates two keys of a template entry for the op rope. The number "back" is subtracted from each
 * position. If "backward" is true, rope rotates by the negative angle. */
static osh_status fill_shift(osh_ctx *cx, osh_rope_attr *attr, const osh_scope *s,
                             const cJSON *given)
{
    osh_status rc = OSH_OK;
    const cJSON *back = cJSON_GetObjectItemCaseSensitive(given, "back");
    bool backward;
    if (back) OSH_TRY(osh_scope_int(cx, &attr->back, s, back, 0));
    OSH_TRY(rope_switch(cx, &backward, s, given, "backward"));
    for (int64_t i = 0; backward && i < OSH_ROPE_MAX_FREQS; i++)
        attr->inv_freq[i] = -attr->inv_freq[i], attr->long_freq[i] = -attr->long_freq[i];
    if ((backward || back) && attr->dynamic)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: the rope type dynamic is not supported with windows",
                 s->config->path);
done:
    return rc;
}

/* Fills the attributes of rope from the object `given` of a template entry. The object may have the
 * keys of fill_shift and these keys:
 *   "head_dim"     number of elements of an attention head
 *   "interleaved", "f32"   values of the attributes with these names (osh_rope_attr)
 *   "position_scale"       true if rope also multiplies by a factor that grows with the position
 *   "sliding"      true if the layer has the rope of layers with sliding attention
 *   "partial"      true if the class of the model reads partial_rotary_factor
 *   "rotary_dim"   number of rotated elements of a head; 0: partial_rotary_factor decides
 *   "theta"        base of the layer's frequencies; 0: rope_theta of config.json is used */
static osh_status fill_rope(osh_ctx *cx, osh_rope_attr *attr, const osh_scope *s,
                            const cJSON *given)
{
    osh_status rc = OSH_OK;
    const osh_hf_config *c = s->config;
    osh_rope changed, *rope = &changed;
    int64_t head_dim = 0, rotary_dim = 0;
    const cJSON *rotary = cJSON_GetObjectItemCaseSensitive(given, "rotary_dim");
    const cJSON *base = cJSON_GetObjectItemCaseSensitive(given, "theta");
    double theta = 0;
    bool partial, by_position, sliding;
    if (c->rope_unknown)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: rope type %s", c->path, c->rope_unknown);
    OSH_TRY(rope_switch(cx, &sliding, s, given, "sliding"));
    changed = s->sliding || sliding ? c->rope_sliding : c->rope;
    OSH_TRY(
        osh_scope_int(cx, &head_dim, s, cJSON_GetObjectItemCaseSensitive(given, "head_dim"), 1));
    OSH_TRY(rope_switch(cx, &partial, s, given, "partial"));
    if (rotary) OSH_TRY(osh_scope_int(cx, &rotary_dim, s, rotary, 0));
    if (rotary_dim > head_dim)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: rotary_dim is %lld, want at most %lld, the size of a head",
                 c->path, (long long)rotary_dim, (long long)head_dim);
    if (rotary_dim)
        rope->partial_rotary_factor = (double)rotary_dim / (double)head_dim, partial = true;
    if (!partial && rope->partial_rotary_factor != 1)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: partial_rotary_factor is %g, want 1", c->path,
                 rope->partial_rotary_factor);
    if (base) OSH_TRY(osh_scope_num(cx, &theta, s, base));
    if (theta > 0) rope->theta = theta;
    OSH_TRY(osh_rope_attr_fill(cx, attr, rope, head_dim, s->max_position, c->path));
    OSH_TRY(rope_switch(cx, &attr->interleaved, s, given, "interleaved"));
    OSH_TRY(rope_switch(cx, &attr->f32, s, given, "f32"));
    OSH_TRY(fill_shift(cx, attr, s, given));
    OSH_TRY(rope_switch(cx, &by_position, s, given, "position_scale"));
    if (!by_position) goto done;
    if (rope->llama_4_scaling_beta == 0 || rope->original_max_position_embeddings < 1)
        OSH_FAIL(
            cx, OSH_E_FORMAT,
            "%s: rope_parameters lack llama_4_scaling_beta or original_max_position_embeddings",
            c->path);
    attr->position_beta = rope->llama_4_scaling_beta;
    attr->position_original = rope->original_max_position_embeddings;
done:
    return rc;
}

/* Fails if config.json has "is_causal": false. transformers then computes bidirectional attention
 * (masking_utils.py, create_causal_mask), but the attention op of this program is causal. */
static osh_status check_causal(osh_ctx *cx, const osh_hf_config *c)
{
    const cJSON *of[] = {c->json, c->model};
    for (int i = 0; i < 2; i++)
        if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(of[i], "is_causal")))
            return osh_fail(cx, OSH_E_UNSUPPORTED,
                            "%s: is_causal is false: want true, because attention in both "
                            "directions is not supported",
                            c->path);
    return OSH_OK;
}

osh_status osh_scope_attr(osh_ctx *cx, void **attr, const osh_scope *s, const osh_op *op,
                          const cJSON *entry, const osh_entry_shape *w)
{
    osh_status rc = OSH_OK;
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(entry, "attr");
    if (!op->attr_bytes) goto done;
    *attr = osh_calloc(cx, 1, op->attr_bytes);
    if (!*attr) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    if (osh_op_is(op, OSH_OP_ROPE)) {
        OSH_TRY(fill_rope(cx, *attr, s, given));
        goto done;
    }
    if (!op->attrs) OSH_FAIL(cx, OSH_E_FORMAT, "op %s is not for templates", op->name);
    if (osh_op_is(op, OSH_OP_ATTENDS)) OSH_TRY(check_causal(cx, s->config));
    OSH_TRY(osh_fields_default(cx, op->attrs, *attr));
    OSH_TRY(set_attrs(cx, s, op, *attr, given));
    OSH_TRY(derive_attrs(cx, op, *attr, w));
done:
    return rc;
}
