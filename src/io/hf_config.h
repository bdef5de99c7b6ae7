/* hf_config.h - reads config.json of transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5
 * (rope_parameters, dtype) into one form. */
#ifndef OSH_HF_CONFIG_H
#define OSH_HF_CONFIG_H
#include "tensor/tensor.h"
#include "text/json.h"

typedef enum {
    OSH_ROPE_DEFAULT, OSH_ROPE_LINEAR, OSH_ROPE_LLAMA3, OSH_ROPE_DYNAMIC, OSH_ROPE_YARN,
    OSH_ROPE_LONGROPE, OSH_ROPE_PROPORTIONAL
} osh_rope_type;
typedef struct osh_rope { // parameters as in modeling_rope_utils.py of transformers
    osh_rope_type type;
    double theta, factor;
    bool none;                                // true if rope_theta is null: the model has no rope
    double partial_rotary_factor;             // default: 1
    int64_t max_position_embeddings;          // value in config.json
    /* Value of the key with this name; 0: config.json does not have this key. */
    int64_t original_max_position_embeddings;
    double low_freq_factor, high_freq_factor; // for llama3 only
    /* For yarn: numbers of rotations at the ends of the ramp; defaults: 32 and 1. */
    double beta_fast, beta_slow;
    /* Factor of cos and sin, for yarn and longrope; < 0: config.json does not have the key. */
    double attention_factor;
    /* For yarn: values of the keys with these names; 0: config.json does not have the key. */
    double mscale, mscale_all_dim;
    bool truncate; // for yarn: rounds the ends of the ramp to whole numbers; default: true
    /* For longrope: lists with a factor for each frequency. They are views of config.json. */
    const cJSON *short_factor, *long_factor;
    /* Value of the key with this name; 0: config.json does not have this key. */
    double llama_4_scaling_beta;
    /* Theta is multiplied by alpha^(d / (d - 2)), where d is head_dim; 0: theta is not changed. */
    double alpha;
} osh_rope;

/* A size in config.json that is larger in the output, because zeros are added to tensors. */
typedef struct osh_hf_size {
    const char *key;  // static string
    int64_t from, to; // from: size of the source; to: size to be written to config.json
} osh_hf_size;
enum { OSH_HF_SIZES = 16 }; // largest number of sizes that are larger in the output

typedef struct osh_hf_config {
    char *path;  // own: path of config.json, for messages
    char *text;  // own: content of config.json
    size_t n_text;
    cJSON *json; // own
    /* The object text_config of `json` if the model also reads images or sound; else `json`
     * itself. */
    const cJSON *model; // view
    /* type: record (model_types.h) of the model_type of `json`.
     * text_type: record of the model_type of `model`.
     * NULL: models/ has no such record. */
    cJSON *type, *text_type; // own
    /* Architecture of the text model; NULL: models/ does not have the family. */
    const char *text_architecture; // view of `text_type`
    /* The first item of `architectures`; NULL: config.json has no architecture. */
    const char *architecture; // view of `json`
    osh_dtype dtype;          // value of dtype or torch_dtype; OSH_DTYPE_NONE: the file has neither
    /* Value of the key tie_word_embeddings, or the family's default if config.json does not have
     * the key. */
    bool tie_word_embeddings;
    bool has_tie_word_embeddings;
    osh_rope rope;
    osh_rope rope_sliding; // rope of layers with a sliding window; in most families equal to `rope`
    /* own: reason why `rope` is incomplete, such as "longrope" or "yarn: 'factor' is missing";
     * NULL: `rope` is complete. */
    char *rope_unknown;
    /* Number of experts to be written to config.json; 0: the number of the source. */
    int64_t n_experts;
    osh_hf_size sizes[OSH_HF_SIZES]; // sizes that differ from those of the source
    int n_sizes;
    /* Description of the quantization; NULL: the source has none (hf_quant.c). */
    const cJSON *quantization_config; // view
    char *quantization_path;          // own: path of the file with the description, for messages
    /* own: content of the file with the description; NULL: config.json has the description. */
    cJSON *quantization_json;
} osh_hf_config;

/* Reads config.json in the directory `dir`. The caller frees *out with osh_hf_config_close. Fails
 * with OSH_E_FORMAT if the file is not a JSON object or has a wrong value. */
osh_status osh_hf_config_open(osh_ctx *cx, osh_hf_config **out, const char *dir);
void osh_hf_config_close(osh_ctx *cx, osh_hf_config *c);
/* Gets the number or bool `key` of config.json; a bool is 0 or 1. *found is false if the key is
 * absent or null. */
osh_status osh_hf_config_num(osh_ctx *cx, double *out, bool *found, const osh_hf_config *c,
                             const char *key);
/* Returns the text of the key `key` of config.json (a view), or NULL if the key is absent. */
const char *osh_hf_config_str(const osh_hf_config *c, const char *key);
/* Sets *out to a copy of c for which the files of models_dir have precedence over the embedded
 * records. The copy has views of c, so c must live longer. osh_hf_config_drop frees the other
 * members of the copy. */
osh_status osh_hf_config_in(osh_ctx *cx, osh_hf_config *out, const osh_hf_config *c,
                            const char *models_dir);
void osh_hf_config_drop(osh_ctx *cx, osh_hf_config *out);
/* Returns a member of the text model's config. A name with dots is a member of an inner object. If
 * the config has no such member, searches for the name that the family uses instead. Returns NULL
 * if neither exists. */
const cJSON *osh_hf_config_member(const osh_hf_config *c, const char *name);
/* True if the record of the text model's type has this flag (model_types.h). */
bool osh_hf_config_has_flag(const osh_hf_config *c, const char *flag);
/* True if the model type has modules of the class Conv1D, which store weights as [in, out]. */
bool osh_hf_config_has_conv1d(const osh_hf_config *c);
/* Changes the number of experts from n_all to n in *c, and in the text that
 * osh_hf_config_with_quantization returns. */
osh_status osh_hf_config_set_experts(osh_ctx *cx, osh_hf_config *c, int64_t n_all, int64_t n);
/* Sets a number of the text model to `to`, in *c and in the result of
 * osh_hf_config_with_quantization. key: name of the number, a static string. If `to` equals the
 * number in the source, undoes earlier changes. */
osh_status osh_hf_config_set_size(osh_ctx *cx, osh_hf_config *c, const char *key, int64_t to);
/* Sets *out (own) to the text of config.json with a new quantization_config. quantization_json is
 * JSON text, indented for depth 1; "" removes the key. If `untie` is true, tie_word_embeddings
 * becomes false. All other bytes are unchanged. */
osh_status osh_hf_config_with_quantization(osh_ctx *cx, char **out, const osh_hf_config *c,
                                           const char *quantization_json, bool untie);
#endif
