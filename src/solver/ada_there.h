/* ada_there.h - does the steps of AdaRound, AdaQuant and AutoRound on a weight in GPU memory.
 * solver/cpu/ada.c has the formulas. A learner (ada.h) with a device uses these functions. */
#ifndef OSH_ADA_THERE_H
#define OSH_ADA_THERE_H
#ifdef __cplusplus
extern "C" {
#endif
#include "solver/gptq_scales.h"
#include "tensor/device.h"

typedef enum { OSH_ADA_ROUND, OSH_ADA_QUANT, OSH_ADA_SIGN } osh_ada_kind;

/* Arrays [O, groups] of a learner, in the order in which they follow each other. */
enum {
    OSH_ADA_S0,     // initial scales
    OSH_ADA_D,      // change d of the scale; in AutoRound: the share named a
    OSH_ADA_MEAN,   // Adam's moving average of the gradient of d; in AutoRound: the share named b
    OSH_ADA_SQUARE, // Adam's moving average of the square of that gradient
    OSH_ADA_LEAST,  // AutoRound: smallest weight of each group
    OSH_ADA_MOST,   // AutoRound: largest weight of each group
    OSH_ADA_BEST_S, // final scales; during the steps of AdaRound, its rounding term of each group
    OSH_ADA_BEST_Z, // initial zero points, later the final ones
    OSH_ADA_N_SMALL
};

typedef struct osh_ada_there { // a weight [O, I] on a GPU; all pointers are views of GPU memory
    osh_ada_kind kind;
    int64_t O, I, group, groups; // a scale is shared by `group` columns of a row
    osh_scale_rule rule;
    /* keep_zeros, signed_scales, whole_range: as in osh_ada_args and osh_ada_rule.
     * has_zero: true if there are zero points. */
    bool keep_zeros, signed_scales, whole_range, has_zero;
    const void *w;    // the original weight [O, I], in the dtype of `to`
    osh_dtype dtype;  // dtype of w and `to`
    /* Each [O, I].
     * x: v, or AdaQuant's weight.
     * grad: gradient of the weight.
     * mean, square: Adam's moving averages of the gradient of x and of its square. */
    float *x, *grad, *mean, *square;
    float *small;     // [OSH_ADA_N_SMALL, O, groups]
    /* True: a step is done before the weight is written. `rate`: its learning rate of x.
     * `share_rate`: its learning rate of the scales or shares; 0: they do not change.
     * root_part, reg, beta: as in osh_ada_row_step. */
    bool step;
    float rate, share_rate, root_part, reg, beta;
    bool last;        // true: the weight is the final one, with the final codes
    double *terms;    // output of a step of AdaRound: rounding term of each row, [O]
    void *to;         // output: the weight after the step, [O, I]
    /* Output: the codes of the weight, [O, I]. The array may overlap `grad` if `step` is false.
     * If `codes` is not NULL, the scales and zero points are written, too, to the arrays
     * OSH_ADA_BEST_S and OSH_ADA_BEST_Z. */
    int8_t *codes;
} osh_ada_there;

/* Does the step, if `step` is true. Then writes the weight, and the codes if `codes` is set. */
osh_status osh_ada_there_run(osh_ctx *cx, osh_device *d, const osh_ada_there *a);
/* Adds x to sum. Both are arrays of n numbers in GPU memory. */
osh_status osh_ada_there_add(osh_ctx *cx, osh_device *d, float *sum, const float *x, int64_t n);

/* Arguments of osh_ada_there_compare: outputs y of a block, and their targets y0. Both have the
 * same shape [rows, width] and dtype. All arrays are in the memory of one device. */
typedef struct osh_ada_compared {
    const osh_tensor *y, *y0;
    double by;        // factor of the gradient
    osh_tensor *dy;   // output: by (y - y0), in F32
    double *sums;     // output: sum of (y - y0)^2 over each row, [rows]
    /* View [rows]: 0 for rows that do not count. Their gradient and their sum are 0. NULL: all rows
     * count. */
    const uint8_t *counted;
} osh_ada_compared;
osh_status osh_ada_there_compare(osh_ctx *cx, const osh_ada_compared *c);

/* Indices of the parts of one allocation in the arena. */
enum {
    OSH_ADA_PART_X,
    OSH_ADA_PART_GRAD,
    OSH_ADA_PART_MEAN,   // empty for AutoRound
    OSH_ADA_PART_SQUARE, // empty for AutoRound
    OSH_ADA_PART_SMALL,
    OSH_ADA_PART_TERMS,
    OSH_ADA_PART_W,
    OSH_ADA_N_PARTS
};
/* Sets at[i] to the offset of part i. Returns the size of the allocation. Reads only kind, O, I,
 * groups and dtype of a. */
size_t osh_ada_there_offsets(size_t at[OSH_ADA_N_PARTS], const osh_ada_there *a);
#ifdef __cplusplus
}
#endif
#endif
