/* modifier.h - the modifiers of a recipe. A quantizer or a pruner declares which statistics of a
 * Linear's input it needs, and converts weights to codes when the statistics are complete. A
 * transform computes a factor for each channel of a layer's output. The weights of the layer are
 * divided by the factors, and the weights of the Linears that read the output are multiplied by
 * them, before quantization. No modifier changes the forward pass. A new modifier needs a file
 * src/modifiers/foo.c with `const osh_modifier_type osh_modifier_foo`, and a row in
 * modifiers.def. */
#ifndef OSH_MODIFIER_H
#define OSH_MODIFIER_H
#include "base/field.h"
#include "solver/ada.h"
#include "quant/arith.h"
#include "tensor/device.h"
#include "text/match.h"
#include "text/yaml.h"

enum { // statistics of a value, as bits that can be combined
    OSH_STAT_HESSIAN = 1, // X^T X, f32 [I, I], lower triangle
    OSH_STAT_RANGE = 2,   // ranges for the observer of static inputs
    OSH_STAT_SHIFT = 4,   // (X0 - X)^T X, f32 [I, I]; X0 is the value in the original model
    OSH_STAT_SQUARES = 8, // sum of X^2 per channel, f64 [I], for observers that weight errors by
                          // channel
    OSH_STAT_CACHE = 16,  // ranges of the keys and values of the attention whose output the Linear
                          // (o_proj) reads, or ranges of the Linear's output
    OSH_STAT_PEAKS = 64,  // sum over all tokens of the largest X^2 of the token; for a survey
                          // (survey.h)
    OSH_STAT_BLOCK = 32   // instead of HESSIAN and SHIFT: stored inputs of a block of the model
                          // (such as a decoder layer), and stored outputs of the block in the
                          // original model (schedule/blocks.h)
};

enum { // differences between the output and rounding to nearest that a modifier may cause, as bits
       // that can be combined; the check of the output allows them
    OSH_FREE_ZEROS = 4,  // zeros of a pruned weight may get other values
    OSH_FREE_SCALES = 1, // scales and zero points may differ from those that the observer finds
    OSH_FREE_TARGET = 2, // codes may approximate another weight than that of the source
    OSH_FREE_SIGNS = 8   // scales may be negative if osh_q_may_be_signed() is true
};

enum { OSH_LOSSES = 9 };
typedef struct osh_losses { // losses after each step of a solve; the function `step` of
                            // osh_modifier_type returns the name of each step
    int n;
    double of[OSH_LOSSES];
    double all; // loss with all weights 0
} osh_losses;

typedef struct osh_linear_job osh_linear_job;
struct osh_linear_job { // one Linear to quantize
    const char *name;           // view: name of the module
    const osh_q_scheme *scheme; // view
    osh_tensor *w;              // view: the weight [O, I] in its stored dtype, in host memory
    osh_tensor *device_w;       // view: copy of w on the device on which the Hessian is; NULL: the
                                // Hessian is in host memory, or there is no Hessian
    osh_tensor *shift;          // view: OSH_STAT_SHIFT of the input, in the same memory as the
                                // Hessian; may be overwritten. NULL: the shift is 0, or no modifier
                                // of a Linear that reads the input needs it
    osh_tensor *target;         // own, temporary, in the same memory as the Hessian: F32 [O, I]
                                // weight that a solve approximates; NULL: w
    bool keep_w;                // true: w must not change, even if the modifier propagates
    bool pruned;                // true: zeros of w must remain 0, and w must become the dequantized
                                // weight, even if the modifier does not propagate
    double sparsity;            // for a modifier that prunes: fraction of the weights that becomes
                                // 0
    const double *care;         // view [O]: cost of a squared error of each output for the model's
                                // loss; NULL: 1
    const double *care_in;      // view [I]: cost of a squared error of each input element, summed
                                // over all Linears that read the input; NULL: unknown
    double peaks;               // OSH_STAT_PEAKS of the input; 0: unknown
    void *cache;                // own: scales and zero points of keys and values, one after the
                                // other, as they are stored in the output; NULL: there are none for
                                // this Linear
    void *bias; // own, result: the learned bias in its stored dtype; NULL: no bias was learned
    void *room;                 // view: [O, I] bytes of memory for codes, used by a modifier with
                                // by_rows; NULL: the modifier allocates memory for codes
    double *sums;               // result, view: [O, 2] |w - dq|^2 and |w|^2 of each row; NULL: they
                                // are not stored
    int64_t n_tokens;           // number of tokens of the statistics
    bool apart;                 // in the first job of a call, true: there is memory for
                                // osh_jobs_at_once jobs at the same time; not used in the other
                                // jobs
    bool pack;                  // true: codes may be packed, because the output is pack-quantized
    bool packed;                // result: codes are packed
    void *codes;                // result, own: codes, [O, I] bytes, or if `packed` is true the
                                // bytes of the first output tensor; NULL: the codes are in `room`
    osh_qparams params;         // own, result
    double nmse;                // result: |w - dq|^2 / |w|^2
    double removed;             // sum of the squares of the weights that pruning set to 0, divided
                                // by |w|^2 before pruning; 0: pruning set no weight to 0, or also
                                // changed other weights
    double objective;           // result: tr(dW H dW^T) with the damped H; dW is the dequantized
                                // weight minus the target; < 0: there is no Hessian
    double nearest;             // result: objective if the target is rounded to nearest with the
                                // scales before any search; if there are more than 255 rows,
                                // estimated from some of them (solver/gptq_solve.h); < 0: unknown
    osh_losses losses; // result: objective after each step; empty if the solve has only one step
    const char *fallback;       // result, static text: the method that was used instead of the
                                // modifier's method, and the reason; NULL: the modifier's method
                                // was used
    /* Is called when the results of the job are complete. The callback may take ownership of the
     * results, so that the results of many jobs are not in memory at the same time. It may not take
     * ownership of w. If `done` is NULL, the job keeps the results. */
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j);
    void *user;                 // view: passed to `done`
};
osh_status osh_linear_job_done(osh_ctx *cx, osh_linear_job *j);
/* True if the n jobs of `a` and the n jobs of `b` have the same shapes, dtypes and schemes in the
 * same order, so that their solves need the same memory. */
