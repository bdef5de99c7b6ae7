/* ada.h - learns the codes of one weight by gradients, with AdaRound, AdaQuant or AutoRound, so
 * that the outputs of the weight are near those of the original layer.
 *
 * The layer's input over T tokens is x in the quantized model and x0 in the original one. All
 * methods minimize
 *
 *   loss = 1/T sum |w^ x - w x0|^2 - 1/T sum |w x - w x0|^2
 *        = 1/T (tr(E H E^T) - 2 tr(E C^T))
 *   dloss / dw^ = 2/T (E H - C)
 *   E = w^ - w
 *   H = sum x x^T
 *   C = w S
 *   S = sum (x0 - x) x^T
 *
 * The loss is the mean squared error of the outputs of w^, minus the mean squared error of the
 * outputs of w. It is 0 for w^ = w, and negative if w^ compensates errors of earlier layers. H and
 * S are sums over all tokens, so each step uses all tokens. The loss is a sum over the rows of the
 * weight, so each row is optimized independently. solver/cpu/ada.c describes the methods. */
#ifndef OSH_OPS_ADA_H
#define OSH_OPS_ADA_H
#include <math.h>

#include "solver/ada_there.h"

typedef struct osh_ada_rule {
    osh_ada_kind kind;
    int64_t steps;
    double rate; // learning rate of v (OSH_ADA_QUANT: of the weight); solver/cpu/ada.c defines v
    /* Learning rate of scales, relative to each scale; 0: scales do not change. OSH_ADA_ROUND does
     * not read this member. */
    double scale_rate;
    /* Only for OSH_ADA_ROUND.
     * reg: factor of the rounding term.
     * from, to: exponent beta of the rounding term. beta is `from` after the warm start, and `to`
     * in the last step. */
    double reg, from, to;
    /* Fraction of all steps that belong to the warm start, which begins with the first step. During
     * the warm start the loss has no rounding term, and learning does not stop early. */
    double warm;
    /* Learning of a block of rows stops early if the mean loss of a window is not below the mean
     * loss of the previous window. A window is this number of consecutive steps. OSH_ADA_ROUND
     * compares the rounding term instead of the loss. 0: learning never stops early. */
    int64_t window;
    /* True: a row is rounded to nearest if learning does not lower the loss of the row. False:
     * every row keeps the learned codes. */
    bool selective;
    /* Only for OSH_ADA_SIGN without zero points. True: scales may be negative (solver/cpu/ada.c).
     * In each group the weight with the largest magnitude then gets the smallest code, so that all
     * codes are used. */
    bool signed_scales;
    /* Only for OSH_ADA_SIGN with float codes. Learning finds a factor b for each group
     * (solver/cpu/ada.c). True: the scale is b times the range of the group, divided by the largest
     * code. False: the scale is b times the given scale. */
    bool whole_range;
} osh_ada_rule;

typedef struct osh_ada_args {
    osh_ada_rule rule;
    const osh_tensor *w;  // [O, I]
    const float *h;       // H = sum of x x^T over the tokens, symmetric, [I, I]
    const float *shift;   // S = sum of (x0 - x) x^T over the tokens, [I, I]; NULL: S is 0
    double n_tokens;      // T, the number of tokens
    /* Codes of scales.grid, [O, I]. Input: the weights rounded to nearest. Output: the learned
     * codes. */
    int8_t *codes;
    /* Scales of the groups, [rows of scales, columns of scales]. osh_ada changes the scales if
     * scale_rate > 0 or signed_scales is true. */
    float *scale;
    float *zero;          // zero points, in the shape of `scale`; NULL: all are 0
    int64_t O, I, group, row_block; // a scale is shared by `group` columns of `row_block` rows
    /* The grid of the codes, and the rule for storing scales. osh_ada does not read the members
     * `symmetric` and `fixed` of the rule. */
    osh_scale_rule scales;
    bool keep_zeros;      // true: a weight that is 0 remains 0; false: its code may change
    int64_t period;       // number of steps from one point of `curve` to the next
    /* Result, [osh_ada_points]: the loss before every period-th step. After the warm start of
     * OSH_ADA_ROUND it includes the rounding term. */
    double *curve;
    /* Results for each row, [O]: the loss times T, the number of tokens.
     * nearest: loss with the codes that were given.
     * learned: loss with the learned codes. */
    double *nearest, *learned;
    /* Result for each row, [O]: true if learning diverged (osh_ada_diverged). Such a row keeps the
     * codes that were given. */
    bool *diverged;
} osh_ada_args;

/* True if the loss of the learned codes shows that the learning rate is too large: the loss is not
 * finite, or it is more than 100 times the loss of rounding to nearest. Both losses may be negative
 * if `shift` is set. */
static inline bool osh_ada_diverged(double learned, double nearest)
{
    return !isfinite(learned) || learned - nearest > 99 * fabs(nearest);
}

