/* verify_config.c - checks the tensors against config.json, without the source:
 *
 *   - A module is quantized if and only if the config says so.
 *   - A quantized module has exactly the tensors of its format, with dtype and shape.
 *   - Scales, zero points and codes have valid values.
 *   - Modules that runtimes fuse have one scheme and one global scale. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "graph/heads.h"
#include "graph/kind.h"
#include "quant/groups.h"
#include "verify/verify.h"

typedef struct modules { // the modules of the output that have a weight
    char **names;        // own
    const char **classes;
    const char **never;  // why the module must not be quantized; NULL: it may be quantized
    int *which;          // index of the module's config group; -1: the module is dense
    int n;
} modules;

static const char *const quantized_leaves[] = {
    "weight_packed",       "weight_scale", "weight_shape",     "weight_zero_point",
    "weight_global_scale", "weight_g_idx", "input_scale",      "input_zero_point",
    "input_global_scale",  "output_scale", "output_zero_point"};

/* True if `name` is "MODULE.leaf" for some MODULE. Sets *n to the length of MODULE. */
static bool leaf_split(const char *name, const char *leaf, size_t *n)
{
    size_t a = strlen(name), b = strlen(leaf);
    *n = a > b + 1 ? a - b - 1 : 0;
    return *n && name[*n] == '.' && !strcmp(name + *n + 1, leaf);
}

static const osh_ckpt_tensor *config_find_leaf(osh_ctx *cx, const osh_verify *v, const char *module,
                                               const char *leaf)
{
    char *name = osh_sprintf(cx, "%s.%s", module, leaf); // own
    const osh_ckpt_tensor *t = name ? osh_checkpoint_find(v->ck, name) : NULL;
    osh_free(cx, name);
    return t;
}

static osh_status config_read_leaf(osh_ctx *cx, osh_tensor **out, const osh_verify *v,
                                   const osh_ckpt_tensor *t)
{
    osh_status rc = osh_tensor_new(cx, out, t->e->dtype, t->e->ndim, t->e->shape);
    return rc ? rc : osh_checkpoint_read(cx, (*out)->data, v->ck, t);
}

/* Sets `shape` to the numbers of rows and columns of a module's weight. They come from weight_shape
 * if the output has it, else from the weight or the packed codes. If all are missing, `shape` is
 * {0, 0}. */
static osh_status config_shape(osh_ctx *cx, int64_t shape[2], const osh_verify *v,
                               const char *module)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    const osh_ckpt_tensor *s = config_find_leaf(cx, v, module, "weight_shape"),
                          *w = config_find_leaf(cx, v, module, "weight");
    /* a packed weight without weight_shape: FP4, with two codes in a byte, or FP6 */
    const osh_ckpt_tensor *packed = config_find_leaf(cx, v, module, "weight_packed");
    /* FP6 has four codes in three bytes, and a scale for each 24 bytes */
    const osh_ckpt_tensor *scale = config_find_leaf(cx, v, module, "weight_scale");
    shape[0] = shape[1] = 0;
    if (s && s->e->dtype == OSH_I64 && s->e->ndim == 1 && s->e->shape[0] == 2) {
        OSH_TRY(config_read_leaf(cx, &t, v, s));
        memcpy(shape, t->data, 2 * sizeof *shape);
    } else if (w && w->e->ndim == 2) {
        shape[0] = w->e->shape[0], shape[1] = w->e->shape[1];
    } else if (packed && packed->e->dtype == OSH_U8 && packed->e->ndim == 2) {
        int64_t n = packed->e->shape[1];
        bool six = scale && scale->e->ndim == 2 && scale->e->shape[1] * 24 == n;
        shape[0] = packed->e->shape[0], shape[1] = six ? n / 3 * 4 : 2 * n;
    }
done:
    osh_tensor_free(cx, t);
    return rc;
}

