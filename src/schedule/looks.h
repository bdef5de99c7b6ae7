/* looks.h - plans the two looks of two-pass observers (osh_observer_twice). A look is one pass of
 * an observer over a value: the first look counts values in a histogram, the second look measures
 * the loss of rounding. Between the looks a value is kept in memory or on the disk, or it is
 * computed again:
 *
 *   ram, disk   pass: count, keep | read the kept values again, measure | solve
 *   recompute   pass that computes only these values: count | pass: measure | solve
 *
 * For inputs of the subgraph, both looks read the store, in every mode. The observers read the same
 * values, sample by sample, in all modes, so the output does not depend on the mode. */
#ifndef OSH_LOOKS_H
#define OSH_LOOKS_H
#include "schedule/range.h"

const char *osh_look_name(osh_look l);
bool osh_looks_twice(const osh_schedule *p); // true if the run has a two-pass observer
/* Finds the values that two-pass observers read. values [graph values]: only Linears whose input is
 * in this set are considered; NULL: all Linears. kept, again [graph values] or NULL: the function
 * sets kept[v] to true if value v is kept between the two passes, and again[v] to true if it is
 * computed again or read again from the store. It changes no other entry. Returns true if it set an
 * entry. */
bool osh_looks_of(bool *kept, bool *again, const osh_schedule *p, const osh_range *r,
                  const bool *values);
#endif
