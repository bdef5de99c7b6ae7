/* verify.h - the state of `oneshot verify`, its list of findings, and the functions that check one
 * part of the output each. */
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
    size_t nth;                   // order of the findings of one check
} osh_finding;

typedef struct osh_verify {
    const char *dir;              // view: directory of the output
    const osh_verify_options *opt; // view
    osh_checkpoint *ck; // own: the output, opened as a checkpoint; NULL: it cannot be opened
    /* The manifest without its lists of modules, tensors and folds; NULL: none. */
    cJSON *manifest;              // own
    /* True if the manifest has a tensor with the rule "quantized", "pruned", "changed". */
    bool quantized, pruned, changed;
    /* Maps the name of a module to the error that the manifest records (the bits of a double). */
    osh_map *recorded;            // own
    osh_options plan_options;     // own: strings of the options with which the plan is made again
    osh_plan *plan;               // own: plan made from source and recipe; NULL: no source is given
    osh_globals *globals;         // own: global scales of the plan; NULL: none
    osh_finding *findings;        // own
    size_t n, cap;
    /* Several ranks (opt->ranks) divide the checks. All ranks number the checks in the same way. */
    int64_t item; // number of the check that runs
    bool here;    // true if this rank keeps the findings of this check
    double *load; // own [ranks]: bytes of the checks that each rank has done
    /* n_sums: number of checksums that agree.
     * n_compared: number of tensors equal to the source's.
     * n_modules: number of checked modules. */
    int64_t n_sums, n_compared, n_modules;
} osh_verify;

enum { OSH_VERIFY_TEXT = 400, OSH_VERIFY_MAX = 1000 };
/* Adds a finding if this rank keeps it (v->here). If there are OSH_VERIFY_MAX findings, further
 * findings are only counted. */
osh_status osh_verify_add(osh_ctx *cx, osh_verify *v, const char *where, const char *wanted,
                          const char *found, ...) __attribute__((format(printf, 5, 6)));
/* Adds a finding that describes the failure `rc`, clears the error and returns OSH_OK. Returns rc
 * unchanged if the process itself failed (no memory, or interrupted). */
osh_status osh_verify_failed(osh_ctx *cx, osh_verify *v, osh_status rc, const char *where,
                             const char *wanted);


/* verify_share.c: divides the checks among ranks. osh_verify_next assigns the next check to the
 * rank that has read the fewest bytes so far. osh_verify_next returns true if this rank does the
 * check. `bytes`: cost of the check. osh_verify_alone begins checks that every rank does, because
 * later checks need their results; only rank 0 keeps the findings of these checks. */
bool osh_verify_next(osh_verify *v, int64_t bytes);
void osh_verify_alone(osh_verify *v);
/* Fails on each rank that sees another checkpoint than rank 0. ck NULL: the checkpoint cannot be
 * opened. `what` names the checkpoint in the message. */
osh_status osh_verify_agree(osh_ctx *cx, const osh_verify *v, const char *what,
                            const osh_checkpoint *ck);
/* Sends the checksums of the source that each rank has read to rank 0. */
osh_status osh_verify_gather_sums(osh_ctx *cx, const osh_verify *v);
/* Sends the findings and counts of all ranks to rank 0, in the order of the checks. */
osh_status osh_verify_gather(osh_ctx *cx, osh_verify *v);


/* verify_manifest.c: reads the manifest and the recorded errors of its modules. A missing manifest
 * is a finding. */
osh_status osh_verify_read_manifest(osh_ctx *cx, osh_verify *v);
/* Calls list->item for each item of one list of the manifest ("modules", "tensors" or "folds").
 * Does nothing if the output has no manifest. */
osh_status osh_verify_each(osh_ctx *cx, const osh_verify *v, const osh_json_taken *list,
                           void *user);


/* verify_files.c: checks tensors, checksums, index and files against the manifest. */
osh_status osh_verify_manifest(osh_ctx *cx, osh_verify *v);
/* Checks that the side files equal those of the source. */
osh_status osh_verify_side_files(osh_ctx *cx, osh_verify *v);
/* Finds files that are neither in the manifest nor in the plan. Skips shards, which
 * osh_verify_manifest checks. */
osh_status osh_verify_strangers(osh_ctx *cx, osh_verify *v);

/* verify_config.c: checks the tensors against the quantization_config. */
osh_status osh_verify_config(osh_ctx *cx, osh_verify *v);
/* verify_source.c: makes the plan again, and checks names, shapes, config.json, copies and Linears
 * against the plan and the source. */
osh_status osh_verify_plan(osh_ctx *cx, osh_verify *v);


/* verify_weights.c: checks the codes and scales of a Linear against the weight in the source. */
osh_status osh_verify_linear(osh_ctx *cx, osh_verify *v, int linear);
/* Check a quantized module without its source. osh_verify_params checks the scales and zero points.
 * osh_verify_codes checks the codes [O, I]; the array `shape` has O and I. */
osh_status osh_verify_params(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a,
                             const osh_qparams *p);
osh_status osh_verify_codes(osh_ctx *cx, osh_verify *v, const char *module, const osh_q_args *a,
                            const uint8_t *codes, const int64_t *shape);

/* verify_direction.c: compares a pruned and quantized weight with the source's weight, if the mask
 * depends on calibration data. */
typedef struct osh_direction_row { // sums over the elements of a row with w != 0 and dq != 0
    int64_t n, same;          // number of elements; number of those with equal signs
    double sum, abs;          // sum of sign(w) dq; sum of |w|
    double dot, square;       // sum of w dq; sum of w^2
    double error;             // sum of (dq - w)^2
    double norm;              // sum of w^2 over all live columns
} osh_direction_row;
/* live [I]: true for columns of dq with a value that is not 0. */
void osh_direction_row_fill(osh_direction_row *to, const float *w, const float *dq,
                            const bool *live, int64_t I);
/* rows: [O]. */
osh_status osh_verify_direction(osh_ctx *cx, osh_verify *v, const osh_linear *l,
                                const osh_direction_row *rows, double sparsity);

/* Returns the relative squared error that the manifest records for a module (verify_manifest.c), or
 * a negative number if it records none. */
double osh_verify_recorded(const osh_verify *v, const char *name);


/* verify_cache.c: checks the scales of the cached keys or values that a Linear computes, and the
 * Linear's learned bias. */
osh_status osh_verify_cache(osh_ctx *cx, osh_verify *v, int linear);
/* Checks a Linear that is not quantized, but has scales of cached keys or values: its weight must
 * equal the source's. */
osh_status osh_verify_kept(osh_ctx *cx, osh_verify *v, int linear);


/* verify_pruned.c: checks a pruned Linear whose weight is dense. */
osh_status osh_verify_pruned(osh_ctx *cx, osh_verify *v, int linear);
/* True if the recipe prunes all weights of the Linear. */
bool osh_verify_may_be_zero(const osh_verify *v, const osh_linear *l);
/* Checks the zeros of a pruned weight w. If `source` is not NULL and the pruning method keeps the
 * other values, also checks that these equal the source's. */
osh_status osh_verify_zeros(osh_ctx *cx, osh_verify *v, int linear, const osh_tensor *w,
                            const osh_tensor *source);
#endif
