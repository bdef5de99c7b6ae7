/* gradients.h - measures how much the loss depends on the output y [T, O] of each Linear:
 *
 *   L = sum of -log p of the next tokens
 *   care[o] = mean over tokens of (dL/dy_o)^2
 *
 * If the error of y_o is independent of the gradient, it changes L by about care[o] / 2 times the
 * mean square of the error, for each token. This estimate uses the diagonal of the empirical Fisher
 * matrix instead of the Hessian of L. */
#ifndef OSH_GRADIENTS_H
#define OSH_GRADIENTS_H
#include "base/profile.h"
#include "plan/plan.h"

/* The measurement reads the first tokens of the first samples. */
enum { OSH_GRADIENTS_SAMPLES = 8, OSH_GRADIENTS_LENGTH = 512 };
typedef struct osh_gradients osh_gradients;
/* Prepares the measurement of gradients. `p` is the plan of a survey, a run that measures the
 * losses of candidate schemes. p->gradients must be true. `p` must outlive *out (own). */
osh_status osh_gradients_open(osh_ctx *cx, osh_gradients **out, osh_plan *p);
/* Frees s. Accepts NULL. */
void osh_gradients_close(osh_ctx *cx, osh_gradients *s);
/* Sets *peak to an upper bound of the host bytes that osh_gradients_run allocates, with the
 * allocator's overhead. */
osh_status osh_gradients_bytes(osh_ctx *cx, int64_t *peak, const osh_gradients *s);
/* Sets gradients.outputs of all Linears of the plan to care [O], whose formula is at the top of
 * this file. If gradients.inputs of a Linear is not NULL, sets it to the same measure for the
 * Linear's input. */
osh_status osh_gradients_run(osh_ctx *cx, osh_gradients *s, osh_progress *pr);
#endif
