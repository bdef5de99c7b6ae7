/* folds.h - factors between a layer and the Linears behind it: what they are made of, and folding them into weights. */
#ifndef OSH_RUN_FOLDS_H
#define OSH_RUN_FOLDS_H
#include "plan/folds.h"
#include "plan/visit.h"
#include "run/run.h"

typedef struct osh_folding osh_folding; // of a range
osh_status osh_folding_new(osh_ctx *cx, osh_folding **out, const osh_plan *p, const osh_range *r);
void osh_folding_free(osh_ctx *cx, osh_folding *f);
osh_status osh_folding_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x, const osh_batch *b); // exec hook
/* All tokens are fed. Factors of the range, one layer after the other: made, recorded, folded into the weights that w
 * holds and, for whoever reads them later, into the checkpoint's. */
osh_status osh_run_fold(osh_ctx *cx, osh_run *r, const osh_folding *f, const osh_weights *w);
#endif
