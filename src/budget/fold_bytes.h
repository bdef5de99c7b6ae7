/* fold_bytes.h - computes the memory that the factors of folds need. */
#ifndef OSH_FOLD_BYTES_H
#define OSH_FOLD_BYTES_H
#include "budget/budget.h"

/* Returns the gross bytes of the statistics for its factors. `groups` are those of the plan while
 * the statistics are collected; later one group. */
int64_t osh_fold_seen_bytes(const osh_budget *p, const osh_fold *f, const osh_groups *groups);
/* Computes the gross bytes that are needed to compute its factors. `reads` is true if weights may
 * have to be read for it. */
osh_status osh_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_budget *p, const osh_fold *f,
                            bool reads);
#endif
