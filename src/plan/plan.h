/* plan.h - everything that is decided before a weight is read: the scheme of each Linear, the
 * subgraphs and passes, and the name, dtype, shape, file and offset of every output tensor. */
#ifndef OSH_PLAN_H
#define OSH_PLAN_H
#include "graph/exec.h"
#include "modifiers/recipe.h"
#include "ops/stat.h"
#include "solver/tune.h"
#include "plan/options.h"
#include "quant/format.h"
#include "store/tier.h"
#include "tensor/device.h"
#include "data/dataset.h"

typedef enum {
    OSH_PIPELINE_SEQUENTIAL,
    OSH_PIPELINE_BASIC,
    OSH_PIPELINE_DATAFREE
} osh_pipeline_kind;
const char *osh_pipeline_name(osh_pipeline_kind k);

typedef enum { OSH_LOOK_RAM, OSH_LOOK_DISK, OSH_LOOK_AGAIN } osh_look; // looks.h

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

typedef struct osh_out_tensor {
    int64_t source;   // tensor of the source that is copied; -1: none
    int linear, leaf; // otherwise: Linear, and the tensor of its format
    int shard;
} osh_out_tensor;

typedef struct osh_shard {
    char *name;            // own: file name
    char *header;          // own
    size_t header_bytes;
    int64_t n_bytes;       // size of the file
} osh_shard;

typedef struct osh_pass { // the steps of a subgraph
    bool observe;   // statistics are wanted
    bool propagate; // a later subgraph that observes wants its outputs
    bool merged;    // one pass observes and propagates: no reader would see a change
    bool same;      // its inputs and observed values are the same in the original model
    bool fold;      // factors are found and folded in first
    bool block;     // some of its Linears learn from its output (blocks.h)
} osh_pass;

typedef struct osh_visit { // how a subgraph is run, and what that takes
    bool segments;       // one group of Linears at a time
    bool prefetch;       // the first weights of the next visit are read meanwhile
    bool prefetch_device; // they are also copied to the device
    bool apart; // small Linears are solved in parallel, one on each thread, or together on a GPU
    bool values_ahead;   // the next batch's values are copied to the device during a batch, and the
                         // last one's are copied back
    int64_t round_bytes; // bytes of Hessians in one observe pass; 0: all of them
    int n_rounds;        // observe passes
    int64_t weight_bytes, stats_bytes, live_bytes; // the largest of each at one time
    int64_t first_load;  // bytes of the weights that it loads first
    int64_t device_peak, host_peak, scratch_peak; // bytes; host: without the base, with prefetch
    int64_t apart_device, apart_host; // peaks if small Linears are solved in parallel; 0: none is
    int64_t read_bytes;  // bytes of the source
} osh_visit;

/* Factors that a layer gives to the Linears that read its output (folds.h). */
typedef struct osh_fold {
    int modifier;       // index into the recipe's modifiers
    int module, value;  // graph indices: the layer that gives, the value observed for it (folds.h)
    int64_t n;          // channels of the layer
    int gives[2], n_gives; // graph weights that are divided: the layer's weight and bias
    float offset;       // added to the weight by the layer itself
    int *takes, n_takes;   // own: graph weights of the Linears that take the factors
    int subgraph;       // -1: the graph is not cut, or another traversal makes it
    int home;           // with traversals: its subgraph in its own traversal
    float *s;           // own [n]
    bool known;         // s is filled
} osh_fold;

typedef struct osh_experts osh_experts; // experts.h
typedef struct osh_rotated osh_rotated; // rotations.h
typedef struct osh_places osh_places; // layout.h
typedef struct osh_device_peaks osh_device_peaks; // graph/device_peaks.h
typedef struct osh_trials osh_trials; // trials.h
typedef struct osh_memory {
    osh_tier tier;
    osh_look looks;      // how second looks are made (looks.h)
    bool looks_f16;      // second looks see the values as F16; this changes output bytes
    int64_t n_kept;      // tier disk: batches whose values stay in memory
    int n_loaders;       // threads that read values from the disk in advance
    int64_t n_ahead;     // tier disk: batches that they read in advance
    osh_visit *visits;   // own; one for each range of visit.h
    int n_visits;
    bool read_ahead; // Linears rounded without data: the next one is read while this one is rounded
    int n_stream;        // threads of a stream; each has one band of a tensor
    int n_held;          // bands that a stream keeps between two looks at them
    int64_t early;       // host, part of the base: for reading large output tensors back during the
                         // run; 0: none
    bool direct;         // source and output bypass the page cache
    bool by_card;        // tier disk: the GPU reads files of values itself
    int64_t base_bytes;  // host: bytes of the process before the first visit, with what its
                         // libraries will take
    int64_t uncounted;   // part of base_bytes that osh_mem_used does not count
    int64_t load_bytes;  // host: peak of reading source, tokenizer and data
    int64_t device_peak, host_peak, scratch_peak; // peaks of the run; host: with the base
    int highest;         // the visit with the host peak; -1: none
    int64_t read_bytes, write_bytes, reread_bytes; // bytes read from the source, written, and read
                                                   // from the output at the seal
    osh_device_peaks *peaks; // own: GPU only: peaks of passes; NULL: the plan is finished
    osh_trials *trials;  // own: simulations so far; NULL: the plan is finished
    osh_places *places;  // own: GPU only: places of blocks; NULL: wherever they fit
    int64_t least_device, least_host, least_scratch; // the smallest sufficient budgets
    int64_t solve_limit; // device bytes up to which a solve takes more rows at a time; 0: as few as
                         // it can
} osh_memory;

