/* hf_config.h - config.json as transformers 4 writes it (rope_theta, rope_scaling, torch_dtype) and as 5 does
 * (rope_parameters, dtype), read into one form. */
#ifndef OSH_HF_CONFIG_H
#define OSH_HF_CONFIG_H
#include "tensor/tensor.h"
#include "text/json.h"

typedef enum {
    OSH_ROPE_DEFAULT, OSH_ROPE_LINEAR, OSH_ROPE_LLAMA3, OSH_ROPE_DYNAMIC, OSH_ROPE_YARN, OSH_ROPE_LONGROPE,
    OSH_ROPE_PROPORTIONAL
} osh_rope_type;
typedef struct osh_rope { // transformers modeling_rope_utils.py
    osh_rope_type type;
    double theta, factor;
    double partial_rotary_factor;             // 1
    int64_t max_position_embeddings;          // of config.json
    int64_t original_max_position_embeddings; // 0: not given
    double low_freq_factor, high_freq_factor; // llama3
    double beta_fast, beta_slow;              // yarn: 32, 1
    double attention_factor;                  // yarn, longrope: < 0: not given
    double mscale, mscale_all_dim;            // yarn: 0: not given
    bool truncate;                            // yarn: true
    const cJSON *short_factor, *long_factor;  // longrope: lists of numbers; views of config.json
    double llama_4_scaling_beta;              // 0: not given
} osh_rope;

typedef struct osh_hf_config {
    char *path;  // own: for messages
    char *text;  // own: the file's bytes
    size_t n_text;
    cJSON *json; // own
    const cJSON *model;       // view of json: text_config of a model that sees or hears, else all of it
    const char *text_architecture; // static: of the family that model_type of text_config names; NULL: none of ours
    const char *architecture; // view of json: architectures[0]; NULL: none
    osh_dtype dtype;          // of torch_dtype / dtype; OSH_DTYPE_NONE: not given
    bool tie_word_embeddings; // of the file, else the family's default: see hf_config.c
    bool has_tie_word_embeddings;
    osh_rope rope;
    osh_rope rope_sliding; // of layers with a sliding window; of most families that of all
    char *rope_unknown; // own; NULL: rope is complete; else why not: "longrope", "yarn: 'factor' is missing"
    int64_t n_experts; // that are left, as config.json is to say; 0: as it says
    const cJSON *quantization_config; // view: quantization_config or compression_config; NULL: none
} osh_hf_config;

osh_status osh_hf_config_open(osh_ctx *cx, osh_hf_config **out, const char *dir);
void osh_hf_config_close(osh_ctx *cx, osh_hf_config *c);
/* A number or bool of config.json by key. *found false: absent or null. Bools read as 0 and 1. */
osh_status osh_hf_config_num(osh_ctx *cx, double *out, bool *found, const osh_hf_config *c, const char *key);
const char *osh_hf_config_str(const osh_hf_config *c, const char *key); // view; NULL: absent
/* The model's number of experts, n_all, becomes n: for who asks for it from here on, and in what is written. */
osh_status osh_hf_config_set_experts(osh_ctx *cx, osh_hf_config *c, int64_t n_all, int64_t n);
/* config.json with quantization_config set (JSON text, indented for depth 1; "": it is not) and, where untie,
 * tie_word_embeddings false; all other bytes kept. own. */
osh_status osh_hf_config_with_quantization(osh_ctx *cx, char **out, const osh_hf_config *c,
                                           const char *quantization_json, bool untie);
#endif
