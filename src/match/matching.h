/* matching.h - which module gets which scheme: the Linears that are quantized or pruned, and what
 * the output's config says about them. */
#ifndef OSH_MATCHING_H
#define OSH_MATCHING_H
#include "match/inputs.h"
#include "quant/format.h"
#include "quant/transform.h"

/* Values whose ranges are observed. 0 to 2: keys, values and queries of an attention; OSH_OUTPUT:
 * the output of a Linear; OSH_INPUT: its input. */
enum { OSH_CACHED = 3, OSH_OUTPUT = OSH_CACHED, OSH_INPUT, OSH_RANGED };
typedef struct osh_linear { // a module that is quantized or pruned
    char *name;             // own
    int64_t tensor;         // its weight in the source checkpoint
    int64_t O, I;
    osh_dtype dtype;
    int modifier;           // index into the recipe's modifiers
    int pruner;             // index of the modifier that prunes before it; -1: none
    double sparsity;        // for the pruner
    const osh_q_scheme *scheme; // view: of the plan's schemes; weights.present false: pruned only,
                                // written dense
    const osh_format *format;
    int scheme_index;       // into the plan's schemes; -1: none
    int node, weight, input; // graph indices: node, weight, input value; -1: no graph
    int subgraph;           // -1: no graph
    int next_reader, next_user; // next Linear with the same input, with the same weight (lookup.h);
                                // -1: none
    unsigned wants;         // OSH_STAT_*
    unsigned elsewhere;     // OSH_STAT_* that it wants in traversals other than the present one
                            // (traversals.h)
    int traversal;          // the traversal that it wants data in; -1: it wants none, or there is
                            // one traversal for all
    int joint, next_joint;  // first of the Linears that share its global scale, and the next one
                            // (globals.h); -1: none
    int ranged[OSH_RANGED]; // [k]: value whose range gives static scales, or the source of that
                            // value (passthrough.h); -1: none. Keys, values and (if they are
                            // rounded) queries are of the attention that makes its input (cache.h)
    int64_t heads[OSH_RANGED]; // scales of each
    bool kept; // nothing quantizes it: it is listed for these scales, and its weight stays
    bool shift; // OSH_STAT_SHIFT of its input is collected, which differs in the original model
    double share;           // with shift: part of its input's elements that come from the quantized
                            // model, the others from the original (ops/mix.c); 1: all
    int64_t bias;           // source tensor of the bias that learns with it (blocks.h), the last of
                            // its output tensors; -1: none
    int64_t first_out;      // output tensors [first_out, first_out + n_out)
    int n_out;
    osh_tensor *care; // own: F64 [O]: gradients of a survey by output (gradients.h); NULL: none
    osh_tensor *care_in;    // own: F64 [I]: gradients by input, of its first reader, if candidates
                            // round inputs; NULL: not known
} osh_linear;

static inline osh_format_weight osh_linear_stored(const osh_linear *l) // for its format
{
    return (osh_format_weight){l->scheme, l->O, l->I, l->dtype};
}

typedef struct osh_dense { // dense weights whose names differ in numbers only
    char *names;          // own: "model.layers.*.mlp.gate"
    int64_t n, bytes;
    const char *why;      // static
    bool in_block;        // they are in a decoder block
    bool decoded;         // the source stores codes for them
} osh_dense;

typedef struct osh_matching {
    const osh_inputs *in;    // view
    osh_q_scheme *schemes;   // own: all groups as they will be written
    size_t n_schemes;
    size_t n_kept_schemes;   // the first ones are the source's
    osh_q_args cache;        // kv_cache_scheme, or the scheme of a group of attentions; not
                             // present: neither
    bool queries;            // cache applies to queries, too
    bool outputs;            // the output of some Linear is observed, for static output_activations
    osh_linear *linears;     // own, in execution order
    int n_linears;
    int *readers, *users;    // own: [values], [weights]: the first Linear (lookup.h), -1: none;
                             // NULL: not cut
    osh_strs ignore;         // own: generated list
    osh_dense *dense;        // own: weights of two and three dimensions that stay dense
    int64_t n_dense;
    double dense_share;      // part of the bytes of such weights in decoder blocks
    char *format;            // own: top-level format
    char *quantization_json; // own
    /* What rewrites have done to the model before anything is matched: */
    const osh_q_transforms *transforms; // view: of the rotations; NULL: nothing is rotated
    int *experts_left; // own [decoder layers]: experts that remain, -1: no expert was removed; NULL:
                       // no layer has lost experts
} osh_matching;

/* True if no traversal collects data for it: it is rounded from its weight alone. */
static inline bool osh_wants_no_data(const osh_linear *l) { return !l->wants && !l->elsewhere; }
/* plan_match.c: schemes, linears, ignore list, vLLM's lookup. */
osh_status osh_plan_match(osh_ctx *cx, osh_matching *p);
/* cache.c, after osh_plan_match: scales of keys and values. */
osh_status osh_plan_cache(osh_ctx *cx, osh_matching *p);
/* by_route.c, after osh_plan_match: refuses what by_route excludes. */
osh_status osh_plan_by_route(osh_ctx *cx, const osh_matching *p);
osh_status osh_plan_index(osh_ctx *cx, osh_matching *p); // lookup.c, after the cut
#endif
