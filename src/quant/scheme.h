/* scheme.h - QuantizationArgs, QuantizationScheme, presets (compressed_tensors/quantization). */
#ifndef OSH_SCHEME_H
#define OSH_SCHEME_H
#include "base/field.h"
#include "quant/fusion.h"
#include "quant/transform.h"
#include "tensor/tensor.h"
#include "text/json.h"

#define OSH_Q_VERSION "0.19.0"      // of the compressed-tensors whose format is written
#define OSH_Q_VERSION_FP6 "0.20.0"  // where a scheme has 6-bit floats, which 0.19 does not know
typedef enum { OSH_Q_INT, OSH_Q_FLOAT } osh_q_type;
typedef enum {
    OSH_Q_TENSOR,
    OSH_Q_CHANNEL,
    OSH_Q_GROUP,
    OSH_Q_BLOCK,
    OSH_Q_TOKEN,
    OSH_Q_TENSOR_GROUP, // groups whose scales are relative to one global scale of the tensor (NVFP4)
    OSH_Q_ATTN_HEAD,    // a scale for each head, of what attention reads
    OSH_Q_STRATEGY_NONE
} osh_q_strategy;
/* local: the global scale is stored, those of the groups are made when the model runs. */
typedef enum { OSH_Q_STATIC, OSH_Q_DYNAMIC, OSH_Q_LOCAL } osh_q_dynamic;
/* null: the weight's dtype; torch.float8_e4m3fn (NVFP4); torch.uint8: powers of two, E8M0 (MX). */
typedef enum { OSH_Q_SCALE_PLAIN, OSH_Q_SCALE_E4M3, OSH_Q_SCALE_E8M0 } osh_q_scale_dtype;
typedef enum {
    OSH_ACTORDER_UNSET,
    OSH_ACTORDER_STATIC,
    OSH_ACTORDER_WEIGHT
} osh_actorder; // static == weight; spelling kept

enum { OSH_Q_KWARGS = 8 };
typedef struct osh_q_kwarg { // of observer_kwargs, as given
    char name[24];
    double value;  // true: 1
    enum { OSH_Q_KWARG_INT, OSH_Q_KWARG_FLOAT, OSH_Q_KWARG_BOOL } kind;
} osh_q_kwarg;

typedef struct osh_q_args {
    bool present;
    int bits;
    osh_q_type type;
    osh_q_strategy strategy;
    int64_t group_size; // 0: null; -1 tolerated
    int64_t block[2];   // rows, columns; 0: null
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
    char *group_name;         // own: "group_0"
    osh_strs targets;         // own
    osh_q_args weights, inputs, outputs;
    char format[32]; // "": to be inferred
    const cJSON *raw; // view: of a source's config: how the group is to be printed; NULL: as its arguments say
} osh_q_scheme;

typedef struct osh_q_config {
    osh_q_scheme *schemes; // own
    size_t n;
    osh_strs ignore; // own
    char format[32]; // of a config that was read
    osh_q_args cache; // kv_cache_scheme
    osh_q_transforms transforms; // those that act while the model runs
} osh_q_config;

/* One QuantizationArgs key at a time, from JSON or from a recipe. text: scalars as written ("true", "4", "int"), a
 * list of two numbers as "128x128"; NULL: null. where names the object in messages. Keys and values that exist
 * elsewhere but not here (actorder group, ...) are refused by name; an unknown key is an error. */
