/* verify.h - declares the state of `oneshot verify`, its list of findings (problems), and the
 * functions that check one part of the output each. */
#ifndef OSH_VERIFY_H
#define OSH_VERIFY_H
#include "base/map.h"
#include "output/manifest_text.h"
#include "match/globals.h"
#include "plan/plan.h"
#include "ranks/ranks.h"

typedef struct osh_finding {
    char *where, *found, *wanted; // own
    int64_t item;                 // number of the check that found the problem
    size_t nth;                   // position of the finding among the findings of this check
} osh_finding;

typedef struct osh_verify {
    const char *dir;              // view: directory of the output
    const osh_verify_options *opt; // view
    osh_checkpoint *ck; // own: the output as a checkpoint; NULL: it cannot be opened as one
    /* The manifest without its lists of modules, tensors and folds. NULL: the output has no
     * manifest. */
    cJSON *manifest;              // own
    /* True if the manifest has a tensor with the rule "quantized", "pruned" or "changed". */
    bool quantized, pruned, changed;
    /* Maps the name of a module to the error that the manifest records for it (the bits of a
     * double). */
    osh_map *recorded;            // own
    osh_options plan_options;     // own: options with which the plan is made again
    /* own: plan made from the source and the output's recipe; NULL: no source is given. */
    osh_plan *plan;
    osh_globals *globals;         // own: global scales of the plan; NULL: there are none
    osh_finding *findings;        // own
    size_t n, cap;
    /* The checks are divided among the ranks opt->ranks. All ranks number the checks in the same
     * way. */
    int64_t item; // number of the current check
    bool here;    // true if this rank keeps the findings of the current check
    double *load; // own [ranks]: number of bytes that the checks of each rank have read so far
    /* n_sums: number of checksums that agree.
     * n_compared: number of tensors that equal those of the source.
     * n_modules: number of modules that were checked. */
    int64_t n_sums, n_compared, n_modules;
} osh_verify;

enum { OSH_VERIFY_TEXT = 400, OSH_VERIFY_MAX = 1000 };
/* Adds a finding, if this rank keeps the findings of the current check (v->here). After
 * OSH_VERIFY_MAX findings, further findings are only counted. */
osh_status osh_verify_add(osh_ctx *cx, osh_verify *v, const char *where, const char *wanted,
                          const char *found, ...) __attribute__((format(printf, 5, 6)));
/* Turns the failure `rc` of a check into a finding, clears the error and returns OSH_OK. If the
 * process itself failed (no memory, or interrupted), returns rc. */
osh_status osh_verify_failed(osh_ctx *cx, osh_verify *v, osh_status rc, const char *where,
                             const char *wanted);


/* verify_share.c: divides the checks among ranks.
 * osh_verify_next begins the next check. The rank that has read the fewest bytes so far must do the
 * check. Returns true if the calling process is this rank. `bytes`: number of bytes that the check
 * reads.
 * osh_verify_alone begins checks that every rank does, because later checks need their results.
 * Only rank 0 keeps their findings. */
bool osh_verify_next(osh_verify *v, int64_t bytes);
void osh_verify_alone(osh_verify *v);
/* Fails on each rank that sees another checkpoint than rank 0 does. ck is NULL if the checkpoint
 * cannot be opened. `what`: name of the checkpoint, for the message. */
osh_status osh_verify_agree(osh_ctx *cx, const osh_verify *v, const char *what,
                            const osh_checkpoint *ck);
/* Each rank sends rank 0 the checksums of the source tensors that it has read. */
osh_status osh_verify_gather_sums(osh_ctx *cx, const osh_verify *v);
/* Each rank sends its findings and counts to rank 0, which sorts the findings by their checks. */
osh_status osh_verify_gather(osh_ctx *cx, osh_verify *v);


/* verify_manifest.c: reads the manifest, and the error that the manifest records for each module. A
 * missing manifest is a finding. */
