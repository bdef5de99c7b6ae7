/* gptq.h - types and functions for all files of GPTQModifier (gptq*.c). This header is only for
 * src/modifiers. */
#ifndef OSH_MODIFIERS_GPTQ_H
#define OSH_MODIFIERS_GPTQ_H
#include "modifiers/modifier.h"
#include "solver/gptq_refine.h"
#include "solver/gptq_solve.h"
#include "solver/tune.h"

typedef enum { ACTORDER_DEFAULT, ACTORDER_NULL, ACTORDER_STATIC, ACTORDER_WEIGHT } osh_actorder_arg;
typedef enum { SEARCH_NONE, SEARCH_MSE, SEARCH_LDL } osh_scale_search;
enum { OSH_GPTQ_REFINES = OSH_LOSSES - 1 };

typedef struct osh_gptq { // arguments of the modifier
    int64_t block_size;
    double dampening_frac;
    char *target;         // own
    /* A value of osh_actorder_arg. The table of fields does not contain actorder, scale_search,
     * refine and n_refine; the function `key` of the modifier reads them. */
    int64_t actorder;
    int64_t scale_search; // a value of osh_scale_search
    osh_refine refine[OSH_GPTQ_REFINES];
    int n_refine;
    osh_tune_rule tune;
} osh_gptq;

enum { OSH_GPTQ_STEPS = 4 };
typedef struct osh_gptq_ladder { // the dampings that are tried one after the other (gptq_ladder.c)
    /* share[k]: damping number k, divided by the mean of the diagonal. If dampening_frac is above
     * 0, share[k] is also divided by dampening_frac. */
    double share[OSH_GPTQ_STEPS];
    /* Message for modules whose Hessian could be factored with this damping. */
    const char *says[OSH_GPTQ_STEPS];
    const char *gave_up;
} osh_gptq_ladder;
typedef struct osh_gptq_factor { // factor U of one Hessian and one ordering of columns
    int64_t I;
    int32_t *perm; // own: [I] index of the column at each position of the solving order
    bool *dead;    // own: [I] true for dead columns, whose input is always 0
    int64_t n_dead; // number of dead columns; if all I columns are dead, u is NULL
    /* [I]: diagonal of H in solving order, without damping. Dead columns have a positive number
     * instead of 0. */
    float *diag;   // own
    osh_device *device; // view: device of H; NULL: H is in host memory
    const float *u; // view: [I, I] U, in the memory of H; NULL: H could not be factored
    /* [I, I] matrix S of the target W + W S (target.h); NULL: the target is W. */
    const osh_tensor *shift; // view
    /* Own: damped H [I, I], columns as in the checkpoint, for the steps after the column loop.
     * NULL: there are no such steps. */
    osh_tensor *h;
    float *cost;    // own: [I] 1 / U_jj^2 of each column, for scale_search ldl; else NULL
    const osh_gptq_ladder *ladder;
    double mean;   // mean of `diag`
    int n_damped;  // index of the damping in `ladder` that succeeded
    bool overflow; // true if the diagonal plus the first damping exceeds the range of f32
} osh_gptq_factor;

/* The index of a column and its diagonal element of H, for sorting. */
typedef struct osh_gptq_ranked { float d; int32_t i; } osh_gptq_ranked;
typedef struct osh_gptq_job { // arrays that the solve of one weight needs
    float *scale, *zero; // own
    int32_t *col_scale;  // own
    double *loss;        // own
    double squares[2];
} osh_gptq_job;

// returns the number of scales of a row
int64_t osh_gptq_scale_columns(const osh_q_args *q, int64_t I);

void osh_gptq_factor_deinit(osh_ctx *cx, osh_gptq_factor *f);
/* Sets perm, dead, diag, mean and ladder of f. diag [I] is the diagonal of H, with columns as in
 * the checkpoint. f->I must be set. If `ordered` is true, columns are solved in the order of
 * descending diagonal, else in the order of the checkpoint. The diagonal elements of dead columns
 * become `dead`. */
osh_status osh_gptq_order(osh_ctx *cx, osh_gptq_factor *f, const float *diag, bool ordered,
                          const osh_gptq *g, float dead);
/* Sets damped [I] to f->diag plus damping number f->n_damped of f->ladder. Returns false if the
 * matrix is not to be factored: all columns are dead, or an element exceeds the range of f32 (the
 * factor would be 0). */
bool osh_gptq_damp(float *damped, const osh_gptq_factor *f, const osh_gptq *g);
/* Computes all members of f. Overwrites h. `ordered` and `dead` are as in osh_gptq_order. */
osh_status osh_gptq_make_factor(osh_ctx *cx, osh_gptq_factor *f, osh_tensor *h, bool ordered,
                                const osh_gptq *g, float dead);

/* Sets cost [I] of each column to the amount by which GPTQ's loss grows per squared rounding error
 * in the column. Overwrites the Hessian h. On entry `cost` contains the diagonal of h. If h cannot
 * be factored, `cost` does not change. */
osh_status osh_gptq_costs(osh_ctx *cx, float *cost, const osh_modifier *m, osh_linear_job *jobs,
                          osh_tensor *h, int64_t n_samples);
size_t osh_gptq_costs_bytes(int64_t I, int n_threads);

/* ---- calls for the jobs of one input ---- */

