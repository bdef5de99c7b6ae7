/* best.h - the decisions of `quality best` for settings that no option sets. The sequential targets
 * are Linear. A sample has at most 2048 tokens. If the group size of the scheme does not divide the
 * columns of the modules, it becomes 64 or 32 (match/plan_match.c). An option that is set is never
 * changed. */
#ifndef OSH_BEST_H
#define OSH_BEST_H
#include "plan/plan.h"

void osh_best_begin(osh_inputs *in);  // sets `best` and `targets`; in->recipe must be set
/* Limits in->max_seq_length, which must be the limit of the model; `best` must be set. */
void osh_best_length(osh_inputs *in);
/* Appends the command-line flags that would give the same settings, separated by commas. Appends
 * nothing if `quality best` has decided nothing. */
osh_status osh_best_tell(osh_ctx *cx, osh_buf *b, const osh_plan *p);
#endif
