/* arith.h - computes scales, zero points and codes of weights, and observes activations
 * (compressed_tensors/quantization/utils/helpers.py, lifecycle/forward_helpers.py). The default
 * arithmetic is that of compressed-tensors on a CPU: each step is rounded to the weight's dtype.
 * OSH_ARITH_F32 is more accurate. */
#ifndef OSH_ARITH_H
#define OSH_ARITH_H
#include "ops/stat.h"
#include "quant/scheme.h"

typedef enum { OSH_ARITH_REFERENCE, OSH_ARITH_F32 } osh_arithmetic;

typedef struct osh_qparams {
    /* Scales [rows, cols] in the weight's dtype. Strategy tensor: [1]. Strategy tensor_group: in
     * FP8. */
    osh_tensor *scale; // own
    osh_tensor *zero;  // own: zero points, I8, in the shape of `scale`; NULL: all are 0
    /* Global scale of strategy tensor_group, by which each scale is divided. 0 for other
     * strategies. */
    float global;
    /* Input, view [I]: factor of the errors of each input channel in a search for ranges. NULL:
     * all factors are 1. */
    const float *importance;
} osh_qparams;
/* Frees the scales and the zero points. p may be NULL. */
void osh_qparams_deinit(osh_ctx *cx, osh_qparams *p);
typedef struct osh_q_shape {
    int ndim; // number of dimensions, 1 or 2
    int64_t dim[2];
} osh_q_shape;
/* Computes the shape of the scales of w [O, I]. Fails if I is not a multiple of the group size;
 * `what` names the module in the message. */
osh_status osh_q_scale_shape(osh_ctx *cx, osh_q_shape *shape, const osh_q_args *a, int64_t O,
                             int64_t I, const char *what);

typedef struct osh_q_scaling { // how ranges are converted to scales
    const osh_q_args *args; // view
    osh_dtype dt;           // dtype of the scales and of the ranges
    osh_arithmetic ar;
} osh_q_scaling;
/* Converts n ranges [min, max] to n scales and zero points. The ranges are in the weight's dtype.
 * `zp` may be NULL. */
void osh_q_scale_zp(void *scale, int8_t *zp, const float *min, const float *max, int64_t n,
                    const osh_q_scaling *how);
/* Returns scale number i as F32. With strategy tensor_group, divides it by p->global. */
float osh_q_scale_value(const osh_qparams *p, int64_t i);
/* Sets scale number i to `value`, rounded to the dtype of the scales. */
void osh_q_scale_put(osh_qparams *p, int64_t i, float value);
/* Returns the global scale for values whose largest magnitude is amax. It is rnd(rnd(1 / amax) *
 * 448 * 6), or 1 if this number is not finite. rnd rounds to dt. With this global scale, the
 * largest scale of a group is near the largest FP8 number. Source: generate_gparam. */
float osh_q_global_scale(float amax, osh_dtype dt);
/* Finds the ranges of w [O, I] with the observer of `a`, and allocates and sets p->scale and
 * p->zero. With strategy tensor_group, p->global is an input; if it is 0, the function sets it to
 * the global scale of w. */
osh_status osh_q_weight_params(osh_ctx *cx, osh_qparams *p, const osh_tensor *w,
                               const osh_q_args *a, osh_arithmetic ar, const char *what);
/* Works like osh_q_weight_params for a weight w [O, I] in F32. Scales and ranges are rounded to
 * how->dt. */
osh_status osh_q_target_params(osh_ctx *cx, osh_qparams *p, const osh_tensor *w,
                               const osh_q_scaling *how, const char *what);
/* For strategy tensor_group: sets *amax to the largest magnitude in the ranges that the observer of
 * `a` finds in w. w may be a part of a weight if it consists of whole groups. */
osh_status osh_q_weight_amax(osh_ctx *cx, float *amax, const osh_tensor *w, const osh_q_args *a,
                             const char *what);
/* Rounds w [O, I] to codes. A code is w / scale + zp, clamped and rounded, ties to even. It has one
 * byte: an I8, the bits of an FP8 number, or the bits of an FP6 or FP4 number in the low 6 or 4
 * bits. The codes are equal to those that compressed-tensors computes on a CPU. */
osh_status osh_q_encode(osh_ctx *cx, void *codes, const osh_tensor *w, const osh_qparams *p,
                        const osh_q_args *a, osh_arithmetic ar);
