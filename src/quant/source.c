/* source.c - puts a virtual dense weight in the place of each quantized module of a checkpoint, and hides what that is
 * made of. */
#include "base/name.h"
#include "quant/source_impl.h"

#include <string.h>

osh_checkpoint *osh_source_checkpoint(const osh_source *s) { return s->ck; }
int osh_source_n_quantized(const osh_source *s) { return s->n; }
const char *osh_source_method(const osh_source *s) { return s->n ? s->method : NULL; }

size_t osh_source_scratch(const osh_source *s)
{
    size_t most = 0;
    for (int k = 0; k < s->n; k++) {
        size_t n = osh_source_module_bytes(&s->mods[k]);
        most = n > most ? n : most;
    }
    return most;
}

/* ---- what the config says ---- */

static osh_status read_block(osh_ctx *cx, osh_source *s, const cJSON *q)
{
    osh_status rc = OSH_OK;
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(q, "weight_block_size");
    if (!size || cJSON_IsNull(size)) goto done;
    for (int d = 0; d < 2; d++) {
        const cJSON *n = cJSON_GetArrayItem(size, d);
        if (!cJSON_IsNumber(n) || !(n->valuedouble >= 1 && n->valuedouble <= 1 << 20) || cJSON_GetArraySize(size) != 2)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: weight_block_size is no list of two positive numbers", s->ck->config->path);
        s->block[d] = (int64_t)n->valuedouble;
    }
done:
    return rc;
}

static osh_status read_config(osh_ctx *cx, osh_source *s)
{
    osh_status rc = OSH_OK;
    static const char *const others[] = {"fp8", "fbgemm_fp8", "modelopt", "mxfp4"};
    const cJSON *q = s->ck->config->quantization_config;
    const char *path = s->ck->config->path, *algo = NULL;
    bool known = false;
    OSH_TRY(osh_json_str_or(cx, &s->method, q, "quant_method", "compressed-tensors", path));
    if (!strcmp(s->method, "compressed-tensors")) {
        OSH_TRY(osh_q_config_parse(cx, &s->config, q, path));
        goto done;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) known |= !strcmp(s->method, others[i]);
    if (!known)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: quant_method is '%s', want compressed-tensors, fp8, fbgemm_fp8, modelopt or mxfp4", path,
                 s->method);
    OSH_TRY(osh_json_str_or(cx, &algo, q, "quant_algo", "FP8", path));
    if (strcmp(algo, "FP8"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quant_method %s with quant_algo '%s': want FP8", path, s->method, algo);
    OSH_TRY(read_block(cx, s, q));
done:
    return rc;
}

/* ---- what is seen ---- */

static osh_status add_weight(osh_ctx *cx, osh_source *s, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    char *name = q->bare ? osh_strdup(cx, q->name) : osh_sprintf(cx, "%s.weight", q->name); // own
    osh_st_entry linear = {.dtype = q->dtype, .ndim = 2, .shape = {q->O, q->I}};
    osh_st_entry experts = {.dtype = q->dtype, .ndim = 3,
                            .shape = {q->experts, q->scheme && q->experts ? q->O / q->experts : q->O, q->I}};
    if (!name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    OSH_TRY(osh_checkpoint_add_virtual(cx, s->ck, name, q->experts ? &experts : &linear, osh_source_make, q));
    osh_ckpt_virtual *v = &s->ck->virtuals[s->ck->n_virtuals - 1];
    v->first_shard = INT32_MAX;
    for (int i = 0; i < q->n_leaves; i++) {
        if (!q->parts[i].e) continue;
        if (q->parts[i].shard < v->first_shard) v->first_shard = q->parts[i].shard;
        if (q->parts[i].shard > v->last_shard) v->last_shard = q->parts[i].shard;
    }
done:
    osh_free(cx, name);
    return rc;
}

/* The module that a stored tensor belongs to, as codes or parameters of its weight and its input; -1: none. */
static int64_t module_of(const osh_source *s, const char *name)
{
    static const char *const leaves[] = {"weight", "weight_packed", "weight_scale", "weight_scale_inv",
                                         "weight_zero_point", "weight_shape", "weight_global_scale", "input_scale",
                                         "input_zero_point", "input_global_scale", "input_scale_ub",
                                         "activation_scale", "output_scale", "output_zero_point"};
    static const char *const tails[] = {"_blocks", "_scales", "_scale_inv", "_scale", "_activation_scale", ""};
    const char *dot = strrchr(name, '.');
    size_t n = strlen(name);
    int64_t i = -1;
    for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) // of experts in one tensor
        if (osh_ends_with(name, n, tails[k]) && osh_map_get(s->by_name, name, n - strlen(tails[k]), &i) &&
            s->mods[i].bare)
            return i;
    i = -1;
    for (size_t k = 0; dot && k < sizeof leaves / sizeof *leaves; k++)
        if (!strcmp(dot + 1, leaves[k]) && osh_map_get(s->by_name, name, (size_t)(dot - name), &i)) return i;
    return -1;
}

static bool is_of_cache(const char *tensor)
{
    static const char *const leaves[] = {".k_scale", ".v_scale", ".q_scale", ".k_zero_point", ".v_zero_point"};
    const char *dot = strrchr(tensor, '.');
    for (size_t i = 0; dot && i < sizeof leaves / sizeof *leaves; i++)
        if (!strcmp(dot, leaves[i])) return true;
    return false;
}

static osh_status keep_rest(osh_ctx *cx, osh_source *s, osh_matcher *only)
{
    osh_status rc = OSH_OK;
    if (!s->config)
        OSH_FAIL(cx, OSH_E_USAGE, "--only would keep codes of quant_method %s beside those of compressed-tensors, and "
                 "no engine reads both: want all of the model, without --only", s->method);
    for (int i = 0; i < s->n; i++) {
        int64_t which;
        OSH_TRY(osh_matcher_find(cx, &which, only, s->mods[i].name, NULL));
        s->ck->virtuals[i].kept = which < 0;
    }
done:
    return rc;
}

static osh_status hide_parts(osh_ctx *cx, osh_source *s, bool compress, osh_matcher *only)
{
    osh_status rc = OSH_OK;
    int64_t n_stored = s->ck->n_tensors, *by = NULL; // own
    for (int i = 0; i < s->n; i++) OSH_TRY(add_weight(cx, s, &s->mods[i]));
    if (only) OSH_TRY(keep_rest(cx, s, only));
    OSH_NEW(cx, by, s->ck->n_tensors);
    for (int64_t i = 0; i < s->ck->n_tensors; i++) by[i] = -1;
    for (int64_t i = 0; i < n_stored; i++) {
        const osh_st_entry *e = s->ck->tensors[i].e;
        int64_t module = module_of(s, e->name);
        if (module >= 0 && s->ck->virtuals[module].kept) continue;
        if (module >= 0) by[i] = n_stored + module;
        else if (compress && !only && is_of_cache(e->name)) by[i] = -2;
    }
    OSH_TRY(osh_checkpoint_hide(cx, s->ck, by));
done:
    osh_free(cx, by);
    return rc;
}

static osh_status source_open(osh_ctx *cx, osh_source **out, const char *dir, bool compress, osh_matcher *only)
{
    osh_status rc = OSH_OK;
    osh_source *s = NULL; // own
    OSH_NEW(cx, s, 1);
    pthread_mutex_init(&s->lock, NULL);
    OSH_TRY(osh_map_new(cx, &s->by_name, 64));
    OSH_TRY(osh_checkpoint_open(cx, &s->ck, dir));
    if (s->ck->config->quantization_config) {
        OSH_TRY(read_config(cx, s));
        if (compress && osh_source_transforms(s))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: transform_config: %s acts while the model runs: such a model is not "
                     "compressed again", s->ck->config->path, s->config->transforms.of[0].name);
        OSH_TRY(osh_source_find_modules(cx, s));
        OSH_TRY(hide_parts(cx, s, compress, only));
    }
    *out = s, s = NULL;
done:
    osh_source_close(cx, s);
    return rc;
}

