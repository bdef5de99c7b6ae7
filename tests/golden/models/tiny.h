/* tiny.h - writes the tiny random checkpoints of gen.py. config.json comes from <case>.json, and
 * the weights come from the counter RNG:
 *
 *   norms                              1 + u/4     u is uniform in [-1, 1)
 *   biases (x.bias, x_bias)            u/2
 *   embeddings                         u
 *   q, k                               2 u sqrt(3 / in)
 *   Linear after a shared block        u sqrt(3 / in) / 20, so that errors of F32 stay small
 *   other Linears                      u sqrt(3 / in)
 *   element i of tid2eid (I32)         (i / 2 + i) % 4
 *   hash i of n-grams (I32)            11 + 37 i
 *
 * The stream of a tensor is FNV-1a (32 bits) of its name, so the order of tensors has no effect.
 * Every failure aborts the test. */
#ifndef OSH_TINY_H
#define OSH_TINY_H
#include "base/base.h"
#include "base/file.h"
#include "base/rng.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "text/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t tiny_seed = 20240607; // a case with a member "seed" has that seed
static const char *tiny_dir = OSH_SOURCE_DIR "/tests/golden/models";

/* Defines a test with the name of the case x. The state of the test is that name. */
#define TINY_CASE(run, x)                                                                          \
    {                                                                                              \
        .name = #x, .test_func = run, .initial_state = (void *)(uintptr_t) #x                      \
    }

typedef struct tiny_case {
    cJSON *json; // own: config, lens, logit_samples and tensors of the case
    int n_samples, n_logit_samples;
    int64_t offsets[16];
    int32_t *ids; // own
} tiny_case;

static inline void tiny_check(osh_ctx *cx, osh_status rc)
{
    if (!rc) return;
    fprintf(stderr, "%s\n", osh_error_text(cx));
    abort();
}

static inline void tiny_open(osh_ctx *cx, tiny_case *t, const char *name)
{
    char path[512];
    const cJSON *lens, *config;
    snprintf(path, sizeof path, "%s/%s.json", tiny_dir, name);
    memset(t, 0, sizeof *t);
    tiny_check(cx, osh_json_read(cx, &t->json, path, 1 << 20, 0));
    lens = cJSON_GetObjectItemCaseSensitive(t->json, "lens");
    config = cJSON_GetObjectItemCaseSensitive(t->json, "config");
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(t->json, "seed");
    if (seed) tiny_seed = (uint64_t)seed->valueint;
    t->n_samples = cJSON_GetArraySize(lens);
    t->n_logit_samples = cJSON_GetObjectItemCaseSensitive(t->json, "logit_samples")->valueint;
    for (int i = 0; i < t->n_samples; i++)
        t->offsets[i + 1] = t->offsets[i] + cJSON_GetArrayItem(lens, i)->valueint;
    t->ids = malloc((size_t)t->offsets[t->n_samples] * sizeof *t->ids);
    const cJSON *thinker = cJSON_GetObjectItemCaseSensitive(config, "thinker_config"),
                *text = cJSON_GetObjectItemCaseSensitive(thinker ? thinker : config, "text_config");
    if (!text) text = cJSON_GetObjectItemCaseSensitive(config, "llm_config");
    const cJSON *padded = cJSON_GetObjectItemCaseSensitive(config, "padded_vocab_size"); // ChatGLM
    const cJSON *size =
        padded ? padded : cJSON_GetObjectItemCaseSensitive(text ? text : config, "vocab_size");
    uint64_t vocab = (uint64_t)size->valueint;
    for (int64_t i = 0; i < t->offsets[t->n_samples]; i++)
        t->ids[i] = (int32_t)(osh_rng_u64(tiny_seed, 7, (uint64_t)i) % vocab);
}

static inline void tiny_close(tiny_case *t)
{
    cJSON_Delete(t->json);
    free(t->ids);
}

