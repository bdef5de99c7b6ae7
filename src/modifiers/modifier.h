/* modifier.h - what a recipe names. A quantizer (or what makes weights 0) declares the statistics it needs of a
 * Linear's input and, when they are complete, turns weights into codes. A transform makes factors, one for each channel
 * between a layer and the Linears that read what it makes, which are folded into the weights before anything is
 * quantized. Neither touches the forward pass.
 *
 * Adding one: src/modifiers/foo.c with `const osh_modifier_type osh_modifier_foo`, and a row in modifiers.def. */
#ifndef OSH_MODIFIER_H
#define OSH_MODIFIER_H
#include "base/field.h"
#include "solver/ada.h"
#include "quant/arith.h"
#include "tensor/device.h"
#include "text/match.h"
#include "text/yaml.h"

enum { // statistics of a value, bit set
    OSH_STAT_HESSIAN = 1, // X^T X, f32 [I, I], lower triangle
    OSH_STAT_RANGE = 2,   // what the scheme's static input observer needs
    OSH_STAT_SHIFT = 4,   // (X0 - X)^T X, f32 [I, I], X0: what it is in the original model
    OSH_STAT_SQUARES = 8, // sum of X^2 of each channel, f64 [I]; a search of ranges weighs channels by it
    OSH_STAT_CACHE = 16,  // range of the keys and of the values of the attention that makes it, or of what it becomes
    OSH_STAT_PEAKS = 64,  // sum over tokens of the largest square in each; of a survey
    OSH_STAT_BLOCK = 32   // in the place of the first and the third: what its block reads, and puts out in the original
                          // model; the plan says where (plan/blocks.h)
};

enum { // in what a solve is free, bit set
    OSH_FREE_ZEROS = 4,  // of a weight that was pruned they may become others
    OSH_FREE_SCALES = 1, // scales and zero points are not those that the observer finds in the weight
    OSH_FREE_TARGET = 2  // codes come close to another weight than the source's
};

enum { OSH_LOSSES = 9 };
typedef struct osh_losses { // of the steps of a solve, in their order; modifier type->step names them
    int n;
    double of[OSH_LOSSES];
    double all; // the same with dW = W: what the output would lose without the weight
} osh_losses;

typedef struct osh_linear_job osh_linear_job;
struct osh_linear_job { // one Linear to be quantized
    const char *name;           // view: module name
    const osh_q_scheme *scheme; // view
    osh_tensor *w;              // view: [O, I] in its stored dtype, host memory
    osh_tensor *device_w;       // view: the same on the device where h lies; NULL: h is in host memory, or NULL
    osh_tensor *shift;          // view: OSH_STAT_SHIFT of the input, where h lies; may be destroyed. NULL: none of the
                                // input's modifiers wants it, or it is 0
    osh_tensor *target;         // own: in between, where h lies: F32 [O, I] that a solve comes close to; NULL: w
    bool keep_w;                // w stays as it is, also where the modifier propagates
    bool pruned;                // what is 0 in w stays 0, and w is left as a modifier that propagates leaves it
    double sparsity;            // for a modifier that prunes
    const double *care;         // view [O]: what the square of an error of each output is worth; NULL: 1
    const double *care_in;      // view [I]: the same of the input, for all Linears that read it; NULL: not known
    double peaks;               // OSH_STAT_PEAKS of the input; 0: not known
    void *cache;                // own: scales and zero points of keys and values, as they are stored behind each
                                // other; NULL: the Linear has none
    void *bias;                 // own: out, as it is stored, where it learned; NULL: it did not
    void *room;                 // view: for codes, [O, I] bytes, where the modifier works by rows; NULL: codes is made
    double *sums;               // view: out, [O, 2] |w - dq|^2 and |w|^2 of each row; NULL: not wanted
    int64_t n_tokens;           // that the statistics are of
    bool apart;                 // of the first: there is room for osh_jobs_at_once of them
    bool pack;                  // codes may be packed: the output has them as pack-quantized
    bool packed;                // out: they are
    void *codes;                // own: out, [O, I] bytes; packed: the first output tensor as it is stored; NULL where
                                // room has them
    osh_qparams params;         // own: out
    double nmse;                // out: |w - dq|^2 / |w|^2
    double removed;             // |w|^2 of what pruning made 0 before, over that of the weight before; 0: none, or a
                                // method that changes other values, too
    double objective;           // out: tr(dW H dW^T) with the damped H, dW against the target; < 0: no Hessian
    double nearest;             // out: the same of the target rounded to nearest, with the scales before any search,
                                // beyond 255 rows drawn from some (solver/gptq_solve.h); < 0: not known
    osh_losses losses;          // out: objective after each step; none where there was one step
    const char *fallback;       // out: static text, what was done instead; NULL: nothing
    /* Called when the outputs are there, which it may take, so that the results of many jobs are not held at once; w
     * stays. NULL: they stay until compress returns. */
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j);
    void *user;                 // view: of done
};
osh_status osh_linear_job_done(osh_ctx *cx, osh_linear_job *j);
/* The same shapes, dtypes and schemes, of all n in turn: a solve takes as much. */
bool osh_jobs_are_alike(const osh_linear_job *a, const osh_linear_job *b, int n);
typedef struct osh_job_group { // of one input; views
    osh_linear_job *jobs;      // [n]
    int n;
    osh_tensor *h;
} osh_job_group;
void osh_linear_job_deinit(osh_ctx *cx, osh_linear_job *j);