bool osh_jobs_are_alike(const osh_linear_job *a, const osh_linear_job *b, int n);
typedef struct osh_job_group { // the jobs of one input; all pointers are views
    osh_linear_job *jobs;      // [n]
    int n;
    osh_tensor *h;
} osh_job_group;
void osh_linear_job_deinit(osh_ctx *cx, osh_linear_job *j);

typedef struct osh_mapping { // a layer and the Linears that read its output, for a transform
    osh_strs balance; // own: Linears
    char *smooth;     // own: layer whose output the Linears read
} osh_mapping;

typedef struct osh_channels { // data for each channel of a layer's output; all arrays are views
                              // with n elements
    const float *lo, *hi; // smallest and largest value of each channel over all tokens
    const float *most;    // largest absolute weight of the Linears that read the channel
    int64_t n;
    osh_dtype dtype;      // dtype of the model
} osh_channels;

typedef struct osh_balance { // a Linear that reads the output of the layer whose factors are
                             // searched
    const char *name;           // view: name of the module; if the weight is not quantized, name of
                                // the weight
    const osh_q_scheme *scheme; // view; NULL: the Linear is not quantized
    osh_dtype dtype;            // stored dtype
    int64_t O;                  // number of rows
} osh_balance;

typedef struct osh_search osh_search;
struct osh_search { // a search for the factors of one layer that minimizes the errors of the
                    // Linears' outputs
    const char *name;           // view: name of the layer
    int64_t n;                  // number of channels of the layer's output
    const float *mean;          // view [n]: mean of |x| over all tokens; x is the input of the
                                // Linears
    const float *h;             // view [n, n]: X^T X, doubled below the diagonal and 0 above it
    const osh_balance *balance; // view
    int n_balance;
    /* Reads rows [first, first + n) of the stored weight of the k-th Linear, multiplied by the
     * factors that are already known from earlier searches. Any thread may call `rows`. */
    osh_status (*rows)(osh_ctx *cx, const osh_search *j, int k, void *to, int64_t first, int64_t n);
    const void *user;           // view: passed to `rows`
    double before, after;       // results: before: |X dW^T|^2 without factors; after: with the best
                                // factors
};

enum { OSH_CANDIDATES = 7 }; // largest number of candidates of a survey: 2 to 8 bits, or named
                             // schemes
typedef struct osh_candidate {
    int bits;                   // number of bits of the weights; all other arguments are those of
                                // the scheme. 0: the candidate is a named scheme
    char name[16];              // name of the scheme, such as "NVFP4A16"; "" if bits is not 0
    osh_q_args weights, inputs; // arguments of a named scheme
} osh_candidate;
typedef struct osh_modifier_type osh_modifier_type;
typedef struct osh_modifier {
    const osh_modifier_type *type;
    void *args; // own: arguments of the modifier, type->bytes bytes, described by type->fields
    osh_q_scheme *schemes;  // own
    size_t n_schemes;
    osh_strs ignore;        // own
    osh_matcher *ignored;   // own
    osh_matcher *targets; // own: matcher of the targets of all schemes, one scheme after the other
    int *target_scheme;     // own: index of the scheme of each target
    osh_q_args cache;       // kv_cache_scheme, or the input_activations of the group for attention
    bool queries;           // `cache` is that of a group for attention
    bool has_config;        // the recipe has `scheme` or `config_groups` for the modifier
    bool best;              // its quality is best
    bool replaced;          // a later GPTQModifier without schemes has taken over the schemes
    osh_candidate *candidates; // own: candidates for --target-bits; n 0: any number of bits
    int n_candidates;
    // the type of the quantizer that a survey replaces (survey.h); NULL: the modifier is no survey
    const osh_modifier_type *surveyed;
    osh_arithmetic arithmetic;
} osh_modifier;

