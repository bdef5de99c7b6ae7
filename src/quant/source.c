/* source.c - replaces each quantized module of a checkpoint by a virtual dense weight, and hides
 * the stored tensors of the module. */
#include "base/name.h"
#include "quant/source_impl.h"

#include <stdio.h>
#include <string.h>

#define OSH_SOURCE(n) extern const osh_source_type osh_source_##n;
#include "quant/sources.def"
#undef OSH_SOURCE

static const osh_source_type *const types[] = {
#define OSH_SOURCE(n) &osh_source_##n,
#include "quant/sources.def"
#undef OSH_SOURCE
};
enum {
    N_TYPES = sizeof types / sizeof *types,
    N_METHODS = sizeof types[0]->methods / sizeof types[0]->methods[0]
};

osh_checkpoint *osh_source_checkpoint(const osh_source *s) { return s->ck; }
int osh_source_n_quantized(const osh_source *s) { return s->n; }

size_t osh_source_scratch(const osh_source *s)
{
    size_t most = 0;
    for (int k = 0; k < s->n; k++) {
        size_t n = s->mods[k].type->bytes(&s->mods[k]);
        most = n > most ? n : most;
    }
    return most + (s->adapter ? osh_adapter_scratch(s->adapter) : 0) + osh_padding_scratch(s);
}

int osh_source_n_merged(const osh_source *s)
{
    return s->adapter ? osh_adapter_n_weights(s->adapter) : 0;
}

/* ---- the config ---- */

/* Returns the row of sources.def for a quant_method, or NULL if there is none. Writes the names of
 * all methods to `to`, as "a, b or c". */
static const osh_source_type *find_method(char *to, size_t cap, const char *method)
{
    const osh_source_type *found = NULL;
    const char *names[N_TYPES * N_METHODS];
    size_t n = 0, at = 0;
    for (int k = 0; k < N_TYPES; k++)
        for (int i = 0; i < N_METHODS && types[k]->methods[i]; i++) {
            names[n++] = types[k]->methods[i];
            if (!strcmp(method, types[k]->methods[i])) found = types[k];
        }
    for (size_t i = 0; i < n && at < cap; i++)
        at += (size_t)snprintf(to + at, cap - at, "%s%s", !i ? "" : i + 1 < n ? ", " : " or ",
                               names[i]);
    return found;
}

osh_status osh_source_method(osh_ctx *cx, const char **method, const osh_hf_config *c)
{
    const char *dflt = "compressed-tensors";
    *method = NULL;
    if (!c->quantization_config) return OSH_OK;
    for (int k = 0; k < N_TYPES; k++)
        if (types[k]->file && !strcmp(types[k]->file, osh_path_last(c->quantization_path)))
            dflt = types[k]->methods[0];
    return osh_json_str_or(cx, method, c->quantization_config, "quant_method", dflt,
                           c->quantization_path);
}

/* True if row k of sources.def may read modules of the checkpoint. If the row for the quant_method
 * of the checkpoint has config groups, only this row is used. If not, all rows without config
 * groups are used. */
static bool is_asked(const osh_source *s, int k)
{
    return types[k]->groups ? types[k] == s->type : !s->type->groups;
}

static osh_status read_config(osh_ctx *cx, osh_source *s)
{
    osh_status rc = OSH_OK;
    char methods[512];
    const cJSON *q = s->ck->config->quantization_config;
    const char *path = s->ck->config->quantization_path;
    OSH_TRY(osh_source_method(cx, &s->method, s->ck->config));
    if (!(s->type = find_method(methods, sizeof methods, s->method)))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quant_method is '%s', want %s", path, s->method,
                 methods);
    if (s->type->configure) OSH_TRY(s->type->configure(cx, s, q));
done:
    return rc;
}

/* ---- stored modules ---- */

/* Adds the module to which tensor t belongs, if it is not known yet. The module is read by the
 * first row of sources.def whose function `claims` returns true for t. */
static osh_status find_module(osh_ctx *cx, osh_source *s, const osh_ckpt_tensor *t)
{
    osh_status rc = OSH_OK;
    osh_source_module *q;
    int64_t known;
    size_t n;
    for (int k = 0; k < N_TYPES; k++) {
        if (!is_asked(s, k) || !types[k]->claims(s, t->e, &n)) continue;
        if (osh_map_get(s->by_name, t->e->name, n, &known)) break;
        OSH_TRY(osh_source_module_new(cx, &q, s, t->e->name, n));
        q->type = types[k], q->state = &s->states[k];
        OSH_TRY(types[k]->find(cx, q));
        break;
    }
done:
    return rc;
}

