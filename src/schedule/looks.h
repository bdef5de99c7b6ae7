/* looks.h - plans the two looks of two-pass observers (osh_observer_twice). A look is one pass of
 * an observer over a value. The first look counts the elements of the value in a histogram. The
 * second look measures the loss of rounding. Three modes say how the second look gets the value: it
 * is kept in memory (ram) or on the disk (disk), or it is computed again (recompute).
 *
 *   ram, disk   pass: count, keep | read the kept values again, measure | solve
 *   recompute   pass that computes only these values: count | pass: measure | solve
 *
 * In every mode, both looks read the inputs of the subgraph from the activation store, and the
 * observers get the same values in the order of the samples. So the output does not depend on the
 * mode. */
#ifndef OSH_LOOKS_H
#define OSH_LOOKS_H
#include "schedule/range.h"

/* Returns the name of a mode as in the options: "ram", "disk" or "recompute". */
const char *osh_look_name(osh_look l);
/* Sets *first and *last to the fastest and the slowest mode that the option calib_cache allows
 * (NULL: auto). With `auto`, a job on a GPU uses only the mode recompute. */
void osh_looks_allowed(osh_look *first, osh_look *last, const char *calib_cache, bool on_device);
bool osh_looks_twice(const osh_schedule *p); // true if the run has a two-pass observer
/* Finds the values of range r that two-pass observers read.
 * values [graph values]: the function considers only Linears whose input is in this set; NULL: all
 * Linears.
 * kept [graph values]: set to true for each value that is kept between the two looks; may be NULL.
 * again [graph values]: set to true for each value that is computed a second time, or read a second
 * time from the activation store; may be NULL.
 * Does not change the other entries. Returns true if it set an entry. */
bool osh_looks_of(bool *kept, bool *again, const osh_schedule *p, const osh_range *r,
                  const bool *values);
#endif
