/* looks.h - observers that look at each value twice (osh_observer_twice): they count all of it, and then measure what
 * it would lose. Between the looks a value is kept, in memory or on the disk, or it is made once more:
 *
 *   ram, disk   pass: count, keep | read back what is kept, measure | solve
 *   recompute   pass that makes these values alone: count | pass: measure | solve
 *
 * What rests in the store in any case, as it comes into the subgraph, is read from there again, with each of them. All
 * of them see the same values, sample by sample, so no byte of the output depends on it. */
#ifndef OSH_LOOKS_H
#define OSH_LOOKS_H
#include "plan/visit.h"

const char *osh_look_name(osh_look l);
bool osh_looks_twice(const osh_plan *p); // some observer of the run does
/* The observers of this Linear's input, or of a cache beside it, that see `value` do. */
bool osh_linear_looks(const osh_plan *p, const osh_linear *l, int value);
/* Of what the Linears that read one of `values` look at twice: what is kept, and what is made or read again. Both
 * [graph values], set where it is so and else left; NULL: not asked. True: there is some of what was asked. */
bool osh_looks_of(bool *kept, bool *again, const osh_plan *p, const osh_range *r, const bool *values);
#endif
