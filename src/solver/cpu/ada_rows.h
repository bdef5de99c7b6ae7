/* ada_rows.h - does the steps of AdaRound, AdaQuant and AutoRound on one row, eight elements at a
 * time. ada.c has the formulas. A row begins at element `at` of the arrays of osh_ada_room. It has
 * n elements, a multiple of eight. */
#ifndef OSH_CPU_ADA_ROWS_H
#define OSH_CPU_ADA_ROWS_H
#include "solver/ada.h"

/* The numbers of a block of rows. All members are views. ld is I, rounded up to a multiple of 8. */
typedef struct osh_ada_room {
    /* The arrays are [rows, ld].
     * w: weight.
     * e: w^ - w.
     * grad: gradient of the loss for w^, times half the number of tokens.
     * c: C of solver/ada.h. */
    float *w, *e, *grad, *c;
    /* The arrays are [rows, ld].
     * x: v of AdaRound and AutoRound, or AdaQuant's weight.
     * mean, square: Adam's moving averages of the gradient of x and of its square. */
    float *x, *mean, *square;
    /* Arrays [rows, ld].
     * base: zero point plus the largest value of the grid that is at most w / s.
     * soft: sigmoid(v) in AdaRound, dloss / ds in AutoRound. */
    float *base, *soft;
    float *s, *z;             // scale and zero point of each column of the current row, [ld]
    /* Arrays [rows, groups].
     * s0: initial scale.
     * d: change of the scale. In AutoRound: the share `a`.
     * d_mean: Adam's moving average of the gradient of d. In AutoRound: the share `b`.
     * d_square: Adam's moving average of the square of that gradient. */
    float *s0, *d, *d_mean, *d_square;
    /* For AutoRound: smallest and largest weight of each group, [rows, groups]. */
    float *least, *most;
    /* For AutoRound: scale and zero point of each group in the step with the lowest loss, [rows,
     * groups]. */
    float *best_s, *best_z;
    double *curve;            // [points]
} osh_ada_room;

typedef struct osh_ada_job {
    const osh_ada_args *a;
    int64_t ld, groups, rows, points;
    float *room;    // own: [threads, floats]
    size_t floats;  // number of floats that each thread has in `room`
    double *curves; // own: [blocks, points]
} osh_ada_job;

typedef struct osh_ada_row_step { // numbers of one step of learning, equal for all elements
    /* For step n of Adam:
     * rate: learning rate / (1 - 0.9^n).
     * root_part: 1 / sqrt(1 - 0.999^n). */
    float rate, root_part;
    float by;                         // factor of the gradients: 2 / number of tokens
    /* Factor and exponent of AdaRound's rounding term. reg = 0: there is no rounding term. */
    float reg, beta;
    float lo, hi;                     // smallest and largest value of the grid
    /* Near u, the values of a float grid are multiples of a step. The step is `fraction` times the
     * largest power of two <= |u|, but at least `least`. `least` is 0 if the grid consists of whole
     * numbers. */
    float least, fraction;
    float offset;                     // 1: x is AutoRound's offset v of w / s; 0: x is a weight
    float plain;                      // 1: osh_ada_room.e becomes w^; 0: it becomes w^ - w
    /* For AutoRound. True: zero points are computed from the ranges of groups. False: there are no
     * zero points. */
    bool has_zero;
} osh_ada_row_step;

/* For AdaRound: computes m->soft and m->e from m->x. */
void osh_ada_soft_error(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);
/* For AdaRound: changes m->x by one step. Returns the sum of 1 - |2 h - 1|^beta over the row,
 * computed before the step. */
double osh_ada_round_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);
/* For AdaQuant and AutoRound: computes m->e from m->x. */
void osh_ada_near_error(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);
/* For AdaQuant: changes m->x by one step. Sets m->grad to dloss / ds of each element, computed
 * before the step. */
void osh_ada_quant_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);
/* For AutoRound: changes m->x by one step. Sets m->soft to dloss / ds of each element. If
 * t->has_zero is true, sets m->e to dloss / dz of each element. */
void osh_ada_sign_step(const osh_ada_room *m, int64_t at, int64_t n, const osh_ada_row_step *t);

/* ---- ada_moves.c; row r of the block is row `row` + r of the weight ---- */
/* Returns the index of the scale of a group in a row of the weight. */
int64_t osh_ada_scale_at(const osh_ada_job *j, int64_t row, int64_t group);
/* For the row that begins at element `at`: sets m->base of each column to the zero point plus the
 * largest value of the grid that is at most w / s. */
void osh_ada_base(const osh_ada_job *j, const osh_ada_room *m, int64_t at);
/* Returns AdaQuant's current scale of group g in row r. */
float osh_ada_scale_now(const osh_ada_job *j, const osh_ada_room *m, int64_t r, int64_t g);
/* Sets m->s and m->z to the scale and the zero point of each column of row r. */
void osh_ada_spread(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r);
/* Initializes the learned numbers of row r. The caller has set m->w and m->s0. */
void osh_ada_begin_row(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r);
/* Returns the osh_ada_row_step of step number t. The first step is 0. */
osh_ada_row_step osh_ada_step_at(const osh_ada_job *j, int64_t t);
/* For AdaQuant: does one step of the weights of row r. If scales are learned, also does one step of
 * the row's scales. */
void osh_ada_quant_row(const osh_ada_job *j, const osh_ada_room *m, int64_t r,
                       const osh_ada_row_step *s);
/* For AutoRound: sets the shares of n rows to 1, and computes the range of each group. */
void osh_ada_sign_begin(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t n);
/* Replaces the scales of n rows by signed scales. Does nothing if rule.signed_scales is false or if
 * there are zero points. */
void osh_ada_sign_scales(const osh_ada_job *j, const osh_ada_room *m, int64_t n);
/* True if AutoRound learns scales. The initial scales are those of rounding to nearest. */
static inline bool osh_ada_moves_scales(const osh_ada_args *a)
{
    return a->rule.scale_rate > 0 || a->rule.signed_scales;
}
/* For AutoRound: returns the learning rate of the shares in a step. */
static inline float osh_ada_share_rate(const osh_ada_args *a, const osh_ada_row_step *t)
{
    return (float)(t->rate / a->rule.rate * a->rule.scale_rate);
}
/* For AutoRound: does a step of the shares of row r. It depends on the signs of the gradients. */
void osh_ada_move_shares(const osh_ada_job *j, const osh_ada_room *m, int64_t r,
                         const osh_ada_row_step *t);
/* Stores the codes and scales of row r, whose loss is lower than in all earlier steps. */
void osh_ada_keep_row(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r);
/* For AdaRound and AdaQuant: returns the final code of column i of row r, as a value of the
 * grid. */
float osh_ada_last_code(const osh_ada_job *j, const osh_ada_room *m, int64_t r, int64_t i);
#endif
