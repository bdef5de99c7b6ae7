/* fold_bytes.h - memory of the factors of folds. */
#ifndef OSH_FOLD_BYTES_H
#define OSH_FOLD_BYTES_H
#include "budget/budget.h"

/* Gross bytes of the statistics for its factors. groups: those of the plan while the statistics are
 * collected; one group after that. */
int64_t osh_fold_seen_bytes(const osh_budget *p, const osh_fold *f, const osh_groups *groups);
/* Bytes (gross) for making its factors. reads: weights may have to be read for it. */
osh_status osh_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_budget *p, const osh_fold *f,
                            bool reads);
#endif
