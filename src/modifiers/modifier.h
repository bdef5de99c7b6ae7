/* modifier.h - the modifiers of a recipe. A quantizer or a pruner declares the statistics of a
 * Linear's input that it needs, and turns weights into codes when they are complete. A transform
 * computes a factor for each channel between a layer and the Linears that read its output; the
 * factors are folded into the weights before quantization. No modifier changes the forward pass. To
 * add one: src/modifiers/foo.c with `const osh_modifier_type osh_modifier_foo`, and a row in
 * modifiers.def. */
#ifndef OSH_MODIFIER_H
#define OSH_MODIFIER_H
#include "base/field.h"
#include "solver/ada.h"
#include "quant/arith.h"
#include "tensor/device.h"
#include "text/match.h"
#include "text/yaml.h"

enum { // statistics of a value, as bits of a set
    OSH_STAT_HESSIAN = 1, // X^T X, f32 [I, I], lower triangle
    OSH_STAT_RANGE = 2,   // ranges for the observer of static inputs
    OSH_STAT_SHIFT = 4,   // (X0 - X)^T X, f32 [I, I]; X0 is the value in the original model
    OSH_STAT_SQUARES = 8, // sum of X^2 per channel, f64 [I]; weights for a search of ranges
    OSH_STAT_CACHE = 16,  // ranges of the keys and values of the attention before the Linear, or of
                          // the Linear's output
    OSH_STAT_PEAKS = 64,  // sum of each token's largest square; for a survey
    OSH_STAT_BLOCK = 32   // instead of HESSIAN and SHIFT: the inputs of the block, and its outputs
                          // in the original model; the plan tells which (schedule/blocks.h)
};

enum { // properties of a solve that are free, as bits of a set
    OSH_FREE_ZEROS = 4,  // zeros of a pruned weight may get other values
    OSH_FREE_SCALES = 1, // scales and zero points may differ from the observer's
    OSH_FREE_TARGET = 2, // codes may approximate another weight than the source's
    OSH_FREE_SIGNS = 8   // scales may be negative if osh_q_may_be_signed() is true
};

enum { OSH_LOSSES = 9 };
typedef struct osh_losses { // losses after each step of a solve; type->step of the modifier names
                            // the steps
    int n;
    double of[OSH_LOSSES];
    double all; // loss with dW = W, that is of an output without this weight
} osh_losses;

typedef struct osh_linear_job osh_linear_job;
struct osh_linear_job { // one Linear to quantize
    const char *name;           // view: name of the module
    const osh_q_scheme *scheme; // view
    osh_tensor *w;              // view: [O, I] in its stored dtype, in host memory
    osh_tensor *device_w;       // view: w on the device of the Hessian; NULL: the Hessian is in
                                // host memory, or there is none
    osh_tensor *shift;          // view: OSH_STAT_SHIFT of the input, in the same memory as the
                                // Hessian; may be overwritten. NULL: the shift is 0, or no modifier
                                // of the input needs it
    osh_tensor *target;         // own, temporary, in the same memory as the Hessian: F32 [O, I]
                                // weight that a solve approximates; NULL: w
    bool keep_w;                // w must not change, even if the modifier propagates
    bool pruned;                // zeros of w stay 0, and w becomes the dequantized weight, as with
                                // a modifier that propagates
    double sparsity;            // sparsity, for a modifier that prunes
    const double *care;         // view [O]: cost of a squared error of each output; NULL: 1
    const double *care_in;      // view [I]: cost of a squared error of each input element, summed
                                // over all Linears that read the input; NULL: unknown
    double peaks;               // OSH_STAT_PEAKS of the input; 0: unknown
    void *cache;                // own: scales and zero points of keys and values, one after the
                                // other as they are stored; NULL: the Linear has none
    void *bias; // own, result: the learned bias in its stored dtype; NULL: no bias was learned
    void *room;                 // view: memory for codes, [O, I] bytes, if the modifier works by
                                // rows; NULL: codes are allocated
    double *sums;               // view, result: [O, 2] |w - dq|^2 and |w|^2 of each row; NULL: not
                                // computed
    int64_t n_tokens;           // number of tokens of the statistics
    bool apart;                 // in the first job: true if there is memory for osh_jobs_at_once
                                // jobs
    bool pack;                  // codes may be packed, because the output is pack-quantized
    bool packed;                // result: codes are packed
    void *codes;                // own, result: [O, I] bytes, or if `packed` the bytes of the first
                                // output tensor; NULL: the codes are in `room`
    osh_qparams params;         // own, result
    double nmse;                // result: |w - dq|^2 / |w|^2
    double removed;             // |w|^2 of the weights that pruning set to 0, divided by |w|^2
                                // before pruning; 0: no weight, or pruning also changed other
                                // weights
    double objective;           // result: tr(dW H dW^T) with the damped H; dW is relative to the
                                // target; < 0: no Hessian
    double nearest;             // result: objective of the target rounded to nearest, with the
                                // scales before any search; with more than 255 rows estimated from
                                // some rows (solver/gptq_solve.h); < 0: unknown
    osh_losses losses;          // result: objective after each step; empty if there is one step
    const char *fallback;       // result, static text: the method that replaced the modifier's
                                // method; NULL: no other method was used
    /* Called when the results are complete. The callback may take ownership of the results, but not
     * of w, so that the results of many jobs are not in memory at once. NULL: results stay until
     * compress returns. */
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j);
    void *user;                 // view: passed to `done`
};
osh_status osh_linear_job_done(osh_ctx *cx, osh_linear_job *j);
/* True if the n jobs of `a` and the n jobs of `b` have the same shapes, dtypes and schemes in the
 * same order, so that their solves need the same memory. */
