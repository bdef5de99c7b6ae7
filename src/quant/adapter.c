/* adapter.c - opens a LoRA adapter of PEFT and finds the weights that the adapter changes.
 *
 *   base_model.model.X.lora_A.weight [r, I]         with lora_B.weight [O, r]: update of X.weight
 *   base_model.model.X.lora_embedding_A [r, V]      with lora_embedding_B [D, r]: update of the
 *                                                   embedding X
 *   base_model.model.X.base_layer.weight            the weight to which the update is added
 *   base_model.model.X.base_layer.bias              replaces X.bias
 *   base_model.model.Y                              replaces the tensor Y (modules_to_save, bias)
 *
 * The update is scaled by alpha / r, or by alpha / sqrt(r) with use_rslora. rank_pattern and
 * alpha_pattern have other values of r and alpha for some modules. A key of the config that this
 * program does not know must be null, false or empty, because it may name a variant of LoRA. */
#include "quant/adapter_impl.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/name.h"
#include "text/json.h"
#include "text/regex.h"

enum { MAX_CONFIG_BYTES = 16 << 20, MAX_RANK = 1 << 20 };

/* ---- the config ---- */

/* True if this program handles the key of adapter_config.json: it reads the key, or the key has no
 * effect on the merged weights. */
static bool adapter_knows(const char *key)
{
    static const char *const known[] = {
        "peft_type", "task_type", "auto_mapping", "base_model_name_or_path", "revision",
        "inference_mode", "peft_version", "r", "lora_alpha", "lora_dropout", "target_modules",
        "exclude_modules", "fan_in_fan_out", "bias", "use_rslora", "modules_to_save",
        "init_lora_weights", "layers_to_transform", "layers_pattern", "rank_pattern",
        "alpha_pattern", "megatron_core", "qalora_group_size", "runtime_config", "eva_config",
        "corda_config", "lora_ga_config", "loftq_config", "ensure_weight_tying"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(key, known[i])) return true;
    return false;
}

static bool is_unset(const cJSON *v)
{
    return cJSON_IsNull(v) || cJSON_IsFalse(v) ||
           ((cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child);
}

/* Fails if init_lora_weights names a method of PEFT that changes the weights of the base model. */
static osh_status adapter_check_init(osh_ctx *cx, const osh_adapter *a)
{
    static const char *const same[] = {"gaussian", "eva", "orthogonal"};
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(a->config, "init_lora_weights");
    if (!v || !cJSON_IsString(v)) return OSH_OK;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!strcmp(v->valuestring, same[i])) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s: init_lora_weights is '%.60s', with which PEFT changes the weights of the "
                    "base model: want an adapter converted to plain LoRA",
                    a->path, v->valuestring);
}

static osh_status adapter_check_config(osh_ctx *cx, const osh_adapter *a)
{
    osh_status rc = OSH_OK;
    const char *type;
    if (!cJSON_IsObject(a->config))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: is not a JSON object", a->path);
    OSH_TRY(osh_json_str_or(cx, &type, a->config, "peft_type", "(none)", a->path));
    if (strcmp(type, "LORA"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: peft_type is '%.60s', want LORA", a->path, type);
    for (const cJSON *v = a->config->child; v; v = v->next)
        if (!adapter_knows(v->string) && !is_unset(v))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: %.60s is set: this variant of LoRA is not merged; want null or false, or "
                     "the model that merge_and_unload() of PEFT makes",
                     a->path, v->string);
    OSH_TRY(adapter_check_init(cx, a));
done:
    return rc;
}

/* Reads a number from the object `pattern`, whose keys are patterns of module names. The first key
 * that matches the module by the rules of PEFT decides. Leaves *out unchanged if no key matches. */
static osh_status adapter_take_pattern(osh_ctx *cx, double *out, const osh_adapter *a,
                                       const char *pattern, const char *module)
{
    osh_status rc = OSH_OK;
    osh_regex *r = NULL; // own
    char *text = NULL;   // own
    bool yes = false;
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(a->config, pattern);
    if (o && !cJSON_IsNull(o) && !cJSON_IsObject(o))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is not an object: want names of modules with numbers",
                 a->path, pattern);
    for (const cJSON *v = cJSON_IsObject(o) ? o->child : NULL; v && !yes; v = v->next) {
        osh_regex_free(cx, r), r = NULL;
        osh_free(cx, text);
        if (!(text = osh_sprintf(cx, "(.*\\.)?(%s)$", v->string))) OSH_TRY(OSH_E_NOMEM);
        if ((rc = osh_regex_new(cx, &r, text, strlen(text)))) {
            osh_note(cx, "%s: %s", a->path, pattern);
            goto done;
        }
        OSH_TRY(osh_regex_match(cx, r, module, strlen(module), &yes));
        if (yes) OSH_TRY(osh_json_num_or(cx, out, o, v->string, 0, a->path));
    }
done:
    osh_regex_free(cx, r);
    osh_free(cx, text);
    return rc;
}

