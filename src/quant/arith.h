/* arith.h - computes scales, zero points and codes of weights, and observes activations
 * (compressed_tensors/quantization/utils/helpers.py, lifecycle/forward_helpers.py). The default
 * arithmetic is the reference's on a CPU: each step is rounded to the weight's dtype. OSH_ARITH_F32
 * is more accurate. */
#ifndef OSH_ARITH_H
#define OSH_ARITH_H
#include "ops/stat.h"
#include "quant/scheme.h"

typedef enum { OSH_ARITH_REFERENCE, OSH_ARITH_F32 } osh_arithmetic;

typedef struct osh_qparams {
    /* Scales [rows, cols], or [1] for strategy tensor, in the weight's dtype, or FP8 for strategy
     * tensor_group. */
    osh_tensor *scale; // own
    osh_tensor *zero;  // own: zero points, I8, shape of `scale`; NULL: symmetric
    /* global scale of strategy tensor_group: a code is decoded as code * scale / global; other
     * strategies: 0. */
    float global;
    /* Input, view [I]: importance of the input channels in the search for ranges. NULL: all are
     * equally important. */
    const float *importance;
} osh_qparams;
void osh_qparams_deinit(osh_ctx *cx, osh_qparams *p);
typedef struct osh_q_shape {
    int ndim; // 1 or 2
    int64_t dim[2];
} osh_q_shape;
/* Computes the shape of the scale of w [O, I]. Fails if I is not a multiple of the group size;
 * `what` names the module in the message. */
osh_status osh_q_scale_shape(osh_ctx *cx, osh_q_shape *shape, const osh_q_args *a, int64_t O,
                             int64_t I, const char *what);

typedef struct osh_q_scaling { // arguments of the conversion of ranges to scales
    const osh_q_args *args; // view
    osh_dtype dt;           // dtype of the scales and of the ranges
    osh_arithmetic ar;
} osh_q_scaling;
/* Converts n ranges (min, max) in the weight's dtype to scales and zero points. `zp` may be
 * NULL. */
void osh_q_scale_zp(void *scale, int8_t *zp, const float *min, const float *max, int64_t n,
                    const osh_q_scaling *how);
/* Returns scale i as F32, divided by `global` if the strategy is tensor_group. */
float osh_q_scale_value(const osh_qparams *p, int64_t i);
/* Sets scale i to `value`, rounded to the dtype of the scales. */
void osh_q_scale_put(osh_qparams *p, int64_t i, float value);
/* Returns the global scale of values whose largest magnitude is amax: rnd(rnd(1 / amax) * 448 * 6)
 * in dt, so that the largest scale of a group is near the largest FP8 number. Returns 1 if the
 * result is not finite. Source: generate_gparam. */
float osh_q_global_scale(float amax, osh_dtype dt);
/* Finds the ranges of w [O, I] with the observer of `a`. Allocates and sets p->scale and p->zero.
 * With strategy tensor_group p->global is an input. If p->global is 0, the function sets it to the
 * global scale of w. */
osh_status osh_q_weight_params(osh_ctx *cx, osh_qparams *p, const osh_tensor *w,
                               const osh_q_args *a, osh_arithmetic ar, const char *what);
/* Works like osh_q_weight_params for a weight w [O, I] in F32. Scales and ranges are rounded to
 * how->dt. */
osh_status osh_q_target_params(osh_ctx *cx, osh_qparams *p, const osh_tensor *w,
                               const osh_q_scaling *how, const char *what);
/* Only for strategy tensor_group. Sets *amax to the largest magnitude of the ranges that the
 * observer of `a` finds in w. w may also be a part of a weight that consists of whole groups. */
osh_status osh_q_weight_amax(osh_ctx *cx, float *amax, const osh_tensor *w, const osh_q_args *a,
                             const char *what);
/* Rounds w to codes: I8 [O, I] (int), FP8 bytes, or FP4 in the low 4 bits of a byte. A code is w /
 * scale + zp, clamped and rounded, ties to even. The codes are equal to those that
 * compressed-tensors computes on a CPU. */
osh_status osh_q_encode(osh_ctx *cx, void *codes, const osh_tensor *w, const osh_qparams *p,
                        const osh_q_args *a, osh_arithmetic ar);