bool osh_jobs_are_alike(const osh_linear_job *a, const osh_linear_job *b, int n);
typedef struct osh_job_group { // jobs of one input; all pointers are views
    osh_linear_job *jobs;      // [n]
    int n;
    osh_tensor *h;
} osh_job_group;
void osh_linear_job_deinit(osh_ctx *cx, osh_linear_job *j);

typedef struct osh_mapping { // a pair of targets for a transform
    osh_strs balance; // own: Linears
    char *smooth;     // own: layer whose output the Linears read
} osh_mapping;

typedef struct osh_channels { // views [n]: data for each channel of a layer's output
    const float *lo, *hi; // smallest and largest value over all tokens
    const float *most;    // largest absolute weight of the Linears that read the channel
    int64_t n;
    osh_dtype dtype;      // dtype of the model
} osh_channels;

typedef struct osh_balance { // a Linear that reads the layer's output
    const char *name;           // view: name of the module, or of its weight if that stays dense
    const osh_q_scheme *scheme; // view; NULL: the Linear stays dense
    osh_dtype dtype;            // stored dtype
    int64_t O;                  // number of rows
} osh_balance;

typedef struct osh_search osh_search;
struct osh_search { // a search for the factors of one layer, by the error of the Linears' outputs
    const char *name;           // view: name of the layer
    int64_t n;                  // channels of the layer
    const float *mean;          // view [n]: mean of |x| over all tokens; x is the input of the
                                // Linears
    const float *h;             // view [n, n]: X^T X, doubled below the diagonal and 0 above it
    const osh_balance *balance; // view
    int n_balance;
    /* Reads rows [first, first + n) of the k-th Linear's stored weight, with the factors that are
     * known so far. Any thread may call it. */
    osh_status (*rows)(osh_ctx *cx, const osh_search *j, int k, void *to, int64_t first, int64_t n);
    const void *user;           // view: passed to `rows`
    double before, after;       // results: |X dW^T|^2 without factors, and with the factors that
                                // were found
};

enum { OSH_CANDIDATES = 7 }; // most candidates of a survey: 2 to 8 bits, or named schemes
typedef struct osh_candidate {
    int bits;                   // bits of the weights; everything else is as in the scheme; 0: a
                                // named scheme
    char name[16];              // such as "NVFP4A16"; "" if bits is set
    osh_q_args weights, inputs; // arguments of a named scheme
} osh_candidate;
typedef struct osh_modifier_type osh_modifier_type;
typedef struct osh_modifier {
    const osh_modifier_type *type;
    void *args;             // own: type->bytes bytes, set through type->fields
    osh_q_scheme *schemes;  // own
    size_t n_schemes;
    osh_strs ignore;        // own
    osh_matcher *ignored;   // own
    osh_matcher *targets;   // own: targets of all schemes, one scheme after the other
    int *target_scheme;     // own: index of the scheme of each target
    osh_q_args cache;       // kv_cache_scheme, or the input_activations of the group for attention
    bool queries;           // `cache` is that of a group for attention
    bool has_config;        // the recipe has `scheme` or `config_groups` for the modifier
    bool best;              // its quality is best
    bool replaced;          // a later GPTQModifier without schemes has taken over the schemes
    osh_candidate *candidates; // own: candidates for --target-bits; n 0: any number of bits
    int n_candidates;
    // The quantizer that this survey replaces (survey.h); NULL: this is no survey.
    const osh_modifier_type *surveyed;
    osh_arithmetic arithmetic;
} osh_modifier;