/* Sets w->scaling, the factor of the update. Fails if the rank of the stored tensors A and B is not
 * the rank in the config. */
static osh_status adapter_scale(osh_ctx *cx, osh_lora *w, const char *module)
{
    osh_status rc = OSH_OK;
    const osh_adapter *a = w->adapter;
    double r = 8, alpha = 8;
    bool rs;
    OSH_TRY(osh_json_num_or(cx, &r, a->config, "r", 8, a->path));
    OSH_TRY(osh_json_num_or(cx, &alpha, a->config, "lora_alpha", 8, a->path));
    OSH_TRY(osh_json_bool_or(cx, &rs, a->config, "use_rslora", false, a->path));
    OSH_TRY(adapter_take_pattern(cx, &r, a, "rank_pattern", module));
    OSH_TRY(adapter_take_pattern(cx, &alpha, a, "alpha_pattern", module));
    if (!(r >= 1 && r <= MAX_RANK) || r != floor(r) || !isfinite(alpha))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: %s has r %g and lora_alpha %g, want r a whole number from 1 to %d and "
                 "lora_alpha finite",
                 a->path, module, r, alpha, (int)MAX_RANK);
    if (w->a->shape[0] != (int64_t)r)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has rank %lld, want %g as in %s for %s", w->a->name,
                 (long long)w->a->shape[0], r, a->path, module);
    w->scaling = (float)(alpha / (rs ? sqrt(r) : r));
done:
    return rc;
}

/* ---- the tensors ---- */

static bool lora_is_float(const osh_entry *e)
{
    return e->dtype == OSH_F32 || e->dtype == OSH_BF16 || e->dtype == OSH_F16;
}

/* Sets *out to the changed weight with the name <module><tail>. Adds this weight to a->weights if
 * it is not there yet. */
static osh_status adapter_weight(osh_ctx *cx, osh_lora **out, osh_adapter *a, const char *module,
                                 size_t n, const char *tail)
{
    osh_status rc = OSH_OK;
    int64_t known;
    char *name = osh_sprintf(cx, "%.*s%s", (int)n, module, tail); // own
    if (!name) OSH_TRY(OSH_E_NOMEM);
    if (osh_map_get(a->by_name, name, strlen(name), &known)) {
        *out = &a->weights[known];
        goto done;
    }
    OSH_TRY(osh_map_put(cx, a->by_name, name, strlen(name), a->n));
    *out = &a->weights[a->n++];
    (*out)->adapter = a, (*out)->name = name, name = NULL; // give
done:
    osh_free(cx, name);
    return rc;
}

/* True if the name is that of a weight or bias of a `base_layer` (see the top of this file). */
static bool adapter_is_base(const char *name)
{
    const char *leaf = strrchr(name, '.');
    return leaf && osh_ends_with(name, (size_t)(leaf - name), ".base_layer");
}

