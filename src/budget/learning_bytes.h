/* learning_bytes.h - computes the memory of learning: of a block, and of tuning. */
#ifndef OSH_LEARNING_BYTES_H
#define OSH_LEARNING_BYTES_H
#include "budget/budget.h"
#include "schedule/range.h"

/* Computes the host memory of tuning in addition to the base; 0: there is no tuning. */
osh_status osh_tuning_bytes(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p);
/* Computes the host memory of the range's block while it learns. */
osh_status osh_block_peak(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p,
                          const osh_range *r);
#endif
