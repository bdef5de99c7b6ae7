/* delta_rule.h - what the two ways through gated DeltaNet share on the CPU: the matrix of a head, and a token of it. */
#ifndef OSH_CPU_DELTA_RULE_H
#define OSH_CPU_DELTA_RULE_H
#include "base/isa.h"
#include "ops/cpu/cpu.h"
#include "math/vec.h"
#include "math/isa.h"
#include "ops/kernel.h"
#include "ops/scan.h"

typedef struct osh_delta_room {
    float *S;             // [Dk, padded Dv]
    float *q, *k;         // [Dk]
    float *v, *says, *y;  // [padded Dv]
} osh_delta_room;

typedef struct osh_delta_token { // of a head
    float gates[2], a, b, weights[2]; // decay and beta; what they are made of, weights: A_log, dt_bias
} osh_delta_token;

int64_t osh_delta_floats(const osh_delta_rule_attr *at);
osh_delta_room osh_delta_room_at(const osh_delta_rule_attr *at, float *room); // [osh_delta_floats], 0
/* Row t of head h: q, k and v go into the room. beta is rounded to dt. */
osh_delta_token osh_delta_load(const osh_tensor *const *in, const osh_delta_rule_attr *at, const osh_delta_room *m,
                               int64_t t, int64_t h, osh_dtype dt);
void osh_delta_step(const osh_delta_room *m, const osh_delta_rule_attr *at, const float gates[2]); // S, y; v is lost
#endif
