/* eval_memory.h - what an evaluation takes in memory, before it takes it. */
#ifndef OSH_EVAL_MEMORY_H
#define OSH_EVAL_MEMORY_H
#include "eval/eval_card.h"

/* Holds the context to --host-memory, or fails (OSH_E_USAGE) with the smallest that would do and what may be lowered.
 * ref: NULL, or the model that f is compared with. card: where passes and scores run, NULL: here; told to read nothing
 * ahead where the budget has no room for that. load: the most that reading took. Nothing where no budget is given. */
osh_status osh_eval_memory(osh_ctx *cx, const osh_eval_options *o, const osh_forward *f, const osh_forward *ref,
                           const osh_dataset *d, osh_eval_card *card, int64_t load);
#endif
