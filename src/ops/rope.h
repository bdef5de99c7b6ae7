/* rope.h - frequencies and position factors, shared by the kernels of rope. */
#ifndef OSH_ROPE_TABLE_H
#define OSH_ROPE_TABLE_H
#include "ops/op.h"

/* Writes the inverse frequencies of a sample of len tokens: those of attr, or NTK-scaled ones if
 * dynamic and len > max_pos. */
void osh_rope_freqs(float *inv_freq, const osh_rope_attr *at, int64_t len); // [rotary_dim / 2]
/* Returns a key of the length: samples with equal keys have equal frequencies. 0: those of attr. */
int64_t osh_rope_key(const osh_rope_attr *at, int64_t len);
/* Returns 1 + beta ln(1 + floor(pos / original)), a factor of the turned heads; 1 without a
 * beta. */
float osh_rope_position_factor(const osh_rope_attr *at, int64_t pos);
#endif
