/* gptq.h - the parts of GPTQModifier, which its files share. */
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
    // osh_actorder_arg; key(), not the table, reads this and the next three
    int64_t actorder;
    int64_t scale_search; // a value of osh_scale_search
    osh_refine refine[OSH_GPTQ_REFINES];
    int n_refine;
    osh_tune_rule tune;
} osh_gptq;

enum { OSH_GPTQ_STEPS = 4 };
typedef struct osh_gptq_ladder { // the dampings that are tried (gptq_ladder.c)
    // damping / mean diagonal, divided by dampening_frac if that is above 0
    double share[OSH_GPTQ_STEPS];
    const char *says[OSH_GPTQ_STEPS]; // message for a module that needed this step
    const char *gave_up;
} osh_gptq_ladder;
typedef struct osh_gptq_factor { // factor of one input and one ordering
    int64_t I;
    int32_t *perm; // own: column at each position of the solving order
    bool *dead;    // own: by column: true if dead
    float *diag;   // own: diagonal of H in solving order, with dead columns set, without damping
    osh_device *device; // view: device of H; NULL: host memory
    const float *u; // view: [I, I], stored over H; NULL: H could not be factored
    const osh_tensor *shift; // view: [I, I] matrix S of the target W + W S (target.h); NULL: the
                             // target is W
    // own: [I, I] damped H in file order; NULL: no step after the column loop needs it
    osh_tensor *h;
    float *cost;    // own: [I] 1 / U_jj^2 by column; NULL: the search for scales does not need it
    const osh_gptq_ladder *ladder;
    double mean;   // mean of the diagonal with dead columns set
    int n_damped;  // index of the damping that succeeded; 0: the first
    bool overflow; // the diagonal with the first damping exceeds f32
} osh_gptq_factor;

/* A column and its diagonal element, for sorting. */
typedef struct osh_gptq_ranked { float d; int32_t i; } osh_gptq_ranked;
typedef struct osh_gptq_job { // the solve of one weight
    float *scale, *zero; // own: scale and zero; the next two members are own too
    int32_t *col_scale;
    double *loss;
    double squares[2];
} osh_gptq_job;

int64_t osh_gptq_scale_columns(const osh_q_args *q, int64_t I); // scales of a row

void osh_gptq_factor_deinit(osh_ctx *cx, osh_gptq_factor *f);
/* Sets perm, dead, diag, mean and ladder of f from diag [I], the diagonal of H by column. f->I must
 * be set. The diagonal of dead columns becomes the argument `dead`. */
osh_status osh_gptq_order(osh_ctx *cx, osh_gptq_factor *f, const float *diag, bool ordered,
                          const osh_gptq *g, float dead);
/* Sets damped [I] to f->diag + the damping of step n_damped. Returns false if a value exceeds f32,
 * because the factorization would turn it into zeros. */
bool osh_gptq_damp(float *damped, const osh_gptq_factor *f, const osh_gptq *g);
/* Computes all members of f, overwriting h. */
osh_status osh_gptq_make_factor(osh_ctx *cx, osh_gptq_factor *f, osh_tensor *h, bool ordered,
                                const osh_gptq *g, float dead);

/* Returns the cost [I] of a squared error in each column when GPTQ solves a weight with Hessian h,
 * which is overwritten. On entry `cost` has the diagonal of h, which stays if h cannot be
 * factored. */
osh_status osh_gptq_costs(osh_ctx *cx, float *cost, const osh_modifier *m, osh_linear_job *jobs,
                          osh_tensor *h, int64_t n_samples);
size_t osh_gptq_costs_bytes(int64_t I, int n_threads);

/* ---- the order and the calls in which jobs of one input are solved ---- */

bool osh_gptq_is_original(const osh_gptq *g);
bool osh_gptq_is_ordered(const osh_linear_job *j); // true if the columns are sorted by falling
                                                   // diagonal of H
/* True if a device can solve both jobs in one call. */
bool osh_gptq_together(const osh_linear_job *a, const osh_linear_job *b);
/* True if no earlier job is solved together with jobs[k]. */
bool osh_gptq_is_first(const osh_linear_job *jobs, int k);
/* Returns the end of the call that begins with jobs[from] and solves the jobs that belong together
 * with jobs[lead]. */