osh_status osh_verify_read_manifest(osh_ctx *cx, osh_verify *v);
/* Calls list->item for each item of a list of the manifest ("modules", "tensors" or "folds"). Does
 * nothing if the output has no manifest. */
osh_status osh_verify_each(osh_ctx *cx, const osh_verify *v, const osh_json_taken *list,
                           void *user);


/* verify_files.c: checks tensors, checksums, index and files against the manifest. */
osh_status osh_verify_manifest(osh_ctx *cx, osh_verify *v);
/* Checks that the side files of the output equal those of the source. */
osh_status osh_verify_side_files(osh_ctx *cx, osh_verify *v);
/* Finds files of the output that are neither in the manifest nor in the plan. Skips shards, which
 * osh_verify_manifest checks. */
osh_status osh_verify_strangers(osh_ctx *cx, osh_verify *v);

/* verify_config.c: checks the output's tensors against its quantization_config. */
osh_status osh_verify_config(osh_ctx *cx, osh_verify *v);
/* verify_source.c: makes the plan again. Checks names, shapes, config.json, copies and Linears of
 * the output against the plan and the source. */
osh_status osh_verify_plan(osh_ctx *cx, osh_verify *v);


/* verify_weights.c: checks the codes and scales of Linear number `linear` against its weight in the
 * source. */
osh_status osh_verify_linear(osh_ctx *cx, osh_verify *v, int linear);
/* The next two functions check a quantized module without its source. osh_verify_params checks the
 * scales and zero points. osh_verify_codes checks the codes [O, I]; `shape` is {O, I}. */
osh_status osh_verify_params(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a,
                             const osh_qparams *p);
osh_status osh_verify_codes(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a,
                            const uint8_t *codes, const int64_t *shape);

/* verify_direction.c: compares a pruned and quantized weight with the source's weight, if the mask
 * depends on calibration data. */
typedef struct osh_direction_row { // sums over the elements of a row with w != 0 and dq != 0
    int64_t n, same;          // n: all elements; same: elements whose w and dq have equal signs
    double sum, abs;          // sum of sign(w) dq; sum of |w|
    double dot, square;       // sum of w dq; sum of w^2
    double error;             // sum of (dq - w)^2
    double norm;              // sum of w^2 over all live columns
} osh_direction_row;
/* live [I]: true for columns of dq with a value that is not 0. */
void osh_direction_row_fill(osh_direction_row *to, const float *w, const float *dq,
                            const bool *live, int64_t I);
/* `rows` is an array [O]. */
osh_status osh_verify_direction(osh_ctx *cx, osh_verify *v, const osh_linear *l,
                                const osh_direction_row *rows, double sparsity);

/* Returns the relative squared error that the manifest records for a module, or a negative number
 * if it records none (verify_manifest.c). */
double osh_verify_recorded(const osh_verify *v, const char *name);


/* verify_cache.c: for a Linear that computes cached keys or values, checks their scales. Also
 * checks the learned bias of the Linear. */
osh_status osh_verify_cache(osh_ctx *cx, osh_verify *v, int linear);
/* Checks a Linear that is not quantized, but has scales of cached keys or values. Its weight must
 * equal that of the source. */
osh_status osh_verify_kept(osh_ctx *cx, osh_verify *v, int linear);


/* verify_pruned.c: checks a pruned Linear whose weight is dense. */
osh_status osh_verify_pruned(osh_ctx *cx, osh_verify *v, int linear);
/* The caller has found that all weights of the Linear are 0, and those of the source are not. If
 * the recipe prunes all weights of the Linear, sets *lost to false. If not, adds a finding and sets
 * *lost to true. */
osh_status osh_verify_lost(osh_ctx *cx, bool *lost, osh_verify *v, const osh_linear *l);
/* Checks the zeros of a pruned weight w. `source`: weight in the source, or NULL. If the pruning
 * method keeps the values that are not 0, these must equal those in `source`. */
osh_status osh_verify_zeros(osh_ctx *cx, osh_verify *v, int linear, const osh_tensor *w,
                            const osh_tensor *source);
#endif