struct osh_modifier_type {
    const char *name; // such as "GPTQModifier"
    const osh_field *fields;
    size_t bytes;
    /* Reads a key that the table of fields cannot describe. Sets *known to false if the modifier
     * has no such key. */
    osh_status (*key)(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *value,
                      bool *known, const char *what);
    const char *keys; // names of the keys that `key` reads, for error messages
    /* sets the arguments of quality 'best'; is called before keys are read; NULL: the modifier does
     * not have this quality */
    osh_status (*best)(osh_ctx *cx, osh_modifier *m);
    // returns true if with these arguments the modifier does the same as QuantizationModifier;
    // NULL: it never does
    bool (*is_nearest)(const osh_modifier *m);
    osh_status (*resolve)(osh_ctx *cx, osh_modifier *m); // is called after the last key was read;
                                                         // may be NULL
    unsigned (*wants)(const osh_modifier *m, const osh_q_scheme *s);
    // returns OSH_FREE_* bits for the check of the output; NULL means that the bits are 0
    unsigned (*freedom)(const osh_modifier *m);
    /* Quantizes or prunes n jobs that share one input X. h: lower triangle of the Hessian X^T X
     * over n_samples samples, on a device or in host memory, or NULL if the modifier needs no
     * Hessian. compress may overwrite h. */
    osh_status (*compress)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                           osh_tensor *h, int64_t n_samples);
    /* `gathers` returns true if a group of jobs may be solved together with other groups in one
     * call on a device. compress_groups solves groups of equal shape in one call, with the same
     * bytes as compress; the results of all groups are in memory at the same time. If the functions
     * are NULL, the modifier does not support this. */
    bool (*gathers)(const osh_modifier *m, const osh_linear_job *jobs, int n);
    osh_status (*compress_groups)(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups,
                                  int n, int64_t n_samples);
    const char *(*step)(const osh_modifier *m, int k); // returns the name of step k, whose loss is
                                                       // osh_losses.of[k]; NULL: the steps have no
                                                       // names
    /* returns the rule (view) of the tuning that follows all solves; NULL: there is no tuning */
    const struct osh_tune_rule *(*tunes)(const osh_modifier *m);
    /* Functions for learning from the output of a whole block (learn/block.h). `blocks` returns the
     * rule (view), or NULL if the modifier does not learn by block. `learns` reads name, scheme and
     * w of a job, sets params and codes by rounding to nearest, and sets *a to the arguments of
     * osh_ada_learner_new. `learned` is called after learning: it copies the learned scales to
     * params and frees the arguments *a. */
    const osh_block_rule *(*blocks)(const osh_modifier *m);
    osh_status (*learns)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    void (*learned)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    /* Returns the probability that an element of an input is taken from the quantized model and not
     * from the original model. If `share` is NULL, the probability is 1. */
    double (*share)(const osh_modifier *m);
    // true: if a weight is quantized in bands of rows, the result is the same as for the whole
    // weight. With strategy block a band contains whole blocks.
    bool by_rows;
    /* true: the modifier sets weights to 0. After compress, `codes` of a job is the pruned weight
     * in the dtype of w, and `packed` is true. The modifier has one scheme, with targets (a Linear
     * or a module that contains Linears) but without quantization arguments. A quantizer may follow
     * in the recipe. */
    bool prunes;
    // true: the modifier multiplies weights by orthogonal matrices before all other modifiers work;
    // args is an osh_rotate (rotate.h)
    bool rotates;
    bool host_only; // true: the modifier does not run on a GPU
    bool drops;   // true: the modifier removes experts before all other modifiers work; args is an
                  // osh_reap (experts.h)
    bool apart;   // true: several threads may call compress at the same time
    /* true: compress overwrites w or device_w with the dequantized weight, so that later layers get
     * inputs from the quantized model; not if keep_w is set */
    bool propagates;
    /* Returns the number of floating-point operations for the solve of a weight [O, I]. If `flops`
     * is NULL, the number is that of a matrix product with h. */
    double (*flops)(const osh_modifier *m, int64_t O, int64_t I);
    /* Returns the host bytes (gross, an upper bound) that compress needs besides w and h, including
     * the results in `jobs`. Reads only the scheme, and the shape and dtype of w. If h is on a
     * device, *device is on entry the number of free bytes of the device's arena, and on return the
     * number that compress uses. If the free bytes are not enough, the result is larger: the
     * smallest number of free bytes with which compress works. */
    size_t (*needs)(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                    size_t *device);
    /* Returns the bytes that compress_groups needs for n groups with the shapes of `like`. *device
     * has the same meaning as for `needs`. */
    size_t (*needs_groups)(const osh_modifier *m, const osh_job_group *like, int n, int n_threads,
                           size_t *device);

    /* The members below are for transforms. In a transform `wants` and `compress` are NULL, and it
     * has no schemes. */
    // returns the mappings of the modifier (view), or NULL if the mappings of the model's graph are
    // used
    const osh_mapping *(*mappings)(const osh_modifier *m, size_t *n);
    // computes the factors s [c->n]; NULL: the modifier has the function `search`, or is no
    // transform
    void (*factors)(const osh_modifier *m, float *s, const osh_channels *c);
    /* `search` is called instead of `factors` and finds the factors s [j->n] with the smallest
     * error of the Linears' outputs. search_bytes returns an upper bound of the bytes (gross) of
     * the search and reads only n, balance and n_balance of j. `takes` fails with OSH_E_USAGE if
     * the search does not support a Linear with scheme s. */
    osh_status (*search)(osh_ctx *cx, const osh_modifier *m, float *s, osh_search *j);
    size_t (*search_bytes)(const osh_modifier *m, const osh_search *j, int n_threads);
    // returns the number of points that the search tries; the weights of the Linears are rounded
    // once for each point
    int (*search_points)(const osh_modifier *m);
    osh_status (*takes)(osh_ctx *cx, const osh_modifier *m, const char *name,
                        const osh_q_scheme *s);
    // frees the members of args that are not in `fields`; NULL: there are no such members
    void (*end)(osh_ctx *cx, osh_modifier *m);
};
bool osh_modifier_is_transform(const osh_modifier *m);
bool osh_modifier_wants_data(const osh_modifier *m); // true if the modifier needs a statistic
/* True if the modifier quantizes, that is, if it is no transform and does not prune, rotate or
 * remove experts. */