static bool module_is_quantized(osh_ctx *cx, const osh_verify *v, const char *module)
{
    const osh_ckpt_tensor *w = config_find_leaf(cx, v, module, "weight");
    return !w || (w->e->dtype != OSH_BF16 && w->e->dtype != OSH_F16 && w->e->dtype != OSH_F32);
}

/* Adds a module. Its class follows from the name and the shape of the weight. Dense norms are not
 * added. Takes ownership of `name`. */
static osh_status modules_add(osh_ctx *cx, modules *ms, const osh_verify *v, const osh_kinds *kinds,
                              char *name)
{
    osh_status rc = OSH_OK;
    int64_t shape[2];
    const char *why;
    if (!name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
    OSH_TRY(config_shape(cx, shape, v, name));
    osh_kind kind = osh_kind_of(kinds, name, strlen(name), shape[0], shape[1], &why);
    if (kind == OSH_KIND_NORM && !module_is_quantized(cx, v, name)) goto done;
    ms->classes[ms->n] =
        kind == OSH_KIND_EMBEDDING || kind == OSH_KIND_POSITIONS ? "Embedding" : "Linear";
    ms->never[ms->n] = kind >= OSH_KIND_POSITIONS ? why : NULL;
    ms->which[ms->n] = -1;
    ms->names[ms->n++] = name, name = NULL; // give
done:
    osh_free(cx, name);
    return rc;
}

/* Lists the modules of the output that have packed codes or a 2-D weight. Skips dense norms and the
 * matrices of transforms. */
static osh_status modules_list(osh_ctx *cx, modules *ms, const osh_verify *v, const osh_q_config *c)
{
    osh_status rc = OSH_OK;
    osh_kinds kinds;
    osh_kinds_init(&kinds, v->ck);
    OSH_NEW(cx, ms->names, v->ck->n_tensors);
    OSH_NEW(cx, ms->classes, v->ck->n_tensors);
    OSH_NEW(cx, ms->never, v->ck->n_tensors);
    OSH_NEW(cx, ms->which, v->ck->n_tensors);
    for (int64_t i = 0; i < v->ck->n_tensors; i++) {
        const osh_entry *e = v->ck->tensors[i].e;
        size_t n;
        bool codes = leaf_split(e->name, "weight_packed", &n);
        if (osh_q_is_matrix(&c->transforms, e->name)) continue;
        if (codes || (leaf_split(e->name, "weight", &n) && e->ndim == 2))
            OSH_TRY(modules_add(cx, ms, v, &kinds, osh_sprintf(cx, "%.*s", (int)n, e->name)));
    }
done:
    return rc;
}

static void modules_deinit(osh_ctx *cx, modules *ms)
{
    for (int i = 0; i < ms->n; i++) osh_free(cx, ms->names[i]);
    osh_free(cx, ms->names);
    osh_free(cx, ms->classes);
    osh_free(cx, ms->never);
    osh_free(cx, ms->which);
}

/* Checks that no config group matches an output head without a tensor. Loaders make a Linear for
 * such a head. */
static osh_status config_check_missing_head(osh_ctx *cx, osh_verify *v, const osh_q_config *c,
                                     osh_groups *g, osh_matcher *ignored)
{
    osh_status rc = OSH_OK;
    osh_missing_head h;
    const char *arch = v->ck->config->architecture ? v->ck->config->architecture : "";
    bool headless =
        strstr(arch, "Classification") || (strstr(arch, "Model") && !strstr(arch, "LMHeadModel"));
    int64_t hit = -1;
    int group = -1;
    if (headless || !osh_head_missing(&h, v->ck)) goto done;
    OSH_TRY(osh_matcher_find(cx, &hit, ignored, h.name, "Linear"));
    if (hit < 0) OSH_TRY(osh_groups_find(cx, &group, g, h.name, "Linear"));
    if (group >= 0)
        OSH_TRY(osh_verify_add(
            cx, v, h.name, "its name in ignore, because transformers makes a Linear of it",
            "has no tensor, but config.json lists it in %s", c->schemes[group].group_name));
done:
    return rc;
}

/* Checks a tied head, which loaders replace by the embedding table. If the output has a tensor for
 * the head, neither the head nor the table may be quantized. */
static osh_status config_check_tied_head(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    const char *head = NULL, *codes = NULL; // views
    if (!v->ck->config->tie_word_embeddings) goto done;
    for (int64_t i = 0; i < v->ck->n_tensors; i++) {
        const char *name = v->ck->tensors[i].e->name;
        bool is_head = osh_head_is(v->ck->config, v->ck->tensors[i].e);
        if (is_head) head = name;
        if ((is_head || osh_head_is_table(name)) && osh_before_tail(name, ".weight_scale"))
            codes = name;
    }
    if (head && codes)
        OSH_TRY(osh_verify_add(cx, v, "config.json: tie_word_embeddings",
                               "false, because loaders replace a tied head by the embedding table",
                               "is true, and the output has %s and %s", head, codes));
done:
    return rc;
}

/* Finds the config group of each module that is not ignored, by the rules of compressed-tensors. */
static osh_status modules_find_groups(osh_ctx *cx, osh_verify *v, modules *ms,
                                      const osh_q_config *c)
{
    osh_status rc = OSH_OK;
    osh_groups *g = NULL;        // own
    osh_matcher *ignored = NULL; // own
    OSH_TRY(osh_groups_new(cx, &g, c));
    OSH_TRY(osh_matcher_new(cx, &ignored, (const char *const *)c->ignore.items, c->ignore.n));
    for (int i = 0; i < ms->n; i++) {
        int64_t hit = -1;
        OSH_TRY(osh_matcher_find(cx, &hit, ignored, ms->names[i], ms->classes[i]));
        if (hit < 0) OSH_TRY(osh_groups_find(cx, &ms->which[i], g, ms->names[i], ms->classes[i]));
    }
    OSH_TRY(config_check_missing_head(cx, v, c, g, ignored));
done:
    osh_groups_free(cx, g);
    osh_matcher_free(cx, ignored);
    return rc;
}

static osh_status config_check_leaf(osh_ctx *cx, osh_verify *v, const char *module,
                                    const osh_format_tensor *f)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t = config_find_leaf(cx, v, module, f->leaf);
    char want[96];
    snprintf(want, sizeof want, f->ndim == 2 ? "%s of %s [%lld, %lld]" : "%s of %s [%lld]", f->leaf,
             osh_dtype_name(f->dtype), (long long)f->shape[0], (long long)f->shape[1]);
    if (!t) return osh_verify_add(cx, v, module, want, "has none");
    bool same = t->e->dtype == f->dtype && t->e->ndim == f->ndim && t->e->shape[0] == f->shape[0] &&
                (f->ndim < 2 || t->e->shape[1] == f->shape[1]);
    if (!same)
        OSH_TRY(osh_verify_add(cx, v, module, want, "%s is %s with %d dimensions [%lld, %lld]",
                               f->leaf, osh_dtype_name(t->e->dtype), t->e->ndim,
                               (long long)(t->e->ndim > 0 ? t->e->shape[0] : 0),
                               (long long)(t->e->ndim > 1 ? t->e->shape[1] : 0)));
done:
    return rc;
}

