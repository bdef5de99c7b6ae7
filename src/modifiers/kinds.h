/* kinds.h - the kinds of modifiers. A kind is a small table of functions; the row of a modifier
 * (modifier.h) points to the tables of the kinds that it has:
 *
 *   solver      changes the weights of Linears; quantizers and pruners are solvers, too
 *   quantizer   its solver returns codes
 *   learner     its solver can learn from the output of a whole block
 *   pruner      its solver sets weights to 0
 *   transform   computes factors that are folded into weights before weights are quantized
 *   rewriter    changes the model before its modules are matched
 *
 * Outside src/modifiers, only the files that implement a kind read the table of the kind
 * (KIND_FILES in scripts/lint.py). All other files call the functions of modifier.h. */
#ifndef OSH_KINDS_H
#define OSH_KINDS_H
#include "modifiers/job.h"
#include "solver/ada.h"

typedef struct osh_modifier osh_modifier;

typedef struct osh_solver {
    unsigned (*wants)(const osh_modifier *m, const osh_q_scheme *s); // returns OSH_STAT_* bits
    /* Quantizes or prunes n jobs that share one input X. h: lower triangle of the Hessian X^T X
     * over n_samples samples, on a device or in host memory, or NULL if the modifier needs no
     * Hessian. compress may overwrite h. */
    osh_status (*compress)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                           osh_tensor *h, int64_t n_samples);
    /* Returns the host bytes (gross, an upper bound) that compress needs besides w and h, including
     * the results in `jobs`. Reads only the scheme, and the shape and dtype of w. If h is on a
     * device, the caller sets *device to the number of free bytes of the device's arena, and the
     * function sets *device to the number of bytes that compress uses. If the free bytes are not
     * enough, *device becomes the smallest number of free bytes with which compress works. */
    size_t (*needs)(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                    size_t *device);
    /* Three functions for solving several groups of jobs in one call on a device. NULL: the
     * modifier does not support such calls.
     * gathers: returns true if a group may be solved together with other groups.
     * compress_groups: solves groups of equal shape in one call, with the same bytes as compress.
     * The results of all groups are in memory at the same time.
     * needs_groups: returns the bytes of a call of n groups with the shapes of `like`. *device has
     * the same meaning as for `needs`. */
    bool (*gathers)(const osh_modifier *m, const osh_linear_job *jobs, int n);
    osh_status (*compress_groups)(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups,
                                  int n, int64_t n_samples);
    size_t (*needs_groups)(const osh_modifier *m, const osh_job_group *like, int n, int n_threads,
                           size_t *device);
    /* Returns the number of floating-point operations for the solve of a weight [O, I]. `flops`
     * NULL: the solve has as many as a matrix product with h. */
    double (*flops)(const osh_modifier *m, int64_t O, int64_t I);
    // true: if a weight is quantized in bands of rows, the result is the same as for the whole
    // weight. With strategy block a band contains whole blocks.
    bool by_rows;
    bool apart; // true: several threads may call compress at the same time
    /* True: compress overwrites w or device_w with the dequantized weight, unless keep_w is set.
     * Later layers then get inputs from the quantized model. */
    bool propagates;
} osh_solver;

/* Differences between the output of a modifier and rounding to nearest, as bits that can be
 * combined. The check of the output accepts these differences. */
enum {
    OSH_FREE_ZEROS = 4,  // zeros of a pruned weight may get other values
    OSH_FREE_SCALES = 1, // scales and zero points may differ from those that the observer finds
    OSH_FREE_TARGET = 2, // codes may approximate a weight other than the source's
    OSH_FREE_SIGNS = 8   // scales may be negative if osh_q_may_be_signed() is true
};
typedef struct osh_quantizer {
    /* Sets the arguments of quality 'best'; is called before keys are read. NULL: the modifier does
     * not have this quality. */
    osh_status (*best)(osh_ctx *cx, osh_modifier *m);
    /* Returns true if the modifier with these arguments does the same as QuantizationModifier.
     * NULL: the modifier never does the same. */
    bool (*is_nearest)(const osh_modifier *m);
    unsigned (*freedom)(const osh_modifier *m); // returns OSH_FREE_* bits; NULL: no bits
    /* Returns the name of step k, whose loss is osh_losses.of[k]; NULL: the steps have no names. */
    const char *(*step)(const osh_modifier *m, int k);
    /* Returns the rule (view) of the tuning that follows all solves. NULL: there is no tuning. */
    const struct osh_tune_rule *(*tunes)(const osh_modifier *m);
} osh_quantizer;

/* Learning from the output of a whole block (learn/block.h). */
typedef struct osh_learner {
    // returns the rule (view), or NULL if the modifier with these arguments learns Linear by Linear
    const osh_block_rule *(*blocks)(const osh_modifier *m);
    /* Reads name, scheme and w of a job, sets params and codes by rounding to nearest, and sets *a
     * to the arguments of osh_ada_learner_new. */
    osh_status (*learns)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    // is called after learning: copies the learned scales to params and frees the arguments *a
    void (*learned)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    // returns the probability that an element of an input comes from the quantized model and not
    // from the original model
    double (*share)(const osh_modifier *m);
} osh_learner;