/* Decodes codes: w (dtype of scale) = (code - zp) * scale. Each step is rounded to the scale's
 * dtype. */
osh_status osh_q_decode(osh_ctx *cx, osh_tensor *w, const void *codes, const osh_qparams *p,
                        const osh_q_args *a);
typedef struct osh_q_coded { // the codes of a weight [O, I]; all pointers are views
    const void *codes;
    const osh_qparams *params;
    const osh_q_args *args;
    int64_t O, I;
} osh_q_coded;
/* Decodes rows [first, first + n) to `to` [n, I] of dtype dt, on the calling thread. */
void osh_q_decode_rows(void *to, osh_dtype dt, const osh_q_coded *w, int64_t first, int64_t n);

/* Computes sum[0] = |a - b|^2 and sum[1] = |a|^2 of a row of n elements of dtype dt, in double. The
 * result is the same on every machine. */
void osh_q_row_error(double sum[2], const void *a, const void *b, osh_dtype dt, int64_t n);

/* State of an observer that finds the range of a static activation. Samples are observed one by
 * one, in order. */
typedef struct osh_act_observer {
    bool seen;
    float min, max;
    /* Histogram of all values; NULL: the observer makes no histogram, or no sample was observed. */
    struct osh_histogram *counts; // own
    /* Loss of each candidate range, summed over the samples in the second pass (osh_stat_sums
     * [candidates]). */
    osh_stat *losses;             // own
} osh_act_observer;
/* A sample: its index, and the groups into which all samples are divided. */
typedef struct osh_act_sample {
    osh_groups groups;
    int64_t sample;
} osh_act_sample;
/* Observes one sample x [tokens, heads * head_dim]. `o` [heads]: one observer for each head. */
osh_status osh_act_observe(osh_ctx *cx, osh_act_observer *o, int64_t heads, const osh_tensor *x,
                           const osh_q_args *a);
/* First of the two steps of osh_act_observe. Sets range [2, heads] to the smallest value of each
 * head, followed by the largest value of each head. If the observer has a histogram, adds all
 * values to the histogram. The second step is osh_act_observer_feed for each head. The caller must
 * pass the samples in their order. */
osh_status osh_act_observe_range(osh_ctx *cx, float *range, osh_act_observer *o, int64_t heads,
                                 const osh_tensor *x, const osh_q_args *a);
/* Observes a sample in the second pass, after all samples have been observed once. The caller must
 * check that osh_observer_twice is true for the observer. `at` has the index and the groups of the
 * sample; if it is NULL, all samples are one group. */
osh_status osh_act_observe_again(osh_ctx *cx, osh_act_observer *o, int64_t heads,
                                 const osh_tensor *x, const osh_q_args *a,
                                 const osh_act_sample *at);
/* Ends the second pass over the samples: merges the losses of the last group. */
osh_status osh_act_observer_finish(osh_ctx *cx, osh_act_observer *o);
/* Sets [*lo, *hi] to the range that the observer chooses for all samples, rounded to dt. */
void osh_act_observed(float *lo, float *hi, const osh_act_observer *o, const osh_q_args *a,
                      osh_dtype dt);
void osh_act_observer_deinit(osh_ctx *cx, osh_act_observer *o);
/* Returns the number of host bytes of the observer state of one head. */
size_t osh_act_observer_bytes(const osh_q_args *a, const osh_groups *groups);
/* Returns the number of bytes of scratch that osh_act_observe and osh_act_observe_again allocate
 * for a sample. */
size_t osh_act_observe_bytes(const osh_q_args *a, int64_t tokens, int64_t width, int64_t heads,
                             osh_dtype dt);
/* Adds the range [lo, hi] of one sample to the observer of one head. */
void osh_act_observer_feed(osh_act_observer *o, const osh_q_args *a, float lo, float hi,
                           osh_dtype dt);
/* Fake-quantizes activations x [N, I] in place. Dynamic: computes a scale for each token, for each
 * group, or for the whole `x`, which must then be one sample. Static: uses the stored scale. Local:
 * uses the stored global scale and computes the scales of groups. */
osh_status osh_q_fake_quant_act(osh_ctx *cx, osh_tensor *x, const osh_q_args *a,
                                const osh_tensor *scale, const osh_tensor *zero);
#endif
