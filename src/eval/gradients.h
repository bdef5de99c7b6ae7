/* gradients.h - measures how much the loss depends on the output y [T, O] of each Linear:
 *
 *   care[o] = mean over tokens of (dL/dy_o)^2     L = sum of -log p of the next tokens
 *
 * An error of y_o that is independent of the gradient changes L by about half its mean square times
 * care[o] for each token: the diagonal of the empirical Fisher matrix stands in for the Hessian. */
#ifndef OSH_GRADIENTS_H
#define OSH_GRADIENTS_H
#include "base/profile.h"
#include "plan/plan.h"

/* The pass reads the first tokens of the first samples. */
enum { OSH_GRADIENTS_SAMPLES = 8, OSH_GRADIENTS_LENGTH = 512 };
typedef struct osh_gradients osh_gradients;
/* p: the plan of a survey with p->gradients. It must outlive *out (own). */
osh_status osh_gradients_open(osh_ctx *cx, osh_gradients **out, osh_plan *p);
void osh_gradients_close(osh_ctx *cx, osh_gradients *s);
/* *peak: host bytes (gross, an upper bound) that osh_gradients_run allocates. */
osh_status osh_gradients_bytes(osh_ctx *cx, int64_t *peak, const osh_gradients *s);
/* Fills care of the plan's Linears, and care_in, the same for their inputs, where it is wanted. */
osh_status osh_gradients_run(osh_ctx *cx, osh_gradients *s, osh_progress *pr);
#endif
