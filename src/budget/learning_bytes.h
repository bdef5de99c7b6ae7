/* learning_bytes.h - predicts the memory of two steps that optimize codes by gradients: learning of
 * a block (learn/block.h) and tuning (learn/tune.h). */
#ifndef OSH_LEARNING_BYTES_H
#define OSH_LEARNING_BYTES_H
#include "budget/budget.h"
#include "schedule/range.h"

/* Sets *n_bytes to the host bytes that tuning needs, without osh_memory.base_bytes. Sets it to 0 if
 * the run does not tune. */
osh_status osh_tuning_bytes(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p);
/* Sets *n_bytes to the host bytes that learning the codes of the block in range `r` needs. */
osh_status osh_block_peak(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p,
                          const osh_range *r);
#endif