/* A pruner's solver sets weights to 0. After compress, `codes` of a job is the pruned weight in the
 * dtype of w, and `packed` is true. The modifier has one scheme, which has targets (Linears, or
 * modules that contain Linears) but no quantization arguments. A quantizer may follow in the
 * recipe. */

/* Properties that the check of the output requires of a pruned weight. */
typedef struct osh_prune_rule {
    double sparsity; // at least this fraction of the elements is 0
    int64_t n, m;    // n of each m columns are 0; m is 0 if the rule has no such structure
    bool exact;      // true if elements that are not 0 have the values of the source
} osh_prune_rule;
typedef struct osh_owl osh_owl; // sparsities of decoder layers (prune.h)
typedef struct osh_pruner {
    osh_prune_rule (*rule)(const osh_modifier *m, double sparsity);
    /* Sets *out to the sparsity of module k of the n modules that match the targets. Fails if the
     * recipe has a list of sparsities whose length is not n. */
    osh_status (*sparsity)(osh_ctx *cx, double *out, const osh_modifier *m, int k, int n);
    // fails if the pruner cannot prune a Linear with I input features
    osh_status (*takes)(osh_ctx *cx, const osh_modifier *m, const char *name, int64_t I);
    // returns the arguments of OWL (view), or NULL if the recipe does not use OWL
    const osh_owl *(*owl)(const osh_modifier *m);
} osh_pruner;

typedef struct osh_mapping { // a layer and the Linears that read its output, for a transform
    osh_strs balance; // own: Linears
    char *smooth;     // own: layer whose output the Linears read
} osh_mapping;

/* Data for each channel of a layer's output; all arrays are views with n elements. */
typedef struct osh_channels {
    const float *lo, *hi; // smallest and largest value of each channel over all tokens
    const float *most;    // largest absolute weight of the Linears that read the channel
    int64_t n;
    osh_dtype dtype;      // dtype of the model
} osh_channels;

/* A Linear that reads the output of the layer whose factors are searched. */
typedef struct osh_balance {
    /* Name of the module; if the weight is not quantized, name of the weight. */
    const char *name;           // view
    const osh_q_scheme *scheme; // view; NULL: the Linear is not quantized
    osh_dtype dtype;            // stored dtype
    int64_t O;                  // number of rows
} osh_balance;

typedef struct osh_search osh_search;
/* A search for the factors of one layer that minimizes the errors of the Linears' outputs. */
struct osh_search {
    const char *name;           // view: name of the layer
    int64_t n;                  // number of channels of the layer's output
    const float *mean; // view [n]: mean of |x| over all tokens; x is the input of the Linears
    const float *h;             // view [n, n]: X^T X, doubled below the diagonal and 0 above it
    const osh_balance *balance; // view
    int n_balance;
    /* Reads rows [first, first + n) of the stored weight of the k-th Linear, multiplied by the
     * factors that are already known from earlier searches. Any thread may call `rows`. */
    osh_status (*rows)(osh_ctx *cx, const osh_search *j, int k, void *to, int64_t first, int64_t n);
    const void *user;           // view: data for `rows`
    /* Results: |X dW^T|^2, where dW is the rounding error of the weights. before: without factors.
     * after: with the best factors. */
    double before, after;
};

typedef struct osh_transform {
    // returns the mappings of the modifier (view), or NULL if the mappings of the model's graph are
    // used
    const osh_mapping *(*mappings)(const osh_modifier *m, size_t *n);
    // computes the factors s [c->n]; NULL: the modifier has the function `search`
    void (*factors)(const osh_modifier *m, float *s, const osh_channels *c);
    /* Three functions that are called instead of `factors`.
     * search: finds the factors s [j->n] with the smallest error of the Linears' outputs.
     * search_bytes: returns an upper bound of the bytes (gross) of the search. Reads only n,
     * balance and n_balance of j.
     * takes: fails with OSH_E_USAGE if the search does not support a Linear with scheme s. */
    osh_status (*search)(osh_ctx *cx, const osh_modifier *m, float *s, osh_search *j);
    size_t (*search_bytes)(const osh_modifier *m, const osh_search *j, int n_threads);
    // returns the number of points that the search tries; the weights of the Linears are rounded
    // once for each point
    int (*search_points)(const osh_modifier *m);
    osh_status (*takes)(osh_ctx *cx, const osh_modifier *m, const char *name,
                        const osh_q_scheme *s);
} osh_transform;

/* A rewriter. Its arguments are returned by osh_rotate_of (rotate.h) or osh_reap_of (experts.h). */
typedef struct osh_rewriter {
    /* True: must be the first modifier of a recipe, because it changes the modules that all other
     * modifiers see. */
    bool first;
    /* True: cannot be combined with a transform or with another rewriter for which `alone` is true,
     * because both would change weights that are no targets. */
    bool alone;
} osh_rewriter;
#endif
