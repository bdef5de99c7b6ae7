/* kinds.h - lists the kinds of modifiers. A kind is a small table of functions; the row of a
 * modifier (modifier.h) points to the tables of the modifier's kinds:
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
    /* Returns the statistics of inputs that m needs, as OSH_STAT_* bits. */
    unsigned (*wants)(const osh_modifier *m, const osh_q_scheme *s);
    /* Quantizes or prunes n jobs that have one input X. h: lower triangle of the Hessian X^T X over
     * n_samples samples, on a device or in host memory; NULL if the modifier needs no Hessian. The
     * function may overwrite h. */
    osh_status (*compress)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n,
                           osh_tensor *h, int64_t n_samples);
    /* Returns an upper bound of the number of host bytes (gross) that `compress` needs. They
     * include the results in `jobs`, but not w and h. Of each job, this function reads only the
     * scheme, and the shape and dtype of w.
     * device: NULL if h is in host memory. On entry *device is the number of free bytes in the
     * arena of the device that has h. On return it is the number of bytes of the arena that
     * `compress` uses. If there are too few free bytes, it is the smallest number of bytes with
     * which `compress` works. */
    size_t (*needs)(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                    size_t *device);
    /* The next three functions solve several groups of jobs in one call on a device. They are NULL
     * if the modifier does not support such calls.
     * gathers: returns true if a group may be solved together with other groups.
     * compress_groups: solves groups of equal shape in one call, and gives the same bytes as
     * `compress`. The results of all groups are in memory at the same time.
     * needs_groups: returns the number of host bytes of a call for n groups. All groups have the
     * shapes of the group `like`. *device has the same meaning as for `needs`. */
    bool (*gathers)(const osh_modifier *m, const osh_linear_job *jobs, int n);
    osh_status (*compress_groups)(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups,
                                  int n, int64_t n_samples);
    size_t (*needs_groups)(const osh_modifier *m, const osh_job_group *like, int n, int n_threads,
                           size_t *device);
    /* Returns the number of floating-point operations of solving a weight [O, I]. NULL: as many as
     * the matrix product of the weight and h. */
    double (*flops)(const osh_modifier *m, int64_t O, int64_t I);
    // True: quantizing a weight in bands of rows gives the same result as quantizing the whole
    // weight. With strategy block, a band consists of whole blocks.
    bool by_rows;
    bool apart; // true: several threads may call `compress` at the same time
    /* True: `compress` overwrites w or device_w with the dequantized weight if keep_w is false.
     * Later layers then get inputs from the quantized model. */
    bool propagates;
} osh_solver;

/* Each bit allows a modifier's output to differ from rounding to nearest in one way. The check of
 * the output accepts these differences. */
enum {
    OSH_FREE_ZEROS = 4,  // weights that were 0 after pruning may get other values
    OSH_FREE_SCALES = 1, // scales and zero points may differ from those that the observer finds
    OSH_FREE_TARGET = 2, // codes may approximate a weight that is not equal to the source
    OSH_FREE_SIGNS = 8   // scales may be negative where osh_q_may_be_signed() is true
};
typedef struct osh_quantizer {
    /* Sets the arguments of m for quality 'best', before the keys of m are read. NULL: the modifier
     * does not have this quality. */
    osh_status (*best)(osh_ctx *cx, osh_modifier *m);
    /* Returns true if m does the same as QuantizationModifier. The result may depend on the
     * arguments of m. NULL: m never does the same. */
    bool (*is_nearest)(const osh_modifier *m);
    /* Returns the allowed differences from rounding to nearest, as OSH_FREE_* bits. NULL: there
     * are none. */
    unsigned (*freedom)(const osh_modifier *m);
    /* Returns the name of step k of a solve. The loss of this step is osh_losses.of[k]. NULL: the
     * steps have no names. */
    const char *(*step)(const osh_modifier *m, int k);
    /* Returns how the model is tuned after all solves (view). NULL: it is not tuned. */
    const struct osh_tune_rule *(*tunes)(const osh_modifier *m);
} osh_quantizer;

/* Functions of a modifier that learns from the output of a whole block (learn/block.h). */
typedef struct osh_learner {
    // Returns how a block is learned (view), or NULL if m learns Linear by Linear. The result may
    // depend on the arguments of m.
    const osh_block_rule *(*blocks)(const osh_modifier *m);
    /* Begins the learning of one Linear, job j. Reads j->name, j->scheme and j->w. Sets j->params
     * and j->codes by rounding to nearest. Sets *a to the arguments of osh_ada_learner_new. */
    osh_status (*learns)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    // Is called after learning. Copies the learned scales to the params of j, and frees the
    // arguments *a.
    void (*learned)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    // Returns the probability that an element of an input comes from the quantized model. All other
    // elements come from the original model.
    double (*share)(const osh_modifier *m);
} osh_learner;

/* The solver of a pruner sets weights to 0. After `compress`, `codes` of a job is the pruned weight
 * in the dtype of w, and `packed` is true. The modifier has one scheme. The scheme names targets
 * (Linears, or modules that contain Linears), and has no quantization arguments. A quantizer may
 * follow in the recipe. */

