/* scheme.h - QuantizationArgs, QuantizationScheme and presets (compressed_tensors/quantization),
 * and the quantization_config of a checkpoint. */
#ifndef OSH_SCHEME_H
#define OSH_SCHEME_H
#include "base/buf.h"
#include "base/field.h"
#include "quant/fusion.h"
#include "quant/transform.h"
#include "tensor/tensor.h"
#include "text/json.h"

#define OSH_Q_VERSION "0.19.0"      // version of the compressed-tensors format that is written
/* Version that is written if a scheme has 6-bit floats, which version 0.19 does not support. */
#define OSH_Q_VERSION_FP6 "0.20.0"
typedef enum { OSH_Q_INT, OSH_Q_FLOAT } osh_q_type;
typedef enum {
    OSH_Q_TENSOR,
    OSH_Q_CHANNEL,
    OSH_Q_GROUP,
    OSH_Q_BLOCK,
    OSH_Q_TOKEN,
    OSH_Q_TENSOR_GROUP, // group scales, stored multiplied by a global scale (NVFP4)
    OSH_Q_ATTN_HEAD,    // one scale for each head of queries, keys or values
    OSH_Q_STRATEGY_NONE
} osh_q_strategy;
/* Values of `dynamic`. LOCAL: the global scale is stored; the scales of groups are computed while
 * the model runs. */
typedef enum { OSH_Q_STATIC, OSH_Q_DYNAMIC, OSH_Q_LOCAL } osh_q_dynamic;
/* Values of scale_dtype. PLAIN: null; scales have the weight's dtype. E4M3: torch.float8_e4m3fn
 * (NVFP4). E8M0: torch.uint8; scales are powers of two (MX). */
typedef enum { OSH_Q_SCALE_PLAIN, OSH_Q_SCALE_E4M3, OSH_Q_SCALE_E8M0 } osh_q_scale_dtype;
/* Values of actorder. STATIC and WEIGHT have the same effect; config.json gets the value of the
 * recipe. */
typedef enum { OSH_ACTORDER_UNSET, OSH_ACTORDER_STATIC, OSH_ACTORDER_WEIGHT } osh_actorder;

enum { OSH_Q_KWARGS = 8 };
typedef struct osh_q_kwarg { // an item of observer_kwargs, as written in the recipe
    char name[24];
    double value;  // `true` is 1
    enum { OSH_Q_KWARG_INT, OSH_Q_KWARG_FLOAT, OSH_Q_KWARG_BOOL } kind;
} osh_q_kwarg;

typedef struct osh_q_args {
    bool present;
    int bits;
    osh_q_type type;
    osh_q_strategy strategy;
    int64_t group_size; // columns per group; 0: no group size (null); -1: strategy channel
    int64_t block[2];   // rows and columns of a block; 0: no block structure (null)
    bool symmetric;
    osh_q_dynamic dynamic;
    osh_actorder actorder;
    osh_q_scale_dtype scale_dtype;
    char observer[32]; // "": null
    osh_q_kwarg kwargs[OSH_Q_KWARGS];
    int n_kwargs;
    char zp_dtype[24]; // "": null
} osh_q_args;

typedef struct osh_q_scheme { // a config group
    char *group_name;         // own: name of the config group, such as "group_0"
    osh_strs targets;         // own
    osh_q_args weights, inputs, outputs;
    char format[32]; // storage format; "": osh_format_infer chooses one
    /* view: JSON of the config group in a quantized source. This JSON is written to the output
     * unchanged. NULL: the group is written from the arguments */
    const cJSON *raw;
} osh_q_scheme;

typedef struct osh_q_config {
    osh_q_scheme *schemes; // own
    size_t n;
    osh_strs ignore; // own
    char format[32]; // storage format of the whole config
    osh_q_args cache; // kv_cache_scheme
    osh_q_transforms transforms; // transforms that are applied to activations while the model runs
} osh_q_config;

/* Sets all arguments to the default values of QuantizationArgs and sets `present` to true. */
void osh_q_args_init(osh_q_args *a);
static inline bool osh_q_in_groups(const osh_q_args *a)
{
    return a->strategy == OSH_Q_GROUP || a->strategy == OSH_Q_TENSOR_GROUP;
}
/* True if scales may be negative: integer codes without zero points, with a scale for each group or
 * row. A negative scale is useful because the magnitude of the smallest code exceeds the largest
 * code by one. */
static inline bool osh_q_may_be_signed(const osh_q_args *a)
{
    return a->type == OSH_Q_INT && a->symmetric &&
           (a->strategy == OSH_Q_GROUP || a->strategy == OSH_Q_CHANNEL);
}
/* Return the number of rows, and of columns, of a weight [O, I] that share a scale. The last group
 * of rows or columns may be smaller. */
static inline int64_t osh_q_scale_rows(const osh_q_args *a, int64_t O)
{
    return a->strategy == OSH_Q_TENSOR ? O : a->strategy == OSH_Q_BLOCK ? a->block[0] : 1;
}
static inline int64_t osh_q_scale_cols(const osh_q_args *a, int64_t I)
{
    return osh_q_in_groups(a) ? a->group_size : a->strategy == OSH_Q_BLOCK ? a->block[1] : I;
}
/* True if a config group quantizes the inputs of attention (queries, keys and values), not
 * weights. */
static inline bool osh_q_of_attention(const osh_q_scheme *s)
{
    return s->inputs.present && !s->weights.present;
}
static inline bool osh_q_is_fp4(const osh_q_args *a)
{
    return a->type == OSH_Q_FLOAT && a->bits == 4;
}
static inline bool osh_q_is_fp6(const osh_q_args *a)
{
    return a->type == OSH_Q_FLOAT && a->bits == 6;
}
/* Sets one key of QuantizationArgs, from JSON or from a recipe. `text` is the text of a scalar
 * ("true", "4", "int") or of a list of two numbers ("128x128"); NULL means null. `where` names the
 * config object in messages. Fails if the key is unknown or the value is not supported (such as
 * actorder group). */
