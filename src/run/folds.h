/* folds.h - computes the factors of folds. Collects statistics of a layer's output, computes the
 * factors from them, and folds the factors into weights. */
#ifndef OSH_RUN_FOLDS_H
#define OSH_RUN_FOLDS_H
#include "rewrite/folds.h"
#include "schedule/visit.h"
#include "budget/budget.h"
#include "run/run.h"

typedef struct osh_folding osh_folding; // statistics for the factors of all folds in a range
/* Makes empty statistics for the folds inside range r. `p` must outlive them. The caller frees *out
 * with osh_folding_free. */
osh_status osh_folding_new(osh_ctx *cx, osh_folding **out, const osh_budget *p, const osh_range *r);
void osh_folding_free(osh_ctx *cx, osh_folding *f);
/* Adds a value of a batch to the statistics for factors. This function is a hook of graph/exec.h.
 * Its argument `user` is an osh_folding. */
osh_status osh_folding_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                            const osh_batch *b);
/* Divides the work among the ranks: each rank collects some of the statistics and computes some of
 * the factors. Does nothing if `ranks` is NULL. */
osh_status osh_folding_divide(osh_ctx *cx, osh_folding *f, osh_ranks *ranks);
/* Merges the statistics of a round between ranks, like osh_stats_exchange. All ranks call it after
 * each round. */
osh_status osh_folding_exchange(osh_ctx *cx, osh_folding *f, int64_t round);
/* Computes the factors of all folds in the range, fold by fold. Must be called after all tokens
 * were added. Folds the factors into the weights in w, and registers them for weights that are read
 * later. Also records the factors in the output. */
osh_status osh_run_fold(osh_ctx *cx, osh_run *r, const osh_folding *f, const osh_weights *w);
#endif