typedef struct stored { // the stored tensors that a module should have
    const osh_format *format;
    osh_format_tensor f[OSH_FORMAT_MAX_TENSORS];
    int n;
    int64_t shape[2];
} stored;

static osh_status config_check_values(osh_ctx *cx, osh_verify *v, const char *module,
                                      const osh_q_scheme *s, const stored *as)
{
    osh_status rc = OSH_OK;
    const osh_format_tensor *f = as->f;
    int64_t O = as->shape[0], I = as->shape[1];
    osh_tensor *raw[OSH_FORMAT_MAX_TENSORS] = {0}; // own
    osh_qparams params = {0};                      // own
    uint8_t *codes = NULL;                         // own
    for (int k = 0; k < as->n; k++) {
        const osh_ckpt_tensor *t = config_find_leaf(cx, v, module, f[k].leaf);
        OSH_TRY(config_read_leaf(cx, &raw[k], v, t));
        if (strcmp(f[k].leaf, "input_scale") && strcmp(f[k].leaf, "input_global_scale") &&
            strcmp(f[k].leaf, "output_scale"))
            continue;
        float x = osh_tensor_at(raw[k], 0);
        if (!(x > 0 && x < 1e30f))
            OSH_TRY(osh_verify_add(cx, v, module, "a positive number", "%s is %g", f[k].leaf,
                                   (double)x));
    }
    if (!(codes = osh_alloc(cx, (size_t)(O * I)))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for codes");
    OSH_TRY(as->format->unpack(cx, codes, &params,
                               &(osh_format_weight){.scheme = s, .O = O, .I = I},
                               (const osh_tensor *const *)raw));
    OSH_TRY(osh_verify_params(cx, v, module, &s->weights, &params));
    OSH_TRY(osh_verify_codes(cx, v, module, &s->weights, codes, as->shape));
done:
    for (int k = 0; k < OSH_FORMAT_MAX_TENSORS; k++) osh_tensor_free(cx, raw[k]);
    osh_qparams_deinit(cx, &params);
    osh_free(cx, codes);
    return rc;
}

/* Returns the dtype that all scales of a module should have: that of the module's first scale in
 * BF16, F16 or F32. Other checks (manifest, plan) compare the dtype of this scale with that of the
 * source's weight. The dtype in config.json may differ, so it does not decide. */
static osh_dtype config_scale_dtype(osh_ctx *cx, const osh_verify *v, const char *module)
{
    static const char *const leaves[] = {"weight_scale", "input_scale", "output_scale"};
    for (size_t k = 0; k < sizeof leaves / sizeof *leaves; k++) {
        const osh_ckpt_tensor *t = config_find_leaf(cx, v, module, leaves[k]);
        if (t && (t->e->dtype == OSH_BF16 || t->e->dtype == OSH_F16 || t->e->dtype == OSH_F32))
            return t->e->dtype;
    }
    return v->ck->config->dtype == OSH_DTYPE_NONE ? OSH_BF16 : v->ck->config->dtype;
}

static osh_status config_check_quantized(osh_ctx *cx, osh_verify *v, const char *module,
                                         const osh_q_scheme *s)
{
    osh_status rc = OSH_OK;
    stored as = {0};
    size_t before = v->n;
    osh_dtype dt = config_scale_dtype(cx, v, module);
    OSH_TRY(osh_format_infer(cx, &as.format, s, module));
    OSH_TRY(config_shape(cx, as.shape, v, module));
    if (as.shape[0] < 1 || as.shape[1] < 1 || as.shape[0] > INT32_MAX || as.shape[1] > INT32_MAX)
        OSH_FAIL(cx, OSH_E_FORMAT, "has no weight_shape and no weight of two dimensions");
    OSH_TRY(
        as.format->tensors(cx, as.f, &as.n, &(osh_format_weight){s, as.shape[0], as.shape[1], dt}));
    osh_format_add_output(as.f, &as.n, s, dt);
    for (int k = 0; k < as.n; k++) OSH_TRY(config_check_leaf(cx, v, module, &as.f[k]));
    for (size_t k = 0; k < sizeof quantized_leaves / sizeof *quantized_leaves; k++) {
        bool wanted = !config_find_leaf(cx, v, module, quantized_leaves[k]);
        for (int i = 0; i < as.n; i++) wanted |= !strcmp(quantized_leaves[k], as.f[i].leaf);
        if (!wanted)
            OSH_TRY(
                osh_verify_add(cx, v, module, as.format->name, "has a %s", quantized_leaves[k]));
    }
    if (v->n == before) OSH_TRY(config_check_values(cx, v, module, s, &as));
    v->n_modules++;
done:
    return rc;
}

/* Reads a tensor with one element to *out. `module` and `leaf` name the tensor. Sets *there to
 * false if the module has no such tensor. */
static osh_status config_read_scalar(osh_ctx *cx, float *out, bool *there, const osh_verify *v,
                              const char *module, const char *leaf)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    const osh_ckpt_tensor *e = config_find_leaf(cx, v, module, leaf);
    *there =
        e && e->e->ndim <= 1 && e->e->end - e->e->begin == (int64_t)osh_dtype_bytes(e->e->dtype);
    if (!*there) goto done;
    OSH_TRY(config_read_leaf(cx, &t, v, e));
    *out = osh_tensor_at(t, 0);
done:
    osh_tensor_free(cx, t);
    return rc;
}

