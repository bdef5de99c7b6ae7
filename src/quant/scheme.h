/* scheme.h - declares QuantizationArgs, QuantizationScheme, the presets, and the
 * quantization_config of a checkpoint (compressed_tensors/quantization). */
#ifndef OSH_SCHEME_H
#define OSH_SCHEME_H
#include "base/buf.h"
#include "base/field.h"
#include "quant/fusion.h"
#include "quant/transform.h"
#include "tensor/tensor.h"
#include "text/json.h"

/* Version of compressed-tensors in the quantization_config that is written. */
#define OSH_Q_VERSION "0.19.0"
/* Version that replaces OSH_Q_VERSION if a scheme has 6-bit floats. Version 0.19.0 does not support
 * them. */
#define OSH_Q_VERSION_FP6 "0.20.0"
typedef enum { OSH_Q_INT, OSH_Q_FLOAT } osh_q_type;
typedef enum {
    OSH_Q_TENSOR,
    OSH_Q_CHANNEL,
    OSH_Q_GROUP,
    OSH_Q_BLOCK,
    OSH_Q_TOKEN,
    OSH_Q_TENSOR_GROUP, // a scale for each group; it is stored times a global scale (NVFP4)
    OSH_Q_ATTN_HEAD,    // one scale for each head of queries, keys or values
    OSH_Q_STRATEGY_NONE
} osh_q_strategy;
/* Values of `dynamic`. LOCAL means that the global scale is stored, and that the scales of groups
 * are computed while the model runs. */
typedef enum { OSH_Q_STATIC, OSH_Q_DYNAMIC, OSH_Q_LOCAL } osh_q_dynamic;
/* Values of scale_dtype.
 * PLAIN: null; scales have the weight's dtype.
 * E4M3: torch.float8_e4m3fn (NVFP4).
 * E8M0: torch.uint8; scales are powers of two (MX). */
typedef enum { OSH_Q_SCALE_PLAIN, OSH_Q_SCALE_E4M3, OSH_Q_SCALE_E8M0 } osh_q_scale_dtype;
/* Values of actorder. STATIC and WEIGHT have the same effect; only config.json shows which one the
 * recipe has. */
typedef enum { OSH_ACTORDER_UNSET, OSH_ACTORDER_STATIC, OSH_ACTORDER_WEIGHT } osh_actorder;

enum { OSH_Q_KWARGS = 8 };
typedef struct osh_q_kwarg { // one key of observer_kwargs, as written in the recipe
    char name[24];
    double value;  // value of the key; `true` is 1
    enum { OSH_Q_KWARG_INT, OSH_Q_KWARG_FLOAT, OSH_Q_KWARG_BOOL } kind;
} osh_q_kwarg;

typedef struct osh_q_args {
    bool present;
    int bits;
    osh_q_type type;
    osh_q_strategy strategy;
    int64_t group_size; // number of columns of a group; 0: null; -1: strategy channel
    int64_t block[2];   // number of rows and of columns of a block; 0: null
    bool symmetric;
    osh_q_dynamic dynamic;
    osh_actorder actorder;
    osh_q_scale_dtype scale_dtype;
    char observer[32]; // "": null
    osh_q_kwarg kwargs[OSH_Q_KWARGS];
    int n_kwargs;
    char zp_dtype[24]; // "": null
} osh_q_args;

