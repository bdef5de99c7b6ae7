/* plan.h - everything that is decided before a weight is read: which Linear gets which scheme,
 * subgraphs, passes, and the name, dtype, shape, file and offset of every output tensor. */
#ifndef OSH_PLAN_H
#define OSH_PLAN_H
#include "graph/exec.h"
#include "modifiers/recipe.h"
#include "solver/tune.h"
#include "plan/options.h"
#include "quant/format.h"
#include "store/tier.h"
#include "tensor/device.h"
#include "data/dataset.h"

typedef enum { OSH_PIPELINE_SEQUENTIAL, OSH_PIPELINE_BASIC, OSH_PIPELINE_DATAFREE } osh_pipeline_kind;
const char *osh_pipeline_name(osh_pipeline_kind k);

typedef enum { OSH_LOOK_RAM, OSH_LOOK_DISK, OSH_LOOK_AGAIN } osh_look; // looks.h

/* Of what attention reads: keys, values, queries; what a Linear makes; what it reads. */
enum { OSH_CACHED = 3, OSH_OUTPUT = OSH_CACHED, OSH_INPUT, OSH_RANGED };
typedef struct osh_linear { // a module that is quantized
    char *name;             // own
    int64_t tensor;         // its weight in the source checkpoint
    int64_t O, I;
    osh_dtype dtype;
    int modifier;           // index into the recipe's
    int pruner;             // the one that prunes before that; -1: none
    double sparsity;        // for the one that prunes
    const osh_q_scheme *scheme; // view: plan's schemes; weights.present false: pruned, and written dense
    const osh_format *format;
    int scheme_index;       // into the plan's schemes; -1: none of them
    int node, weight, input; // of the graph: node, weight, input value; -1: no graph
    int subgraph;           // -1: no graph
    int next_reader, next_user; // lookup.h: of the same value, of the same weight; -1: none
    unsigned wants;         // OSH_STAT_*
    unsigned elsewhere;     // the same, but in another traversal than the one that the plan is set to (traversals.h)
    int traversal;          // which one that is; -1: it wants nothing, or there is one traversal for all
    int joint, next_joint;  // first of the Linears that share its global scale (globals.h), the one behind it; -1: none
    int ranged[OSH_RANGED]; // values whose ranges give static scales: keys, values, and where they are rounded
                            // queries, of the attention that makes its input, and OSH_OUTPUT: what it makes itself,
                            // whose scales the output has beside it (cache.h); OSH_INPUT: input; each of them, or its
                            // source (passthrough.h); -1: none
    int64_t heads[OSH_RANGED]; // scales of each
    bool kept;              // nothing quantizes it: it is there for these scales, and its weight stays
    bool shift;             // OSH_STAT_SHIFT is collected of its input, which is another one in the original model
    double share;           // of elements of its input, where shift, that are the quantized model's, the others being
                            // the original's (ops/mix.c); 1: all
    int64_t bias;           // tensor of the source that learns with it (blocks.h), and is the last of its output
                            // tensors; -1: none
    int64_t first_out;      // output tensors [first_out, first_out + n_out)
    int n_out;
    osh_tensor *care;       // own: F64 [O], of a survey with gradients (gradients.h); NULL: there are none
    osh_tensor *care_in;    // own: F64 [I], the same of its input, of the first that reads it, where candidates round
                            // inputs; NULL: not known
} osh_linear;

static inline osh_format_weight osh_linear_stored(const osh_linear *l) // for its format
{
    return (osh_format_weight){l->scheme, l->O, l->I, l->dtype};
}

typedef struct osh_dense { // weights that stay dense, alike but for the numbers in their names
    char *names;          // own: "model.layers.*.mlp.gate"
    int64_t n, bytes;
    const char *why;      // static
    bool in_block;        // a decoder block
    bool decoded;         // the source stores codes of them
} osh_dense;

typedef struct osh_out_tensor {
    int64_t source;   // tensor of the source that is copied, or -1
    int linear, leaf; // else: which tensor of which Linear's format
    int shard;
} osh_out_tensor;