bool osh_gptq_is_original(const osh_gptq *g);
/* True if the job's columns are solved in the order of descending diagonal of H; false: in the
 * order of the checkpoint. */
bool osh_gptq_is_ordered(const osh_linear_job *j);
/* True if a device can solve both jobs of one input in one call. */
bool osh_gptq_together(const osh_linear_job *a, const osh_linear_job *b);
/* True if no job before jobs[k] can be solved in one call with jobs[k]. */
bool osh_gptq_is_first(const osh_linear_job *jobs, int k);
/* Divides jobs [from, n) into calls of the device's solver, and returns the end e of the first
 * call. The call solves all jobs of [from, e) that can be solved together with jobs[lead]
 * (osh_gptq_together). */
int osh_gptq_piece_end(const osh_linear_job *jobs, int n, int lead, int from);
/* One call on a device. The call solves all jobs of [from, end) that can be solved together with
 * jobs[lead] (osh_gptq_together). */
typedef struct osh_gptq_piece {
    int lead, from, end;
} osh_gptq_piece;
typedef struct osh_gptq_part { // one job of a call on a device
    const osh_gptq_factor *f;  // view
    osh_linear_job *j;         // view
} osh_gptq_part;
/* Solves n jobs in one call on a device. The jobs are complete when the function
 * returns. */
osh_status osh_gptq_solve_parts(osh_ctx *cx, const osh_modifier *m, const osh_gptq_part *parts,
                                int n);
/* Sets count[0] to the number of jobs whose columns are solved in the order of the checkpoint, and
 * count[1] to the number of jobs whose columns are solved in the order of descending diagonal. */
void osh_gptq_count_orderings(int count[2], const osh_linear_job *jobs, int n);

/* The functions `needs` and `needs_groups` of the modifier (osh_solver of kinds.h), in
 * gptq_needs.c. */
size_t osh_gptq_needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                      size_t *device);
size_t osh_gptq_needs_groups(const osh_modifier *m, const osh_job_group *like, int n, int n_threads,
                             size_t *device);

/* The functions `gathers` and `compress_groups` of the modifier (osh_solver of kinds.h), in
 * gptq_groups.c. */
bool osh_gptq_gathers(const osh_modifier *m, const osh_linear_job *jobs, int n);
osh_status osh_gptq_compress_groups(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups,
                                    int n, int64_t n_samples);
/* Groups of jobs whose Hessians are factored together. A group is called current if its damped
 * diagonal is in the range of f32. */
typedef struct osh_gptq_gathered {
    const osh_job_group *groups;   // view [n]: the groups of jobs
    const osh_modifier *m;         // view
    int n;
    int64_t I, n_samples;
    osh_gptq_factor *f;            // own [n]
    /* Own [n, I]: diagonal of each Hessian, columns as in the checkpoint. Later: the damped
     * diagonals of the current groups. */
    float *diag;
    int32_t *perm;                 // own [n, I]: `perm` of each current group
    float **h;                     // own [n]: views of the Hessians of the current groups
    /* Own, [n] each.
     * `which`: index of each current group in `groups`.
     * `failed`: not 0 if the factorization failed. */
    int *which, *failed;
} osh_gptq_gathered;

/* ---- keys that lower GPTQ's loss (gptq_quality.c) ---- */

const osh_tune_rule *osh_gptq_tunes(const osh_modifier *m);
/* Reads the keys scale_search, refine and tune. Sets *known to false for any other key. */
osh_status osh_gptq_quality_key(osh_ctx *cx, osh_gptq *g, const char *key, const osh_yaml *v,
                                bool *known, const char *what);
osh_status osh_gptq_best(osh_ctx *cx, osh_modifier *m);
const char *osh_gptq_step_name(const osh_modifier *m, int k);
/* Copies h to f->h and makes f->h symmetric. Does not add the damping; keep_factored of
 * gptq_ladder.c writes the damped diagonal when the damping is known. */
osh_status osh_gptq_keep_hessian(osh_ctx *cx, osh_gptq_factor *f, const osh_tensor *h);
/* Replaces j->params by the scales and zero points that scale_search finds. */
osh_status osh_gptq_search_scales(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f,
                                  osh_linear_job *j);
/* Does the steps of the key `refine` after the column loop. Changes codes, params and losses of j,
 * and scale and zero of s. */
osh_status osh_gptq_refine_job(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f,
                               osh_gptq_job *s, osh_linear_job *j);
static inline bool osh_gptq_is_plain(const osh_gptq *g) { return !g->scale_search && !g->n_refine; }
/* Returns the host bytes of scratch that scale_search and refine need for one job. If `arena` is
 * NULL, the job runs on the CPU. Otherwise the job runs on a device, and *arena is set to the bytes
 * that the job needs in the device's arena. */
size_t osh_gptq_quality_bytes(const osh_gptq *g, const osh_linear_job *j, int n_threads,
                              size_t *arena);
/* Returns the host bytes that a factor needs for scale_search and refine, in addition to the bytes
 * of plain GPTQ. If `arena` is NULL, H is in host memory. Otherwise H is on a device, and *arena is
 * set to the bytes in the device's arena. */
size_t osh_gptq_kept_bytes(const osh_gptq *g, int64_t I, size_t *arena);
#endif