void osh_q_args_init(osh_q_args *a); // QuantizationArgs' defaults, present
static inline bool osh_q_in_groups(const osh_q_args *a)
{
    return a->strategy == OSH_Q_GROUP || a->strategy == OSH_Q_TENSOR_GROUP;
}
/* Of a weight [O, I]: rows, and columns, that share a scale; the last ones may be fewer. */
static inline int64_t osh_q_scale_rows(const osh_q_args *a, int64_t O)
{
    return a->strategy == OSH_Q_TENSOR ? O : a->strategy == OSH_Q_BLOCK ? a->block[0] : 1;
}
static inline int64_t osh_q_scale_cols(const osh_q_args *a, int64_t I)
{
    return osh_q_in_groups(a) ? a->group_size : a->strategy == OSH_Q_BLOCK ? a->block[1] : I;
}
/* Of a group: it is of what attention reads, queries, keys and values, and of no weights. */
static inline bool osh_q_of_attention(const osh_q_scheme *s) { return s->inputs.present && !s->weights.present; }
static inline bool osh_q_is_fp4(const osh_q_args *a) { return a->type == OSH_Q_FLOAT && a->bits == 4; }
static inline bool osh_q_is_fp6(const osh_q_args *a) { return a->type == OSH_Q_FLOAT && a->bits == 6; }
osh_status osh_q_args_set(osh_ctx *cx, osh_q_args *a, const char *key, const char *text, const char *where);
osh_status osh_q_preset(osh_ctx *cx, osh_q_scheme *out,
                        const char *name); // fills args only; unknown: error naming the known ones
const char *osh_q_preset_name(size_t i); // NULL: there are no more
osh_status osh_q_args_check(osh_ctx *cx, osh_q_args *a, const char *where,
                            bool is_weight); // normalizes, infers strategy, refuses
/* All of a scheme: its arguments (normalized), what they may not be together, and its format. */
osh_status osh_q_scheme_check(osh_ctx *cx, osh_q_scheme *s, const char *where);
osh_status osh_q_config_parse(osh_ctx *cx, osh_q_config **out, const cJSON *quantization_config,
                              const char *what); // a checkpoint's
void osh_q_config_free(osh_ctx *cx, osh_q_config *c);
void osh_q_scheme_deinit(osh_ctx *cx, osh_q_scheme *s);
/* QuantizationArgs as config.json has them, in one line. own */
osh_status osh_q_args_print(osh_ctx *cx, char **out, const osh_q_args *a, bool is_weight);
typedef struct osh_q_groups { // of a quantization_config; views
    const osh_q_scheme *schemes; // [n]
    size_t n;
    const char *const *ignore; // [n_ignore]
    size_t n_ignore;
} osh_q_groups;
osh_q_groups osh_q_groups_of(const osh_q_scheme *schemes, size_t n, const osh_strs *ignore);
/* What will be written: keys sorted, nulls written, indented by 2 per level for a value at depth 1 of config.json.
 * own. ignore is the generated list. status: "compressed". */
osh_status osh_q_config_print(osh_ctx *cx, char **out, const osh_q_groups *g, const char *format);
/* The same with what stands beside the groups. */
typedef struct osh_q_beside {
    const osh_q_args *cache;            // kv_cache_scheme; NULL: null
    const osh_q_transforms *transforms; // NULL: none
    const int *experts;                 // [n_layers] of each decoder layer, < 0: it has none; NULL: none was left out
    int n_layers;
} osh_q_beside;
osh_status osh_q_config_print_with(osh_ctx *cx, char **out, const osh_q_groups *g, const char *format,
                                   const osh_q_beside *beside);
bool osh_q_config_queries(const osh_q_config *c); // one of its groups is of attention
/* Of a kv_cache_scheme, or a group of attention, that was read: 8 bits, static, one scale for all of keys or values, or
 * one for each head. Normalizes. */
osh_status osh_q_cache_check(osh_ctx *cx, osh_q_args *a, const char *where);
/* One line for the plan: which engine loads this scheme in this format (vLLM CUDA / CPU, transformers), or why none
 * does. own. stranger: an architecture of which nothing says which layers it has there; NULL: a known one */
char *osh_q_who_loads(osh_ctx *cx, const osh_q_scheme *s, const char *stranger);
typedef struct osh_q_modules { // [n]; views
    const char *const *names, *const *classes; // classes NULL: not known
    const int *which;                          // the scheme that each really has; -1: none
    size_t n;
    osh_q_family family; // which layers are fused
} osh_q_modules;
/* Runs vLLM's lookup of each module's scheme on the config that will be written: an index into
 * schemes, -1 for none. Modules that vLLM fuses (fusion.h) are looked up by their fused name.
 * Disagreement with which[i] is an error that names the module. */
osh_status osh_q_vllm_check(osh_ctx *cx, const osh_q_groups *g, const osh_q_modules *m);
#endif