osh_status osh_q_args_set(osh_ctx *cx, osh_q_args *a, const char *key, const char *text,
                          const char *where);
/* Sets the arguments `weights`, `inputs` and `outputs` of *out to those of a preset. Fails if no
 * preset has this name; the error message lists the presets. */
osh_status osh_q_preset(osh_ctx *cx, osh_q_scheme *out, const char *name);
enum { OSH_Q_NAME = 32 }; // bytes for the name of a scheme
/* Sets `to` to the name of the preset with the arguments of s. For integers, the group size may
 * differ from that of the preset. Several presets can have equal arguments. If `prefer` (may be
 * NULL) names one of these presets, the result is `prefer`. A scheme without a preset gets a name
 * of the same form, such as W3A16_ASYM. */
void osh_q_name(char to[OSH_Q_NAME], const osh_q_scheme *s, const char *prefer);
const char *osh_q_preset_name(size_t i); // returns NULL if i is too large
/* Checks arguments, brings them into a normal form, and infers the strategy. Fails if they are
 * invalid or not supported. */
osh_status osh_q_args_check(osh_ctx *cx, osh_q_args *a, const char *where, bool is_weight);
/* Checks a whole scheme: its arguments (osh_q_args_check), their combination, and the format. */
osh_status osh_q_scheme_check(osh_ctx *cx, osh_q_scheme *s, const char *where);
/* Reads the quantization_config of a checkpoint. The caller owns *out. `what` names the file in
 * messages. */
osh_status osh_q_config_parse(osh_ctx *cx, osh_q_config **out, const cJSON *quantization_config,
                              const char *what);
void osh_q_config_free(osh_ctx *cx, osh_q_config *c);
void osh_q_scheme_deinit(osh_ctx *cx, osh_q_scheme *s);
/* Prints QuantizationArgs on one line, as in config.json. The caller owns *out. */
osh_status osh_q_args_print(osh_ctx *cx, char **out, const osh_q_args *a, bool is_weight);
typedef struct osh_q_groups { // the groups of a quantization_config; all pointers are views
    const osh_q_scheme *schemes; // [n]
    size_t n;
    const char *const *ignore; // [n_ignore]
    size_t n_ignore;
} osh_q_groups;
osh_q_groups osh_q_groups_of(const osh_q_scheme *schemes, size_t n, const osh_strs *ignore);
/* Prints the quantization_config of the output: keys sorted, nulls written, indented by 2 spaces
 * per level, as a value at depth 1 of config.json. The caller owns *out. g->ignore is written as
 * the list `ignore`. */
osh_status osh_q_config_print(osh_ctx *cx, char **out, const osh_q_groups *g, const char *format);
/* Values of further keys of a quantization_config. */
typedef struct osh_q_beside {
    const osh_q_args *cache;            // kv_cache_scheme; NULL: prints null
    const osh_q_transforms *transforms; // NULL: none
    /* number of experts of each decoder layer (< 0: the layer has no experts), [n_layers]; NULL: no
     * expert was pruned */
    const int *experts;
    int n_layers;
} osh_q_beside;
osh_status osh_q_config_print_with(osh_ctx *cx, char **out, const osh_q_groups *g,
                                   const char *format, const osh_q_beside *beside);
/* True if a config group quantizes the inputs of attention. */
bool osh_q_config_queries(const osh_q_config *c);
/* Checks a kv_cache_scheme, or a config group for attention. Fails unless the arguments have 8
 * bits, are static, and have one of the strategies tensor and attn_head. Sets strategy tensor if
 * none is set. */
osh_status osh_q_cache_check(osh_ctx *cx, osh_q_args *a, const char *where);
/* Appends a description such as "weights 4-bit integer, a scale for each group of 128" to b. `of`
 * is the first word of the description, in the example "weights". Appends nothing if the arguments
 * are not present. */
osh_status osh_q_args_tell(osh_ctx *cx, osh_buf *b, const char *of, const osh_q_args *a);
/* Returns a line for the plan. It names the inference engines that load this scheme in its storage
 * format (vLLM on CUDA or CPU, transformers), or gives the reason why no engine does. The caller
 * owns the line. If the architecture has no template, `stranger` is its name, and its layers in
 * these engines are unknown. Otherwise `stranger` is NULL. */
char *osh_q_who_loads(osh_ctx *cx, const osh_q_scheme *s, const char *stranger);
/* Returns a verb phrase, such as "does not load", that describes the fault of transformers 5.17
 * with experts in this scheme. Returns NULL if there is no fault. The string is static. The cause
 * is that transformers stacks the experts in one tensor and converts the codes of each expert; vLLM
 * does not. */
const char *osh_q_experts_fault(const osh_q_scheme *s);
typedef struct osh_q_modules { // the modules of a model; all arrays have n elements and are views
    /* Names and class names of the modules. classes NULL: class names are unknown. */
    const char *const *names, *const *classes;
    const int *which; // index of the scheme with which each module is written; -1: not quantized
    size_t n;
    osh_q_family family; // records of model types, which list fused layers
} osh_q_modules;
/* Looks up the scheme of each module in the config of the output as vLLM does. Modules that vLLM
 * fuses (fusion.h) are looked up by the name of the fused layer. Fails if the result for module i
 * is not m->which[i]; the error names the module. */
osh_status osh_q_vllm_check(osh_ctx *cx, const osh_q_groups *g, const osh_q_modules *m);
#endif