typedef struct osh_traversal { // one of several traversals (traversals.h)
    int modifier;      // index into the recipe's modifiers
    osh_pass *passes;  // own
    bool *seen;        // own
    osh_memory memory; // own: visits and places
    double work[3];    // cost of its passes and solves, as in osh_cost
    double seconds;    // duration
} osh_traversal;

typedef struct osh_plan {
    const osh_options *opt;  // view
    struct osh_source *source; // own
    osh_matcher *only;       // own: --only; NULL: not given
    osh_checkpoint *ck;      // view: of source
    osh_recipe *recipe;      // own
    osh_graph *graph;        // own; NULL: data-free without a known architecture
    osh_partition *parts;    // own; NULL with graph
    osh_pass *passes;        // own [parts->n]
    osh_pipeline_kind pipeline;
    osh_traversal *traversals; // own [n_traversals]; passes, seen and memory are then views of one
                               // of them; NULL: one traversal for all
    int n_traversals, traversal; // traversal: the present one
    bool propagate_error;
    bool by_route;           // experts are calibrated on the tokens that are routed to them
    osh_q_scheme *schemes;   // own: all groups as they will be written
    size_t n_schemes;
    size_t n_kept_schemes;   // the first ones are the source's
    osh_q_args cache;        // kv_cache_scheme, or the scheme of a group of attentions; not
                             // present: neither
    bool queries;            // cache applies to queries, too
    bool outputs;            // the output of some Linear is observed, for static output_activations
    osh_linear *linears;     // own, in execution order
    int n_linears;
    struct osh_inherit *inherits; // own: passthrough.h
    int n_inherits;
    int *readers, *users;    // own: [values], [weights]: the first Linear (lookup.h), -1: none;
                             // NULL: not cut
    osh_fold *folds;         // own, in the order in which they are made
    int n_folds;
    osh_tune_rule tune;      // tuning after all solves (tuning.h); steps 0: none
    osh_graph *tune_graph;   // own: graph of the original model alone, with the weight numbers of
                             // graph; NULL: nothing is tuned
    char *tune_not;          // own: why quality best does not tune; NULL: it does
    bool *tuned;             // own [tensors of the source]: norms that tuning changed; NULL: none,
                             // or not known yet
    uint8_t *folded;         // own [tensors of the source]: not 0: a fold or a rotation changes it;
                             // NULL: none
    osh_experts *experts;    // own: layers that lose experts; NULL: the recipe has no such modifier
    osh_rotated *rotated;    // own: rotations of weights; NULL: the recipe has no such modifier
    osh_strs ignore;         // own: generated list
    osh_dense *dense;        // own: weights of two and three dimensions that stay dense
    int64_t n_dense;
    double dense_share;      // part of the bytes of such weights in decoder blocks
    osh_st_entry *out;       // own: entries of all output tensors, with their names
    osh_out_tensor *out_info; // own
    int64_t n_out;
    osh_shard *shards;       // own
    int n_shards;
    int64_t total_bytes;     // all tensors
    int64_t dense_bytes;     // copied tensors
    char *format;            // own: top-level format
    char *quantization_json; // own
    char *config_text;       // own: config.json as it will be written
    bool untie;
    const char *spared;      // view of graph: output head that --scheme leaves dense; NULL: none
    osh_dataset data;        // own; empty when data-free
    osh_tokenizer *tok;      // own
    int64_t max_seq_length;
    osh_arithmetic arithmetic;
    bool on_device;          // calibration runs on a GPU
    const struct osh_card_model *card_model; // view: of cards.c: planned for this GPU, which need
                                             // not exist; NULL: none
    int ordinal;             // device number
    osh_device *device;      // own: the GPU; NULL: none, or not opened
    osh_groups groups;       // groups of samples, in which statistics are summed (ops/stat.h)
    int64_t *batch_at;       // own [n_batches + 1]: first sample of each batch
    int64_t batch_size, n_batches, batch_tokens; // batch_size: most samples of a batch;
                                                 // batch_tokens: tokens of the largest
    bool *seen;              // own [graph values]: some statistic may read it
    bool looks_twice;        // some observer looks twice (looks.h)
    int64_t looked_up;       // sum over batches of the different tokens in each
    osh_memory memory;
    bool gradients;          // a survey weighs its losses by gradients
    char *gradients_not;     // own: why it does not; NULL: it does, or this is no survey
    struct osh_mark *marks;  // own: one for each --checkpoint (marks.h)
} osh_plan;

