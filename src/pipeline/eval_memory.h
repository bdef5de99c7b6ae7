/* eval_memory.h - what an evaluation takes in memory, before it takes it. */
#ifndef OSH_EVAL_MEMORY_H
#define OSH_EVAL_MEMORY_H
#include "oneshot.h"
#include "pipeline/forward.h"

/* Holds the context to --host-memory, or fails (OSH_E_USAGE) with the smallest that would do and what may be lowered.
 * ref: NULL, or the model that f is compared with. card: what passes and scores take of the host where they run on a
 * card; -1: they run here. Nothing where no budget is given. */
osh_status osh_eval_memory(osh_ctx *cx, const osh_eval_options *o, const osh_forward *f, const osh_forward *ref,
                           const osh_dataset *d, int64_t card);
#endif