/* Stores tensor e of the adapter in the record of the weight that e changes or replaces. */
static osh_status adapter_add(osh_ctx *cx, osh_adapter *a, const osh_entry *e)
{
    static const struct { const char *tail; bool embedding, is_b; } tails[] = {
        {".lora_A.weight", false, false}, {".lora_B.weight", false, true},
        {".lora_embedding_A", true, false}, {".lora_embedding_B", true, true}};
    static const char prefix[] = "base_model.model.";
    osh_status rc = OSH_OK;
    osh_lora *w;
    size_t n, skip = sizeof prefix - 1;
    if (strncmp(e->name, prefix, skip) || !e->name[skip])
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s: want a name that begins with %s",
                 osh_container_path(a->st), e->name, prefix);
    if (!lora_is_float(e))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s: want F32, BF16 or F16", e->name,
                 osh_dtype_name(e->dtype));
    const char *name = e->name + skip;
    for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) {
        if (!(n = osh_before_tail(name, tails[k].tail))) continue;
        if (e->ndim != 2 || e->shape[0] < 1 || e->shape[1] < 1)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has %d dimensions or no elements: want 2 dimensions",
                     e->name, e->ndim);
        OSH_TRY(adapter_weight(cx, &w, a, name, n, ".weight"));
        const osh_entry **part = tails[k].is_b ? &w->b : &w->a;
        bool replaced = w->whole && !adapter_is_base(w->whole->name);
        if (*part || replaced || ((w->a || w->b) && w->embedding != tails[k].embedding))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s is changed by both %s and %s: want one of them", w->name,
                     e->name, (*part ? *part : replaced ? w->whole : w->a ? w->a : w->b)->name);
        w->embedding = tails[k].embedding;
        *part = e;
        goto done;
    }
    if (strstr(name, ".lora_"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %.200s: this variant of LoRA is not merged",
                 osh_container_path(a->st), e->name);
    const char *leaf = strrchr(name, '.');
    bool inner = adapter_is_base(name);
    n = inner ? (size_t)(leaf - name) - strlen(".base_layer") : strlen(name);
    OSH_TRY(adapter_weight(cx, &w, a, name, n, inner ? leaf : ""));
    /* A base_layer tensor may occur together with A and B: the update of A and B is then added to
     * it. Any other tensor that replaces a weight is an error if A or B occurs, too. */
    if (w->whole || (!inner && (w->a || w->b)))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s is changed by both %s and %s: want one of them", w->name,
                 e->name, (w->whole ? w->whole : w->a ? w->a : w->b)->name);
    w->whole = e;
done:
    return rc;
}

/* Fails if the adapter has no tensor for a name in modules_to_save. A tensor belongs to a name if
 * the full name of its module, or of a module around it, ends with the name. */
static osh_status adapter_check_saved(osh_ctx *cx, const osh_adapter *a)
{
    osh_status rc = OSH_OK;
    const cJSON *v, *list = cJSON_GetObjectItemCaseSensitive(a->config, "modules_to_save");
    cJSON_ArrayForEach(v, list)
    {
        bool found = false;
        size_t n = cJSON_IsString(v) ? strlen(v->valuestring) : 0;
        for (int i = 0; n && i < a->n && !found; i++) {
            const char *name = a->weights[i].name;
            for (const char *dot = strchr(name, '.'); a->weights[i].whole && dot && !found;
                 dot = strchr(dot + 1, '.'))
                found = osh_ends_with(name, (size_t)(dot - name), v->valuestring);
        }
        if (!found)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: modules_to_save has %.200s, but the adapter holds no tensor of such a "
                     "module: want all that PEFT saved",
                     a->path, n ? v->valuestring : "no name");
    }
done:
    return rc;
}

