/* span512.h - AVX-512 versions of the loops of span.h that take the most time in a BF16 model. Both
 * versions give the same bytes. */
#ifndef OSH_SPAN512_H
#define OSH_SPAN512_H
#include "math/span.h"

/* True if the instruction set in use has AVX-512 and dt is BF16. The functions below may be called
 * only in this case, because they round to BF16. */
bool osh_span512_takes(osh_dtype dt);
/* Like osh_span_glu with dt BF16. `act` must not be OSH_ACT_GELU. */
void osh_span512_glu(float *gate, const float *up, int64_t n, osh_act_kind act);
/* osh_span512_glu_bf16 writes act(x) y to `to`, osh_span512_add_bf16 writes x + y. All values are
 * BF16. n need not be a multiple of 8. */
void osh_span512_glu_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                          osh_act_kind act);
void osh_span512_add_bf16(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n);
void osh_span512_rms_norm(float *x, const float *w, int64_t n, int64_t n_real, float eps);
/* Also for dt F32, if the instruction set in use has AVX-512. */
void osh_span512_softmax(float *s, int64_t n, float scale, osh_dtype dt);
/* Writes softmax(s * scale) as BF16 to `to`. `to` may begin at s or before s. Overwrites s. */
void osh_span512_probabilities(uint16_t *to, float *s, int64_t n, float scale);
#endif