osh_status osh_source_open(osh_ctx *cx, osh_source **out, const char *dir)
{
    return source_open(cx, out, dir, false, NULL);
}

osh_status osh_source_open_to_compress(osh_ctx *cx, osh_source **out, const char *dir, osh_matcher *only)
{
    return source_open(cx, out, dir, true, only);
}

void osh_source_close(osh_ctx *cx, osh_source *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        osh_free(cx, s->mods[i].name);
        osh_tensor_free(cx, s->mods[i].in_scale);
        osh_tensor_free(cx, s->mods[i].in_zero);
        osh_tensor_free(cx, s->mods[i].out_scale);
        osh_tensor_free(cx, s->mods[i].out_zero);
    }
    osh_free(cx, s->mods);
    osh_free(cx, s->blocks);
    osh_map_free(cx, s->by_name);
    osh_q_config_free(cx, s->config);
    osh_checkpoint_close(cx, s->ck);
    pthread_mutex_destroy(&s->lock);
    osh_free(cx, s);
}

const osh_q_scheme *osh_source_scheme(const osh_source *s, const char *module,
                                      const osh_tensor **in_scale, const osh_tensor **in_zero)
{
    int64_t i = 0;
    *in_scale = *in_zero = NULL;
    if (!s->config || !osh_map_get(s->by_name, module, strlen(module), &i)) return NULL;
    *in_scale = s->mods[i].in_scale, *in_zero = s->mods[i].in_zero;
    return s->mods[i].scheme;
}

const osh_q_args *osh_source_outputs(const osh_source *s, const char *module, const osh_tensor **scale,
                                     const osh_tensor **zero)
{
    int64_t i = 0;
    *scale = *zero = NULL;
    if (!s->config || !osh_map_get(s->by_name, module, strlen(module), &i)) return NULL;
    *scale = s->mods[i].out_scale, *zero = s->mods[i].out_zero;
    return s->mods[i].scheme->outputs.present ? &s->mods[i].scheme->outputs : NULL;
}

bool osh_source_rounds_outputs(const osh_source *s)
{
    for (int i = 0; s->config && i < s->n; i++)
        if (s->mods[i].scheme->outputs.present) return true;
    return false;
}

const osh_q_config *osh_source_config(const osh_source *s) { return s->config; }
bool osh_source_has_part(const osh_source *s, const char *tensor) { return module_of(s, tensor) >= 0; }

const osh_q_args *osh_source_cache(const osh_source *s)
{
    return s->config && s->config->cache.present ? &s->config->cache : NULL;
}

const osh_q_transforms *osh_source_transforms(const osh_source *s)
{
    return s->config && s->config->transforms.n ? &s->config->transforms : NULL;
}

bool osh_source_queries(const osh_source *s) { return s->config && osh_q_config_queries(s->config); }