/* If runtimes fuse the module with other Linears, checks that its global scale is that of the first
 * of these Linears. The fused module has only one global scale. */
static osh_status config_check_global_scales(osh_ctx *cx, osh_verify *v, const char *module)
{
    osh_status rc = OSH_OK;
    static const char *const leaves[] = {"weight_global_scale", "input_global_scale"};
    const osh_q_fusion f = osh_q_fusion_find(osh_q_family_of(v->ck->config), module);
    char *first = f.fused ? osh_q_fusion_name(cx, module, f.parts[0]) : NULL; // own
    char want[320];
    if (!f.fused) goto done;
    if (!first) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
    for (size_t k = 0; strcmp(first, module) != 0 && k < sizeof leaves / sizeof *leaves; k++) {
        bool has = false, first_has = false;
        float scale = 0, of_first = 0;
        OSH_TRY(config_read_scalar(cx, &scale, &has, v, module, leaves[k]));
        OSH_TRY(config_read_scalar(cx, &of_first, &first_has, v, first, leaves[k]));
        if (!has || !first_has || scale == of_first) continue;
        snprintf(want, sizeof want, "%.9g, the value of %.200s, because vLLM fuses both",
                 (double)of_first, first);
        OSH_TRY(osh_verify_add(cx, v, module, want, "%s is %.9g", leaves[k], (double)scale));
    }
done:
    osh_free(cx, first);
    return rc;
}