typedef struct osh_shard {
    char *name;            // own: file name
    char *header;          // own
    size_t header_bytes;
    int64_t n_bytes;       // of the file
} osh_shard;

typedef struct osh_pass { // what a subgraph does
    bool observe;   // statistics are wanted
    bool propagate; // outputs are wanted by a later subgraph that observes
    bool merged;    // one pass does both: nothing that it changes would be seen
    bool same;      // what comes in is the same in the original model, and so is what is observed
    bool fold;      // factors are found and folded in before all of that
    bool block;     // Linears in it learn from its output (blocks.h)
} osh_pass;

typedef struct osh_visit { // how a subgraph is worked on, and what that takes
    bool segments;       // one group of Linears at a time
    bool prefetch;       // the first weights of the next visit are read meanwhile
    bool prefetch_device; // and copied to the device
    bool apart;          // small Linears are solved beside each other, each on a thread, or together on a card
    bool values_ahead;   // the next batch's values come to the device meanwhile, and those of the last one leave it
    int64_t round_bytes; // of Hessians in one observe pass; 0: all of them at once
    int n_rounds;        // observe passes
    int64_t weight_bytes, stats_bytes, live_bytes; // the most that is there of each
    int64_t first_load;  // bytes of the weights that it loads first
    int64_t device_peak, host_peak, scratch_peak; // host: without the base, with prefetch
    int64_t apart_device, apart_host; // what that takes at most, in the place of both; 0: nothing is solved so
    int64_t read_bytes;  // of the source
} osh_visit;

typedef struct osh_fold { // factors that a layer gives to the Linears behind it (folds.h)
    int modifier;       // index into the recipe's
    int module, value;  // of the graph: the layer that gives, and what is seen for it: what it makes (folds.h)
    int64_t n;          // its channels
    int gives[2], n_gives; // graph weights that are divided: the layer's weight, its bias
    float offset;       // that the layer adds to its weight
    int *takes, n_takes;   // own: those of the Linears
    int subgraph;       // -1: not cut, or made in another traversal
    int home;           // with traversals: what it is in its own
    float *s;           // own [n]
    bool known;         // s is
} osh_fold;

typedef struct osh_experts osh_experts; // experts.h
typedef struct osh_rotated osh_rotated; // rotations.h
typedef struct osh_places osh_places; // layout.h
typedef struct osh_device_peaks osh_device_peaks; // graph/device_peaks.h
typedef struct osh_trials osh_trials; // trials.h
typedef struct osh_memory {
    osh_tier tier;
    osh_look looks;      // of what is looked at twice (looks.h)
    bool looks_f16;      // and it is looked at as F16 then, which decides bytes
    int64_t n_kept;      // of tier disk: batches whose values stay in memory
    int n_loaders;       // threads that read values ahead from the disk
    int64_t n_ahead;     // of tier disk: so many batches
    osh_visit *visits;   // own; one for each range of visit.h
    int n_visits;
    bool read_ahead;     // of Linears that are rounded without data: the next one while this one is worked on
    int n_stream;        // threads of a stream, with a band of a tensor each
    int n_held;          // bands that a stream keeps between two looks at them
    int64_t early;       // host, of the base: for large output tensors that are read again beside the run; 0: none are
    bool direct;         // source and output go past the page cache
    bool by_card;        // of tier disk: the card reads files of values itself
    int64_t base_bytes;  // host: what the process has before the first visit, and its libraries will take
    int64_t uncounted;   // of it, what osh_mem_used does not see
    int64_t load_bytes;  // host: the most that reading source, tokenizer and data took
    int64_t device_peak, host_peak, scratch_peak; // of the run; host with the base
    int highest;         // the visit with the host peak; -1: none of them
    int64_t read_bytes, write_bytes, reread_bytes; // of the source, of the output, of the output at the seal
    osh_device_peaks *peaks; // own: with a card, of passes; NULL: the plan is made
    osh_trials *trials;  // own: simulations so far; NULL: the plan is made
    osh_places *places;  // own: with a card, where blocks lie; NULL: where they fit
    int64_t least_device, least_host, least_scratch; // the smallest budgets that would do
    int64_t solve_limit; // device: a solve takes more rows at a time up to there; 0: as few as it can
} osh_memory;