/* Decodes codes to w = (code - zp) * scale. Each step is rounded to the dtype of the scale, which
 * is the dtype of w. */
osh_status osh_q_decode(osh_ctx *cx, osh_tensor *w, const void *codes, const osh_qparams *p,
                        const osh_q_args *a);
/* The codes of a weight [O, I], and the scales and arguments with which they are decoded. All
 * pointers are views. */
typedef struct osh_q_coded {
    const void *codes;
    const osh_qparams *params;
    const osh_q_args *args;
    int64_t O, I;
} osh_q_coded;
/* Decodes rows [first, first + n) to `to` [n, I] of dtype dt, on the calling thread. */
void osh_q_decode_rows(void *to, osh_dtype dt, const osh_q_coded *w, int64_t first, int64_t n);

/* Computes sum[0] = |a - b|^2 and sum[1] = |a|^2 in double. a and b are rows of n elements of dtype
 * dt. The result is the same on every machine. */
void osh_q_row_error(double sum[2], const void *a, const void *b, osh_dtype dt, int64_t n);

/* State of an observer, which finds the range of one static activation. It observes the samples one
 * by one, in order. */
typedef struct osh_act_observer {
    bool seen;
    float min, max;
    /* Histogram of all observed values. NULL: the observer uses no histogram, or observed no sample
     * yet. */
    struct osh_histogram *counts; // own
    /* Loss of each candidate range, summed over the samples of the second pass (osh_stat_sums
     * [candidates]). */
    osh_stat *losses;             // own
} osh_act_observer;
/* A calibration sample: its index, and the groups into which all samples are divided. */
typedef struct osh_act_sample {
    osh_groups groups;
    int64_t sample;
} osh_act_sample;
/* Observes one sample x [tokens, heads * head_dim]. `o` [heads]: one observer for each head. */
osh_status osh_act_observe(osh_ctx *cx, osh_act_observer *o, int64_t heads, const osh_tensor *x,
                           const osh_q_args *a);
/* Does the first of the two steps of osh_act_observe. Sets `range` [2, heads] to the smallest value
 * of each head, followed by the largest value of each head. If the observer uses a histogram, also
 * counts all values. The second step is to call osh_act_observer_feed for each head. The caller
 * must pass the samples in order. */
osh_status osh_act_observe_range(osh_ctx *cx, float *range, osh_act_observer *o, int64_t heads,
                                 const osh_tensor *x, const osh_q_args *a);
/* Observes a sample for the second time, after the first pass over all samples. osh_observer_twice
 * must be true for the observer. `at`: index of the sample, and the groups of samples; NULL: all
 * samples are one group. */
osh_status osh_act_observe_again(osh_ctx *cx, osh_act_observer *o, int64_t heads,
                                 const osh_tensor *x, const osh_q_args *a,
                                 const osh_act_sample *at);
/* Ends the second pass over the samples: merges the losses of the last group. */
osh_status osh_act_observer_finish(osh_ctx *cx, osh_act_observer *o);
/* Sets [*lo, *hi] to the range that the observer chooses from all observed samples, rounded to
 * dt. */
void osh_act_observed(float *lo, float *hi, const osh_act_observer *o, const osh_q_args *a,
                      osh_dtype dt);
/* Frees the losses and the histogram of the observer. */
void osh_act_observer_deinit(osh_ctx *cx, osh_act_observer *o);
/* Returns how many host bytes the observer of one head needs. */
size_t osh_act_observer_bytes(const osh_q_args *a, const osh_groups *groups);
/* Returns the number of bytes of scratch that osh_act_observe or osh_act_observe_again allocates
 * for one sample. */
size_t osh_act_observe_bytes(const osh_q_args *a, int64_t tokens, int64_t width, int64_t heads,
                             osh_dtype dt);
/* Adds the range [lo, hi] of one head of a sample to the observer of this head. */
void osh_act_observer_feed(osh_act_observer *o, const osh_q_args *a, float lo, float hi,
                           osh_dtype dt);
/* Fake-quantizes activations x [N, I] in place: rounds each value to a code and decodes it.
 * Dynamic: computes a scale for each token or group. With strategy `tensor`, x is one sample and
 * gets one scale.
 * Static: uses the stored scale.
 * Local: uses the stored global scale, and computes the scales of groups. */
osh_status osh_q_fake_quant_act(osh_ctx *cx, osh_tensor *x, const osh_q_args *a,
                                const osh_tensor *scale, const osh_tensor *zero);
#endif