/* Returns the number of bytes of the codes of a module. */
static int64_t module_bytes(osh_ctx *cx, const osh_verify *v, const char *module)
{
    const osh_ckpt_tensor *t = config_find_leaf(cx, v, module, "weight_packed");
    if (!t) t = config_find_leaf(cx, v, module, "weight");
    return t ? t->e->end - t->e->begin : 0;
}

static osh_status config_check_modules(osh_ctx *cx, osh_verify *v, modules *ms,
                                       const osh_q_config *c)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < ms->n; i++) {
        int g = ms->which[i];
        bool quantized = module_is_quantized(cx, v, ms->names[i]);
        OSH_TRY(osh_check_interrupt(cx));
        if (!osh_verify_next(v, quantized ? module_bytes(cx, v, ms->names[i]) : 0)) continue;
        if (quantized && ms->never[i])
            OSH_TRY(osh_verify_add(cx, v, ms->names[i],
                                   "a dense weight: no loader reads codes here",
                                   "has codes and is %s", ms->never[i]));
        if (quantized && g < 0)
            OSH_TRY(osh_verify_add(cx, v, ms->names[i],
                                   "a group of quantization_config with this target",
                                   "is quantized, but config.json lists it as dense"));
        if (!quantized && g >= 0)
            OSH_TRY(osh_verify_add(cx, v, ms->names[i], "codes and scales",
                                   "is dense, but config.json lists it in %s",
                                   c->schemes[g].group_name));
        if (quantized && g >= 0) {
            rc = config_check_quantized(cx, v, ms->names[i], &c->schemes[g]);
            OSH_TRY(osh_verify_failed(cx, v, rc, ms->names[i], c->schemes[g].group_name));
            OSH_TRY(config_check_global_scales(cx, v, ms->names[i]));
        }
    }
done:
    return rc;
}

