/* fold_bytes.h - computes the memory that the factors of folds need. */
#ifndef OSH_FOLD_BYTES_H
#define OSH_FOLD_BYTES_H
#include "budget/budget.h"

/* Returns the bytes, with the allocator's overhead, of the statistics for the factors of a fold.
 * `groups`: groups of samples (ops/stat.h) while the statistics are collected; {0} after the groups
 * are merged. */
int64_t osh_fold_seen_bytes(const osh_budget *p, const osh_fold *f, const osh_groups *groups);
/* Sets *bytes to the bytes, with the allocator's overhead, for computing the factors of a fold.
 * `reads`: true if the computation may have to read weights from the checkpoint. */
osh_status osh_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_budget *p, const osh_fold *f,
                            bool reads);
#endif