typedef struct osh_mapping { // of a transform: the targets of Linears, and of the layer whose output they read
    osh_strs balance; // own
    char *smooth;     // own
} osh_mapping;

typedef struct osh_channels { // of what a layer makes, by channel; views [n]
    const float *lo, *hi; // smallest and largest value of all tokens
    const float *most;    // largest absolute weight of the Linears that read it
    int64_t n;
    osh_dtype dtype;      // the model's
} osh_channels;

typedef struct osh_balance { // a Linear that reads what a layer makes
    const char *name;           // view: of the module, or of its weight where that stays dense
    const osh_q_scheme *scheme; // view; NULL: it stays dense
    osh_dtype dtype;            // stored
    int64_t O;                  // rows
} osh_balance;

typedef struct osh_search osh_search;
struct osh_search { // for the factors of one layer, by what they do to the Linears' outputs
    const char *name;           // view: of the layer
    int64_t n;                  // its channels
    const float *mean;          // view [n]: of |x| over all tokens, x what the Linears read
    const float *h;             // view [n, n]: X^T X, below the diagonal doubled, above it 0
    const osh_balance *balance; // view
    int n_balance;
    /* Rows [first, first + n) of the k-th Linear's weight as it is stored, factors that are known folded in; on any
     * thread. */
    osh_status (*rows)(osh_ctx *cx, const osh_search *j, int k, void *to, int64_t first, int64_t n);
    const void *user;           // view: of rows
    double before, after;       // out: |X dW^T|^2 without factors, and with those found
};

enum { OSH_CANDIDATES = 7 }; // of a survey: 2 to 8 bits, or schemes
typedef struct osh_candidate {
    int bits;                   // what the weights may have, all else as the scheme says; 0: a scheme with a name
    char name[16];              // "NVFP4A16"; of bits: ""
    osh_q_args weights, inputs; // of a name
} osh_candidate;
typedef struct osh_modifier_type osh_modifier_type;
typedef struct osh_modifier {
    const osh_modifier_type *type;
    void *args;             // own: type->bytes, filled through type->fields
    osh_q_scheme *schemes;  // own
    size_t n_schemes;
    osh_strs ignore;        // own
    osh_matcher *ignored;   // own
    osh_matcher *targets;   // own: targets of all schemes behind each other
    int *target_scheme;     // own: scheme of each of these
    osh_q_args cache;       // kv_cache_scheme, or the input_activations of its group of attention
    bool queries;           // it is such a group's
    bool has_config;        // the recipe gave it schemes or targets of its own
    bool replaced;          // a later bare GPTQModifier took its schemes over
    osh_candidate *candidates; // own: what --target-bits chooses among; n 0: any number of bits
    int n_candidates;
    const osh_modifier_type *surveyed; // the quantizer in whose place a survey stands (survey.h); NULL: none does
    osh_arithmetic arithmetic;
} osh_modifier;

