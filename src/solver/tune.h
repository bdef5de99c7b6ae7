/* tune.h - does one step of Adam on codes, scales and weights of norms. learn/tune.h calls it to
 * optimize the whole model; tune.c has the formulas. */
#ifndef OSH_OPS_TUNE_H
#define OSH_OPS_TUNE_H
#include "tensor/tensor.h"

/* If the tensor w of a weight is on a device, all arrays of osh_tune_codes and osh_tune_norm are in
 * the memory of this device, and the steps run there. */

typedef struct osh_tune_rule {
    /* steps: number of steps of Adam; 0: nothing is tuned.
     * rows: number of samples in a step. */
    int64_t steps, rows;
    /* code_rate: learning rate of codes.
     * rate: learning rate of the scales and of the norms' weights, relative to their values. */
    double code_rate, rate;
    /* If true, each sample is used at most seven times. Tuning may also be skipped: if the model
     * does not support it, if the samples are too few, or if it would take too long. If false, an
     * unsupported model is an error, and all steps are done. */
    bool may;
} osh_tune_rule;

typedef struct osh_tune_step { // parameters of one step of Adam; all weights use the same
    int64_t n;                // number of the step; the first step is 1
    /* code_rate: learning rate of codes.
     * rate: learning rate of the scales and of the norms' weights, relative to their values. */
    float code_rate, rate;
} osh_tune_step;

typedef struct osh_tune_codes { // one quantized weight [O, I]; the caller owns all arrays
    /* Each array is [O, I].
     * v: codes as real numbers.
     * mean, square: Adam's moving averages of `grad` and of its square.
     * grad: gradient of the loss for each weight; a step sets it to 0. */
    float *v, *mean, *square, *grad;
    float *s0;                       // initial scales, [O, G]
    /* Each array is [O, G].
     * d: relative changes of the scales, scale = s0 (1 + d).
     * d_mean, d_square: Adam's moving averages for d. */
    float *d, *d_mean, *d_square;
    const int8_t *zero;              // zero points, [O, G]; NULL: all are 0
    /* The weight is [O, I]. Each row has G scales, and each scale belongs to I / G columns. */
    int64_t O, I, G;
    float lo, hi;                    // smallest and largest code
    osh_tensor *w;                   // the dequantized weight, [O, I], in the dtype of the scales
} osh_tune_codes;

typedef struct osh_tune_norm { // the weight of one norm layer, n numbers
    /* Each [n].
     * w0, d: initial weight and its change: w + offset = (w0 + offset) (1 + d).
     * mean, square: Adam's moving averages of `grad` and of its square.
     * grad: gradient of the loss for each weight. */
    float *w0, *d, *mean, *square, *grad;
    float offset; // the layer multiplies by w + offset (1 for Gemma, 0 for Llama)
    int64_t n;
    osh_tensor *w;
} osh_tune_norm;

/* The learning rates of a step, and two divisors of Adam's averages. */
typedef struct osh_tune_adam {
    float code_rate, rate;
    float mean_part, square_part; // 1 - 0.9^n and 1 - 0.95^n, for step number n
} osh_tune_adam;

/* The next two functions do one step of Adam and write the new weight to the member w. If `step` is
 * NULL, they do no step and only write the weight. */
osh_status osh_tune_codes_step(osh_ctx *cx, const osh_tune_codes *c, const osh_tune_step *step);
osh_status osh_tune_norm_step(osh_ctx *cx, const osh_tune_norm *n, const osh_tune_step *step);
/* osh_tune_code returns the code of element `at` of v. osh_tune_scale returns the scale with index
 * `at`, rounded to the dtype in which scales are stored. Both read arrays in host memory. */
int8_t osh_tune_code(const osh_tune_codes *c, int64_t at);
float osh_tune_scale(const osh_tune_codes *c, int64_t at);
/* Adds x to `sum`, element by element. sum and x are F32 and have the same number of elements. If x
 * is on a device, `sum` is in the memory of this device. */
osh_status osh_tune_add(osh_ctx *cx, float *sum, const osh_tensor *x);
#endif
