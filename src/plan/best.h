/* best.h - chooses settings that no option gives, if a modifier has `quality best`:
 * - The sequential targets are Linear.
 * - A sample has at most 2048 tokens.
 * - If the group size of the scheme does not divide the columns of all modules, the group size
 *   becomes 64 or 32 (match/plan_match.c). */
#ifndef OSH_BEST_H
#define OSH_BEST_H
#include "plan/plan.h"

void osh_best_begin(osh_inputs *in);  // sets in->best and in->targets from in->recipe
/* If in->best is true and --max-seq-length is not given, limits in->max_seq_length to 2048. On
 * entry, in->max_seq_length must be the limit of the model. */
void osh_best_length(osh_inputs *in);
/* Appends the command-line flags that give the same settings as the decisions of `quality best`.
 * Commas separate the flags. Appends nothing if there are no decisions. */
osh_status osh_best_tell(osh_ctx *cx, osh_buf *b, const osh_plan *p);
#endif
