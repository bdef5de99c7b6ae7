/* rope.h - computes the frequencies and position factors of rotary embeddings for the kernels of
 * the op rope. */
#ifndef OSH_ROPE_TABLE_H
#define OSH_ROPE_TABLE_H
#include "ops/op.h"

/* Writes the inverse frequencies [rotary_dim / 2] for a sample of `len` tokens. They are the
 * frequencies of `at`, or NTK-scaled frequencies if at->dynamic is true and len > max_pos. */
void osh_rope_freqs(float *inv_freq, const osh_rope_attr *at, int64_t len);
/* Returns a key for the sample length `len`. If two samples have equal keys, they have equal
 * frequencies. Key 0 stands for the frequencies of `at`. */
int64_t osh_rope_key(const osh_rope_attr *at, int64_t len);
/* Returns the factor by which rotated heads at position pos are multiplied. It is 1 if beta is 0,
 * else `1 + beta * ln(1 + floor(pos / original))`. */
float osh_rope_position_factor(const osh_rope_attr *at, int64_t pos);
#endif
