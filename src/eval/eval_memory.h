/* eval_memory.h - predicts the memory of an evaluation and sets its limit. */
#ifndef OSH_EVAL_MEMORY_H
#define OSH_EVAL_MEMORY_H
#include "eval/eval_card.h"

typedef struct osh_eval_models { // the models and the data of an evaluation
    osh_forward *f, *ref; // own; ref: the reference, NULL: none
    osh_eval_card *card;  // own: runs passes and scores on a GPU; NULL: they run on the host
    osh_dataset d;        // own
} osh_eval_models;

/* Limits the context to --host-memory, if it is given. Fails with OSH_E_USAGE if it is too small,
 * and names the smallest that would do and the options that lower the need. Turns reading ahead off
 * if the budget has no room for it. `load`: the most host bytes that reading took. */
osh_status osh_eval_memory(osh_ctx *cx, const osh_eval_options *o, const osh_eval_models *m,
                           int64_t load);
/* *host: the smallest --host-memory for the evaluation of the output that a run will make of m->f,
 * with the reference m->ref. It counts the most that any scheme needs to decode weights and to
 * round inputs. */
osh_status osh_eval_least(osh_ctx *cx, int64_t *host, const osh_eval_options *o,
                          const osh_eval_models *m, int64_t load);
/* Returns the host bytes that the output of a run needs beyond its source `f` for a batch of
 * n_tokens. The output has codes instead of some weights: the F32 of a weight is decoded next to
 * its codes, and inputs of Linears are rounded in a copy. */
int64_t osh_eval_output_bytes(const osh_forward *f, int64_t n_tokens);
#endif
