/* looks.h - plans the looks of observers that look at each value twice (osh_observer_twice): the
 * first look counts values, the second measures the loss. Between the looks a value is kept in
 * memory or on the disk, or it is computed again:
 *
 *   ram, disk   pass: count, keep | read the kept values again, measure | solve
 *   recompute   pass that computes only these values: count | pass: measure | solve
 *
 * Inputs of the subgraph, which are in the store anyway, are read from the store again in each
 * mode. All modes see the same values, sample by sample, so no byte of the output depends on the
 * mode. */
#ifndef OSH_LOOKS_H
#define OSH_LOOKS_H
#include "schedule/range.h"

const char *osh_look_name(osh_look l);
bool osh_looks_twice(const osh_schedule *p); // true if some observer of the run looks twice
/* True if observers of this Linear's input, or of a cache that belongs to it, look at `value`
 * twice. */
bool osh_linear_looks(const osh_schedule *p, const osh_linear *l, int value);
/* Marks the values that the readers of `values` look at twice: in `kept` those that are kept, in
 * `again` those that are computed or read again. Both are [graph values] or NULL; entries are set
 * to true or left unchanged. Returns true if a value of a marked kind exists. */
bool osh_looks_of(bool *kept, bool *again, const osh_schedule *p, const osh_range *r,
                  const bool *values);
#endif
