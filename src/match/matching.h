/* matching.h - assigns schemes to modules: lists the Linears that are quantized or pruned, and the
 * entries of the output's config. */
#ifndef OSH_MATCHING_H
#define OSH_MATCHING_H
#include "match/inputs.h"
#include "quant/format.h"
#include "quant/transform.h"

/* Indices of a Linear's values whose ranges may be observed. 0 to 2: keys, values and queries of
 * the attention before the Linear; OSH_OUTPUT: output of the Linear; OSH_INPUT: input of the
 * Linear. */
enum { OSH_CACHED = 3, OSH_OUTPUT = OSH_CACHED, OSH_INPUT, OSH_RANGED };
typedef struct osh_linear { // a module that is quantized or pruned
    char *name;             // own
    int64_t tensor;         // index of the weight in the source checkpoint
    int64_t O, I;
    osh_dtype dtype;
    int modifier;           // index in the recipe of the modifier that quantizes the weight
    struct {
        /* Index of the modifier that prunes the weight before it is quantized; -1: none. */
        int modifier;
        double sparsity;
    } prune;
    /* View of a scheme of the plan; if weights.present is false, the weight is only pruned and
     * written dense. */
    const osh_q_scheme *scheme;
    const osh_format *format;
    int scheme_index;       // index in osh_matching.schemes; -1: none
    /* Indices of node, weight and input value in the graph; -1: not in the graph. */
    int node, weight, input;
    int subgraph;           // index of the Linear's subgraph; -1: the Linear is not in the graph
    struct {
        /* reader: index of the next Linear with the same input (lookup.h).
         * user: index of the next Linear with the same weight. */
        int reader, user;
        int joint;          // index of the next Linear with the same global scale (globals.h)
    } next;                 // -1: there is no next Linear
    /* Bits OSH_STAT_* of the statistics that the Linear needs; osh_wants returns the bits for the
     * current traversal. */
    unsigned wants;
    /* If there are several traversals: index of the traversal that collects data for the Linear;
     * -1: the Linear needs no data. */
    int traversal;
    int joint;              // index of the first Linear with the same global scale; -1: none
    /* Index of the graph value whose range gives the static scales of the Linear's value k; -1:
     * none. This is value k itself, or a value from which an op computes value k without changing
     * the range (rewrite/passthrough.h). k < OSH_CACHED: values of the attention before the Linear
     * (cache.h). */
    int ranged[OSH_RANGED]; // [k]
    int64_t heads[OSH_RANGED]; // [k]: number of scales of value k
    /* True if no modifier quantizes or prunes the Linear: it is listed only for scales of an
     * attention, and its weight does not change. */
    bool kept;
    /* True if OSH_STAT_SHIFT of the input is collected, because the input differs from that of the
     * original model. */
    bool shift;
    /* If `shift`: probability that an element of the input comes from the quantized model and not
     * from the original (ops/mix.c); 1: all elements. */
    double share;
    struct {
        int64_t first;      // output tensors [first, first + n) belong to the Linear
        int n;
        /* Index of the source tensor of the bias that is learned together with the weight
         * (schedule/blocks.h); its output tensor is the last of the n; -1: none. */
        int64_t bias;
    } out;
    /* Own: F64 mean squares of gradients that a survey measures (eval/gradients.h); NULL: not
     * measured. */
    struct {
        /* outputs: [O].
         * inputs: [I], only at the first reader of the input, and only if candidates round
         * inputs. */
        osh_tensor *outputs, *inputs;
    } gradients;
} osh_linear;

/* Arguments for functions of the Linear's format. */
static inline osh_format_weight osh_linear_stored(const osh_linear *l)
{
    return (osh_format_weight){l->scheme, l->O, l->I, l->dtype};
}

/* A row of the list of dense weights: weights whose names differ only in numbers. */
typedef struct osh_dense {
    char *names;          // own: names with * for numbers, such as "model.layers.*.mlp.gate"
    int64_t n, bytes;
    const char *why;      // static string: reason why the weights stay dense
    bool in_block;        // true if the weights are in decoder layers
    bool decoded;         // true if the source stores the weights quantized
} osh_dense;

typedef struct osh_matching {
    const osh_inputs *in;    // view
    osh_q_scheme *schemes;   // own: groups of the output's config
    size_t n_schemes;
    size_t n_kept_schemes;   // number of groups of the source; they are the first of `schemes`
    /* kv_cache_scheme, or the scheme of a group for attention. cache.present is false if there is
     * neither. */
    osh_q_args cache;
    bool queries;            // true if `cache` also applies to queries
    /* Group size with which the matching must be repeated, because the scheme's group size does not
     * divide the columns of all modules; 0: none. */
    int64_t smaller_groups;
    int n_split, n_split_other; // with --tensor-parallel: number of Linears that can be split, and
                             // of Linears whose name has no known role
    bool outputs; // true if the output of some Linear is observed for static output_activations
    osh_linear *linears;     // own: the quantized or pruned Linears, in the order of execution
    int n_linears;
    /* readers [graph values]: index of the first Linear that reads the value (lookup.h).
     * users [graph weights]: index of the first Linear that uses the weight.
     * -1: none. NULL: the graph is not cut. */
    int *readers, *users;    // own
    osh_strs ignore;         // own: ignore list of the output's config
    osh_dense *dense;        // own: weights of two and three dimensions that stay dense
    int64_t n_dense;
    double dense_share; // bytes of dense weights as a fraction of the bytes of the decoder blocks
    char *format;            // own: format at the top level of the config
    char *quantization_json; // own
    /* Rewrites that are applied before modules are matched. */
    const osh_q_transforms *transforms; // view: transforms of rotations; NULL: no rotations
    /* Number of kept experts, -1: all; NULL: no experts are removed. */
    int *experts_left; // own [decoder layers]
} osh_matching;

/* True if no data is collected for the Linear, because its codes depend only on its weight. */
static inline bool osh_wants_no_data(const osh_linear *l) { return !l->wants; }
/* plan_match.c: sets schemes, linears, ignore list and config, and checks vLLM's lookup. */
osh_status osh_plan_match(osh_ctx *cx, osh_matching *p);
/* plan_match.c: sets only schemes and linears. Does not check that groups divide the columns. */
osh_status osh_match_trial(osh_ctx *cx, osh_matching *p);
/* plan_match.c: frees schemes and linears. */
void osh_match_clear(osh_ctx *cx, osh_matching *p);
/* cache.c, called by osh_plan_match: finds the scales of keys, values and outputs. */
osh_status osh_plan_cache(osh_ctx *cx, osh_matching *p);
/* by_route.c, called after osh_plan_match: fails if the recipe does not allow in->by_route. */
osh_status osh_plan_by_route(osh_ctx *cx, const osh_matching *p);
/* lookup.c: sets readers and users; called after the graph is cut. */
osh_status osh_plan_index(osh_ctx *cx, osh_matching *p);
#endif
