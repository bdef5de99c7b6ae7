/* eval_memory.h - what an evaluation takes in memory, before it takes it. */
#ifndef OSH_EVAL_MEMORY_H
#define OSH_EVAL_MEMORY_H
#include "eval/eval_card.h"

typedef struct osh_eval_models { // what an evaluation works with
    osh_forward *f, *ref; // own; ref: that f is compared with, NULL: none
    osh_eval_card *card;  // own; where passes and scores run, NULL: on the host
    osh_dataset d;        // own
} osh_eval_models;

/* Holds the context to --host-memory, or fails (OSH_E_USAGE) with the smallest that would do and what may be lowered.
 * A card is told to read nothing ahead where the budget has no room for that. load: the most that reading took. Nothing
 * where no budget is given. */
osh_status osh_eval_memory(osh_ctx *cx, const osh_eval_options *o, const osh_eval_models *m, int64_t load);
/* The smallest --host-memory for an evaluation of a model that a run is going to make of m->f, with reference m->ref.
 * What reading and rounding of its weights and inputs takes is the most that any scheme needs. */
osh_status osh_eval_least(osh_ctx *cx, int64_t *host, const osh_eval_options *o, const osh_eval_models *m,
                          int64_t load);
#endif
