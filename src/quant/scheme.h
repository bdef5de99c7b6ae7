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
#define OSH_Q_VERSION_FP6 "0.20.0"  // version that is written if a scheme has 6-bit floats, which
                                    // 0.19 does not have
typedef enum { OSH_Q_INT, OSH_Q_FLOAT } osh_q_type;
typedef enum {
    OSH_Q_TENSOR,
    OSH_Q_CHANNEL,
    OSH_Q_GROUP,
    OSH_Q_BLOCK,
    OSH_Q_TOKEN,
    OSH_Q_TENSOR_GROUP, // groups whose scales are relative to a global scale (NVFP4)
    OSH_Q_ATTN_HEAD,    // one scale for each head of queries, keys or values
    OSH_Q_STRATEGY_NONE
} osh_q_strategy;
/* LOCAL: the global scale is stored; the scales of groups are computed while the model runs. */
typedef enum { OSH_Q_STATIC, OSH_Q_DYNAMIC, OSH_Q_LOCAL } osh_q_dynamic;
/* PLAIN: null, the weight's dtype; E4M3: torch.float8_e4m3fn (NVFP4); E8M0: torch.uint8, powers of
 * two (MX). */
typedef enum { OSH_Q_SCALE_PLAIN, OSH_Q_SCALE_E4M3, OSH_Q_SCALE_E8M0 } osh_q_scale_dtype;
typedef enum {
    OSH_ACTORDER_UNSET,
    OSH_ACTORDER_STATIC,
    OSH_ACTORDER_WEIGHT
} osh_actorder; // static means the same as weight; the spelling is kept

enum { OSH_Q_KWARGS = 8 };
typedef struct osh_q_kwarg { // an item of observer_kwargs as it was given
    char name[24];
    double value;  // `true` is 1
    enum { OSH_Q_KWARG_INT, OSH_Q_KWARG_FLOAT, OSH_Q_KWARG_BOOL } kind;
} osh_q_kwarg;

typedef struct osh_q_args {
    bool present;
    int bits;
    osh_q_type type;
    osh_q_strategy strategy;
    int64_t group_size; // 0: null; -1 is accepted
    int64_t block[2];   // {rows, columns}; 0: null
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
    char *group_name;         // own: such as "group_0"
    osh_strs targets;         // own
    osh_q_args weights, inputs, outputs;
    char format[32]; // "": it is inferred
    // view: the group in a source's config, to be printed; NULL: print the arguments
    const cJSON *raw;
} osh_q_scheme;

typedef struct osh_q_config {
    osh_q_scheme *schemes; // own
    size_t n;
    osh_strs ignore; // own
    char format[32]; // format in a config that was read
    osh_q_args cache; // kv_cache_scheme
    osh_q_transforms transforms; // transforms that act while the model runs
} osh_q_config;

/* Sets the defaults of QuantizationArgs, with present true. */
void osh_q_args_init(osh_q_args *a);
static inline bool osh_q_in_groups(const osh_q_args *a)
{
    return a->strategy == OSH_Q_GROUP || a->strategy == OSH_Q_TENSOR_GROUP;
}
/* True if the format can store the sign of a scale: for whole numbers without zero points, with a
 * scale for each group or row. The most negative code is one larger in magnitude than the largest
 * code. */
static inline bool osh_q_may_be_signed(const osh_q_args *a)
{
    return a->type == OSH_Q_INT && a->symmetric &&
           (a->strategy == OSH_Q_GROUP || a->strategy == OSH_Q_CHANNEL);
}
/* Return the number of rows, and of columns, of a weight [O, I] that share a scale. The last ones
 * may be fewer. */
static inline int64_t osh_q_scale_rows(const osh_q_args *a, int64_t O)
{
    return a->strategy == OSH_Q_TENSOR ? O : a->strategy == OSH_Q_BLOCK ? a->block[0] : 1;
}
static inline int64_t osh_q_scale_cols(const osh_q_args *a, int64_t I)
{
    return osh_q_in_groups(a) ? a->group_size : a->strategy == OSH_Q_BLOCK ? a->block[1] : I;
}
/* True if a group is for the inputs of attention (queries, keys and values), not for weights. */
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
/* Sets one key of QuantizationArgs, from JSON or from a recipe. `text` is a scalar as it is written
 * ("true", "4", "int"), or a list of two numbers such as "128x128"; NULL means null. `where` names
 * the object in messages. Fails for an unknown key, and for keys and values that are not supported
 * here (actorder group, ...). */
osh_status osh_q_args_set(osh_ctx *cx, osh_q_args *a, const char *key, const char *text,
                          const char *where);
/* Sets the arguments of a preset and nothing else. Fails if the name is unknown; the error lists
 * the presets. */
