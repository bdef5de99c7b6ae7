/* matching.h - assigns schemes to modules. The results are a list of the Linears that are quantized
 * or pruned, and the entries of the output's config. */
#ifndef OSH_MATCHING_H
#define OSH_MATCHING_H
#include "match/inputs.h"
#include "quant/format.h"
#include "quant/transform.h"

/* Indices of those values of a Linear whose ranges may be observed.
 * 0 to 2: keys, values and queries of the attention whose output the Linear reads.
 * OSH_OUTPUT: output of the Linear.
 * OSH_INPUT: input of the Linear. */
enum { OSH_CACHED = 3, OSH_OUTPUT = OSH_CACHED, OSH_INPUT, OSH_RANGED };
typedef struct osh_linear { // a Linear (or embedding) that is quantized or pruned
    char *name;             // own
    int64_t tensor;         // index of the weight in the source checkpoint
    int64_t O, I;
    osh_dtype dtype;
    int modifier;           // index (in the recipe) of the modifier that quantizes the Linear
    struct {
        /* Index (in the recipe) of the modifier that prunes the weight before the weight is
         * quantized; -1: none. */
        int modifier;
        double sparsity;
    } prune;
    /* Scheme of the Linear. If weights.present is false, the weight is written dense; it may be
     * pruned. */
    const osh_q_scheme *scheme; // view
    const osh_format *format;
    int scheme_index;       // index in osh_matching.schemes; -1: none
    /* Indices in the graph of the Linear's node, weight and input value; -1: the Linear is not in
     * the graph. */
    int node, weight, input;
    int subgraph;           // index of the Linear's subgraph; -1: the Linear is not in the graph
    struct {
        /* reader: index of the next Linear that reads the same input value (lookup.h).
         * user: index of the next Linear that uses the same weight of the graph. */
        int reader, user;
        int joint;          // index of the next Linear that shares the global scale (globals.h)
    } next;                 // each of the three members is -1 if there is no such Linear
    /* Bits OSH_STAT_* of all statistics that the Linear needs. osh_wants (schedule/schedule.h)
     * returns the bits for one traversal (plan/traversals.h). */
    unsigned wants;
    /* If there are several traversals: index of the traversal that collects data for the Linear;
     * -1: the Linear needs no data. */
    int traversal;
    /* index of the first Linear that shares the global scale; -1: there is no global scale */
    int joint;
    /* ranged[k]: index of the graph value whose range gives the static scales of the Linear's k-th
     * observed value; -1: none. This is the observed value itself, or an earlier value: some ops
     * compute a value with the same range as their input (rewrite/passthrough.h). */
    int ranged[OSH_RANGED];
    int64_t heads[OSH_RANGED]; // heads[k]: number of scales of the k-th observed value
    /* True if no modifier quantizes or prunes the Linear, so that its weight does not change. Such
     * a Linear is listed only for the scales of an attention. */
    bool kept;
    /* True if the statistic OSH_STAT_SHIFT is collected, because the Linear's input differs from
     * its input in the original model. */
    bool shift;
    /* Only if `shift` is true: probability that an element of the input is taken from the quantized
     * model, and not from the original model (ops/mix.c). */
    double share;
    struct {
        int64_t first;      // the output has tensors [first, first + n) for the Linear
        int n;
        /* Index of the source tensor of a bias that is learned together with the weight
         * (schedule/blocks.h); -1: none. The bias is the last of the n output tensors. */
        int64_t bias;
    } out;
    /* Mean squares of gradients, in F64. A survey measures them (eval/gradients.h). The tensors are
     * own; NULL: not measured. */
    struct {
        /* outputs [O]: one number for each element of the Linear's output.
         * inputs [I]: one number for each element of the Linear's input. NULL unless the Linear is
         * the first one that reads the input, and a candidate scheme rounds inputs. */
        osh_tensor *outputs, *inputs;
    } gradients;
} osh_linear;