/* Properties that a pruned weight must have when the output is checked. */
typedef struct osh_prune_rule {
    double sparsity; // at least this fraction of the weights is 0
    int64_t n, m;    // n of each m consecutive weights of a row are 0; m = 0: there is no such rule
    bool exact;      // true: weights that are not 0 have the values of the source
} osh_prune_rule;
/* Arguments of OWL, which gives each decoder layer its own sparsity (prune.h). */
typedef struct osh_owl osh_owl;
typedef struct osh_pruner {
    osh_prune_rule (*rule)(const osh_modifier *m, double sparsity);
    /* Sets *out to the sparsity of module number k of the n modules that match the targets. Fails
     * if the recipe has a list of sparsities whose length is not n. */
    osh_status (*sparsity)(osh_ctx *cx, double *out, const osh_modifier *m, int k, int n);
    // Fails if the modifier cannot prune the Linear `name`, which has I input features.
    osh_status (*takes)(osh_ctx *cx, const osh_modifier *m, const char *name, int64_t I);
    // Returns the arguments of OWL (view), or NULL if the recipe does not use OWL.
    const osh_owl *(*owl)(const osh_modifier *m);
} osh_pruner;

/* A layer whose output is scaled, and the Linears that read this output. */
typedef struct osh_mapping {
    osh_strs balance; // own: names of the Linears
    char *smooth;     // own: name of the layer
} osh_mapping;

/* The channels of a layer's output, for the computation of factors. All arrays are views with n
 * elements. */
typedef struct osh_channels {
    const float *lo, *hi; // smallest and largest value of each channel, over all tokens
    /* Largest magnitude of each channel in the weights of the Linears that read the output. In each
     * of these weights, a channel is a column. */
    const float *most;
    int64_t n;
    osh_dtype dtype;      // dtype of the model
} osh_channels;

/* A Linear that reads the output of the layer whose factors are searched (osh_search). */
typedef struct osh_balance {
    /* Name of the Linear. If its weight is not quantized: name of the weight. */
    const char *name;           // view
    const osh_q_scheme *scheme; // view; NULL: the Linear is not quantized
    osh_dtype dtype;            // stored dtype of the weight
    int64_t O;                  // number of rows of the weight
} osh_balance;

typedef struct osh_search osh_search;
/* A search for the factors of the output of one layer. The search minimizes the errors of the
 * Linears that read this output. */
struct osh_search {
    const char *name;           // view: name of the layer
    int64_t n;                  // number of channels of the layer's output
    /* View [n]: mean of |x| for each channel over all tokens; x is the input of the Linears. */
    const float *mean;
    const float *h;             // view [n, n]: X^T X, doubled below the diagonal and 0 above it
    const osh_balance *balance; // view
    int n_balance;
    /* Reads rows [first, first + n) of the stored weight of Linear number k. The rows are
     * multiplied by the factors that earlier searches found. Any thread may call this function. */
    osh_status (*rows)(osh_ctx *cx, const osh_search *j, int k, void *to, int64_t first, int64_t n);
    const void *user;           // view: data for the function `rows`
    /* Results: |X dW^T|^2, where dW is the rounding error of the weights.
     * before: without factors.
     * after: with the best factors. */
    double before, after;
};

typedef struct osh_transform {
    // Returns the mappings that the recipe gives (view). Returns NULL if the mappings of the
    // model's graph are used.
    const osh_mapping *(*mappings)(const osh_modifier *m, size_t *n);
    // Computes the factors s [c->n]. NULL: the modifier has the function `search` instead.
    void (*factors)(const osh_modifier *m, float *s, const osh_channels *c);
    /* Functions of a modifier without `factors`.
     * search: finds the factors s [j->n] with the smallest errors of the Linears' outputs.
     * search_bytes: returns an upper bound of the bytes of the search, with the allocator's
     * overhead. Reads only n, balance and n_balance of j.
     * takes: fails with OSH_E_USAGE if the search does not support a Linear with scheme s. */
    osh_status (*search)(osh_ctx *cx, const osh_modifier *m, float *s, osh_search *j);
    size_t (*search_bytes)(const osh_modifier *m, const osh_search *j, int n_threads);
    // Returns the number of points that the search tries. At each point the weights of all Linears
    // are rounded once.
    int (*search_points)(const osh_modifier *m);
    osh_status (*takes)(osh_ctx *cx, const osh_modifier *m, const char *name,
                        const osh_q_scheme *s);
} osh_transform;

/* A modifier that changes the model before modules are matched. osh_rotate_of (rotate.h) or
 * osh_reap_of (experts.h) returns the arguments of the modifier. */
typedef struct osh_rewriter {
    /* True: must be the first modifier of a recipe, because it changes the modules that the other
     * modifiers see. */
    bool first;
    /* True: the modifier changes weights that are no targets. A recipe cannot combine it with a
     * transform or with another rewriter for which `alone` is true. */
    bool alone;
} osh_rewriter;
#endif