/* Finds tensors that belong to a module without a weight, such as scales. */
static osh_status config_check_strays(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    for (int64_t i = 0; i < v->ck->n_tensors; i++)
        for (size_t k = 0; k < sizeof quantized_leaves / sizeof *quantized_leaves; k++) {
            const char *name = v->ck->tensors[i].e->name;
            char module[512];
            size_t n;
            if (!leaf_split(name, quantized_leaves[k], &n) || n >= sizeof module) continue;
            snprintf(module, sizeof module, "%.*s", (int)n, name);
            if (!config_find_leaf(cx, v, module, "weight") &&
                !config_find_leaf(cx, v, module, "weight_packed"))
                OSH_TRY(osh_verify_add(cx, v, name, "codes of the same module",
                                       "belongs to a module without codes"));
        }
done:
    return rc;
}

/* Checks that the stored scales of keys, values and queries are positive and finite. */
static osh_status config_check_cache_scales(osh_ctx *cx, osh_verify *v)
{
    static const char *const leaves[] = {"k_scale", "v_scale", "q_scale"};
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    size_t n;
    for (int64_t i = 0; i < v->ck->n_tensors; i++)
        for (size_t k = 0; k < sizeof leaves / sizeof *leaves; k++) {
            const osh_entry *e = v->ck->tensors[i].e;
            if (!leaf_split(e->name, leaves[k], &n)) continue;
            osh_tensor_free(cx, t), t = NULL;
            OSH_TRY(config_read_leaf(cx, &t, v, &v->ck->tensors[i]));
            for (int64_t h = 0; h < osh_tensor_numel(t); h++) {
                float scale = osh_dtype_is_float(t->dtype) ? osh_tensor_at(t, h) : 0;
                if (scale > 0 && isfinite(scale)) continue;
                OSH_TRY(
                    osh_verify_add(cx, v, e->name, "a positive number", "is %g", (double)scale));
                break;
            }
        }
done:
    osh_tensor_free(cx, t);
    return rc;
}

osh_status osh_verify_config(osh_ctx *cx, osh_verify *v)
{
    osh_status rc = OSH_OK;
    osh_q_config *c = NULL; // own
    modules ms = {0};       // own
    if (!v->ck->config->quantization_config) {
        if ((v->pruned || v->changed) && !v->quantized) goto done;
        OSH_TRY(osh_verify_add(cx, v, "config.json", "a quantization_config", "has none"));
        goto done;
    }
    rc = osh_q_config_parse(cx, &c, v->ck->config->quantization_config, v->ck->config->path);
    if (rc) {
        OSH_TRY(osh_verify_failed(cx, v, rc, "config.json",
                                  "a quantization_config of compressed-tensors"));
        goto done;
    }
    for (size_t i = 0; i < c->n; i++)
        if (!c->schemes[i].format[0] && osh_format_find(c->format))
            snprintf(c->schemes[i].format, sizeof c->schemes[i].format, "%s", c->format);
    OSH_TRY(modules_list(cx, &ms, v, c));
    OSH_TRY(modules_find_groups(cx, v, &ms, c));
    OSH_TRY(config_check_modules(cx, v, &ms, c));
    osh_verify_alone(v);
    OSH_TRY(config_check_strays(cx, v));
    OSH_TRY(config_check_tied_head(cx, v));
    if (c->cache.present) OSH_TRY(config_check_cache_scales(cx, v));
    for (int i = 0; i < ms.n; i++)
        /* A module without quantized tensors counts as dense, also if a config group matches it. */
        if (!module_is_quantized(cx, v, ms.names[i])) ms.which[i] = -1;
    osh_q_groups groups = osh_q_groups_of(c->schemes, c->n, &c->ignore);
    osh_q_modules all = {(const char *const *)ms.names, ms.classes, ms.which, (size_t)ms.n,
                         osh_q_family_of(v->ck->config)};
    rc = osh_q_vllm_check(cx, &groups, &all);
    OSH_TRY(osh_verify_failed(cx, v, rc, "quantization_config", "the scheme that vLLM finds"));
done:
    modules_deinit(cx, &ms);
    osh_q_config_free(cx, c);
    return rc;
}