struct osh_modifier_type {
    const char *name; // such as "GPTQModifier"
    const osh_field *fields;
    size_t bytes;
    /* Reads a key that the field table cannot express. *known is false if the modifier has no such
     * key. */
    osh_status (*key)(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *value,
                      bool *known, const char *what);
    const char *keys; // names of the keys that `key` reads, for messages
    // sets the arguments for the least loss, before any key; NULL: none
    osh_status (*best)(osh_ctx *cx, osh_modifier *m);
    // True if its arguments make it the same as QuantizationModifier; NULL: never.
    bool (*is_nearest)(const osh_modifier *m);
    osh_status (*resolve)(osh_ctx *cx, osh_modifier *m); // called after the last key; may be NULL
    unsigned (*wants)(const osh_modifier *m, const osh_q_scheme *s);
    // Returns the OSH_FREE_* bits, for the check of the output; NULL: none.
    unsigned (*freedom)(const osh_modifier *m);
    /* Quantizes or prunes the jobs, which share one input. h is its Hessian, or NULL: the lower
     * triangle of X^T X over n_samples samples, on a device or in host memory. h may be
     * overwritten. */
    osh_status (*compress)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                           osh_tensor *h, int64_t n_samples);
    /* `gathers` is true if a group may be solved together with others in one call on a device.
     * compress_groups solves groups of alike jobs in one call, with the same bytes as compress; all
     * results exist at once. NULL: there is no such call. */
    bool (*gathers)(const osh_modifier *m, const osh_linear_job *jobs, int n);
    osh_status (*compress_groups)(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups,
                                  int n, int64_t n_samples);
    const char *(*step)(const osh_modifier *m, int k); // name of the k-th of osh_losses; NULL: no
                                                       // names
    // view: the tuning after all solves; NULL: none
    const struct osh_tune_rule *(*tunes)(const osh_modifier *m);
    /* Functions for learning from the output of a whole block. `blocks` returns the rule (view), or
     * NULL if codes do not learn in this way. `learns` makes, for a job with name, scheme and w,
     * the params and codes rounded to nearest, and the arguments of osh_ada_learner_new. `learned`
     * updates params after learning. */
    const osh_block_rule *(*blocks)(const osh_modifier *m);
    osh_status (*learns)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    void (*learned)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    /* Returns the probability that an element of an input is taken from the quantized model and not
     * from the original. NULL: 1. */
    double (*share)(const osh_modifier *m);
    // Bands of whole rows (strategy block: of whole blocks) give the same result as the whole
    // weight.
    bool by_rows;
    /* It sets weights to 0: codes are then the bytes of w, and `packed` is true. Its only scheme
     * has targets, which may be modules around a Linear, and no arguments. A quantizer may
     * follow. */
    bool prunes;
    // Weights are first multiplied by orthogonal matrices; args is an osh_rotate (rotate.h).
    bool rotates;
    bool host_only; // the modifier does not run on a GPU
    bool drops;   // removes experts before all other work; args is an osh_reap (experts.h)
    bool apart;   // several threads may call compress at the same time
    // compress leaves the dequantized weight in w or device_w (unless keep_w) for later layers
    bool propagates;
    /* Returns the number of operations on a weight [O, I]. NULL: as many as a product with h. */
    double (*flops)(const osh_modifier *m, int64_t O, int64_t I);
    /* Returns the bytes (gross, an upper bound) that compress needs besides w and h, including the
     * results in `jobs`. It reads scheme, and shape and dtype of w. If h is on a device, *device
     * has on entry the free bytes of its arena, and on return the bytes that compress uses there.
     * If *device becomes larger than the free bytes, it is the smallest number with which compress
     * works. */
    size_t (*needs)(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                    size_t *device);
    /* Returns the same for compress_groups and n groups like this one. */
    size_t (*needs_groups)(const osh_modifier *m, const osh_job_group *like, int n, int n_threads,
                           size_t *device);

    /* The members below are for transforms, which have no schemes, no wants and no compress. */
    // View; NULL: the mappings of the model's graph.
    const osh_mapping *(*mappings)(const osh_modifier *m, size_t *n);
    // Computes s [c->n]; NULL: the modifier searches them, or is no transform.
    void (*factors)(const osh_modifier *m, float *s, const osh_channels *c);
    /* `search`, used instead of `factors`, finds s [j->n] by a search over the Linears' inputs.
     * search_bytes returns an upper bound of the gross bytes of the search; it reads n, balance and
     * n_balance of j. `takes` fails with OSH_E_USAGE if the search cannot handle a Linear with
     * scheme s. */
    osh_status (*search)(osh_ctx *cx, const osh_modifier *m, float *s, osh_search *j);
    size_t (*search_bytes)(const osh_modifier *m, const osh_search *j, int n_threads);
    // Returns the number of points of the search, each of which rounds the Linears' weights.
    int (*search_points)(const osh_modifier *m);
    osh_status (*takes)(osh_ctx *cx, const osh_modifier *m, const char *name,
                        const osh_q_scheme *s);
    // Frees the members of args that are no fields; NULL: there are none.
    void (*end)(osh_ctx *cx, osh_modifier *m);
};
bool osh_modifier_is_transform(const osh_modifier *m);
bool osh_modifier_wants_data(const osh_modifier *m); // true if the modifier needs a statistic
/* True if the modifier quantizes: it is no transform and does not prune, rotate or remove
 * experts. */
