/* matching.h - assigns schemes to modules. The result is a list of Linears that are quantized or
 * pruned, and the entries of the output's config. */
#ifndef OSH_MATCHING_H
#define OSH_MATCHING_H
#include "match/inputs.h"
#include "quant/format.h"
#include "quant/transform.h"

/* Indices of the values of a Linear whose ranges may be observed.
 * 0 to 2: keys, values and queries of the attention before the Linear.
 * OSH_OUTPUT: output of the Linear.
 * OSH_INPUT: input of the Linear. */
enum { OSH_CACHED = 3, OSH_OUTPUT = OSH_CACHED, OSH_INPUT, OSH_RANGED };
typedef struct osh_linear { // a module that is quantized or pruned
    char *name;             // own
    int64_t tensor;         // index of the weight in the source checkpoint
    int64_t O, I;
    osh_dtype dtype;
    int modifier;           // index in the recipe of the modifier that quantizes the Linear
    struct {
        /* Index in the recipe of the modifier that prunes the weight before it is quantized; -1:
         * none. */
        int modifier;
        double sparsity;
    } prune;
    /* A scheme of the plan. If weights.present is false, the weight is written dense, and may be
     * pruned. */
    const osh_q_scheme *scheme; // view
    const osh_format *format;
    int scheme_index;       // index in osh_matching.schemes; -1: none
    /* Indices of node, weight and input value in the graph; -1: not in the graph. */
    int node, weight, input;
    int subgraph;           // index of the Linear's subgraph; -1: the Linear is not in the graph
    struct {
        /* reader: index of the next Linear with the same input value (lookup.h).
         * user: index of the next Linear with the same weight of the graph. */
        int reader, user;
        int joint;          // index of the next Linear with the same global scale (globals.h)
    } next;                 // each is -1 if there is no next Linear
    /* Bits OSH_STAT_* of the statistics that the Linear needs; osh_wants returns the bits for the
     * current traversal. */
    unsigned wants;
    /* Index of the traversal that collects data for the Linear, if there are several traversals;
     * -1: the Linear needs no data. */
    int traversal;
    int joint;              // index of the first Linear with the same global scale; -1: no scale
    /* ranged[k] is the index of the graph value whose range gives the static scales of value k; -1:
     * none. It is value k itself, or a value that an op passes on without a change of the range
     * (rewrite/passthrough.h). k: index of the Linear's value, below OSH_RANGED. */
    int ranged[OSH_RANGED];
    int64_t heads[OSH_RANGED]; // heads[k]: number of scales of value k
    /* True if no modifier quantizes or prunes the Linear, so that its weight does not change. It is
     * listed only for the scales of an attention. */
    bool kept;
    /* True if OSH_STAT_SHIFT is collected, because the input differs from the input in the original
     * model. */
    bool shift;
    /* If `shift` is true: probability that an element of the input comes from the quantized
     * model and not from the original model (ops/mix.c). 1: all elements come from the quantized
     * model. */
    double share;
    struct {
        int64_t first;      // first and n: the Linear has the output tensors [first, first + n)
        int n;
        /* Index of the source tensor of the bias that is learned together with the weight
         * (schedule/blocks.h); -1: none. The last of the n output tensors is this bias. */
        int64_t bias;
    } out;
    /* Mean squares of gradients in F64, which a survey measures (eval/gradients.h). The tensors are
     * own; NULL: not measured. */
    struct {
        /* outputs: [O], for the elements of the output.
         * inputs: [I], for the elements of the input. Only the first reader of the input has them,
         * and only if candidates round inputs. */
        osh_tensor *outputs, *inputs;
    } gradients;
} osh_linear;

/* Returns the arguments for functions of the Linear's format. */
static inline osh_format_weight osh_linear_stored(const osh_linear *l)
{
    return (osh_format_weight){l->scheme, l->O, l->I, l->dtype};
}

/* A row of the list of dense weights. The names of its weights differ only in numbers. */
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
    size_t n_kept_schemes;   // number of groups of the source, which are the first of `schemes`
    /* kv_cache_scheme, or the scheme of a group for attention. cache.present is false if the recipe
     * has neither. */
    osh_q_args cache;
    bool queries;            // true if `cache` also applies to queries
    /* Smaller group size with which the matching must be repeated; 0: no repetition. Set if the
     * group size of the scheme does not divide the columns of all modules. */
    int64_t smaller_groups;
    /* With --tensor-parallel: number of Linears that can be split, and number of Linears whose name
     * has no known role. */
    int n_split, n_split_other;
    bool outputs; // true if the output of some Linear is observed (static output_activations)
    osh_linear *linears;     // own: the quantized or pruned Linears, in the order of execution
    int n_linears;
    /* readers [graph values]: index of the first Linear that reads the value (lookup.h), or -1.
     * users [graph weights]: index of the first Linear that uses the weight, or -1.
     * NULL before the graph is cut into subgraphs. */
    int *readers, *users;    // own
    osh_strs ignore;         // own: ignore list of the output's config
    osh_dense *dense;        // own: weights of two and three dimensions that stay dense
    int64_t n_dense;
    double dense_share; // bytes of dense weights divided by the bytes of the decoder blocks
    char *format;            // own: format at the top level of the config
    char *quantization_json; // own
    /* The next two members describe rewrites of the model before modules are matched. */
    const osh_q_transforms *transforms; // view: transforms of rotations; NULL: no rotations
    /* Number of experts that each layer keeps; -1: all experts. NULL: no experts are removed. */
    int *experts_left; // own [decoder layers]
} osh_matching;

/* True if the Linear's codes depend only on its weight, so that no data is collected for it. */
static inline bool osh_wants_no_data(const osh_linear *l) { return !l->wants; }
/* Sets schemes, linears, ignore list and config, and checks that vLLM finds the same schemes. (In
 * plan_match.c.) */
osh_status osh_plan_match(osh_ctx *cx, osh_matching *p);
/* Sets only schemes and linears. Does not check that the group sizes divide the columns. (In
 * plan_match.c.) */
osh_status osh_match_trial(osh_ctx *cx, osh_matching *p);
/* Frees schemes and linears. (In plan_match.c.) */
void osh_match_clear(osh_ctx *cx, osh_matching *p);
/* Finds the scales of keys, values and outputs. osh_plan_match calls it. (In cache.c.) */
osh_status osh_plan_cache(osh_ctx *cx, osh_matching *p);
/* Fails if in->by_route is true and the recipe does not allow that. Must be called after
 * osh_plan_match. (In by_route.c.) */
osh_status osh_plan_by_route(osh_ctx *cx, const osh_matching *p);
/* Sets the members `readers` and `users`. Must be called after the graph is cut into subgraphs. (In
 * lookup.c.) */
osh_status osh_plan_index(osh_ctx *cx, osh_matching *p);
#endif