bool osh_modifier_quantizes(const osh_modifier *m);
const osh_modifier_type *osh_modifier_find(const char *name); // returns NULL if no modifier has
                                                              // this name
/* Returns the quantizer that rounds to nearest, without a Hessian. */
const osh_modifier_type *osh_modifier_nearest(void);
size_t osh_modifier_count(void);
const osh_modifier_type *osh_modifier_at(size_t i);

/* Sets *scheme to the index of the scheme that m applies to a module. Sets *scheme to -1 if no
 * target matches or if `ignore` matches the module. */
osh_status osh_modifier_match(osh_ctx *cx, int *scheme, osh_modifier *m, const char *name,
                              const char *cls);
void osh_modifier_deinit(osh_ctx *cx, osh_modifier *m);
/* Largest number of groups in a call of compress_groups. This number of groups uses all
 * multiprocessors of a GPU, and the results still need little memory. */
enum { OSH_GROUPS_AT_ONCE = 32 };
/* Sets j->nmse to |w - decode(codes)|^2 / |w|^2. If `store` is true, overwrites w and device_w with
 * decode(codes). Works row by row, without a second copy of the weight. */
osh_status osh_job_finish(osh_ctx *cx, osh_linear_job *j, bool store);
/* Returns 1 if all threads solve one job together. Else each job is solved on one thread, because
 * small Linears, such as those of experts, have too few chunks for all threads. The result is then
 * the largest number of jobs in memory at the same time. Results are used in the order of the jobs,
 * so a finished job waits for earlier jobs: with 128 experts and 2 threads, at most 8 jobs are in
 * memory. */
int osh_jobs_at_once(const osh_linear_job *jobs, int n, int n_threads);
/* True if there are enough small Linears to solve each on one thread. all, largest: number of
 * weights of all Linears together, and of the largest Linear. */
bool osh_jobs_are_many(int64_t all, int64_t largest, int n_threads);
static inline int osh_jobs_waiting(int n_threads) { return 2 * n_threads + 4; }
// returns the bytes of scratch of osh_job_finish
size_t osh_job_finish_bytes(const osh_linear_job *j, int n_threads);
size_t osh_job_codes_bytes(const osh_linear_job *j, bool packed);
// returns the bytes of codes and params
size_t osh_job_result_bytes(const osh_linear_job *j);
size_t osh_job_scales_bytes(const osh_linear_job *j);                // returns the bytes of params
/* Returns the bytes of scratch of osh_q_weight_params, without the scratch of the observer's search
 * (osh_job_search_bytes). */
size_t osh_job_params_bytes(const osh_linear_job *j);
unsigned osh_scheme_wants(const osh_q_scheme *s); // returns the OSH_STAT_* bits that the observers
                                                  // of s need
/* Returns the bytes of scratch of the observer's search of ranges. */
size_t osh_job_search_bytes(const osh_linear_job *j);
#endif