osh_status osh_adapter_open(osh_ctx *cx, osh_adapter **out, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_adapter *a = NULL; // own
    char *path = NULL;     // own
    OSH_NEW(cx, a, 1);
    if (!(a->dir = osh_strdup(cx, dir)) ||
        !(a->path = osh_path_join(cx, dir, "adapter_config.json")) ||
        !(path = osh_path_join(cx, dir, "adapter_model.safetensors")))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_json_read(cx, &a->config, a->path, MAX_CONFIG_BYTES, OSH_JSON_NAN));
    OSH_TRY(adapter_check_config(cx, a));
    if (!osh_file_exists(path))
        OSH_FAIL(cx, OSH_E_IO,
                 "%s: does not exist: want weights as safetensors, which save_pretrained() of PEFT "
                 "writes", path);
    OSH_TRY(osh_container_open(cx, &a->st, path));
    OSH_NEW(cx, a->weights, osh_container_count(a->st) + 1);
    OSH_TRY(osh_map_new(cx, &a->by_name, 64));
    for (int64_t i = 0; i < osh_container_count(a->st); i++)
        OSH_TRY(adapter_add(cx, a, osh_container_at(a->st, i)));
    OSH_TRY(adapter_check_saved(cx, a));
    if (!a->n)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no tensors: want the tensors of an adapter", path);
    *out = a, a = NULL; // give
done:
    osh_free(cx, path);
    osh_adapter_close(cx, a);
    return rc;
}

void osh_adapter_close(osh_ctx *cx, osh_adapter *a)
{
    if (!a) return;
    for (int i = 0; i < a->n; i++) osh_free(cx, a->weights[i].name);
    osh_free(cx, a->weights);
    osh_map_free(cx, a->by_name);
    osh_container_close(cx, a->st);
    cJSON_Delete(a->config);
    osh_free(cx, a->path);
    osh_free(cx, a->dir);
    osh_free(cx, a);
}

/* ---- merging ---- */

/* Finds the tensor of the checkpoint that the adapter changes. Fails if its dtype or shape does not
 * fit the tensors of the adapter. */
static osh_status lora_bind(osh_ctx *cx, osh_lora *w, const osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t = osh_checkpoint_find(ck, w->name);
    const osh_entry *e = w->whole ? w->whole : w->a ? w->a : w->b;
    if (!t)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %.200s, but %s has no tensor %s", w->adapter->dir,
                 e->name, ck->dir, w->name);
    if (!lora_is_float(t->e))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s is %s: want BF16, F16 or F32 for %.200s", w->name,
                 osh_dtype_name(t->e->dtype), e->name);
    w->base = *t;
    if (w->whole && (w->whole->ndim != t->e->ndim ||
                     memcmp(w->whole->shape, t->e->shape, (size_t)t->e->ndim * sizeof(int64_t))))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%.200s has another shape than %s, which it replaces: want the shape [%lld, ...]",
                 w->whole->name, w->name, t->e->ndim ? (long long)t->e->shape[0] : 1LL);
    if (!w->a && !w->b) goto done;
    if (!w->a || !w->b)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %.200s, but no lora_%s for it", w->adapter->dir, e->name,
                 w->a ? "B" : "A");
    if (t->e->ndim != 2 || w->a->shape[0] != w->b->shape[1])
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%.200s [%lld, %lld] and %.200s [%lld, %lld] do not fit %s with %d dimensions: "
                 "want [r, in] and [out, r], and 2 dimensions",
                 w->a->name, (long long)w->a->shape[0], (long long)w->a->shape[1], w->b->name,
                 (long long)w->b->shape[0], (long long)w->b->shape[1], w->name, t->e->ndim);
done:
    return rc;
}

/* True if the product of B and A has the shape of the weight. If `turned` is true, the product must
 * have the transposed shape of the weight. */
static bool lora_fits(const osh_lora *w, bool turned)
{
    const int64_t *s = w->base.e->shape;
    return s[turned ? 1 : 0] == w->b->shape[0] && s[turned ? 0 : 1] == w->a->shape[1];
}

