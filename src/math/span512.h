/* span512.h - declares AVX-512 versions of those loops of span.h that take the most time in a BF16
 * model. They give the same bytes as the loops of span.h. */
#ifndef OSH_SPAN512_H
#define OSH_SPAN512_H
#include "math/softmax512.h"
#include "math/span.h"

/* True if the instruction set in use has AVX-512 and dt is BF16. If this is false, the functions
 * below must not be called, except where their comments allow another dt. (They round to BF16.) */
bool osh_span512_takes(osh_dtype dt);
/* Does the work of osh_span_glu with dt BF16. `act` must not be OSH_ACT_GELU. */
void osh_span512_glu(float *gate, const float *up, int64_t n, osh_act_kind act);
/* osh_span512_glu_bf16 writes act(x) * y to `to`. osh_span512_add_bf16 writes x + y to `to`. All
 * values are BF16. n need not be a multiple of 8. Both functions return true if all results are
 * finite. */
bool osh_span512_glu_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                          osh_act_kind act);
bool osh_span512_add_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n);
/* Does the work of osh_span_rms_norm with dt OSH_BF16. */
void osh_span512_rms_norm(float *x, const float *w, int64_t n, int64_t n_real, float eps);
/* Does the work of osh_span_softmax. The instruction set in use must have AVX-512, but dt may also
 * be F32. */
void osh_span512_softmax(float *s, int64_t n, float scale, osh_dtype dt);
typedef struct osh_norm512 {
    const float *w; // weight, [n]; view
    int64_t n;      // number of values of a row
    float eps;
} osh_norm512;
/* Computes y = rms_norm(x) for n_rows rows of BF16 values, as osh_span_rms_norm does with dt BF16
 * and n_real = n. n need not be a multiple of 8. Returns true if all values of y are finite. */
bool osh_span512_rms_norm_bf16(uint16_t *y, const uint16_t *x, int64_t n_rows,
                               const osh_norm512 *t);
typedef struct osh_turn512 {
    const float *c, *s; // views [half]: cosines and sines, rounded to BF16
    int64_t half, head_dim;
} osh_turn512;
/* Computes y [n] from x [n], a row of heads: copies the row, and rotates the first 2 * half values
 * of each head, as osh_span_rotate does with dt BF16. Returns true if all values of y are
 * finite. */
bool osh_span512_rotate_bf16(uint16_t *y, const uint16_t *x, int64_t n, const osh_turn512 *t);
/* Writes softmax(s * scale) of each row as BF16. Overwrites s. */
void osh_span512_probabilities(const osh_scores *q);
#endif
