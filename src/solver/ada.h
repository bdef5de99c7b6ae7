/* ada.h - learns the codes of one weight by gradients, with AdaRound, AdaQuant or AutoRound, so
 * that the outputs of the weight are near those of the original layer.
 *
 * The layer's input over T tokens is x in the quantized model and x0 in the original one. All
 * methods minimize
 *
 *   loss = 1/T sum |w^ x - w x0|^2 - 1/T sum |w x - w x0|^2 = 1/T (tr(E H E^T) - 2 tr(E C^T))
 *   E = w^ - w    H = sum x x^T    C = w S    S = sum (x0 - x) x^T    dloss / dw^ = 2/T (E H - C)
 *
 * The loss is the mean squared error of the outputs of w^, minus the mean squared error of the
 * outputs of w. It is 0 for w^ = w, and negative if w^ compensates errors of earlier layers. H and
 * S are sums over all tokens, so each step uses all tokens. The loss is a sum over the rows of the
 * weight, so each row is optimized independently. solver/cpu/ada.c describes the methods. */
#ifndef OSH_OPS_ADA_H
#define OSH_OPS_ADA_H
#include <math.h>

#include "solver/gptq_scales.h"

typedef enum { OSH_ADA_ROUND, OSH_ADA_QUANT, OSH_ADA_SIGN } osh_ada_kind;

typedef struct osh_ada_rule {
    osh_ada_kind kind;
    int64_t steps;
    double rate; // learning rate of v, or of the weight for OSH_ADA_QUANT (solver/cpu/ada.c)
    /* Learning rate of scales, relative to each scale; 0: scales do not change. OSH_ADA_ROUND does
     * not read this member. */
    double scale_rate;
    /* Only for OSH_ADA_ROUND.
     * reg: factor of the rounding term.
     * from, to: exponent beta of the rounding term after the warm start, and in the last step. */
    double reg, from, to;
    /* Warm start: fraction of all steps, counted from the first step. In the steps of the warm
     * start there is no rounding term, and learning does not stop. */
    double warm;
    /* Number of steps of a window. Learning of a block of rows stops early when the mean loss of a
     * window is not below that of the previous window. With OSH_ADA_ROUND, the mean rounding term
     * decides instead. 0: learning never stops early. */
    int64_t window;
    /* True: a row is rounded to nearest if learning does not lower its loss. False: every row keeps
     * the learned codes. */
    bool selective;
    /* Only for OSH_ADA_SIGN without zero points. True: scales may be negative. In each group the
     * weight with the largest magnitude then gets the code `lo`, so that all codes are used
     * (solver/cpu/ada.c). */
    bool signed_scales;
    /* Only for OSH_ADA_SIGN with float codes. Learning finds a factor b for each group
     * (solver/cpu/ada.c). True: the scale is b times the range of the group, divided by the largest
     * code. False: the scale is b times the given scale. */
    bool whole_range;
} osh_ada_rule;

typedef struct osh_ada_args {
    osh_ada_rule rule;
    const osh_tensor *w;  // [O, I]
    const float *h;       // H of the formula, symmetric, [I, I]
    const float *shift;   // S of the formula, [I, I]; NULL: S is 0
    double n_tokens;      // T, the number of tokens
    int8_t *codes; // Codes of scales.grid, [O, I]. Input: rounded to nearest. Output: learned.
    /* [rows of scales, columns of scales]. osh_ada changes the scales if scale_rate > 0 or if
     * signed_scales is true. */
    float *scale;
    float *zero;          // shape of `scale`; NULL: zero points are 0
    int64_t O, I, group, row_block; // a scale is shared by `group` columns of `row_block` rows
    /* The grid of the codes, and the rule for storing scales. osh_ada does not read the members
     * symmetric and fixed. */
    osh_scale_rule scales;
    bool keep_zeros;      // true: a weight that is 0 remains 0; false: its code may change
    int64_t period;       // number of steps between two points of `curve`
    /* result: loss before every period-th step, [osh_ada_points]; after the warm start it
     * includes the rounding term */
    double *curve;
    /* Results, [O] each: T times the loss of each row.
     * nearest: loss with the given codes.
     * learned: loss with the learned codes. */
    double *nearest, *learned;
    /* Result, [O]: true if learning of the row diverged (osh_ada_diverged). Such a row keeps the
     * given codes. */
    bool *diverged;
} osh_ada_args;

/* True if a learned loss shows that the learning rate is too large. Such a loss is not finite, or
 * is more than 100 times the loss of rounding to nearest. Losses may be negative if `shift` is
 * set. */
static inline bool osh_ada_diverged(double learned, double nearest)
{
    return !isfinite(learned) || learned - nearest > 99 * fabs(nearest);
}

