/* best.h - the decisions of quality best for options that the caller does not name: the sequential
 * targets are Linear, a sample has at most 2048 tokens, and groups of 64 or 32 replace those of the
 * scheme if these do not divide the columns of the modules (match/plan_match.c). A named option is
 * never changed. */
#ifndef OSH_BEST_H
#define OSH_BEST_H
#include "plan/plan.h"

void osh_best_begin(osh_inputs *in);  // needs the recipe; sets `best` and `targets`
void osh_best_length(osh_inputs *in); // needs `best`; in->max_seq_length is the limit of the model
/* Appends the flags that would say the same, separated by commas. Appends nothing if nothing was
 * decided. */
osh_status osh_best_tell(osh_ctx *cx, osh_buf *b, const osh_plan *p);
#endif
