/* learning_bytes.h - memory of what learns: a block, and tuning. */
#ifndef OSH_LEARNING_BYTES_H
#define OSH_LEARNING_BYTES_H
#include "budget/budget.h"
#include "schedule/range.h"

/* Host memory of tuning beside the base; 0: nothing is tuned. */
osh_status osh_tuning_bytes(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p);
/* Returns in *n_bytes the host memory of the range's block while it learns. */
osh_status osh_block_peak(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p,
                          const osh_range *r);
#endif