typedef struct osh_block_rule { // rule for learning a block (learn/block.h)
    /* steps: number of steps, 0: no learning.
     * samples: number of samples of a step. */
    int64_t steps, samples;
    int64_t period;         // number of steps between two points of the curve
    uint64_t seed;          // seed of all random numbers (--seed)
    osh_ada_kind kind;      // learning method of all weights of the block
    /* true: the loss of a token is the sum over its elements; false: it is the mean over its
     * elements */
    bool sum;
    // Number of steps of a window. Learning stops when the mean loss of a window is not below that
    // of the previous window. 0: learning never stops early.
    int64_t window;
    double warm; // fraction of all steps, counted from the first, in which learning does not stop
    /* True: the block is rounded to nearest if learning does not lower the loss over all samples.
     * False: the block keeps the learned codes. */
    bool selective;
    double bias_rate;       // Adam's learning rate of biases; 0: biases do not change
    /* If the error of rounding the block to nearest exceeds `above`, the learning rate is `rate`.
     * In all other cases, and if `above` is 0, the learning rate is that of the method. */
    double above, rate;
    // The input of the block is a mixture: each element comes from the quantized model with the
    // probability `share`, else from the original model.
    double share;
    /* Only used if a block cannot be learned as a whole. True: the Linears of the block are learned
     * one by one. False: such a block is an error. */
    bool may;
} osh_block_rule;

/* Detects when a loss or a rounding term stops falling. The caller sets all members to 0 before the
 * first step. */
typedef struct osh_ada_watch {
    double sum, last;
    int64_t n;
    bool any;
} osh_ada_watch;
/* Adds the loss or rounding term of one step. A window is `window` steps. Returns true after the
 * last step of a window whose mean is not below the mean of the previous window. */
bool osh_ada_is_over(osh_ada_watch *w, double value, int64_t window);

/* A vector that Adam optimizes, for example a bias. Each array has n elements. `x`: values; `grad`:
 * gradient; `mean`, `square`: Adam's moving averages of the gradient and of its square. */
typedef struct osh_ada_vector {
    float *x, *grad, *mean, *square;
    int64_t n;
} osh_ada_vector;
/* Does step number t of Adam, counted from 0, and sets the gradient to 0. */
void osh_ada_vector_step(const osh_ada_vector *v, int64_t t, double rate);

int64_t osh_ada_points(int64_t steps, int64_t period); // returns the number of points of a curve
osh_status osh_ada(osh_ctx *cx, const osh_ada_args *a);
/* Returns the number of bytes of scratch that osh_ada needs. */
size_t osh_ada_bytes(int64_t O, int64_t I, int64_t group, int64_t points, int n_threads);

/* Optimizes the codes of one weight with gradients that the caller computes (cpu/ada_learn.c). The
 * functions of a learner do not read the members h, shift, n_tokens, curve, nearest and learned of
 * the arguments. w, codes, scale and zero must live as long as the learner. */
typedef struct osh_ada_learner osh_ada_learner;
osh_status osh_ada_learner_new(osh_ctx *cx, osh_ada_learner **out, const osh_ada_args *a);
void osh_ada_learner_free(osh_ctx *cx, osh_ada_learner *l);
/* Returns an F32 tensor [O, I] for the gradient. The caller may write the gradient to this tensor,
 * and then passes the tensor to osh_ada_learner_add. Returns NULL if a gradient was already added
 * or if I is not a multiple of 8. View: lives as long as l. */
osh_tensor *osh_ada_learner_place(osh_ada_learner *l);
/* True if osh_ada_learner_place can return a tensor: I is a multiple of 8. */
bool osh_ada_learner_places(const osh_ada_args *a);
/* Adds dw, F32 [O, I], to the gradient. */
osh_status osh_ada_learner_add(osh_ctx *cx, osh_ada_learner *l, const osh_tensor *dw);
/* Does step t: changes the learned numbers according to the gradient, and sets the gradient to 0.
 * If t < 0, does no step. Writes the resulting weight to `to` [O, I]. */
osh_status osh_ada_learner_step(osh_ctx *cx, osh_ada_learner *l, int64_t t, osh_tensor *to);
/* Writes the final codes, scales and zero points to the arrays of the arguments, and the final
 * weight to `to`. */
osh_status osh_ada_learner_end(osh_ctx *cx, osh_ada_learner *l, osh_tensor *to);
/* If `learned` is true, sets `to` to the weight that osh_ada_learner_end would write now. If
 * `learned` is false, sets `to` to the weight rounded to nearest. Changes nothing in the learner or
 * the arguments. */
osh_status osh_ada_learner_show(osh_ctx *cx, osh_ada_learner *l, bool learned, osh_tensor *to);
/* Sets the learning rate of all later steps. */
void osh_ada_learner_rate(osh_ada_learner *l, double rate);
/* Returns AdaRound's rounding term before step t. Step t must be the last step that was done. */
double osh_ada_learner_term(const osh_ada_learner *l, int64_t t);
/* Returns the number of host bytes of a learner. Reads only rule.kind, O, I and group of the
 * arguments. */
size_t osh_ada_learner_bytes(const osh_ada_args *a, int n_threads);
#endif
