/* ssm_scan.h - what the two ways through Mamba 2's scan share on the CPU: the vectors of a head, and a token of it. */
#ifndef OSH_CPU_SSM_SCAN_H
#define OSH_CPU_SSM_SCAN_H
#include "base/isa.h"
#include "ops/cpu/cpu.h"
#include "math/vec.h"
#include "math/isa.h"
#include "ops/kernel.h"
#include "ops/scan.h"

typedef struct osh_scan_room {
    float *Z;       // [S, padded P]
    float *B, *C;   // [S]
    float *x, *y;   // [padded P]
} osh_scan_room;

int64_t osh_scan_floats(const osh_ssm_scan_attr *at);
osh_scan_room osh_scan_room_at(const osh_ssm_scan_attr *at, float *room); // [osh_scan_floats], 0
typedef struct osh_scan_head { // head h of the op's inputs
    const osh_tensor *const *in;
    const osh_ssm_scan_attr *at;
    int64_t h;
    float weights[3]; // A_log, D, dt_bias
} osh_scan_head;
osh_scan_head osh_scan_head_of(const osh_tensor *const *in, const osh_ssm_scan_attr *at, int64_t h);
/* B, C and x of row t go into the room. gates: decay and step, rounded to dtype. */
void osh_scan_load(float gates[2], const osh_scan_head *s, const osh_scan_room *m, int64_t t, osh_dtype dtype);
/* Z and y = C Z; x becomes x times step. */
void osh_scan_step(const osh_scan_room *m, const osh_ssm_scan_attr *at, const float gates[2]);
#endif
