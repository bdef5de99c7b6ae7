/* gptq.h - declares types and functions that the files of GPTQModifier (gptq*.c) share. This header
 * is only for src/modifiers. */
#ifndef OSH_MODIFIERS_GPTQ_H
#define OSH_MODIFIERS_GPTQ_H
#include "modifiers/modifier.h"
#include "solver/gptq_refine.h"
#include "solver/gptq_solve.h"
#include "solver/tune.h"

typedef enum { ACTORDER_DEFAULT, ACTORDER_NULL, ACTORDER_STATIC, ACTORDER_WEIGHT } osh_actorder_arg;
typedef enum { SEARCH_NONE, SEARCH_MSE, SEARCH_LDL } osh_scale_search;
enum { OSH_GPTQ_REFINES = OSH_LOSSES - 1 };

typedef struct osh_gptq { // arguments of GPTQModifier
    int64_t block_size;
    double dampening_frac;
    char *target;         // own
    /* The table of fields does not describe the members below. The function `key` of the modifier
     * reads their values. */
    int64_t actorder;     // a value of osh_actorder_arg
    int64_t scale_search; // a value of osh_scale_search
    osh_refine refine[OSH_GPTQ_REFINES];
    int n_refine;
    osh_tune_rule tune;
} osh_gptq;

enum { OSH_GPTQ_STEPS = 4 };
/* The dampings that are tried one after the other, until H can be factored (gptq_ladder.c). */
typedef struct osh_gptq_ladder {
    /* share[k]: damping number k, relative to the mean of the diagonal. If dampening_frac is above
     * 0, it is relative to dampening_frac times this mean. */
    double share[OSH_GPTQ_STEPS];
    /* Message for modules whose Hessian could only be factored with damping number k. NULL: no
     * message. */
    const char *says[OSH_GPTQ_STEPS];
    const char *gave_up;
} osh_gptq_ladder;
typedef struct osh_gptq_factor { // the factor U of a Hessian H, for one ordering of columns
    int64_t I;
    int32_t *perm; // own: [I] index of the column that is solved at each position
    bool *dead;    // own: [I] true for each column whose input is always 0 (dead)
    int64_t n_dead; // number of dead columns; if all I columns are dead, u is NULL
    /* [I]: diagonal of H in solving order, without damping. Dead columns have a positive number
     * instead of 0. */
    float *diag;   // own
    osh_device *device; // view: device that has H in its memory; NULL: H is in host memory
    const float *u; // view: U [I, I], which replaces H in memory; NULL: H could not be factored
    /* Matrix S [I, I] of the target W + W S (target.h). NULL: the target is W. */
    const osh_tensor *shift; // view
    /* Own: the damped H [I, I], columns as in the checkpoint, for the steps of `refine`. NULL:
     * there are no such steps. */
    osh_tensor *h;
    float *cost;    // own: [I] 1 / U_jj^2 of each column j, for scale_search ldl; else NULL
    const osh_gptq_ladder *ladder;
    double mean;   // mean of `diag`
    int n_damped;  // index in `ladder` of the damping with which H was factored
    bool overflow; // true if the diagonal exceeds the range of f32 with the first damping
} osh_gptq_factor;

/* A column, for sorting: its index i and its diagonal element d of H. */
typedef struct osh_gptq_ranked { float d; int32_t i; } osh_gptq_ranked;
typedef struct osh_gptq_job { // arrays that the solve of one job needs
    float *scale, *zero; // own
    int32_t *col_scale;  // own
    double *loss;        // own
    double squares[2];
} osh_gptq_job;

/* Returns the number of scales of a row of a weight with I columns. */
int64_t osh_gptq_scale_columns(const osh_q_args *q, int64_t I);

/* Frees the arrays of f. */
void osh_gptq_factor_deinit(osh_ctx *cx, osh_gptq_factor *f);
/* Sets perm, dead, diag, mean and ladder of f; f->I must be set. diag [I]: diagonal of H, columns
 * as in the checkpoint.
 * ordered: true if columns are solved in the order of descending diagonal, false if they are solved
 * in the order of the checkpoint.
 * dead: new diagonal element of each dead column, whose input is always 0. */
osh_status osh_gptq_order(osh_ctx *cx, osh_gptq_factor *f, const float *diag, bool ordered,
                          const osh_gptq *g, float dead);
/* Sets `damped` [I] to f->diag plus damping number f->n_damped. Returns false if the matrix must
 * not be factored: all columns are dead, or an element exceeds the range of f32. (In the second
 * case the factor would be 0.) */
bool osh_gptq_damp(float *damped, const osh_gptq_factor *f, const osh_gptq *g);
/* Computes all members of f from the Hessian h, which is overwritten. osh_gptq_order describes
 * `ordered` and `dead`. */
osh_status osh_gptq_make_factor(osh_ctx *cx, osh_gptq_factor *f, osh_tensor *h, bool ordered,
                                const osh_gptq *g, float dead);

/* For each column, sets `cost` [I] to the increase of GPTQ's loss per squared rounding error. On
 * entry `cost` contains the diagonal of the Hessian h. Overwrites h. If h cannot be factored,
 * `cost` does not change. */
osh_status osh_gptq_costs(osh_ctx *cx, float *cost, const osh_modifier *m, osh_linear_job *jobs,
                          osh_tensor *h, int64_t n_samples);
/* Returns the number of bytes of scratch of osh_gptq_costs. */
size_t osh_gptq_costs_bytes(int64_t I, int n_threads);

/* ---- calls for the jobs of one input ---- */

/* True if the recipe has `target: original`: the solve aims at the outputs of the original
 * weights. */
