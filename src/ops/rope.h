/* rope.h - frequencies and factors by position, shared by the kernels of rope. */
#ifndef OSH_ROPE_TABLE_H
#define OSH_ROPE_TABLE_H
#include "ops/op.h"

/* Inverse frequencies for a sample of len tokens: those of attr, or NTK-scaled ones where dynamic and len > max_pos. */
void osh_rope_freqs(float *inv_freq, const osh_rope_attr *at, int64_t len); // [rotary_dim / 2]
/* Samples of lengths with the same key share one table of frequencies; 0: that of attr. */
int64_t osh_rope_key(const osh_rope_attr *at, int64_t len);
/* 1 + beta ln(1 + floor(pos / original)), a factor of what was turned; 1 where attr has no beta. */
float osh_rope_position_factor(const osh_rope_attr *at, int64_t pos);
#endif