typedef struct osh_traversal { // of several (traversals.h)
    int modifier;      // index into the recipe's
    osh_pass *passes;  // own
    bool *seen;        // own
    osh_memory memory; // own: visits and places
    double work[3];    // of its passes and solves, as osh_cost has it
    double seconds;    // that it took
} osh_traversal;

typedef struct osh_plan {
    const osh_options *opt;  // view
    struct osh_source *source; // own
    osh_matcher *only;       // own: --only; NULL: not given
    osh_checkpoint *ck;      // view: the source's
    osh_recipe *recipe;      // own
    osh_graph *graph;        // own; NULL: data-free without a known architecture
    osh_partition *parts;    // own; NULL with graph
    osh_pass *passes;        // own [parts->n]
    osh_pipeline_kind pipeline;
    osh_traversal *traversals; // own [n_traversals], of which passes, seen and memory are then views; NULL: one for all
    int n_traversals, traversal; // the one that the plan is set to
    bool propagate_error;
    bool by_route;           // experts are calibrated on the tokens that are routed to them
    osh_q_scheme *schemes;   // own: all groups as they will be written
    size_t n_schemes;
    size_t n_kept_schemes;   // the first ones are the source's
    osh_q_args cache;        // kv_cache_scheme, or what a group of attention has; not present: neither
    bool queries;            // it is of queries, too
    bool outputs;            // what some Linear makes is observed, for static output_activations
    osh_linear *linears;     // own, in execution order
    int n_linears;
    struct osh_inherit *inherits; // own: passthrough.h
    int n_inherits;
    int *readers, *users;    // own: [values], [weights]: the first Linear (lookup.h), -1: none; NULL: not cut
    osh_fold *folds;         // own, in the order in which they are made
    int n_folds;
    osh_tune_rule tune;      // behind all solves (tuning.h); steps 0: not
    osh_graph *tune_graph;   // own: of the original alone, whose weights have graph's numbers; NULL: nothing is tuned
    char *tune_not;          // own: why quality best leaves it out; NULL: it does not
    bool *tuned;             // own [tensors of the source]: norms that it changed; NULL: none, or not known yet
    uint8_t *folded;         // own [tensors of the source]: not 0: a fold changes it, or a rotation; NULL: none does
    osh_experts *experts;    // own: layers whose experts are left out in part; NULL: the recipe has no such modifier
    osh_rotated *rotated;    // own: what weights are rotated by; NULL: the recipe has no such modifier
    osh_strs ignore;         // own: generated list
    osh_dense *dense;        // own: weights of two and three dimensions that stay as they are
    int64_t n_dense;
    double dense_share;      // of the bytes of such weights in decoder blocks
    osh_st_entry *out;       // own: entries of all output tensors, names own
    osh_out_tensor *out_info; // own
    int64_t n_out;
    osh_shard *shards;       // own
    int n_shards;
    int64_t total_bytes;     // of all tensors
    int64_t dense_bytes;     // of those that are copies
    char *format;            // own: top-level format
    char *quantization_json; // own
    char *config_text;       // own: config.json as it will be written
    bool untie;
    const char *spared;      // view of graph: the output head, which the flags leave dense unasked; NULL: none
    osh_dataset data;        // own; empty when data-free
    osh_tokenizer *tok;      // own
    int64_t max_seq_length;
    osh_arithmetic arithmetic;
    bool on_device;          // calibration runs on a card
    const struct osh_card_model *card_model; // view: of cards.c: it is planned for, and need not be there; NULL
    int ordinal;             // which
    osh_device *device;      // own: that card; NULL: none, or not opened
    int64_t *batch_at;       // own [n_batches + 1]: samples that go through the model together
    int64_t batch_size, n_batches, batch_tokens; // samples, at most; tokens of the largest
    bool *seen;              // own [graph values]: some statistic may look at it
    bool looks_twice;        // some observer does (looks.h)
    int64_t looked_up;       // different tokens of each batch, all batches together
    osh_memory memory;
    bool gradients;          // of a survey: losses are weighed by them
    char *gradients_not;     // own: why not; NULL: they are, or it is no survey
    struct osh_mark *marks;  // own: of each --checkpoint (marks.h)
} osh_plan;