static osh_status find_modules(osh_ctx *cx, osh_source *s)
{
    osh_status rc = OSH_OK;
    int64_t n_stored = s->ck->n_tensors;
    OSH_NEW(cx, s->mods, n_stored);
    OSH_NEW(cx, s->states, N_TYPES);
    for (int k = 0; k < N_TYPES; k++)
        if (is_asked(s, k) && types[k]->begin) OSH_TRY(types[k]->begin(cx, &s->states[k], s));
    for (int64_t i = 0; i < n_stored; i++) OSH_TRY(find_module(cx, s, &s->ck->tensors[i]));
    if (!s->n && !(s->config && (s->config->cache.present || s->config->transforms.n)))
        osh_log(cx, OSH_LOG_WARN, "%s has a quantization_config and no quantized tensor",
                s->ck->dir);
done:
    for (int k = 0; s->states && k < N_TYPES; k++)
        if (s->states[k] && types[k]->found) types[k]->found(cx, &s->states[k]);
    return rc;
}

/* Computes rows [first, first + n) of a dense weight. The virtual tensors use this function, which
 * has the type osh_ckpt_make. */
static osh_status make_dense_rows(osh_ctx *cx, void *to, void *user, const osh_entry *e,
                                  int64_t first, int64_t n)
{
    const osh_source_module *q = user;
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    osh_status rc = q->type->make_rows(cx, to, q, first, n);
    osh_mem_use(cx, old);
    if (rc) osh_note(cx, "dequantizing %s", e->name);
    return rc;
}

/* ---- visible tensors ---- */

static osh_status add_dense_weight(osh_ctx *cx, osh_source *s, osh_source_module *q)
{
    osh_status rc = OSH_OK;
    char *name = q->bare ? osh_strdup(cx, q->name) : osh_sprintf(cx, "%s.weight", q->name); // own
    osh_entry linear = {.dtype = q->dtype, .ndim = 2, .shape = {q->O, q->I}};
    osh_entry experts = {.dtype = q->dtype,
                         .ndim = 3,
                         .shape = {q->experts, q->experts ? q->O / q->experts : 0, q->I}};
    if (!name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    OSH_TRY(osh_checkpoint_add_virtual(cx, s->ck, name, q->experts ? &experts : &linear,
                                       make_dense_rows, q));
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

/* Returns the index of the quantized module to which a stored tensor of codes or parameters
 * belongs. Returns -1 if there is no such module. */
static int64_t module_of_part(const osh_source *s, const char *name)
{
    size_t n = strlen(name);
    int64_t i;
    for (int k = 0; k < N_TYPES; k++)
        for (const char *const *p = types[k]->tails; *p; p++)
            if (osh_ends_with(name, n, *p) && osh_map_get(s->by_name, name, n - strlen(*p), &i) &&
                s->mods[i].type == types[k])
                return i;
    return -1;
}

static bool is_of_cache(const char *tensor)
{
    static const char *const leaves[] = {".k_scale", ".v_scale", ".q_scale", ".k_zero_point",
                                         ".v_zero_point"};
    const char *dot = strrchr(tensor, '.');
    for (size_t i = 0; dot && i < sizeof leaves / sizeof *leaves; i++)
        if (!strcmp(dot, leaves[i])) return true;
    return false;
}

/* Fails if a tensor belongs to a quantized module but is not one of its known parts. The meaning of
 * such a tensor is unknown. */
static osh_status check_beside(osh_ctx *cx, const osh_source *s, const char *name)
{
    const char *dot = strrchr(name, '.');
    int64_t i;
    if (!dot || !strcmp(dot, ".bias") || is_of_cache(name) ||
        !osh_map_get(s->by_name, name, (size_t)(dot - name), &i) || s->mods[i].bare ||
        s->ck->virtuals[i].kept)
        return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s: the program does not know this tensor of a module with codes of %s: want "
                    "a source without it",
                    name, s->method);
}

static osh_status keep_rest(osh_ctx *cx, osh_source *s, osh_matcher *only)
{
    osh_status rc = OSH_OK;
    if (!s->config)
        OSH_FAIL(
            cx, OSH_E_USAGE,
            "--only would mix codes of quant_method %s with codes of compressed-tensors, and no "
            "engine reads both: want the whole model, without --only",
            s->method);
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
    for (int i = 0; i < s->n; i++) OSH_TRY(add_dense_weight(cx, s, &s->mods[i]));
    if (only) OSH_TRY(keep_rest(cx, s, only));
    OSH_NEW(cx, by, s->ck->n_tensors);
    for (int64_t i = 0; i < s->ck->n_tensors; i++) by[i] = -1;
    for (int64_t i = 0; i < n_stored; i++) {
        const osh_entry *e = s->ck->tensors[i].e;
        int64_t module = module_of_part(s, e->name);
        if (module >= 0 && s->ck->virtuals[module].kept) continue;
        if (module < 0) OSH_TRY(check_beside(cx, s, e->name));
        if (module >= 0) by[i] = n_stored + module;
        else if (compress && !only && is_of_cache(e->name)) by[i] = -2;
    }
    OSH_TRY(osh_checkpoint_hide(cx, s->ck, by));
done:
    osh_free(cx, by);
    return rc;
}

static osh_status merge_adapter(osh_ctx *cx, osh_source *s, const char *dir)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_adapter_open(cx, &s->adapter, dir));
    if (!(s->ck->adapter = osh_strdup(cx, dir))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_adapter_merge(cx, s->adapter, s->ck));
