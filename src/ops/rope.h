/* rope.h - the table of rotations, shared by the reference and the fast kernel of rope. */
#ifndef OSH_ROPE_TABLE_H
#define OSH_ROPE_TABLE_H
#include "ops/op.h"

/* Inverse frequencies for a sample of len tokens: those of attr, or NTK-scaled ones where dynamic and len > max_pos. */
void osh_rope_freqs(float *inv_freq, const osh_rope_attr *at, int64_t len); // [rotary_dim / 2]
#endif