/* True if no traversal collects data for it: it is rounded from its weight alone. */
static inline bool osh_wants_no_data(const osh_linear *l) { return !l->wants && !l->elsewhere; }
const char *osh_plan_pipeline(const osh_plan *p); // name of the pipeline
/* True if later Linears see its new weight. */
bool osh_linear_propagates(const osh_plan *p, const osh_linear *l);
/* Plans a run from options, recipe, source and data, before a weight is read. opt must outlive the
 * plan. *out: own. */
osh_status osh_plan_new(osh_ctx *cx, osh_plan **out, const osh_options *opt);
/* Makes the plan of a finished output: opt names the source and the output's recipe. It has no
 * data, passes or budgets. */
osh_status osh_plan_of_output(osh_ctx *cx, osh_plan **out, const osh_options *opt);
void osh_plan_free(osh_ctx *cx, osh_plan *p);
osh_status osh_plan_print(osh_ctx *cx, char **out, const osh_plan *p, bool json); // *out: own

/* Text: "cuda" or "cuda:N". */
osh_status osh_device_ordinal(osh_ctx *cx, int *ordinal, const char *text);

/* The parts of osh_plan_new, each in its own file. */
/* looks.c: values that statistics may read, and that some read twice. */
osh_status osh_plan_seen(osh_ctx *cx, osh_plan *p);
/* plan_match.c: schemes, linears, ignore list, vLLM's lookup. */
osh_status osh_plan_match(osh_ctx *cx, osh_plan *p);
/* cache.c, after osh_plan_match: scales of keys and values. */
osh_status osh_plan_cache(osh_ctx *cx, osh_plan *p);
osh_status osh_plan_manifest(osh_ctx *cx, osh_plan *p); // manifest.c: out, shards, config.json
/* cut.c: cuts subgraphs at targets (n 0: at decoder layers), assigns Linears to them and fills
 * their passes. */
osh_status osh_plan_cut(osh_ctx *cx, osh_plan *p, const char *const *targets, size_t n,
                        int64_t per_subgraph);
/* cut.c: fills passes from the wants of Linears and folds. */
osh_status osh_plan_passes(osh_ctx *cx, osh_plan *p);
/* manifest.c: frees the lists of output tensors. */
void osh_plan_drop_output(osh_ctx *cx, osh_plan *p);
osh_status osh_plan_index(osh_ctx *cx, osh_plan *p);    // lookup.c, after the cut
/* cut.c, before the cut: adds the original model's values if a modifier compares with them. */
osh_status osh_plan_carry(osh_ctx *cx, osh_plan *p);
/* by_route.c, after osh_plan_match: refuses what by_route excludes. */
osh_status osh_plan_by_route(osh_ctx *cx, osh_plan *p);
int64_t osh_by_route_bytes(const osh_plan *p); // host: rows that are picked out for a statistic
osh_status osh_plan_data(osh_ctx *cx, osh_plan *p);     // plan.c: calibration samples
osh_status osh_plan_device(osh_ctx *cx, osh_plan *p);   // place.c: applies --device
/* batches.c: makes batches of `size` samples; a GPU has a size of its own. osh_plan_batch_size
 * returns the size: --batch-size, or one that it chooses. */
osh_status osh_plan_batches(osh_ctx *cx, osh_plan *p, int64_t size);
int64_t osh_plan_batch_size(osh_ctx *cx, const osh_plan *p);
/* True if some batch runs sample by sample (osh_exec_by_sample). */
bool osh_plan_by_sample(const osh_plan *p, int n_threads);

/* A GPU makes Hessians of whole batches, each with enough samples to have this many tokens, or with
 * the last samples of a group. The number decides output bytes. */
#ifndef OSH_DEVICE_BATCH_TOKENS // smaller in a tool of the tests
#define OSH_DEVICE_BATCH_TOKENS 16384
#endif
/* End of the batch that begins with sample `first`, if no group ends before. */
int64_t osh_batch_end_on_device(const osh_dataset *d, int64_t first);
/* Opens the GPU with an arena of p->memory's size or the budget's. */
osh_status osh_plan_open_device(osh_ctx *cx, osh_plan *p);
/* For host memory of weights, statistics and batches. */
osh_mem_class osh_plan_work_class(const osh_plan *p);
#endif
