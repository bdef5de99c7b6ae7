/* ssm_scan.h - computes one token of the scan of Mamba 2 on the CPU, for the op and its gradient.
 * ops/ssm_scan.c has the formulas. P is the number of channels of a head, and S is the state
 * size. */
#ifndef OSH_CPU_SSM_SCAN_H
#define OSH_CPU_SSM_SCAN_H
#include "base/isa.h"
#include "ops/cpu/cpu.h"
#include "math/vec.h"
#include "math/isa.h"
#include "ops/kernel.h"
#include "ops/scan.h"

typedef struct osh_scan_room { // state and vectors of one head; all pointers are views into scratch
    float *Z;       // state of the head, [S, padded P]
    float *B, *C;   // [S]
    float *x, *y;   // input and output of the token, [padded P]
} osh_scan_room;

/* Returns the number of floats of one head's scratch. */
int64_t osh_scan_floats(const osh_ssm_scan_attr *at);
/* Returns views into `room`, which has osh_scan_floats floats. The caller must set `room` to 0
 * before the first token. */
osh_scan_room osh_scan_room_at(const osh_ssm_scan_attr *at, float *room);
typedef struct osh_scan_head { // the op's inputs, and the weights of head h; pointers are views
    const osh_tensor *const *in;
    const osh_ssm_scan_attr *at;
    int64_t h;
    float weights[3]; // A_log, D and dt_bias of the head
} osh_scan_head;
/* Returns the inputs and the weights of head h, from the inputs `in` of the op. */
osh_scan_head osh_scan_head_of(const osh_tensor *const *in, const osh_ssm_scan_attr *at, int64_t h);
/* Copies B, C and x of the token in row t to m. Sets gates[0] to the decay of the state and
 * gates[1] to the step d, the factor of x (osh_ssm_gates). */
void osh_scan_load(float gates[2], const osh_scan_head *s, const osh_scan_room *m, int64_t t,
                   osh_dtype dtype);
/* Multiplies m->x by d, updates the state m->Z with x and B, and computes m->y = C Z. */
void osh_scan_step(const osh_scan_room *m, const osh_ssm_scan_attr *at, const float gates[2]);
#endif
