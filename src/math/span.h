/* span.h - declares vector loops over one row (span) of f32 values. AVX2 and SSE2 give the same
 * bytes.
 *
 * n: length of a row, a multiple of 8. The caller adds padding. dt: the compute dtype. The
 * functions round values to dt at the points where transformers rounds them. */
#ifndef OSH_SPAN_H
#define OSH_SPAN_H
#include "tensor/tensor.h"

typedef enum { OSH_ACT_SILU, OSH_ACT_GELU, OSH_ACT_GELU_TANH } osh_act_kind;

/* Rounds x [n] to dt. The results are stored as f32. */
void osh_span_round(float *x, int64_t n, osh_dtype dt);
void osh_span_add(float *x, const float *y, int64_t n); // x += y
/* Computes gate = act(gate) * up. act(gate) is rounded to dt, but the product is not rounded. */
void osh_span_glu(float *gate, const float *up, int64_t n, osh_act_kind act, osh_dtype dt);
/* Computes x = round(x * rsqrt(sum(x^2) / n_real + eps)) * w. A row has n_real values. The caller
 * must set the elements of x and w from n_real on to zero. */
void osh_span_rms_norm(float *x, const float *w, int64_t n, int64_t n_real, float eps,
                       osh_dtype dt);
/* Computes s = softmax(s * scale) in f32, and rounds once. Elements that are -inf become 0. */
void osh_span_softmax(float *s, int64_t n, float scale, osh_dtype dt);
/* Computes s = c tanh(round(round(s) * scale) / c), rounded to dt after each step. */
void osh_span_softcap(float *s, int64_t n, float scale, float c, osh_dtype dt);
/* Computes x = (x - mean) / sqrt(variance + eps) * w + b, with the mean and the variance of the
 * first n_real values. The caller must set the elements of w and b from n_real on to zero. */
void osh_span_layer_norm(float *x, const float *w, const float *b, int64_t n, int64_t n_real,
                         float eps);
/* Rotates the two halves of a head. `lo` becomes lo c - hi s, and `hi` becomes hi c + lo s. Each
 * product is rounded to dt.
 * lo, hi: the two halves of the head, [half].
 * c, s: cosines and sines, [half], rounded already.
 * `half` need not be a multiple of 8. */
void osh_span_rotate(float *lo, float *hi, const float *c, const float *s, int64_t half,
                     osh_dtype dt);
/* Sets s and c to the sines and the cosines of the angles, each rounded once to f32. Each |angle|
 * must be below 5e8. */
void osh_span_sincos(float *s, float *c, const double *angle, int64_t n);
/* Returns the largest element of x [n]. */
float osh_span_max(const float *x, int64_t n);
float osh_span_sum_exp(const float *x, int64_t n, float max); // returns the sum of e^(x[i] - max)
/* Returns the sum of e^(r[i] - max) (r[i] - x[i]), a term of the KL divergence from r to x. */
float osh_span_sum_exp_diff(const float *r, const float *x, int64_t n, float max);
#endif