/* Describes the Linear's weight for the functions of its format. */
static inline osh_format_weight osh_linear_stored(const osh_linear *l)
{
    return (osh_format_weight){l->scheme, l->O, l->I, l->dtype};
}

/* A row of the list of dense weights. The names of the weights in a row differ only in numbers. */
typedef struct osh_dense {
    char *names;          // own: the names, with * for numbers, such as "model.layers.*.mlp.gate"
    int64_t n, bytes;
    const char *why;      // static string: reason why these weights stay dense
    bool in_block;        // true if the weights are in decoder layers
    bool decoded;         // true if the source stores the weights quantized
} osh_dense;

typedef struct osh_matching {
    const osh_inputs *in;    // view
    osh_q_scheme *schemes;   // own: groups of the output's config
    size_t n_schemes;
    /* number of groups that come from the source; they are the first of `schemes` */
    size_t n_kept_schemes;
    /* The kv_cache_scheme, or the scheme of a group for attention. cache.present is false if the
     * recipe has none of these. */
    osh_q_args cache;
    bool queries;            // true if `cache` also applies to queries of attentions
    /* Not 0: a smaller group size, with which the plan must match all modules again. It is set if
     * the group size of the scheme does not divide the columns of all modules. 0: the modules are
     * matched. */
    int64_t smaller_groups;
    /* With --tensor-parallel: number of Linears that can be split, and number of Linears whose
     * names have no known role. */
    int n_split, n_split_other;
    bool outputs; // true if the output of any Linear is observed (static output_activations)
    osh_linear *linears;     // own: the quantized or pruned Linears, in the order of execution
    int n_linears;
    /* readers [graph values]: index of the first Linear that reads the value (lookup.h), or -1.
     * users [graph weights]: index of the first Linear that uses the weight, or -1.
     * NULL before the graph is cut into subgraphs. */
    int *readers, *users;    // own
    osh_strs ignore;         // own: ignore list for the output's config
    osh_dense *dense;        // own: weights of two and three dimensions that stay dense
    int64_t n_dense;
    double dense_share; // fraction of the bytes of the decoder blocks that stays dense
    char *format;            // own: name of the format at the top level of the config
    char *quantization_json; // own
    /* The next two members describe changes of the model that are made before modules are
     * matched. */
    const osh_q_transforms *transforms; // view: transforms of the rotations; NULL: no rotations
    /* Number of experts that each layer keeps; -1: the layer keeps all experts. NULL: no layer
     * loses experts. */
    int *experts_left; // own [decoder layers]
} osh_matching;

/* True if the Linear's codes depend only on its weight, so that no data is collected for it. */
static inline bool osh_wants_no_data(const osh_linear *l) { return !l->wants; }
/* Matches all modules. Sets p->schemes, p->linears, the ignore list and the config. Also checks
 * that vLLM finds the same schemes. (The function is in plan_match.c.) */
osh_status osh_plan_match(osh_ctx *cx, osh_matching *p);
/* Sets only p->schemes and p->linears. Does not check that the group sizes divide the columns. (The
 * function is in plan_match.c.) */
osh_status osh_match_trial(osh_ctx *cx, osh_matching *p);
/* Frees p->schemes and p->linears. (The function is in plan_match.c.) */
void osh_match_clear(osh_ctx *cx, osh_matching *p);
/* Finds the scales of keys, values and outputs. Called by osh_plan_match. (The function is in
 * cache.c.) */
osh_status osh_plan_cache(osh_ctx *cx, osh_matching *p);
/* Fails if in->by_route is true but the recipe needs all tokens in each expert. Must be called
 * after osh_plan_match. (The function is in by_route.c.) */
osh_status osh_plan_by_route(osh_ctx *cx, const osh_matching *p);
/* Sets the members `readers` and `users`. Must be called after the graph is cut into subgraphs.
 * (The function is in lookup.c.) */
osh_status osh_plan_index(osh_ctx *cx, osh_matching *p);
#endif