bool osh_gptq_is_original(const osh_gptq *g);
/* True if the columns of the job are solved in the order of the descending diagonal of H. False if
 * they are solved in the order of the checkpoint. */
bool osh_gptq_is_ordered(const osh_linear_job *j);
/* True if one call on a device can solve both a and b, which have the same input. */
bool osh_gptq_together(const osh_linear_job *a, const osh_linear_job *b);
/* True if none of the jobs before jobs[k] can be solved in one call with jobs[k]
 * (osh_gptq_together). */
bool osh_gptq_is_first(const osh_linear_job *jobs, int k);
/* Returns the end of the range of jobs for the next call on a device. The range begins with job
 * number `from`. The call solves the jobs of the range that can be solved together with jobs[lead]
 * (osh_gptq_together). */
int osh_gptq_piece_end(const osh_linear_job *jobs, int n, int lead, int from);
/* One call on a device. It solves those of the jobs [from, end) that can be solved together with
 * jobs[lead] (osh_gptq_together). */
typedef struct osh_gptq_piece {
    int lead, from, end;
} osh_gptq_piece;
typedef struct osh_gptq_part { // one job of a call on a device
    const osh_gptq_factor *f;  // view
    osh_linear_job *j;         // view
} osh_gptq_part;
/* Solves n jobs in one call on a device. All results are complete when the function returns. */
osh_status osh_gptq_solve_parts(osh_ctx *cx, const osh_modifier *m, const osh_gptq_part *parts,
                                int n);
/* Counts the jobs with each ordering of columns. count[0]: the order of the checkpoint. count[1]:
 * the order of the descending diagonal of H. */
void osh_gptq_count_orderings(int count[2], const osh_linear_job *jobs, int n);

/* The members `needs` and `needs_groups` of GPTQ's osh_solver (kinds.h). gptq_needs.c defines
 * them. */
size_t osh_gptq_needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                      size_t *device);
size_t osh_gptq_needs_groups(const osh_modifier *m, const osh_job_group *like, int n, int n_threads,
                             size_t *device);

/* The members `gathers` and `compress_groups` of GPTQ's osh_solver (kinds.h). gptq_groups.c defines
 * them. */
bool osh_gptq_gathers(const osh_modifier *m, const osh_linear_job *jobs, int n);
osh_status osh_gptq_compress_groups(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups,
                                    int n, int64_t n_samples);
/* Groups of jobs for one call on a device. A group is current if its damped diagonal is in the
 * range of f32. The Hessians of all current groups are factored together. */
typedef struct osh_gptq_gathered {
    const osh_job_group *groups;   // view [n]: the jobs and the Hessian of each group
    const osh_modifier *m;         // view
    int n;
    int64_t I, n_samples;
    osh_gptq_factor *f;            // own [n]: factor of each group
    /* Own [n, I]: diagonal of each Hessian, columns as in the checkpoint. Later it contains the
     * damped diagonals of the current groups, in solving order. */
    float *diag;
    int32_t *perm;                 // own [n, I]: solving order (perm) of each current group
    float **h;                     // own [n]: views of the Hessians of the current groups
    /* Both arrays are own, [n].
     * which: index in `groups` of each current group.
     * failed: not 0 for each current group that could not be factored. */
    int *which, *failed;
} osh_gptq_gathered;

/* ---- keys that lower GPTQ's loss (gptq_quality.c) ---- */

/* Returns the rule of the key `tune`, as a view of m. m must be a GPTQModifier. */
const osh_tune_rule *osh_gptq_tunes(const osh_modifier *m);
/* Reads the keys scale_search, refine and tune of GPTQModifier. Sets *known to false for any other
 * key. */
osh_status osh_gptq_quality_key(osh_ctx *cx, osh_gptq *g, const char *key, const osh_yaml *v,
                                bool *known, const char *what);
/* Sets the options of quality "best". */
osh_status osh_gptq_best(osh_ctx *cx, osh_modifier *m);
/* Returns the name of step k. Step 0 is the column loop, with the name "solve". The later steps are
 * the refine steps. */
const char *osh_gptq_step_name(const osh_modifier *m, int k);
/* Copies the Hessian h to f->h, and makes f->h symmetric. The damping is not known yet. When it is
 * known, keep_factored (gptq_ladder.c) writes the damped diagonal to f->h. */
osh_status osh_gptq_keep_hessian(osh_ctx *cx, osh_gptq_factor *f, const osh_tensor *h);
/* Replaces the scales and zero points in j->params by those that scale_search finds. */
osh_status osh_gptq_search_scales(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f,
                                  osh_linear_job *j);
/* Does the steps of the key `refine` after the column loop. In `j`, changes the codes, params and
 * losses. In `s`, changes the members `scale` and `zero`. */
osh_status osh_gptq_refine_job(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f,
                               osh_gptq_job *s, osh_linear_job *j);
static inline bool osh_gptq_is_plain(const osh_gptq *g) { return !g->scale_search && !g->n_refine; }
/* Returns the number of bytes of scratch in host memory that scale_search and refine need for one
 * job. `arena` is NULL if the job runs on the CPU. For a job on a device, sets *arena to the number
 * of bytes of scratch in the arena of the device. */
size_t osh_gptq_quality_bytes(const osh_gptq *g, const osh_linear_job *j, int n_threads,
                              size_t *arena);
/* With scale_search or refine, a factor needs more memory than in plain GPTQ. Returns the number of
 * these additional bytes in host memory. `arena` is NULL if H is in host memory. For H on a device,
 * sets *arena to the number of additional bytes in the arena of the device. */
size_t osh_gptq_kept_bytes(const osh_gptq *g, int64_t I, size_t *arena);
#endif
