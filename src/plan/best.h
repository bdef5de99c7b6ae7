/* best.h - the decisions of `quality best` for settings that the user does not give as options:
 * - The sequential targets are Linear.
 * - A sample has at most 2048 tokens.
 * - If the group size of the scheme does not divide the columns of the modules, the group size
 *   becomes 64 or 32 (match/plan_match.c). */
#ifndef OSH_BEST_H
#define OSH_BEST_H
#include "plan/plan.h"

void osh_best_begin(osh_inputs *in);  // sets in->best and in->targets from in->recipe
/* If in->best is true and --max-seq-length is not given, lowers in->max_seq_length to at most 2048.
 * On entry, in->max_seq_length must be the limit of the model. */
void osh_best_length(osh_inputs *in);
/* Appends the command-line flags that give the same settings as the decisions, separated by commas.
 * Appends nothing if `quality best` has decided nothing. */
osh_status osh_best_tell(osh_ctx *cx, osh_buf *b, const osh_plan *p);
#endif
