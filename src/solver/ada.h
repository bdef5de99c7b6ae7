/* ada.h - AdaRound, AdaQuant and AutoRound on one weight: codes that come near the outputs of the layer, by gradients.
 *
 * Of a layer's inputs x in the quantized model and x0 in the original one, over T tokens, all learn from
 *
 *   loss = 1/T sum |w^ x - w x0|^2 - 1/T sum |w x - w x0|^2 = 1/T (tr(E H E^T) - 2 tr(E C^T))     E = w^ - w
 *   H = sum x x^T     C = w S     S = sum (x0 - x) x^T        dloss / dw^ = 2/T (E H - C)
 *
 * the mean squared error of a token's outputs above that of the weight as it was: 0 for w^ = w, and below 0 where w^
 * makes up for errors of the layers before. All tokens are in H and S, so each step sees all of them, and rows of a
 * weight are problems of their own. solver/cpu/ada.c has what learns. */
#ifndef OSH_OPS_ADA_H
#define OSH_OPS_ADA_H
#include "tensor/tensor.h"

typedef enum { OSH_ADA_ROUND, OSH_ADA_QUANT, OSH_ADA_SIGN } osh_ada_kind;

typedef struct osh_ada_rule {
    osh_ada_kind kind;
    int64_t steps;
    double rate;          // of the numbers behind the codes
    double scale_rate;    // of scales, a part of what they are; 0: they stay (not OSH_ADA_ROUND)
    double reg, from, to; // weight of the rounding term, its exponent at first and at last (OSH_ADA_ROUND)
    double warm;          // share of the steps without that term, and before which nothing stops
    int64_t window;       // a block of rows stops where the mean over so many steps falls no more; 0: it does not
    bool selective;       // rows whose loss did not fall stay rounded to nearest
} osh_ada_rule;

typedef struct osh_ada_args {
    osh_ada_rule rule;
    const osh_tensor *w;  // [O, I]
    const float *h;       // [I, I] H, symmetric
    const float *shift;   // [I, I] S; NULL: 0
    double n_tokens;      // T
    int8_t *codes;        // [O, I] whole numbers; in: rounded to nearest
    float *scale;         // [rows of scales, columns of scales]; changed where scale_rate > 0
    float *zero;          // likewise; NULL: 0
    int64_t O, I, group, row_block; // columns, rows that share a scale
    float lo, hi;         // of codes
    osh_dtype dtype;      // of the scales as they are stored
    bool keep_zeros;      // what is 0 in w stays 0
    int64_t period;       // steps between two points of the curve
    double *curve;        // [osh_ada_points] out: loss and, behind the warm start, rounding term before each such step
    double *nearest, *learned; // [O] out: T times the loss of codes in, and out
} osh_ada_args;

typedef struct osh_block_rule { // of learn/block.h
    int64_t steps, samples; // steps 0: none; samples of a step
    int64_t period;         // steps between two points of the curve
    uint64_t seed;          // of what is drawn: --seed
    osh_ada_kind kind;      // of all weights
    bool sum;               // the loss is of a token, not of an element: the sum over its elements
    int64_t window;         // it stops where the mean over so many steps falls no more; 0: it does not
    double warm;            // share of the steps before which it does not
    bool selective;         // where the loss of all samples did not fall all of it stays rounded to nearest
    double bias_rate;       // Adam's, of biases; 0: they stay
    double above, rate;     // where the mean squared error, rounded to nearest, is above that: this rate; 0: not
    double share;           // of elements of what comes in that are the quantized model's; the others the original's
    bool may;               // where it cannot be, each Linear learns alone
} osh_block_rule;

typedef struct osh_ada_watch { // a loss, or a rounding term, step by step; begins as 0
    double sum, last;
    int64_t n;
    bool any;
} osh_ada_watch;
bool osh_ada_is_over(osh_ada_watch *w, double value, int64_t window); // its mean over a window fell no more

/* A vector, a bias say, of which step t of Adam follows its gradient, which is 0 then. Each has n numbers. */
typedef struct osh_ada_vector {
    float *x, *grad, *mean, *square;
    int64_t n;
} osh_ada_vector;
void osh_ada_vector_step(const osh_ada_vector *v, int64_t t, double rate);

int64_t osh_ada_points(int64_t steps, int64_t period);
osh_status osh_ada(osh_ctx *cx, const osh_ada_args *a);
size_t osh_ada_bytes(int64_t O, int64_t I, int64_t group, int64_t points, int n_threads); // scratch

/* One weight whose gradients come from elsewhere (cpu/ada_learn.c). Of the arguments h, shift, curve and what is summed
 * over tokens are not read; w, codes, scale and zero stay while it lives. */
typedef struct osh_ada_learner osh_ada_learner;
osh_status osh_ada_learner_new(osh_ctx *cx, osh_ada_learner **out, const osh_ada_args *a);
void osh_ada_learner_free(osh_ctx *cx, osh_ada_learner *l);
/* The gradient, F32 [O, I], which is 0: what is written there is it. NULL: it is not 0, or lies otherwise. */
osh_tensor *osh_ada_learner_place(osh_ada_learner *l);
bool osh_ada_learner_places(const osh_ada_args *a); // of I: it does not lie otherwise
osh_status osh_ada_learner_add(osh_ctx *cx, osh_ada_learner *l, const osh_tensor *dw); // F32 [O, I], to the gradient
/* Step t (< 0: none) follows the gradient, which is 0 then; `to` [O, I] becomes the weight behind it. */
osh_status osh_ada_learner_step(osh_ctx *cx, osh_ada_learner *l, int64_t t, osh_tensor *to);
/* Codes, scales and zero points of the arguments, and `to`, become what they are in the end. */
osh_status osh_ada_learner_end(osh_ctx *cx, osh_ada_learner *l, osh_tensor *to);
/* `to` becomes the weight as it would be in the end, or rounded to nearest; nothing else changes. */
osh_status osh_ada_learner_show(osh_ctx *cx, osh_ada_learner *l, bool learned, osh_tensor *to);
void osh_ada_learner_rate(osh_ada_learner *l, double rate); // of all steps from here on
double osh_ada_learner_term(const osh_ada_learner *l, int64_t t); // what was added to the loss of step t, before it
size_t osh_ada_learner_bytes(const osh_ada_args *a, int n_threads); // of rule.kind, O, I, group
#endif