bool osh_modifier_quantizes(const osh_modifier *m);
const osh_modifier_type *osh_modifier_find(const char *name); // NULL: no modifier has this name
/* Returns the quantizer that rounds to nearest, without a Hessian. */
const osh_modifier_type *osh_modifier_nearest(void);
size_t osh_modifier_count(void);
const osh_modifier_type *osh_modifier_at(size_t i);

/* Finds the scheme that m gives to a module. *scheme is its index, or -1 if no target matches or
 * the module is ignored. */
osh_status osh_modifier_match(osh_ctx *cx, int *scheme, osh_modifier *m, const char *name,
                              const char *cls);
void osh_modifier_deinit(osh_ctx *cx, osh_modifier *m);
/* Most groups in a call of compress_groups: enough to fill a GPU, and few enough that their results
 * do not need much memory. */
enum { OSH_GROUPS_AT_ONCE = 32 };
/* Sets nmse = |w - decode(codes)|^2 / |w|^2. If `store` is true, w and device_w become
 * decode(codes). Works row by row, without a second copy of the weight. */
osh_status osh_job_finish(osh_ctx *cx, osh_linear_job *j, bool store);
/* Returns how many jobs may be in progress at a time if each is solved on one thread; 1: all
 * threads solve one job. Small Linears, such as those of experts, have too few chunks to give work
 * to all threads. The result of a job waits for the results of earlier jobs: with 128 experts and 2
 * threads, at most 8 results wait. */
int osh_jobs_at_once(const osh_linear_job *jobs, int n, int n_threads);
/* True if there are many small Linears, according to the numbers of weights of all Linears and of
 * the largest. */
bool osh_jobs_are_many(int64_t all, int64_t largest, int n_threads);
static inline int osh_jobs_waiting(int n_threads) { return 2 * n_threads + 4; }
size_t osh_job_finish_bytes(const osh_linear_job *j, int n_threads); // bytes of scratch
size_t osh_job_codes_bytes(const osh_linear_job *j, bool packed);
size_t osh_job_result_bytes(const osh_linear_job *j);                // bytes of codes and params
size_t osh_job_scales_bytes(const osh_linear_job *j);                // bytes of params
/* Returns the scratch bytes of osh_q_weight_params. */
size_t osh_job_params_bytes(const osh_linear_job *j);
unsigned osh_scheme_wants(const osh_q_scheme *s); // returns the statistics that its observers need
/* Returns the scratch bytes of an observer's search. */
size_t osh_job_search_bytes(const osh_linear_job *j);
#endif
