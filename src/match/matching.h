/* matching.h - assigns schemes to modules: the Linears that are quantized or pruned, and their
 * entries in the output's config. */
#ifndef OSH_MATCHING_H
#define OSH_MATCHING_H
#include "match/inputs.h"
#include "quant/format.h"
#include "quant/transform.h"

/* Values of a Linear whose ranges are observed. 0 to 2: keys, values and queries of the attention
 * before the Linear; OSH_OUTPUT: the output of the Linear; OSH_INPUT: the input. */
enum { OSH_CACHED = 3, OSH_OUTPUT = OSH_CACHED, OSH_INPUT, OSH_RANGED };
typedef struct osh_linear { // a module that is quantized or pruned
    char *name;             // own
    int64_t tensor;         // index of the weight in the source checkpoint
    int64_t O, I;
    osh_dtype dtype;
    int modifier;           // index of the quantizing modifier in the recipe
    struct {
        int modifier;       // index of the modifier that prunes the weight first; -1: none
        double sparsity;
    } prune;
    const osh_q_scheme *scheme; // view of a scheme of the plan; weights.present is false: only
                                // pruned, written dense
    const osh_format *format;
    int scheme_index;       // index in the plan's schemes; -1: none
    int node, weight, input; // node, weight and input value in the graph; -1: no graph
    int subgraph;           // index of the subgraph; -1: no graph
    struct {
        int reader, user;   // next Linear with the same input, and with the same weight (lookup.h)
        int joint;          // next Linear with the same global scale (globals.h)
    } next;                 // -1: none
    unsigned wants;         // OSH_STAT_* of all traversals; osh_wants returns those of one
    int traversal;          // if there are traversals: number of the traversal in which the Linear
                            // needs data; -1: it needs no data
    int joint;              // first Linear with the same global scale; -1: none
    int ranged[OSH_RANGED]; // [k]: value whose range gives static scales, or another value whose
                            // range is used for it (passthrough.h); -1: none. Keys, values and (if
                            // they are rounded) queries belong to the attention before the Linear
                            // (cache.h)
    int64_t heads[OSH_RANGED]; // [k]: number of scales
    bool kept; // true: no modifier quantizes the Linear; it is listed only for scales of an
               // attention, and its weight does not change
    bool shift; // true: OSH_STAT_SHIFT of the input is collected; the input differs in the original
                // model
    double share;           // if `shift`: probability that an element of the input comes from the
                            // quantized model and not from the original (ops/mix.c); 1: all
                            // elements
    struct {
        int64_t first;      // the output tensors of the Linear are [first, first + n)
        int n;
        int64_t bias;       // source tensor of the bias that is learned together with the weight
                            // (blocks.h); it is the last of the n output tensors; -1: none
    } out;
    struct { // own: gradients of a survey (gradients.h), F64; NULL: not measured
        osh_tensor *outputs, *inputs; // [O]; [I], for the first reader, if candidates round inputs
    } gradients;
} osh_linear;

static inline osh_format_weight osh_linear_stored(const osh_linear *l) // arguments for the
                                                                       // functions of the Linear's
                                                                       // format
{
    return (osh_format_weight){l->scheme, l->O, l->I, l->dtype};
}

typedef struct osh_dense { // dense weights whose names differ only in numbers
    char *names;          // own: such as "model.layers.*.mlp.gate"
    int64_t n, bytes;
    const char *why;      // static string: reason
    bool in_block;        // true: the weights are in a decoder block
    bool decoded;         // true: the source stores codes for the weights
} osh_dense;

typedef struct osh_matching {
    const osh_inputs *in;    // view
    osh_q_scheme *schemes;   // own: all groups as they are written
    size_t n_schemes;
    size_t n_kept_schemes;   // number of groups of the source; they are the first of `schemes`
    osh_q_args cache;        // kv_cache_scheme, or the scheme of a group for attention; if not
                             // present: neither
    bool queries;            // `cache` also applies to queries
    int64_t smaller_groups;  // not 0: the group size does not divide the columns of all modules and
                             // this size does; matching stopped, and must begin again with it
    bool outputs;            // the output of some Linear is observed for static output_activations
    osh_linear *linears;     // own, in the order of execution
    int n_linears;
    int *readers, *users;    // own: [values] and [weights]: the first Linear (lookup.h), -1: none;
                             // NULL: not cut
    osh_strs ignore;         // own: generated ignore list
    osh_dense *dense;        // own: weights of two and three dimensions that stay dense
    int64_t n_dense;
    double dense_share;      // dense weights as a fraction of the bytes of decoder blocks
    char *format;            // own: top-level format of the config
    char *quantization_json; // own
    /* Rewrites of the model, which come before all matching. */
    const osh_q_transforms *transforms; // view: transforms of the rotations; NULL: no rotations
    int *experts_left; // own [decoder layers]: number of remaining experts, -1: all; NULL: no
                       // experts were removed
} osh_matching;

/* True if no data is collected for the Linear: its codes depend only on its weight. */
static inline bool osh_wants_no_data(const osh_linear *l) { return !l->wants; }
/* plan_match.c: schemes, linears, ignore list, vLLM's lookup. */
osh_status osh_plan_match(osh_ctx *cx, osh_matching *p);
/* cache.c, called after osh_plan_match: scales of keys and values. */
osh_status osh_plan_cache(osh_ctx *cx, osh_matching *p);
/* by_route.c, called after osh_plan_match: refuses recipes and data that by_route does not
 * allow. */
osh_status osh_plan_by_route(osh_ctx *cx, const osh_matching *p);
osh_status osh_plan_index(osh_ctx *cx, osh_matching *p); // lookup.c, called after the graph is cut
#endif
