/* source.c - finds the quantized modules of a compressed-tensors checkpoint and puts a virtual
 * dense weight in the place of each. */
#include "quant/source.h"

#include <string.h>

typedef struct quantized {
    char *name; // own: module
    const osh_q_scheme *scheme; // view: config
    const osh_format *format;
    const osh_checkpoint *ck;   // view
    int64_t O, I;
    osh_format_tensor leaves[OSH_FORMAT_MAX_TENSORS];
    int64_t index[OSH_FORMAT_MAX_TENSORS]; // into ck->tensors; -1: absent
    int n_leaves;
    osh_tensor *in_scale, *in_zero; // own
} quantized;

struct osh_source {
    osh_checkpoint *ck;   // own
    osh_q_config *config; // own; NULL: dense
    quantized *mods;      // own
    int n;
    osh_map *by_name;     // own: module -> mods
};

osh_checkpoint *osh_source_checkpoint(const osh_source *s) { return s->ck; }
int osh_source_n_quantized(const osh_source *s) { return s->n; }

/* Weight of one module, dequantized: (code - zero) * scale, as compressed-tensors decompresses. */
static osh_status make_weight(osh_ctx *cx, void *to, void *user, const osh_st_entry *e)
{
    osh_status rc = OSH_OK;
    const quantized *q = user;
    osh_tensor *raw[OSH_FORMAT_MAX_TENSORS] = {0}; // own
    osh_tensor *made = NULL; // own: where the scale's dtype is another
    void *codes = NULL;      // own
    osh_qparams params = {0}; // own
    for (int i = 0; i < q->n_leaves; i++) {
        if (q->index[i] < 0) continue;
        const osh_ckpt_tensor *t = &q->ck->tensors[q->index[i]];
        OSH_TRY(osh_tensor_new(cx, &raw[i], t->e->dtype, t->e->ndim, t->e->shape));
        OSH_TRY(osh_st_read(cx, raw[i]->data, q->ck->shards[t->shard], t->e));
    }
    codes = osh_alloc(cx, (size_t)(q->O * q->I));
    if (!codes) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the codes of %s", q->name);
    OSH_TRY(q->format->unpack(cx, codes, &params, q->scheme, q->O, q->I, (const osh_tensor *const *)raw));
    osh_dtype dt = q->scheme->weights.scale_dtype ? OSH_F32 : params.scale->dtype;
    OSH_TRY(osh_tensor_new(cx, &made, dt, 2, e->shape));
    OSH_TRY(osh_q_decode(cx, made, codes, &params, &q->scheme->weights));
    if (made->dtype == e->dtype) memcpy(to, made->data, osh_tensor_bytes(made));
    else if (made->dtype == OSH_F32) osh_from_f32(to, e->dtype, made->data, q->O * q->I);
    else
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s has scales in %s: want %s or F32", q->name,
                 osh_dtype_name(made->dtype), osh_dtype_name(e->dtype));
done:
    if (rc) osh_note(cx, "dequantizing %s", q->name);
    for (int i = 0; i < OSH_FORMAT_MAX_TENSORS; i++) osh_tensor_free(cx, raw[i]);
    osh_tensor_free(cx, made);
    osh_free(cx, codes);
    osh_qparams_deinit(cx, &params);
    return rc;
}

