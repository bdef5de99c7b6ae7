/* eval_weights.h - the weights of an evaluation on a GPU, step by step: the subgraphs of the
 * reference, the subgraphs of the model, the heads of both. The weights of a step are in one block
 * of the arena. If the block has room for two steps, the next step is read and copied during the
 * work on this one.
 *
 *   | step 2 ──►      free      ◄── step 3 |    even steps from the front, odd steps from the end
 */
#ifndef OSH_EVAL_WEIGHTS_H
#define OSH_EVAL_WEIGHTS_H
#include "eval/forward.h"

typedef struct osh_eval_weights osh_eval_weights;
/* f and ref (or NULL) must outlive it. */
osh_status osh_eval_weights_new(osh_ctx *cx, osh_eval_weights **out, const osh_forward *f,
                                const osh_forward *ref);
void osh_eval_weights_free(osh_ctx *cx, osh_eval_weights *e); // waits for the reader; accepts NULL
/* Returns the bytes of the block: those of the largest step, or with `ahead` those of the two
 * successive steps that are largest together. */
int64_t osh_eval_weights_bytes(const osh_eval_weights *e, bool ahead);
/* Returns the host bytes that reading a weight needs at most. The lists are not counted. */
int64_t osh_eval_weights_host_bytes(const osh_eval_weights *e);
/* Gives each weight its address in `block`: osh_eval_weights_bytes(e, ahead) bytes of `d`, the
 * caller's. */
void osh_eval_weights_place(osh_eval_weights *e, osh_device *d, char *block, bool ahead);
/* Lets cuFile read files to the GPU, which has its stage. Call it before the first step. */
void osh_eval_weights_direct(osh_eval_weights *e);
void osh_eval_weights_not_ahead(osh_eval_weights *e); // before the first step
bool osh_eval_weights_ahead(const osh_eval_weights *e);
/* Begins the next step. All work that is enqueued after the call finds the weights of the step on
 * the GPU; the weights of the step before are gone. The weights of a subgraph are put into w as
 * views of the block; w is NULL for the step of the heads. */
osh_status osh_eval_weights_next(osh_ctx *cx, osh_eval_weights *e, osh_weights *w);
/* Returns the head of the model or of the reference (view). Call it after the last step. */
const osh_tensor *osh_eval_weights_head(const osh_eval_weights *e, bool of_ref);
#endif