static inline bool tiny_ends(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static inline void tiny_fill(float *w, const char *name, int64_t n, int64_t n_in)
{
    uint32_t stream = 2166136261u;
    for (const char *p = name; *p; p++) stream = (stream ^ (unsigned char)*p) * 16777619u;
    bool norm =
        tiny_ends(name, "norm.weight") || (strstr(name, ".ln_") && tiny_ends(name, ".weight"));
    bool bias = tiny_ends(name, ".bias") || tiny_ends(name, "_bias"),
         embed = tiny_ends(name, "embed_tokens.weight");
    double gain = tiny_ends(name, "q_proj.weight") || tiny_ends(name, "k_proj.weight") ? 2.0 : 1.0;
    if (!strncmp(name, "model.layers.", 13) && tiny_ends(name, ".linear.weight")) gain = 0.05;
    float scale = norm    ? 0.25f
                  : bias  ? 0.5f
                  : embed ? 1.0f
                          : (float)(gain * 1.7320508 / sqrt((double)n_in));
    for (int64_t i = 0; i < n; i++) {
        float u = scale * osh_rng_sym(tiny_seed, stream, (uint64_t)i);
        w[i] = norm ? 1.0f + u : u;
    }
}

static inline bool tiny_is_hash(const char *name)
{
    return tiny_ends(name, "layer_multipliers") || tiny_ends(name, "ngram_heads_vocab_sizes") ||
           tiny_ends(name, "ngram_heads_offsets");
}
static inline bool tiny_is_table(const char *name)
{
    return tiny_ends(name, "tid2eid") || tiny_is_hash(name);
}

/* Makes the directory `dir`, and writes dir/config.json with the dtype dt, and
 * dir/model.safetensors. */
static inline void tiny_write(osh_ctx *cx, const tiny_case *t, const char *dir, osh_dtype dt)
{
    const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(t->json, "tensors");
    cJSON *config = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(t->json, "config"), 1);
    const char *key = cJSON_HasObjectItem(config, "dtype") ? "dtype" : "torch_dtype";
    int n = cJSON_GetArraySize(tensors);
    osh_entry *e = calloc((size_t)n, sizeof *e);
    char path[512], *text, *header = NULL;
    size_t n_header = 0;
    osh_file *f = NULL;

    tiny_check(cx, osh_dir_make(cx, dir));
    cJSON_ReplaceItemInObjectCaseSensitive(config, key,
                                           cJSON_CreateString(dt == OSH_BF16  ? "bfloat16"
                                                              : dt == OSH_F16 ? "float16"
                                                                              : "float32"));
    text = cJSON_Print(config);
    snprintf(path, sizeof path, "%s/config.json", dir);
    tiny_check(cx, osh_file_write_all(cx, path, text, strlen(text)));

    for (int i = 0; i < n; i++) {
        const cJSON *row = cJSON_GetArrayItem(tensors, i), *shape = cJSON_GetArrayItem(row, 1);
        e[i].name = cJSON_GetArrayItem(row, 0)->valuestring;
        e[i].dtype = tiny_is_table(e[i].name) ? OSH_I32 : dt;
        e[i].ndim = cJSON_GetArraySize(shape);
        for (int d = 0; d < e[i].ndim; d++) e[i].shape[d] = cJSON_GetArrayItem(shape, d)->valueint;
    }
    tiny_check(cx, osh_safetensors_layout_array(cx, &header, &n_header, e, n));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    tiny_check(cx, osh_file_create(cx, &f, path));
    tiny_check(cx, osh_file_pwrite(cx, f, header, n_header, 0));
    for (int i = 0; i < n; i++) {
        int64_t numel = 0;
        osh_shape_numel(&numel, e[i].ndim, e[i].shape);
        float *w = malloc((size_t)numel * sizeof *w);
        size_t bytes = (size_t)numel * osh_dtype_bytes(e[i].dtype);
        void *stored = malloc(bytes);
        if (tiny_is_table(e[i].name))
            for (int64_t k = 0; k < numel; k++)
                ((int32_t *)stored)[k] =
                    (int32_t)(tiny_is_hash(e[i].name) ? 11 + 37 * k : (k / 2 + k) % 4);
        else {
            tiny_fill(w, e[i].name, numel, e[i].ndim ? e[i].shape[e[i].ndim - 1] : 1);
            osh_from_f32(stored, dt, w, numel);
        }
        tiny_check(cx, osh_file_pwrite(cx, f, stored, bytes, e[i].begin));
        free(w);
        free(stored);
    }
    osh_file_close(cx, f);
    osh_free(cx, header);
    cJSON_free(text);
    cJSON_Delete(config);
    free(e);
}

/* Returns a view of the f32 elements of a .npy file (version 1, C order, '<f4'). *file gets the
 * memory of the elements (own: osh_free). */
static inline const float *tiny_npy(osh_ctx *cx, char **file, size_t *n, const char *name,
                                    const char *suffix)
{
    char path[512];
    size_t n_bytes = 0, header;
    snprintf(path, sizeof path, "%s/%s%s", tiny_dir, name, suffix);
    tiny_check(cx, osh_file_read_all(cx, file, &n_bytes, path, 1 << 24));
    header = 10 + (size_t)(unsigned char)(*file)[8] + 256 * (size_t)(unsigned char)(*file)[9];
    if (n_bytes < header || !memmem(*file, header, "'<f4'", 5)) abort();
    *n = (n_bytes - header) / sizeof(float);
    return (const float *)(const void *)(*file + header);
}
#endif
