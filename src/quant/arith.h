/* arith.h - scales, zero points, codes (compressed_tensors/quantization/utils/helpers.py,
 * lifecycle/forward_helpers.py). Default arithmetic is the reference's on a CPU: each step rounded to the weight's
 * dtype; f32 is the more accurate one. */
#ifndef OSH_ARITH_H
#define OSH_ARITH_H
#include "quant/scheme.h"

typedef enum { OSH_ARITH_REFERENCE, OSH_ARITH_F32 } osh_arithmetic;

typedef struct osh_qparams {
    osh_tensor *scale; // own: [rows, cols], dtype of the weight; tensor strategy: [1]; tensor_group: FP8
    osh_tensor *zero;  // own: I8, like scale; NULL where symmetric
    float global;      // tensor_group: a scale stands for scale / global; else 0
    const float *importance; // view, given: [I] what input channels weigh in a search; NULL: all the same
} osh_qparams;
void osh_qparams_deinit(osh_ctx *cx, osh_qparams *p);
typedef struct osh_q_shape {
    int ndim; // 1 or 2
    int64_t dim[2];
} osh_q_shape;
/* Shape of scale for w [O, I]. Indivisible group: error naming module (what). */
osh_status osh_q_scale_shape(osh_ctx *cx, osh_q_shape *shape, const osh_q_args *a, int64_t O, int64_t I,
                             const char *what);

typedef struct osh_q_scaling { // how ranges become scales
    const osh_q_args *args; // view
    osh_dtype dt;           // of the scales, and of the ranges
    osh_arithmetic ar;
} osh_q_scaling;
/* (min, max) in the weight's dtype to scale and zero point, element-wise over n. zp may be NULL. */
void osh_q_scale_zp(void *scale, int8_t *zp, const float *min, const float *max, int64_t n, const osh_q_scaling *how);
float osh_q_scale_value(const osh_qparams *p, int64_t i); // of a scale as it is stored: what a code is multiplied by
void osh_q_scale_put(osh_qparams *p, int64_t i, float value); // the scale nearest to that value
/* The global scale of values whose largest magnitude is amax: rnd(rnd(1 / amax) * 448 * 6) in dt, so that the largest
 * scale of a group is near the largest FP8; 1 where that is no number. Source: generate_gparam. */
float osh_q_global_scale(float amax, osh_dtype dt);
/* The ranges that a's observer finds in w [O, I]: allocates p. Strategy tensor_group: p->global is given, or 0: that
 * of w. */
osh_status osh_q_weight_params(osh_ctx *cx, osh_qparams *p, const osh_tensor *w, const osh_q_args *a,
                               osh_arithmetic ar, const char *what);
/* The same of w [O, I] F32 that stands for a weight of dtype how->dt: its ranges are rounded to that. */
osh_status osh_q_target_params(osh_ctx *cx, osh_qparams *p, const osh_tensor *w, const osh_q_scaling *how,
                               const char *what);
/* Strategy tensor_group: the largest magnitude of the ranges that a's observer finds in w, or in whole groups of it. */
osh_status osh_q_weight_amax(osh_ctx *cx, float *amax, const osh_tensor *w, const osh_q_args *a, const char *what);
/* codes I8 [O, I] (int), FP8 bytes, or FP4 in the low 4 bits of a byte: w / scale + zp, clamped, rounded half to even,
 * as the CPU save path does. */
osh_status osh_q_encode(osh_ctx *cx, void *codes, const osh_tensor *w, const osh_qparams *p, const osh_q_args *a,
                        osh_arithmetic ar);
/* w (dtype of scale) = (code - zp) * scale, each step rounded to the scale's dtype. */
osh_status osh_q_decode(osh_ctx *cx, osh_tensor *w, const void *codes, const osh_qparams *p, const osh_q_args *a);
typedef struct osh_q_coded { // a weight [O, I] in codes; views
    const void *codes;
    const osh_qparams *params;
    const osh_q_args *args;
    int64_t O, I;
} osh_q_coded;
/* The same of rows [first, first + n), on the caller's thread: to [n, I] of dtype dt. */
void osh_q_decode_rows(void *to, osh_dtype dt, const osh_q_coded *w, int64_t first, int64_t n);

/* sum[0] = |a - b|^2, sum[1] = |a|^2 of a row of n elements of dtype dt, in double; the same on every machine. */
void osh_q_row_error(double sum[2], const void *a, const void *b, osh_dtype dt, int64_t n);

/* Static activation observers over a value: fed sample by sample in order. */
typedef struct osh_act_observer {
    bool seen;
    float min, max;
    struct osh_histogram *counts; // own; NULL: its observer counts nothing, or nothing was seen
    double *losses;               // own [candidates]; of an observer that looks twice, in the second look
} osh_act_observer;
/* One sample x [tokens, heads * head_dim], of o [heads]. */
osh_status osh_act_observe(osh_ctx *cx, osh_act_observer *o, int64_t heads, const osh_tensor *x, const osh_q_args *a);
/* The same sample once more, when all have been observed: of observers that look twice. */
osh_status osh_act_observe_again(osh_ctx *cx, osh_act_observer *o, int64_t heads, const osh_tensor *x,
                                 const osh_q_args *a);
void osh_act_observed(float *lo, float *hi, const osh_act_observer *o, const osh_q_args *a, osh_dtype dt); // the range
void osh_act_observer_deinit(osh_ctx *cx, osh_act_observer *o);
size_t osh_act_observer_bytes(const osh_q_args *a); // what it counts, of one head
/* Of a sample: scratch. */
size_t osh_act_observe_bytes(const osh_q_args *a, int64_t tokens, int64_t width, int64_t heads, osh_dtype dt);
void osh_act_observer_feed(osh_act_observer *o, const osh_q_args *a, float lo, float hi, osh_dtype dt); // one sample's
/* Fake quantization of activations in place, x [N, I]: dynamic (token, group, tensor per sample: seqs of 1), static
 * with the stored scale, or local with the stored global scale. */
osh_status osh_q_fake_quant_act(osh_ctx *cx, osh_tensor *x, const osh_q_args *a, const osh_tensor *scale,
                                const osh_tensor *zero);
#endif
