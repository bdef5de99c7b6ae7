/* delta_rule.h - computes one token of gated DeltaNet on the CPU, for the op and its gradient.
 * ops/delta_rule.c has the formulas. Dk and Dv are the sizes of keys and values in a head. */
#ifndef OSH_CPU_DELTA_RULE_H
#define OSH_CPU_DELTA_RULE_H
#include "base/isa.h"
#include "ops/cpu/cpu.h"
#include "math/vec.h"
#include "math/isa.h"
#include "ops/kernel.h"
#include "ops/scan.h"

/* State and vectors of one head; all pointers are views into scratch. */
typedef struct osh_delta_room {
    float *S;             // state [Dk, padded Dv]
    float *q, *k;         // [Dk]
    float *v, *says, *y;  // [padded Dv] each: value of the token; k S; output of the token
} osh_delta_room;

typedef struct osh_delta_token { // values of one token of one head
    /* gates: the decay, and beta * sigmoid(b).
     * in: a and b of the token, A_log and dt_bias of the head. */
    float gates[2], in[4];
} osh_delta_token;

/* Returns the number of floats of one head's scratch. */
int64_t osh_delta_floats(const osh_delta_rule_attr *at);
/* Returns views into `room`, which has osh_delta_floats floats. The caller must set `room` to 0
 * before the first token. */
osh_delta_room osh_delta_room_at(const osh_delta_rule_attr *at, float *room);
/* Loads q, k and v of row t and head h into m, and normalizes q and k. Returns the gates, and the
 * inputs from which they are computed. sigmoid(b) is rounded to dt. */
osh_delta_token osh_delta_load(const osh_tensor *const *in, const osh_delta_rule_attr *at,
                               const osh_delta_room *m, int64_t t, int64_t h, osh_dtype dt);
/* Updates m->S with one token and computes y = q S. Overwrites m->v. */
void osh_delta_step(const osh_delta_room *m, const osh_delta_rule_attr *at, const float gates[2]);
#endif
