/* eval_card.h - an evaluation on a card: the sequential engine of forward.h with one arena.
 *
 *   | workspace | weights (eval_weights.h) | rounded inputs | resting rows |          ◄── batch, scores |
 *
 * All blocks from the front are taken once, when it is opened, so that what is predicted is what is taken. Batches are
 * those of a calibration on a card (place.c): the figures depend on the data and the card, not on budgets or
 * --batch-size. */
#ifndef OSH_EVAL_CARD_H
#define OSH_EVAL_CARD_H
#include "eval/forward.h"
#include "plan/options.h"

typedef struct osh_eval_card osh_eval_card;
/* *out NULL: the evaluation runs on the host. Else: the card is open, with the blocks. Fails (OSH_E_USAGE) naming the
 * smallest --device-memory where that is too small. f, ref (or NULL) and d must outlive it. */
osh_status osh_eval_card_open(osh_ctx *cx, osh_eval_card **out, const osh_eval_options *o, const osh_forward *f,
                              const osh_forward *ref, const osh_dataset *d);
/* What passes and scores take in host memory at most, with the next weights read ahead or not. */
int64_t osh_eval_card_host_bytes(const osh_eval_card *c, bool ahead);
bool osh_eval_card_ahead(const osh_eval_card *c); // the arena has room for them
void osh_eval_card_not_ahead(osh_eval_card *c);   // before it runs
void osh_eval_card_close(osh_ctx *cx, osh_eval_card *c); // NULL is fine
/* Both models up to what their heads read, then the heads are loaded. */
osh_status osh_eval_card_run(osh_ctx *cx, osh_eval_card *c, osh_progress *pr);
int64_t osh_eval_card_batches(const osh_eval_card *c);
/* Samples [*first, *first + *n) are batch b. */
void osh_eval_card_batch(const osh_eval_card *c, int64_t b, int64_t *first, int64_t *n);
/* targets [tokens of the batch]; out: nll and, with a reference, kl, same and its nll are filled in. All in host
 * memory. */
osh_status osh_eval_card_score(osh_ctx *cx, osh_eval_card *c, int64_t b, const osh_tensor *targets,
                               osh_tensor *const out[4]);
#endif
