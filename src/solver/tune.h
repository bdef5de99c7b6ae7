/* tune.h - a step of the learner (learn/tune.h): Adam on codes, scales and weights of norms. tune.c has the formula. */
#ifndef OSH_OPS_TUNE_H
#define OSH_OPS_TUNE_H
#include "tensor/tensor.h"

typedef struct osh_tune_rule {
    int64_t steps, rows;    // steps 0: none; rows of the data that each of them takes
    double code_rate, rate; // of codes; of scales and norms, a part of what they are
    bool may;               // it may be left out, or be shorter, where it does not suit the model or takes too long
} osh_tune_rule;

typedef struct osh_tune_step { // what is the same for all weights in one step
    int64_t n;                // 1, 2, 3, ...
    float code_rate, rate;    // of codes; of scales and norms, a part of what they are
} osh_tune_step;

typedef struct osh_tune_codes { // of a weight [O, I]; all own by the caller
    float *v, *mean, *square, *grad; // [O, I]: codes as real numbers, Adam's two means, dL/dw of the step: becomes 0
    float *s0;                       // [O, G]: scales at the start
    float *d, *d_mean, *d_square;    // [O, G]: scales are s0 (1 + d)
    const int8_t *zero;              // [O, G]; NULL: 0
    int64_t O, I, G;                 // I a multiple of G
    float lo, hi;                    // of codes
    osh_tensor *w;                   // [O, I], of the scales' dtype: what codes and scales stand for
} osh_tune_codes;

typedef struct osh_tune_norm { // of a norm's weight [n]
    float *w0, *d, *mean, *square, *grad; // [n]: w + offset = (w0 + offset) (1 + d)
    float offset;                         // that the layer adds to its weight
    int64_t n;
    osh_tensor *w;
} osh_tune_norm;

/* Both leave in w what the numbers stand for from here on; step NULL: nothing moves. */
osh_status osh_tune_codes_step(osh_ctx *cx, const osh_tune_codes *c, const osh_tune_step *step);
osh_status osh_tune_norm_step(osh_ctx *cx, const osh_tune_norm *n, const osh_tune_step *step);
/* The code that v stands for, and the scale as it is stored. */
int8_t osh_tune_code(const osh_tune_codes *c, int64_t at);
float osh_tune_scale(const osh_tune_codes *c, int64_t at);
/* sum += x, element by element; f32, of the same shape. */
osh_status osh_tune_add(osh_ctx *cx, float *sum, const osh_tensor *x);
#endif