/* How the weights of a decoder block are learned together (learn/block.h). */
typedef struct osh_block_rule {
    /* steps: number of steps of learning; 0: the block is not learned.
     * samples: number of samples of one step. */
    int64_t steps, samples;
    int64_t period;         // number of steps from one point of the loss curve to the next
    uint64_t seed;          // seed of all random numbers (--seed)
    osh_ada_kind kind;      // learning method of all weights of the block
    /* How the loss of a token is computed from the squared errors of its elements. true: sum;
     * false: mean. */
    bool sum;
    /* Learning stops early if the mean loss of a window is not below the mean loss of the previous
     * window. A window is this number of consecutive steps. 0: learning never stops early. */
    int64_t window;
    /* Learning does not stop early in the first steps. This is their number, divided by the number
     * of all steps. */
    double warm;
    /* True: the block is rounded to nearest if learning does not lower the loss over all samples.
     * False: the block keeps the learned codes. */
    bool selective;
    double bias_rate;       // Adam's learning rate of biases; 0: biases do not change
    /* rate: learning rate of a block in which the mean squared error of rounding to nearest exceeds
     * `above`. All other blocks use the learning rate of the method. If `rate` is 0, every block
     * uses the learning rate of the method. */
    double above, rate;
    /* Probability that an element of the block's input comes from the quantized model. All other
     * elements come from the original model. */
    double share;
    /* True: if a block cannot be learned as a whole, its Linears are learned one by one. False:
     * such a block is an error. */
    bool may;
} osh_block_rule;

/* Detects when a loss or a rounding term stops falling. The caller sets all members to 0 before the
 * first step. */
typedef struct osh_ada_watch {
    double sum, last;
    int64_t n;
    bool any;
} osh_ada_watch;
/* Adds the loss or the rounding term of one step. Returns true after the last step of a window if
 * the mean of this window is not below the mean of the previous window. `window`: number of steps
 * of a window. */
bool osh_ada_is_over(osh_ada_watch *w, double value, int64_t window);

/* A vector of n numbers that Adam optimizes, for example a bias.
 * x: the numbers.
 * grad: the gradient.
 * mean, square: Adam's moving averages of the gradient and of its square. */
typedef struct osh_ada_vector {
    float *x, *grad, *mean, *square;
    int64_t n;
} osh_ada_vector;
/* Does step number t of Adam (the first step is 0), and then sets the gradient to 0. */
void osh_ada_vector_step(const osh_ada_vector *v, int64_t t, double rate);

/* Returns the number of points of a loss curve with one point for each `period` steps. */
int64_t osh_ada_points(int64_t steps, int64_t period);
/* Optimizes the codes of one weight, as the arguments describe. */
osh_status osh_ada(osh_ctx *cx, const osh_ada_args *a);
/* Returns the number of bytes of scratch that osh_ada needs. */
size_t osh_ada_bytes(int64_t O, int64_t I, int64_t group, int64_t points, int n_threads);

/* Optimizes the codes of one weight with gradients that the caller computes (cpu/ada_learn.c). A
 * learner does not read the arguments h, shift, n_tokens, curve, nearest and learned. w, codes,
 * scale and zero must live as long as the learner. They are in host memory, also if gradients and
 * weights are on a GPU. */
typedef struct osh_ada_learner osh_ada_learner;
/* Makes a learner. d: the device that has the gradients and the current weights in its memory;
 * NULL: host memory. The caller frees *out with osh_ada_learner_free. */
osh_status osh_ada_learner_new(osh_ctx *cx, osh_ada_learner **out, const osh_ada_args *a,
                               osh_device *d);
void osh_ada_learner_free(osh_ctx *cx, osh_ada_learner *l);
/* Returns an F32 tensor [O, I] into which the caller may write the gradient before it passes the
 * tensor to osh_ada_learner_add. Returns NULL if a gradient was already added, or if I is not a
 * multiple of 8. View: lives as long as l. */
osh_tensor *osh_ada_learner_place(osh_ada_learner *l);
/* True if osh_ada_learner_place can return a tensor: I must be a multiple of 8. */
bool osh_ada_learner_places(const osh_ada_args *a);
/* Adds dw, F32 [O, I], to the gradient of the next step. */
osh_status osh_ada_learner_add(osh_ctx *cx, osh_ada_learner *l, const osh_tensor *dw);
/* Does step number t with the gradient, and then sets the gradient to 0. If t is negative, it does
 * no step. Writes the current weight to `to` [O, I]. */
osh_status osh_ada_learner_step(osh_ctx *cx, osh_ada_learner *l, int64_t t, osh_tensor *to);
/* Writes the final codes, scales and zero points to the arrays of the learner's arguments, and the
 * final weight to `to` [O, I]. */
osh_status osh_ada_learner_end(osh_ctx *cx, osh_ada_learner *l, osh_tensor *to);
/* Writes a weight to `to` [O, I]. If `learned` is true, this is the weight that osh_ada_learner_end
 * would write now. If it is false, this is the weight rounded to nearest. Changes neither the
 * learner nor the arrays of the learner's arguments. */
osh_status osh_ada_learner_show(osh_ctx *cx, osh_ada_learner *l, bool learned, osh_tensor *to);
/* Sets the learning rate of all later steps. */
void osh_ada_learner_rate(osh_ada_learner *l, double rate);
/* Returns the rounding term of AdaRound before step t. t must be the last step that the learner
 * did. */
double osh_ada_learner_term(const osh_ada_learner *l, int64_t t);
typedef struct osh_ada_memory { // bytes that a learner needs
    size_t host;   // host bytes as long as the learner exists
    size_t making; // more host bytes, only during osh_ada_learner_new
    size_t device; // bytes in the arena of the device
} osh_ada_memory;
/* Returns the bytes of a learner on a device or on the host. Reads only rule.kind, O, I and group
 * of the arguments. `dtype`: dtype of the weight. */
osh_ada_memory osh_ada_learner_bytes(const osh_ada_args *a, int n_threads, bool on_device,
                                    osh_dtype dtype);
#endif