/* No traversal does it: it is rounded from its weight alone. */
static inline bool osh_wants_no_data(const osh_linear *l) { return !l->wants && !l->elsewhere; }
const char *osh_plan_pipeline(const osh_plan *p); // its name
bool osh_linear_propagates(const osh_plan *p, const osh_linear *l); // what it becomes is seen by later ones
osh_status osh_plan_new(osh_ctx *cx, osh_plan **out, const osh_options *opt);
/* Of a finished output: opt names the source and the output's recipe. No data, passes or budgets. */
osh_status osh_plan_of_output(osh_ctx *cx, osh_plan **out, const osh_options *opt);
void osh_plan_free(osh_ctx *cx, osh_plan *p);
osh_status osh_plan_print(osh_ctx *cx, char **out, const osh_plan *p, bool json); // own

osh_status osh_device_ordinal(osh_ctx *cx, int *ordinal, const char *text); // of "cuda" or "cuda:N"

/* The parts of osh_plan_new, each in its own file. */
osh_status osh_plan_seen(osh_ctx *cx, osh_plan *p);     // looks.c: values that statistics may look at, and twice
osh_status osh_plan_match(osh_ctx *cx, osh_plan *p);    // plan_match.c: schemes, linears, ignore list, vLLM's lookup
osh_status osh_plan_cache(osh_ctx *cx, osh_plan *p);    // cache.c, when Linears are matched: scales of keys and values
osh_status osh_plan_manifest(osh_ctx *cx, osh_plan *p); // manifest.c: out, shards, config.json
/* cut.c: subgraphs cut at targets (n 0: decoder layers), which of them each Linear is in, what they do. */
osh_status osh_plan_cut(osh_ctx *cx, osh_plan *p, const char *const *targets, size_t n, int64_t per_subgraph);
osh_status osh_plan_passes(osh_ctx *cx, osh_plan *p);   // cut.c: fills passes, of what Linears and factors are set to
void osh_plan_drop_output(osh_ctx *cx, osh_plan *p);    // manifest.c: its lists, so that the plan has none
osh_status osh_plan_index(osh_ctx *cx, osh_plan *p);    // lookup.c, when it is cut
/* cut.c, before it: where a modifier compares with the original model, its values are carried, too. */
osh_status osh_plan_carry(osh_ctx *cx, osh_plan *p);
osh_status osh_plan_by_route(osh_ctx *cx, osh_plan *p); // by_route.c, when Linears are matched: what does not go with
                                                       // that way
int64_t osh_by_route_bytes(const osh_plan *p); // host: of the rows that are picked out for a statistic
osh_status osh_plan_data(osh_ctx *cx, osh_plan *p);     // plan.c: calibration samples
osh_status osh_plan_device(osh_ctx *cx, osh_plan *p);   // place.c: what --device means
/* batches.c: batches of so many samples, on a card of its own size; and how many, where nobody named a number. */
osh_status osh_plan_batches(osh_ctx *cx, osh_plan *p, int64_t size);
int64_t osh_plan_batch_size(osh_ctx *cx, const osh_plan *p);
bool osh_plan_by_sample(const osh_plan *p, int n_threads); // some batch runs sample by sample (osh_exec_by_sample)

/* Hessians on a card are made of whole batches: samples, as many as it takes to have so many tokens. Decides bytes. */
#ifndef OSH_DEVICE_BATCH_TOKENS // fewer in a tool of the tests
#define OSH_DEVICE_BATCH_TOKENS 16384
#endif
int64_t osh_batch_end_on_device(const osh_dataset *d, int64_t first); // of the batch that begins with this sample
/* Takes the card and its arena, of p->memory's size or the budget's. */
osh_status osh_plan_open_device(osh_ctx *cx, osh_plan *p);
osh_mem_class osh_plan_work_class(const osh_plan *p); // of host allocations for weights, statistics, batches
#endif
