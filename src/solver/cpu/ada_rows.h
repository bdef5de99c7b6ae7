/* ada_rows.h - does the steps of ada.c on one row, eight elements at a time. ada.c has the
 * formulas. A row begins at element `at` of a block's arrays and has n elements, a multiple of
 * eight. */
#ifndef OSH_CPU_ADA_ROWS_H
#define OSH_CPU_ADA_ROWS_H
#include "solver/ada.h"

/* All members are views of the arrays of a block of rows; ld is I, rounded up to a multiple of
 * 8. */
typedef struct osh_ada_room {
    /* Each [rows, ld].
     * w: weight.
     * e: w^ - w.
     * grad: T / 2 dloss / dw^.
     * c: C. */
    float *w, *e, *grad, *c;
    /* Each [rows, ld].
     * x: v, or AdaQuant's weight.
     * mean, square: Adam's moving averages. */
    float *x, *mean, *square;
    /* Each [rows, ld]. base: z plus the largest value of the grid that is at most w / s. soft:
     * sigmoid(v), or dloss / ds in AutoRound. */
    float *base, *soft;
    float *s, *z;             // scale and zero point of each column of one row, [ld]
    /* Each [rows, groups].
     * s0: initial scale.
     * d: change of the scale.
     * d_mean, d_square: Adam's moving averages for d. AutoRound: d is share a, d_mean is share
     * b. */
    float *s0, *d, *d_mean, *d_square;
    float *least, *most;      // for AutoRound: range of each group, [rows, groups]
    float *best_s, *best_z; // for AutoRound: scale and zero point of the best step, [rows, groups]
    double *curve;            // [points]
} osh_ada_room;

typedef struct osh_ada_job {
    const osh_ada_args *a;
    int64_t ld, groups, rows, points;
    float *room;    // own: [threads, floats]
    size_t floats;  // number of floats of `room` per thread
    double *curves; // own: [blocks, points]
} osh_ada_job;

typedef struct osh_ada_row_step { // numbers of one step that are equal for all elements
    /* For step n of Adam:
     * rate: learning rate / (1 - 0.9^n).
     * root_part: 1 / sqrt(1 - 0.999^n). */
    float rate, root_part;
    float by;                         // factor 2 / T of the gradients
    float reg, beta; // reg: factor of the rounding term, 0: there is none; beta: its exponent
    float lo, hi;                     // smallest and largest value of the grid
    /* Near u, the values of a float grid are multiples of a step. The step is the largest power of
     * two <= |u|, times `fraction`, but at least `least`. least 0: the grid has whole numbers. */
    float least, fraction;
    float offset;                     // 1: x is AutoRound's offset v of w / s; 0: x is a weight
    float plain;                      // 1: e becomes w^; 0: e becomes w^ - w
    /* For AutoRound: true if zero points are computed from the ranges, false if there are none. */
    bool has_zero;
} osh_ada_row_step;

/* For AdaRound: computes m->soft and m->e from m->x. */
void osh_ada_soft_error(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);
/* For AdaRound: changes m->x by one step. Returns the sum of 1 - |2 h - 1|^beta, computed before
 * the step. */
double osh_ada_round_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);
/* For AdaQuant and AutoRound: computes m->e from m->x. */
void osh_ada_near_error(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);
/* For AdaQuant: changes m->x by one step. m->grad becomes dloss / dw^ * dw^/ds, computed before the
 * step. */
void osh_ada_quant_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);
/* For AutoRound: changes m->x by one step. m->soft becomes dloss / ds of each element. If
 * t->has_zero is true, m->e becomes dloss / dz. */
void osh_ada_sign_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);

/* ---- ada_moves.c; row r of the block is row `row` + r of the weight ---- */
int64_t osh_ada_scale_at(const osh_ada_job *j, int64_t row, int64_t group);
/* For each column of a row that begins at element `at`: sets m->base to z plus the largest value of
 * the grid that is at most w / s. */
void osh_ada_base(const osh_ada_job *j, const osh_ada_room *m, int64_t at);
/* Returns AdaQuant's current scale of group g in row r. */
float osh_ada_scale_now(const osh_ada_job *j, const osh_ada_room *m, int64_t r, int64_t g);
/* Sets m->s and m->z of each column to the scale and the zero point in row r. */
void osh_ada_spread(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r);
void osh_ada_begin_row(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r);
osh_ada_row_step osh_ada_step_at(const osh_ada_job *j, int64_t t);
void osh_ada_quant_row(const osh_ada_job *j, const osh_ada_room *m, int64_t r,
                       const osh_ada_row_step *s);
void osh_ada_sign_begin(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t n);
/* Replaces the scales of n rows by signed scales if rule.signed_scales is set and zero points are
 * 0. */
void osh_ada_sign_scales(const osh_ada_job *j, const osh_ada_room *m, int64_t n);
/* True if AutoRound can change the scales with which weights are rounded to nearest. */
static inline bool osh_ada_moves_scales(const osh_ada_args *a)
{
    return a->rule.scale_rate > 0 || a->rule.signed_scales;
}
void osh_ada_move_shares(const osh_ada_job *j, const osh_ada_room *m, int64_t r,
                         const osh_ada_row_step *t);
void osh_ada_keep_row(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r);
float osh_ada_last_code(const osh_ada_job *j, const osh_ada_room *m, int64_t r, int64_t i);
#endif
