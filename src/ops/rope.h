/* rope.h - computes frequencies and position factors for the kernels of rope. */
#ifndef OSH_ROPE_TABLE_H
#define OSH_ROPE_TABLE_H
#include "ops/op.h"

/* Writes the inverse frequencies of a sample of `len` tokens: those of `at`, or NTK-scaled ones if
 * at->dynamic is true and len > max_pos. */
void osh_rope_freqs(float *inv_freq, const osh_rope_attr *at, int64_t len); // [rotary_dim / 2]
/* Returns a key of the length `len`: samples with equal keys have equal frequencies. Key 0 means
 * the frequencies of `at`. */
int64_t osh_rope_key(const osh_rope_attr *at, int64_t len);
/* Returns 1 + beta ln(1 + floor(pos / original)), a factor of the rotated heads. Returns 1 if beta
 * is 0. */
float osh_rope_position_factor(const osh_rope_attr *at, int64_t pos);
#endif
