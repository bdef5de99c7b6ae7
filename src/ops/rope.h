/* rope.h - computes the frequencies and position factors of rotary embeddings for the kernels of
 * the op rope. */
#ifndef OSH_ROPE_TABLE_H
#define OSH_ROPE_TABLE_H
#include "ops/op.h"

/* Writes the inverse frequencies [rotary_dim / 2] for a sample of `len` tokens: the frequencies of
 * `at`, or NTK-scaled frequencies if at->dynamic is true and len > max_pos. */
void osh_rope_freqs(float *inv_freq, const osh_rope_attr *at, int64_t len);
/* Returns a key for the sample length `len`. Samples with equal keys have equal frequencies. Key 0
 * means the frequencies of `at`. */
int64_t osh_rope_key(const osh_rope_attr *at, int64_t len);
/* Returns the factor of rotated heads at position pos: 1 + beta ln(1 + floor(pos / original)), or 1
 * if beta is 0. */
float osh_rope_position_factor(const osh_rope_attr *at, int64_t pos);
#endif
