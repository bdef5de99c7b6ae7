/* eval_card.h - an evaluation on a GPU: the sequential engine of forward.h with one arena.
 *
 *   | workspace | weights (eval_weights.h) | rounded inputs | resting rows |    ◄── batch, scores |
 *
 * The blocks at the front are allocated once, when it is opened, so the predicted bytes are exactly
 * the allocated bytes. The batches are those of a calibration on a GPU (schedule/batches.c): the
 * results depend on the data and the GPU, not on budgets or --batch-size. */
#ifndef OSH_EVAL_CARD_H
#define OSH_EVAL_CARD_H
#include "eval/forward.h"
#include "match/options.h"

typedef struct osh_eval_card osh_eval_card;
/* *out (own) is NULL if the evaluation runs on the host; else the GPU is open and the blocks are
 * allocated. Fails with OSH_E_USAGE if --device-memory is too small, and names the smallest that
 * would do. o, f, ref (or NULL) and d must outlive *out. */
osh_status osh_eval_card_open(osh_ctx *cx, osh_eval_card **out, const osh_eval_options *o,
                              const osh_forward *f, const osh_forward *ref, const osh_dataset *d);
/* Returns the most host bytes of passes and scores. `ahead`: the next weights are read ahead. */
int64_t osh_eval_card_host_bytes(const osh_eval_card *c, bool ahead);
bool osh_eval_card_ahead(const osh_eval_card *c); // true if the next weights are read ahead
/* Turns reading ahead off. Call it before osh_eval_card_run. */
void osh_eval_card_not_ahead(osh_eval_card *c);
void osh_eval_card_close(osh_ctx *cx, osh_eval_card *c); // accepts NULL
/* Runs both models up to the inputs of their heads, then loads the heads. */
osh_status osh_eval_card_run(osh_ctx *cx, osh_eval_card *c, osh_progress *pr);
int64_t osh_eval_card_batches(const osh_eval_card *c);
/* Samples [*first, *first + *n) are batch b. */
void osh_eval_card_batch(const osh_eval_card *c, int64_t b, int64_t *first, int64_t *n);
/* Scores batch b. targets [tokens of the batch]; out [4][tokens of the batch], the caller's
 * tensors: nll, and with a reference kl, same and the nll of the reference. All are in host
 * memory. */
osh_status osh_eval_card_score(osh_ctx *cx, osh_eval_card *c, int64_t b, const osh_tensor *targets,
                               osh_tensor *const out[4]);
#endif
