/* eval_weights.h - the weights of an evaluation on a card, step by step: the subgraphs of the reference, those of the
 * model, the heads of both. All of a step lie in one block of the arena; where that has room for two steps, the next
 * one is read and copied beside the work on this one.
 *
 *   | step 2 ──►        free        ◄── step 3 |    even steps from the front, odd ones from the end
 */
#ifndef OSH_EVAL_WEIGHTS_H
#define OSH_EVAL_WEIGHTS_H
#include "eval/forward.h"

typedef struct osh_eval_weights osh_eval_weights;
/* f and ref (or NULL) must outlive it. */
osh_status osh_eval_weights_new(osh_ctx *cx, osh_eval_weights **out, const osh_forward *f, const osh_forward *ref);
void osh_eval_weights_free(osh_ctx *cx, osh_eval_weights *e); // waits for the reader; NULL is fine
/* Of the block: for the largest step, or for the two neighbours that are largest together. */
int64_t osh_eval_weights_bytes(const osh_eval_weights *e, bool ahead);
int64_t osh_eval_weights_host_bytes(const osh_eval_weights *e); // while a weight is read; its lists are not counted
/* Where they go: a block of `d` of osh_eval_weights_bytes(e, ahead). */
void osh_eval_weights_place(osh_eval_weights *e, osh_device *d, char *block, bool ahead);
void osh_eval_weights_direct(osh_eval_weights *e); // before the first step: the card has a stage for files
void osh_eval_weights_not_ahead(osh_eval_weights *e); // before the first step
bool osh_eval_weights_ahead(const osh_eval_weights *e);
/* The next step: its weights are where what is asked of the card from now on finds them. Those of a subgraph become
 * w's; w NULL: the step of the heads. What the step before had is gone. */
osh_status osh_eval_weights_next(osh_ctx *cx, osh_eval_weights *e, osh_weights *w);
const osh_tensor *osh_eval_weights_head(const osh_eval_weights *e, bool of_ref); // view, after the last step
#endif