size_t osh_source_scratch(const osh_source *s)
{
    size_t most = 0;
    for (int k = 0; k < s->n; k++) {
        const quantized *q = &s->mods[k];
        size_t sum = osh_mem_gross((size_t)(q->O * q->I)) + osh_mem_gross((size_t)(q->O * q->I) * sizeof(float));
        for (int i = 0; i < q->n_leaves; i++) {
            if (q->index[i] < 0) continue;
            const osh_st_entry *e = q->ck->tensors[q->index[i]].e;
            sum += 2 * (osh_mem_gross((size_t)(e->end - e->begin)) + osh_mem_gross(sizeof(osh_tensor))); // and params
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static bool split(const char *name, const char *leaf, size_t *n)
{
    size_t a = strlen(name), b = strlen(leaf);
    *n = a > b ? a - b : 0;
    return a > b && !strcmp(name + a - b, leaf);
}

static osh_status find_scheme(osh_ctx *cx, const osh_q_scheme **out, const osh_q_config *c,
                              osh_matcher **m, const char *name, bool embedding)
{
    osh_status rc = OSH_OK;
    *out = NULL;
    for (size_t i = 0; i < c->n && !*out; i++) {
        int64_t which = -1;
        OSH_TRY(osh_matcher_find(cx, &which, m[i], name, embedding ? "Embedding" : "Linear"));
        if (which >= 0) *out = &c->schemes[i];
    }
    if (!*out)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s is stored quantized, but no group of quantization_config has it as a target",
                 name);
done:
    return rc;
}

/* Rows and columns: of weight_shape where the format has it, else of the codes' tensor. */
static osh_status find_shape(osh_ctx *cx, quantized *q)
{
    osh_status rc = OSH_OK;
    int64_t shape[2];
    char *name = osh_sprintf(cx, "%s.weight_shape", q->name); // own
    osh_tensor *t = NULL;                                     // own
    if (!name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    const osh_ckpt_tensor *s = osh_checkpoint_find(q->ck, name);
    if (s) {
        OSH_TRY(osh_checkpoint_load(cx, &t, q->ck, name, 1, (int64_t[]){2}));
        if (t->dtype == OSH_I64) memcpy(shape, t->data, sizeof shape);
        else if (t->dtype == OSH_I32) shape[0] = ((int32_t *)t->data)[0], shape[1] = ((int32_t *)t->data)[1];
        else OSH_FAIL(cx, OSH_E_FORMAT, "%s is %s: want I64", name, osh_dtype_name(t->dtype));
    } else {
        bool halves = osh_q_is_fp4(&q->scheme->weights); // two codes in a byte
        osh_free(cx, name);
        if (!(name = osh_sprintf(cx, "%s.%s", q->name, halves ? "weight_packed" : "weight")))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", q->name);
        if (!(s = osh_checkpoint_find(q->ck, name)) || s->e->ndim != 2)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has neither weight_shape nor a 2-D %s", q->name,
                     halves ? "weight_packed" : "weight");
        shape[0] = s->e->shape[0], shape[1] = s->e->shape[1] * (halves ? 2 : 1);
    }
    if (shape[0] < 1 || shape[1] < 1 || shape[0] > INT32_MAX || shape[1] > INT32_MAX)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %ld rows and %ld columns", q->name, (long)shape[0], (long)shape[1]);
    q->O = shape[0], q->I = shape[1];
done:
    osh_free(cx, name);
    osh_tensor_free(cx, t);
    return rc;
}

/* The stored tensors of a module, in the order of its format; shapes must be the format's. */
static osh_status bind(osh_ctx *cx, osh_source *s, quantized *q, osh_dtype dt)
{
    osh_status rc = OSH_OK;
    char *name = NULL; // own
    OSH_TRY(osh_format_infer(cx, &q->format, q->scheme, q->name));
    OSH_TRY(q->format->tensors(cx, q->leaves, &q->n_leaves, q->scheme, q->O, q->I, dt));
    for (int i = 0; i < q->n_leaves; i++) {
        const osh_format_tensor *f = &q->leaves[i];
        bool input = !strncmp(f->leaf, "input_", 6);
        osh_free(cx, name);
        if (!(name = osh_sprintf(cx, "%s.%s", q->name, f->leaf)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", q->name);
        q->index[i] = -1;
        const osh_ckpt_tensor *t = osh_checkpoint_find(s->ck, name);
        if (!t) OSH_FAIL(cx, OSH_E_FORMAT, "%s is missing: want it for %s", name, q->format->name);
        int64_t numel = 0, want = 0;
        osh_shape_numel(&numel, t->e->ndim, t->e->shape);
        osh_shape_numel(&want, f->ndim, f->shape);
        if (numel != want)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s has %ld elements, %s wants %ld", name, (long)numel,
                     q->format->name, (long)want);
        osh_tensor **to = strcmp(f->leaf, "input_zero_point") ? &q->in_scale : &q->in_zero;
        if (!input) q->index[i] = t - s->ck->tensors;
        else OSH_TRY(osh_checkpoint_load(cx, to, s->ck, name, -1, NULL));
    }
done:
    osh_free(cx, name);
    return rc;
}

static osh_status add_module(osh_ctx *cx, osh_source *s, osh_matcher **m, const char *name, size_t n)
{
    osh_status rc = OSH_OK;
    quantized *q = &s->mods[s->n++];
    char *scale = NULL; // own
    if (!(q->name = osh_sprintf(cx, "%.*s", (int)n, name))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a module's name");
    q->ck = s->ck;
    OSH_TRY(osh_map_put(cx, s->by_name, q->name, n, s->n - 1));
    OSH_TRY(find_scheme(cx, &q->scheme, s->config, m, q->name, strstr(q->name, "embed") != NULL));
    OSH_TRY(find_shape(cx, q));
    osh_dtype dt = s->ck->config->dtype;
    if (!(scale = osh_sprintf(cx, "%s.weight_scale", q->name))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    const osh_ckpt_tensor *t = osh_checkpoint_find(s->ck, scale);
    if (!t) OSH_FAIL(cx, OSH_E_FORMAT, "%s is missing", scale);
    if (dt == OSH_DTYPE_NONE) dt = t->e->dtype;
    OSH_TRY(bind(cx, s, q, dt));
    osh_free(cx, scale);
    if (!(scale = osh_sprintf(cx, "%s.weight", q->name))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", q->name);
    OSH_TRY(osh_checkpoint_add_virtual(cx, s->ck, scale, dt, 2, (int64_t[]){q->O, q->I}, make_weight, q));
done:
    osh_free(cx, scale);
    return rc;
}

static osh_status find_modules(osh_ctx *cx, osh_source *s)
{
    osh_status rc = OSH_OK;
    osh_matcher **m = NULL; // own
    int64_t n_stored = s->ck->n_tensors;
    OSH_NEW(cx, m, s->config->n);
    for (size_t i = 0; i < s->config->n; i++)
        OSH_TRY(osh_matcher_new(cx, &m[i], (const char *const *)s->config->schemes[i].targets.items,
                                s->config->schemes[i].targets.n));
    OSH_NEW(cx, s->mods, n_stored);
    for (int64_t i = 0; i < n_stored; i++) {
        size_t n;
        const char *name = s->ck->tensors[i].e->name;
        if (split(name, ".weight_scale", &n)) OSH_TRY(add_module(cx, s, m, name, n));
    }
    if (!s->n && !s->config->cache.present)
        osh_log(cx, OSH_LOG_WARN, "%s has a quantization_config and no quantized tensor", s->ck->dir);
done:
    for (size_t i = 0; m && i < s->config->n; i++) osh_matcher_free(cx, m[i]);
    osh_free(cx, m);
    return rc;
}

osh_status osh_source_open(osh_ctx *cx, osh_source **out, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_source *s = NULL; // own
    OSH_NEW(cx, s, 1);
    OSH_TRY(osh_map_new(cx, &s->by_name, 64));
    OSH_TRY(osh_checkpoint_open(cx, &s->ck, dir));
    if (s->ck->config->quantization_config) {
        OSH_TRY(osh_q_config_parse(cx, &s->config, s->ck->config->quantization_config, s->ck->config->path));
        OSH_TRY(find_modules(cx, s));
    }
    *out = s, s = NULL;
done:
    osh_source_close(cx, s);
    return rc;
}

void osh_source_close(osh_ctx *cx, osh_source *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        osh_free(cx, s->mods[i].name);
        osh_tensor_free(cx, s->mods[i].in_scale);
        osh_tensor_free(cx, s->mods[i].in_zero);
    }
    osh_free(cx, s->mods);
    osh_map_free(cx, s->by_name);
    osh_q_config_free(cx, s->config);
    osh_checkpoint_close(cx, s->ck);
    osh_free(cx, s);
}

const osh_q_scheme *osh_source_scheme(const osh_source *s, const char *module,
                                      const osh_tensor **in_scale, const osh_tensor **in_zero)
{
    int64_t i = 0;
    *in_scale = *in_zero = NULL;
    if (!osh_map_get(s->by_name, module, strlen(module), &i)) return NULL;
    *in_scale = s->mods[i].in_scale, *in_zero = s->mods[i].in_zero;
    return s->mods[i].scheme;
}

const osh_q_args *osh_source_cache(const osh_source *s)
{
    return s->config && s->config->cache.present ? &s->config->cache : NULL;
}

bool osh_source_queries(const osh_source *s) { return s->config && osh_q_config_queries(s->config); }