/* Decides which updates are transposed before they are added: those of embeddings and of Conv1Ds,
 * which store [in, out]. Like PEFT, the function looks at the class of the module, and not at
 * fan_in_fan_out. */
static osh_status adapter_turn(osh_ctx *cx, osh_adapter *a)
{
    osh_status rc = OSH_OK;
    bool conv1d = osh_hf_config_has_conv1d(a->ck->config);
    for (int i = 0; i < a->n; i++) {
        osh_lora *w = &a->weights[i];
        if (!w->a) continue;
        w->turned = w->embedding || (conv1d && lora_fits(w, true));
        if (!lora_fits(w, w->turned))
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%.200s [%lld, %lld] and %.200s [%lld, %lld] do not fit %s [%lld, %lld]",
                     w->a->name, (long long)w->a->shape[0], (long long)w->a->shape[1], w->b->name,
                     (long long)w->b->shape[0], (long long)w->b->shape[1], w->name,
                     (long long)w->base.e->shape[0], (long long)w->base.e->shape[1]);
    }
done:
    return rc;
}

/* Makes the changed tensor of the checkpoint virtual. If stored tensor i was changed, adds a
 * virtual tensor, and sets by[i] to its index. */
static osh_status lora_replace(osh_ctx *cx, osh_lora *w, osh_checkpoint *ck, int64_t *by)
{
    osh_status rc = OSH_OK;
    int64_t at = 0;
    osh_map_get(ck->by_name, w->name, strlen(w->name), &at);
    if (w->base.shard < 0) {
        osh_ckpt_virtual *v = &ck->virtuals[-1 - w->base.shard];
        if (!v->make || v->kept)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: codes that are copied cannot be merged with the adapter %s: want --only "
                     "to name all modules of the adapter",
                     w->name, w->adapter->dir);
        w->make = v->make, w->user = v->user;
        v->make = osh_lora_rows, v->user = w, v->merged = true;
        goto done;
    }
    OSH_TRY(osh_checkpoint_add_virtual(cx, ck, w->name, w->base.e, osh_lora_rows, w));
    osh_ckpt_virtual *v = &ck->virtuals[ck->n_virtuals - 1];
    v->first_shard = v->last_shard = w->base.shard, v->merged = v->dense = true;
    by[at] = ck->n_tensors - 1;
done:
    return rc;
}

osh_status osh_adapter_merge(osh_ctx *cx, osh_adapter *a, osh_checkpoint *ck)
{
    osh_status rc = OSH_OK;
    int64_t *by = NULL; // own
    a->ck = ck;
    for (int i = 0; i < a->n; i++) {
        osh_lora *w = &a->weights[i];
        OSH_TRY(lora_bind(cx, w, ck));
        if (!w->a) continue;
        size_t n = osh_before_tail(w->name, ".weight");
        w->name[n] = 0; // adapter_scale needs the name of the module, without ".weight"
        rc = adapter_scale(cx, w, w->name);
        w->name[n] = '.';
        if (rc) goto done;
    }
    OSH_TRY(adapter_turn(cx, a));
    OSH_NEW(cx, by, ck->n_tensors + a->n);
    for (int64_t i = 0; i < ck->n_tensors + a->n; i++) by[i] = -1;
    for (int i = 0; i < a->n; i++) OSH_TRY(lora_replace(cx, &a->weights[i], ck, by));
    OSH_TRY(osh_checkpoint_hide(cx, ck, by));
done:
    osh_free(cx, by);
    return rc;
}

size_t osh_adapter_scratch(const osh_adapter *a)
{
    size_t most = 0;
    for (int i = 0; i < a->n; i++) {
        size_t n = osh_lora_bytes(&a->weights[i]);
        most = n > most ? n : most;
    }
    return most;
}

int osh_adapter_n_weights(const osh_adapter *a) { return a->n; }