int osh_gptq_piece_end(const osh_linear_job *jobs, int n, int lead, int from);
typedef struct osh_gptq_piece { // jobs of [from, end) that are solved together with
                                // jobs[lead]
    int lead, from, end;
} osh_gptq_piece;
typedef struct osh_gptq_part { // a job in a call on a device
    const osh_gptq_factor *f;  // view
    osh_linear_job *j;         // view
} osh_gptq_part;
/* Solves jobs in one call of osh_gptq_solve_cuda. They are complete when it returns. */
osh_status osh_gptq_solve_parts(osh_ctx *cx, const osh_modifier *m, const osh_gptq_part *parts,
                                int n);
/* Counts the jobs without an ordering (count[0]) and with one (count[1]). */
void osh_gptq_count_orderings(int count[2], const osh_linear_job *jobs, int n);

/* gptq_needs.c: the functions `needs` and `needs_groups` of the modifier (modifier.h). */
size_t osh_gptq_needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads,
                      size_t *device);
size_t osh_gptq_needs_groups(const osh_modifier *m, const osh_job_group *like, int n, int n_threads,
                             size_t *device);

/* gptq_groups.c: the functions `gathers` and `compress_groups` of the modifier. */
bool osh_gptq_gathers(const osh_modifier *m, const osh_linear_job *jobs, int n);
osh_status osh_gptq_compress_groups(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups,
                                    int n, int64_t n_samples);
typedef struct osh_gptq_gathered { // groups whose Hessians are being factored
    const osh_job_group *groups;   // view [n]
    const osh_modifier *m;         // view
    int n;
    int64_t I, n_samples;
    osh_gptq_factor *f;            // own [n]
    // own [n, I]: diagonal of each Hessian by column; later the damped diagonals of the current
    // groups
    float *diag;
    int32_t *perm;                 // own [n, I]: orderings of the current groups
    float **h;                     // own [n], of views: Hessians of the current groups
    // own [n]: index of each current group; not 0 if the current group has no factor
    int *which, *failed;
} osh_gptq_gathered;

/* ---- gptq_quality.c: lower losses than GPTQ's in the same format ---- */

const osh_tune_rule *osh_gptq_tunes(const osh_modifier *m);
/* Returns the dtype to which the values of codes are rounded: that of the scale, or of the quotient
 * of scale and global scale. */
osh_dtype osh_gptq_dq_dtype(const osh_linear_job *j);
/* Reads the keys scale_search, refine and tune. */
osh_status osh_gptq_quality_key(osh_ctx *cx, osh_gptq *g, const char *key, const osh_yaml *v,
                                bool *known, const char *what);
osh_status osh_gptq_best(osh_ctx *cx, osh_modifier *m);
const char *osh_gptq_step_name(const osh_modifier *m, int k);
/* Copies h to f->h, makes it symmetric, and sets dead columns. The diagonal is written later, when
 * the damping is known. */
osh_status osh_gptq_keep_hessian(osh_ctx *cx, osh_gptq_factor *f, const osh_tensor *h);
/* Replaces j->params by searched scales. */
osh_status osh_gptq_search_scales(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f,
                                  osh_linear_job *j);
/* Does the steps of refine on the result of the column loop: changes codes, params and losses of j,
 * and scale and zero of s. */
osh_status osh_gptq_refine_job(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f,
                               osh_gptq_job *s, osh_linear_job *j);
static inline bool osh_gptq_is_plain(const osh_gptq *g) { return !g->scale_search && !g->n_refine; }
/* Returns the host scratch of one job. If `arena` is not NULL, the job is on a device and *arena
 * gets the bytes of its arena. */
size_t osh_gptq_quality_bytes(const osh_gptq *g, const osh_linear_job *j, int n_threads,
                              size_t *arena);
/* Returns the host bytes that a factor needs in addition to plain GPTQ. `arena` is as above. */
size_t osh_gptq_kept_bytes(const osh_gptq *g, int64_t I, size_t *arena);
#endif