typedef struct osh_q_scheme { // a config group: arguments of weights, inputs and outputs
    char *group_name;         // own: name of the config group, such as "group_0"
    osh_strs targets;         // own
    osh_q_args weights, inputs, outputs;
    char format[32]; // name of the storage format; "": osh_format_infer chooses the format
    /* View: the config group of a quantized source as JSON, which is written to the output
     * unchanged. NULL: the JSON is made from the arguments. */
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

/* Sets all arguments to the defaults of QuantizationArgs, and sets `present` to true. */
void osh_q_args_init(osh_q_args *a);
static inline bool osh_q_in_groups(const osh_q_args *a)
{
    return a->strategy == OSH_Q_GROUP || a->strategy == OSH_Q_TENSOR_GROUP;
}
/* True if the scales may be negative. For this, the codes must be integers without zero points, and
 * each group or row must have a scale. A negative scale is useful because the smallest code has a
 * larger magnitude than the largest code. */
static inline bool osh_q_may_be_signed(const osh_q_args *a)
{
    return a->type == OSH_Q_INT && a->symmetric &&
           (a->strategy == OSH_Q_GROUP || a->strategy == OSH_Q_CHANNEL);
}
/* In a weight [O, I], some consecutive rows and columns share a scale. osh_q_scale_rows returns the
 * number of these rows, and osh_q_scale_cols the number of these columns. The last scale may be for
 * fewer rows or columns. */
static inline int64_t osh_q_scale_rows(const osh_q_args *a, int64_t O)
{
    return a->strategy == OSH_Q_TENSOR ? O : a->strategy == OSH_Q_BLOCK ? a->block[0] : 1;
}
static inline int64_t osh_q_scale_cols(const osh_q_args *a, int64_t I)
{
    return osh_q_in_groups(a) ? a->group_size : a->strategy == OSH_Q_BLOCK ? a->block[1] : I;
}
/* True if the config group quantizes the inputs of attention (queries, keys and values) instead of
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
/* Sets one key of QuantizationArgs. The key and its value `text` come from JSON or from a recipe.
 * `text` is a scalar ("true", "4", "int") or a list of two numbers ("128x128"); NULL means null.
 * Fails if the key is unknown, or if the value is not supported (such as actorder group). `where`
 * names the config object in messages. */
osh_status osh_q_args_set(osh_ctx *cx, osh_q_args *a, const char *key, const char *text,
                          const char *where);
/* Sets the arguments of weights, inputs and outputs of *out to those of the preset `name`. Fails if
 * there is no such preset; the error message lists all presets. */
osh_status osh_q_preset(osh_ctx *cx, osh_q_scheme *out, const char *name);
enum { OSH_Q_NAME = 32 }; // size of the memory for the name of a scheme, in bytes
/* Sets `to` to the name of the preset that has the arguments of s. With integer codes, the group
 * size may differ from that of the preset. If several presets have these arguments and `prefer`
 * names one of them, the result is `prefer`; `prefer` may be NULL. A scheme without a preset gets a
 * name of the same form, such as W3A16_ASYM. */
void osh_q_name(char to[OSH_Q_NAME], const osh_q_scheme *s, const char *prefer);
/* Returns the name of preset number i, or NULL if i is too large. */
const char *osh_q_preset_name(size_t i);
/* Checks quantization arguments, brings them into a normal form, and infers the strategy. Fails if
 * they are invalid or not supported. `where` names the config object in messages. */
osh_status osh_q_args_check(osh_ctx *cx, osh_q_args *a, const char *where, bool is_weight);
/* Checks a scheme: the arguments of weights, inputs and outputs (osh_q_args_check), whether they
 * fit together, and the format. */
osh_status osh_q_scheme_check(osh_ctx *cx, osh_q_scheme *s, const char *where);
/* Reads the quantization_config of a checkpoint. The caller owns *out. `what` names the config file
 * in messages. */
osh_status osh_q_config_parse(osh_ctx *cx, osh_q_config **out, const cJSON *quantization_config,
                              const char *what);
/* Frees the config. Accepts NULL. */
void osh_q_config_free(osh_ctx *cx, osh_q_config *c);
void osh_q_scheme_deinit(osh_ctx *cx, osh_q_scheme *s);
/* Prints QuantizationArgs as JSON on one line, as in config.json. The caller owns *out. */
osh_status osh_q_args_print(osh_ctx *cx, char **out, const osh_q_args *a, bool is_weight);
typedef struct osh_q_groups { // the config groups of a quantization_config; all pointers are views
    const osh_q_scheme *schemes; // [n]
    size_t n;
    const char *const *ignore; // [n_ignore]
    size_t n_ignore;
} osh_q_groups;
/* Returns a view of n schemes and an ignore list. */
osh_q_groups osh_q_groups_of(const osh_q_scheme *schemes, size_t n, const osh_strs *ignore);
/* Prints the quantization_config of the output as JSON: keys are sorted, nulls are written. The
 * text is a value at depth 1 of config.json, indented by 2 spaces per level. g->ignore becomes the
 * list `ignore`. The caller owns *out. */
osh_status osh_q_config_print(osh_ctx *cx, char **out, const osh_q_groups *g, const char *format);
/* Further values of a quantization_config, for osh_q_config_print_with. */
typedef struct osh_q_beside {
    const osh_q_args *cache;            // kv_cache_scheme; NULL: the value is null
    const osh_q_transforms *transforms; // transform_config; NULL: there is none
    /* Number of experts of each decoder layer, [n_layers]; negative: the layer has no experts.
     * NULL: no expert was pruned. */
    const int *experts;
    int n_layers;
} osh_q_beside;
osh_status osh_q_config_print_with(osh_ctx *cx, char **out, const osh_q_groups *g,
                                   const char *format, const osh_q_beside *beside);
/* True if a config group of c quantizes the inputs of attention. */
bool osh_q_config_queries(const osh_q_config *c);
/* Checks the arguments of kv_cache_scheme, or of a config group for attention. They must be static,
 * and have 8 bits and the strategy `tensor` or `attn_head`. Sets the strategy to `tensor` if there
 * is no strategy. */
osh_status osh_q_cache_check(osh_ctx *cx, osh_q_args *a, const char *where);
/* Appends a description of the arguments to b, such as "weights 4-bit integer, a scale for each
 * group of 128". `of` is its first word ("weights"). Appends nothing if a->present is false. */
osh_status osh_q_args_tell(osh_ctx *cx, osh_buf *b, const char *of, const osh_q_args *a);
/* Returns a line for the plan. The line names the inference engines that load this scheme: vLLM on
 * CUDA or CPU, and transformers. If vLLM does not load the scheme, the line gives the reason.
 * `stranger`: name of the architecture if it has no template, else NULL. It is unknown which
 * engines load an architecture without a template. The caller owns the line. */
char *osh_q_who_loads(osh_ctx *cx, const osh_q_scheme *s, const char *stranger);
/* Returns the fault of transformers 5.17 when it loads experts in this scheme, as a verb phrase
 * such as "does not load". Returns NULL if there is no fault. The string is static. The cause of
 * faults is that transformers, unlike vLLM, stacks the experts in one tensor and converts the codes
 * of each expert. */
const char *osh_q_experts_fault(const osh_q_scheme *s);
typedef struct osh_q_modules { // all modules of a model; the arrays have n elements and are views
    /* Names and class names of the modules. `classes` is NULL if the class names are unknown. */
    const char *const *names, *const *classes;
    /* Index of the scheme in which each module is written; -1: it is not quantized. */
    const int *which;
    size_t n;
    osh_q_family family; // records of the model's types, which list fused layers
} osh_q_modules;
/* Looks up each module in the config of the output, as vLLM does. Fails if vLLM would find another
 * scheme than m->which[i] for module i; the error names the module. Modules that vLLM fuses
 * (fusion.h) are looked up by the name of the fused layer. */
osh_status osh_q_vllm_check(osh_ctx *cx, const osh_q_groups *g, const osh_q_modules *m);
#endif