struct osh_modifier_type {
    const char *name; // "GPTQModifier"
    const osh_field *fields;
    size_t bytes;
    /* A key that the field table cannot express. *known false: not one of this modifier's. */
    osh_status (*key)(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *value,
                      bool *known, const char *what);
    const char *keys; // those of key, for messages
    osh_status (*best)(osh_ctx *cx, osh_modifier *m); // arguments for the least loss, before any key; NULL: none
    bool (*is_nearest)(const osh_modifier *m); // by its keys it is QuantizationModifier; NULL: never
    osh_status (*resolve)(osh_ctx *cx, osh_modifier *m); // after the last key; may be NULL
    unsigned (*wants)(const osh_modifier *m, const osh_q_scheme *s);
    unsigned (*freedom)(const osh_modifier *m); // OSH_FREE_*, for who checks the output; NULL: none
    /* jobs share one input; h is its Hessian (lower triangle of X^T X over n_samples samples, may
     * be destroyed; on a device, or in host memory) or NULL. */
    osh_status (*compress)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *jobs, int n, osh_tensor *h,
                           int64_t n_samples);
    /* On a device, groups of alike jobs in one call, each as compress would take it, byte for byte, and all their
     * results at once; NULL: there is no such call. Whether a group may be among them: */
    bool (*gathers)(const osh_modifier *m, const osh_linear_job *jobs, int n);
    osh_status (*compress_groups)(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups, int n,
                                  int64_t n_samples);
    const char *(*step)(const osh_modifier *m, int k); // name of the k-th of osh_losses; NULL: it has none
    const struct osh_tune_rule *(*tunes)(const osh_modifier *m); // view: what comes behind all solves; NULL: nothing
    /* View: how codes learn from the output of a whole block; NULL: they do not. Of a job with name, scheme and w:
     * params and codes, rounded to nearest, and what osh_ada_learner_new takes; when it has learned, params follow. */
    const osh_block_rule *(*blocks)(const osh_modifier *m);
    osh_status (*learns)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    void (*learned)(osh_ctx *cx, const osh_modifier *m, osh_linear_job *j, osh_ada_args *a);
    /* Share of elements of an input that are the quantized model's, the others being the original's; NULL: 1. */
    double (*share)(const osh_modifier *m);
    bool by_rows; // of bands of whole rows (strategy block: of whole blocks) it makes what it makes of them together
    /* It makes weights 0: codes are then w's bytes, and packed. The one scheme has its targets, modules that a Linear
     * may be inside of, and nothing to quantize. A quantizer may come behind it. */
    bool prunes;
    bool rotates; // weights are multiplied by orthogonal matrices before all else; args are osh_rotate (rotate.h)
    bool host_only; // it is not made on a card
    bool drops;   // experts, before all else; args are osh_reap (experts.h)
    bool apart;   // compress may be called on several threads at a time
    bool propagates; // compress leaves the dequantized weight in w, or in device_w (but for keep_w): later ones see it
    /* Operations on a weight [O, I]; NULL: a product of it with h. */
    double (*flops)(const osh_modifier *m, int64_t O, int64_t I);
    /* Bytes (gross, an upper bound) that compress takes at most beside w and h, what it leaves in jobs included. Of a
     * job scheme and w's shape and dtype are read. device: NULL, or h lies on one: given what there is room for in its
     * arena, gets what is taken of it; more than that: the least that will do. */
    size_t (*needs)(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads, size_t *device);
    /* The same of compress_groups, of n groups like this one. */
    size_t (*needs_groups)(const osh_modifier *m, const osh_job_group *like, int n, int n_threads, size_t *device);

    /* Of a transform, which has no schemes and none of wants, compress and what goes with them. */
    const osh_mapping *(*mappings)(const osh_modifier *m, size_t *n); // view; NULL: those that the model's graph shows
    void (*factors)(const osh_modifier *m, float *s, const osh_channels *c); // [c->n]; NULL: it searches, or is none
    /* In its place: factors [j->n] by a search over what the Linears read, and bytes (gross) that it takes at most; of
     * j n, balance and n_balance are read. takes: whether it can have a Linear of that scheme (OSH_E_USAGE). */
    osh_status (*search)(osh_ctx *cx, const osh_modifier *m, float *s, osh_search *j);
    size_t (*search_bytes)(const osh_modifier *m, const osh_search *j, int n_threads);
    int (*search_points)(const osh_modifier *m); // at which it rounds the Linears' weights
    osh_status (*takes)(osh_ctx *cx, const osh_modifier *m, const char *name, const osh_q_scheme *s);
    void (*end)(osh_ctx *cx, osh_modifier *m); // frees what args has beside its fields; NULL: nothing
};
bool osh_modifier_is_transform(const osh_modifier *m);
bool osh_modifier_wants_data(const osh_modifier *m); // some statistic
bool osh_modifier_quantizes(const osh_modifier *m); // neither that, nor does it prune, rotate or drop
const osh_modifier_type *osh_modifier_find(const char *name); // NULL: unknown
const osh_modifier_type *osh_modifier_nearest(void); // the quantizer that rounds to nearest and wants no Hessian
size_t osh_modifier_count(void);
const osh_modifier_type *osh_modifier_at(size_t i);

/* Scheme of a module under m: index, or -1 (no target matches, or ignored). */
osh_status osh_modifier_match(osh_ctx *cx, int *scheme, osh_modifier *m, const char *name, const char *cls);
void osh_modifier_deinit(osh_ctx *cx, osh_modifier *m);
/* Groups that compress_groups gets at most: enough to fill a card, and few enough that their results do not pile up. */
enum { OSH_GROUPS_AT_ONCE = 32 };
/* nmse = |w - decode(codes)|^2 / |w|^2; with store, w and device_w become decode(codes). Row by row: no second weight
 * is held. */
osh_status osh_job_finish(osh_ctx *cx, osh_linear_job *j, bool store);
/* Small Linears as those of experts are solved on a thread each: one is cut into chunks too few to keep all threads at
 * work. So many results wait at a time for those before them: of 128 experts and 2 threads 8 at most. 1: it is no use,
 * or there is no room. */
int osh_jobs_at_once(const osh_linear_job *jobs, int n, int n_threads);
/* The same by the weights: of all, and the largest. */
bool osh_jobs_are_many(int64_t all, int64_t largest, int n_threads);
static inline int osh_jobs_waiting(int n_threads) { return 2 * n_threads + 4; }
size_t osh_job_finish_bytes(const osh_linear_job *j, int n_threads); // scratch
size_t osh_job_codes_bytes(const osh_linear_job *j, bool packed);
size_t osh_job_result_bytes(const osh_linear_job *j);                // codes and params
size_t osh_job_scales_bytes(const osh_linear_job *j);                // of these the params
size_t osh_job_params_bytes(const osh_linear_job *j);                // scratch of osh_q_weight_params
unsigned osh_scheme_wants(const osh_q_scheme *s); // the statistics of its observers
size_t osh_job_search_bytes(const osh_linear_job *j);                // the same: of an observer's search
#endif
