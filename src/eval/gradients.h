/* gradients.h - how much the model's loss cares for what each Linear makes: at each of its outputs the mean over
 * tokens of the square of dL/dy, L the sum of -log p of the next tokens. An error of y that knows nothing of that
 * gradient changes L by about half its mean square times this, for each token: the diagonal of the empirical Fisher
 * matrix stands for the Hessian. */
#ifndef OSH_GRADIENTS_H
#define OSH_GRADIENTS_H
#include "base/profile.h"
#include "plan/plan.h"

enum { OSH_GRADIENTS_SAMPLES = 8, OSH_GRADIENTS_LENGTH = 512 }; // the first tokens of the first samples
typedef struct osh_gradients osh_gradients;
/* p: of a survey, with p->gradients; it stays while this lives, and its Linears' care is what is filled. */
osh_status osh_gradients_open(osh_ctx *cx, osh_gradients **out, osh_plan *p);
void osh_gradients_close(osh_ctx *cx, osh_gradients *s);
/* Bytes (gross, an upper bound) that osh_gradients_run takes beside what there is. */
osh_status osh_gradients_bytes(osh_ctx *cx, int64_t *peak, const osh_gradients *s);
osh_status osh_gradients_run(osh_ctx *cx, osh_gradients *s, osh_progress *pr);
#endif
