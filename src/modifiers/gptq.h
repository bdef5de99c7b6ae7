/* gptq.h - what the files of GPTQModifier share. */
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
    int64_t actorder;     // osh_actorder_arg; this and the next three are read by key(), not by the table
    int64_t scale_search; // osh_scale_search
    osh_refine refine[OSH_GPTQ_REFINES];
    int n_refine;
    osh_tune_rule tune;
} osh_gptq;

enum { OSH_GPTQ_STEPS = 4 };
typedef struct osh_gptq_ladder { // of dampings; gptq_ladder.c
    double share[OSH_GPTQ_STEPS];     // of the mean diagonal; of a damping above 0, in units of it
    const char *says[OSH_GPTQ_STEPS]; // of a module that took this step
    const char *gave_up;
} osh_gptq_ladder;
typedef struct osh_gptq_factor { // of one input and one ordering
    int64_t I;
    int32_t *perm; // own: solving order -> column
    bool *dead;    // own: by column
    float *diag;   // own: of H in solving order, dead columns set, not damped
    osh_device *device; // view: where H lies; NULL: host memory
    const float *u; // view: [I, I] in the place of H; NULL: could not be factored
    const osh_tensor *shift; // view: S of target.h; NULL: the target is the weight itself
    osh_tensor *h;  // own: [I, I] the damped H in file order; NULL: no step behind the column loop wants it
    float *cost;    // own: [I] by column: 1 / U_jj^2; NULL: the search for scales does not want it
    const osh_gptq_ladder *ladder;
    double mean;   // of the diagonal, dead columns set
    int n_damped;  // steps of the ladder above the first
    bool overflow; // the diagonal, damped once, is beyond f32
} osh_gptq_factor;

typedef struct osh_gptq_ranked { float d; int32_t i; } osh_gptq_ranked; // a column while columns are ordered
typedef struct osh_gptq_job { // of one weight
    float *scale, *zero; // own, and the next two
    int32_t *col_scale;
    double *loss;
    double squares[2];
} osh_gptq_job;

int64_t osh_gptq_scale_columns(const osh_q_args *q, int64_t I); // scales of a row

void osh_gptq_factor_deinit(osh_ctx *cx, osh_gptq_factor *f);
/* Of f I is given: perm, dead, diag, mean and ladder, from diag [I] of H by column; dead: what that of a dead column
 * becomes. */
osh_status osh_gptq_order(osh_ctx *cx, osh_gptq_factor *f, const float *diag, bool ordered, const osh_gptq *g,
                          float dead);
/* damped [I] = f->diag + the damping of step n_damped; false: beyond f32, of which a factorization would make zeros. */
bool osh_gptq_damp(float *damped, const osh_gptq_factor *f, const osh_gptq *g);
/* All of f, in the place of h. */
osh_status osh_gptq_make_factor(osh_ctx *cx, osh_gptq_factor *f, osh_tensor *h, bool ordered, const osh_gptq *g,
                                float dead);

/* What a squared error in each column costs when GPTQ solves a weight with Hessian h, which is lost: cost [I], given
 * the diagonal of h, which it stays where h cannot be factored. */
osh_status osh_gptq_costs(osh_ctx *cx, float *cost, const osh_modifier *m, osh_linear_job *jobs, osh_tensor *h,
                          int64_t n_samples);
size_t osh_gptq_costs_bytes(int64_t I, int n_threads);

/* ---- how jobs of one input are put together ---- */

bool osh_gptq_is_original(const osh_gptq *g);
bool osh_gptq_is_ordered(const osh_linear_job *j); // columns by falling diagonal of H
/* A device solves them in one call, as far as a piece goes. */
bool osh_gptq_together(const osh_linear_job *a, const osh_linear_job *b);
bool osh_gptq_is_first(const osh_linear_job *jobs, int k); // none before jobs[k] is solved in one call with it
/* Where the call ends that begins with jobs[from], of those that are solved with jobs[lead]. */
int osh_gptq_piece_end(const osh_linear_job *jobs, int n, int lead, int from);
typedef struct osh_gptq_piece { // those of jobs[from, end) that are solved with jobs[lead]
    int lead, from, end;
} osh_gptq_piece;
typedef struct osh_gptq_part { // a job of a call on a device
    const osh_gptq_factor *f;  // view
    osh_linear_job *j;         // view
} osh_gptq_part;
/* Jobs that osh_gptq_solve_cuda takes together; they are done when it returns. */
osh_status osh_gptq_solve_parts(osh_ctx *cx, const osh_modifier *m, const osh_gptq_part *parts, int n);
void osh_gptq_count_orderings(int count[2], const osh_linear_job *jobs, int n); // jobs without and with one

/* gptq_needs.c: `needs` and `needs_groups` of the modifier (modifier.h). */
size_t osh_gptq_needs(const osh_modifier *m, const osh_linear_job *jobs, int n, int n_threads, size_t *device);
size_t osh_gptq_needs_groups(const osh_modifier *m, const osh_job_group *like, int n, int n_threads, size_t *device);

/* gptq_groups.c: the same of the modifier. */
bool osh_gptq_gathers(const osh_modifier *m, const osh_linear_job *jobs, int n);
osh_status osh_gptq_compress_groups(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups, int n,
                                    int64_t n_samples);
typedef struct osh_gptq_gathered { // groups while their Hessians are factored
    const osh_job_group *groups;   // view [n]
    const osh_modifier *m;         // view
    int n;
    int64_t I, n_samples;
    osh_gptq_factor *f;            // own [n]
    float *diag;                   // own [n, I]: of each Hessian by column; then of those at hand, damped
    int32_t *perm;                 // own [n, I]: of those at hand
    float **h;                     // own [n]: views: of those at hand
    int *which, *failed;           // own [n]: whose these are, and whether it has no factor
} osh_gptq_gathered;

/* ---- gptq_quality.c: better than GPTQ in the same format ---- */

const osh_tune_rule *osh_gptq_tunes(const osh_modifier *m);
/* What the values of codes are rounded to: as the scale, or the quotient of scale and global scale, is. */
osh_dtype osh_gptq_dq_dtype(const osh_linear_job *j);
/* Keys scale_search, refine and tune. */
osh_status osh_gptq_quality_key(osh_ctx *cx, osh_gptq *g, const char *key, const osh_yaml *v, bool *known,
                                const char *what);
osh_status osh_gptq_best(osh_ctx *cx, osh_modifier *m);
const char *osh_gptq_step_name(const osh_modifier *m, int k);
/* f->h from h, symmetric, dead columns set; the diagonal is written when the damping is known. */
osh_status osh_gptq_keep_hessian(osh_ctx *cx, osh_gptq_factor *f, const osh_tensor *h);
/* j->params anew. */
osh_status osh_gptq_search_scales(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f, osh_linear_job *j);
/* The steps of refine on what the column loop left: codes, params and losses of j, and s->scale and zero. */
osh_status osh_gptq_refine_job(osh_ctx *cx, const osh_gptq *g, const osh_gptq_factor *f, osh_gptq_job *s,
                               osh_linear_job *j);
static inline bool osh_gptq_is_plain(const osh_gptq *g) { return !g->scale_search && !g->n_refine; }
/* Host scratch of one job; device: of a job that runs there, and *arena gets what it takes of that. */
size_t osh_gptq_quality_bytes(const osh_gptq *g, const osh_linear_job *j, int n_threads, size_t *arena);
/* Of a factor, beside GPTQ's; device as above. */
size_t osh_gptq_kept_bytes(const osh_gptq *g, int64_t I, size_t *arena);
#endif