osh_status osh_q_preset(osh_ctx *cx, osh_q_scheme *out, const char *name);
enum { OSH_Q_NAME = 32 }; // bytes for the name of a scheme
/* Sets `to` to the name of the preset with these arguments. Groups of integers may have any size.
 * If several presets have them, `prefer` is chosen if it is one of them; may be NULL. A scheme
 * without a preset gets a name of the same form, such as W3A16_ASYM. */
void osh_q_name(char to[OSH_Q_NAME], const osh_q_scheme *s, const char *prefer);
const char *osh_q_preset_name(size_t i); // name of preset i; NULL: there are no more
/* Checks arguments, brings them into a normal form, and infers the strategy. Fails if they are
 * invalid or not supported. */
osh_status osh_q_args_check(osh_ctx *cx, osh_q_args *a, const char *where, bool is_weight);
/* Checks a whole scheme and brings it into a normal form: its arguments, their combination, and its
 * format. */
osh_status osh_q_scheme_check(osh_ctx *cx, osh_q_scheme *s, const char *where);
/* Reads the quantization_config of a checkpoint. The caller owns *out. `what` names the file in
 * messages. */
osh_status osh_q_config_parse(osh_ctx *cx, osh_q_config **out, const cJSON *quantization_config,
                              const char *what);
void osh_q_config_free(osh_ctx *cx, osh_q_config *c);
void osh_q_scheme_deinit(osh_ctx *cx, osh_q_scheme *s);
/* Prints QuantizationArgs on one line, as in config.json. *out: own. */
osh_status osh_q_args_print(osh_ctx *cx, char **out, const osh_q_args *a, bool is_weight);
typedef struct osh_q_groups { // views: the groups of a quantization_config
    const osh_q_scheme *schemes; // [n]
    size_t n;
    const char *const *ignore; // [n_ignore]
    size_t n_ignore;
} osh_q_groups;
osh_q_groups osh_q_groups_of(const osh_q_scheme *schemes, size_t n, const osh_strs *ignore);
/* Prints the quantization_config that will be written: keys sorted, nulls written, indented by 2
 * per level for a value at depth 1 of config.json. *out: own. g->ignore is the generated list. The
 * status is "compressed". */
osh_status osh_q_config_print(osh_ctx *cx, char **out, const osh_q_groups *g, const char *format);
/* Other parts of a quantization_config. */
typedef struct osh_q_beside {
    const osh_q_args *cache;            // kv_cache_scheme; NULL: prints null
    const osh_q_transforms *transforms; // NULL: none
    // [n_layers] experts of each decoder layer, < 0: none; NULL: none was left out
    const int *experts;
    int n_layers;
} osh_q_beside;
osh_status osh_q_config_print_with(osh_ctx *cx, char **out, const osh_q_groups *g,
                                   const char *format, const osh_q_beside *beside);
bool osh_q_config_queries(const osh_q_config *c); // true if a group is for attention
/* Checks a kv_cache_scheme, or a group for attention, that was read, and brings it into a normal
 * form: 8 bits, static, one scale for all keys or values, or one for each head. */
osh_status osh_q_cache_check(osh_ctx *cx, osh_q_args *a, const char *where);
/* Appends "weights 4-bit integer, a scale for each group of 128", with `of` for "weights". Appends
 * nothing if the arguments are not present. */
osh_status osh_q_args_tell(osh_ctx *cx, osh_buf *b, const char *of, const osh_q_args *a);
/* Returns a line (own) for the plan: the engines that load this scheme in its format (vLLM on CUDA
 * or CPU, transformers), or the reason why no engine does. stranger: name of an architecture whose
 * layers in these engines are not known; NULL: they are known. */
char *osh_q_who_loads(osh_ctx *cx, const osh_q_scheme *s, const char *stranger);
/* Returns what transformers 5.17 does wrong with experts in this scheme; static; NULL: it loads
 * them. transformers stacks experts in one tensor and converts the codes of each; vLLM does not. */
const char *osh_q_experts_fault(const osh_q_scheme *s);
typedef struct osh_q_modules { // views [n]: the modules of a model
    const char *const *names, *const *classes; // names; classes, NULL if they are unknown
    const int *which;                          // index of the scheme that each module really has;
                                               // -1: none
    size_t n;
    osh_q_family family; // selects the rows of fusions.def
} osh_q_modules;
/* Runs vLLM's lookup of each module's scheme on the config that will be written. The result is an
 * index in `schemes`, or -1. Modules that vLLM fuses (fusion.h) are looked up by their fused name.
 * Fails if a result differs from which[i]; the error names the module. */
osh_status osh_q_vllm_check(osh_ctx *cx, const osh_q_groups *g, const osh_q_modules *m);
#endif