done:
    return rc;
}

typedef struct source_use { // how a checkpoint is opened
    const char *adapter;    // view: directory of the LoRA adapter; NULL: there is none
    bool compress;
    bool vllm;              // true: only vLLM loads the output
    osh_matcher *only;      // view: modules that are compressed (--only); NULL: all
} source_use;

static osh_status source_open(osh_ctx *cx, osh_source **out, const char *dir, const source_use *use)
{
    osh_status rc = OSH_OK;
    osh_source *s = NULL; // own
    OSH_NEW(cx, s, 1);
    OSH_TRY(osh_map_new(cx, &s->by_name, 64));
    OSH_TRY(osh_checkpoint_open(cx, &s->ck, dir));
    if (use->vllm) OSH_TRY(osh_checkpoint_part_for_vllm(cx, s->ck));
    if (s->ck->config->quantization_config) {
        OSH_TRY(read_config(cx, s));
        if (use->compress && osh_source_transforms(s))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: transform_config: %s acts while the model runs: compressing such a "
                     "model again is not supported",
                     s->ck->config->path, s->config->transforms.of[0].name);
        OSH_TRY(find_modules(cx, s));
        OSH_TRY(hide_parts(cx, s, use->compress, use->only));
    }
    if (use->adapter) OSH_TRY(merge_adapter(cx, s, use->adapter));
    *out = s, s = NULL;
done:
    osh_source_close(cx, s);
    return rc;
}

osh_status osh_source_open(osh_ctx *cx, osh_source **out, const char *dir)
{
    return source_open(cx, out, dir, &(source_use){0});
}

osh_status osh_source_open_merged(osh_ctx *cx, osh_source **out, const char *dir,
                                  const char *adapter)
{
    return source_open(cx, out, dir, &(source_use){.adapter = adapter});
}

osh_status osh_source_open_to_compress(osh_ctx *cx, osh_source **out, const char *dir,
                                       const char *adapter, osh_matcher *only, bool vllm)
{
    return source_open(cx, out, dir, &(source_use){.adapter = adapter, .compress = true,
                                                   .vllm = vllm, .only = only});
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
    for (int k = 0; s->states && k < N_TYPES; k++)
        if (s->states[k] && types[k]->close) types[k]->close(cx, s->states[k]);
    osh_free(cx, s->states);
    osh_map_free(cx, s->by_name);
    osh_q_config_free(cx, s->config);
    osh_adapter_close(cx, s->adapter);
    osh_free(cx, s->padding);
    osh_checkpoint_close(cx, s->ck);
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

const osh_q_args *osh_source_outputs(const osh_source *s, const char *module,
                                     const osh_tensor **scale, const osh_tensor **zero)
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
bool osh_source_has_part(const osh_source *s, const char *tensor)
{
    return module_of_part(s, tensor) >= 0;
}

const osh_q_args *osh_source_cache(const osh_source *s)
{
    return s->config && s->config->cache.present ? &s->config->cache : NULL;
}

const osh_q_transforms *osh_source_transforms(const osh_source *s)
{
    return s->config && s->config->transforms.n ? &s->config->transforms : NULL;
}

bool osh_source_queries(const osh_source *s)
{
    return s->config && osh_q_config_queries(s->config);
}
