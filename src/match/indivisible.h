/* indivisible.h - finds modules whose columns are not a multiple of the group size of their scheme.
 * padding.h adds zeros to such modules. */
#ifndef OSH_INDIVISIBLE_H
#define OSH_INDIVISIBLE_H
#include "match/modules.h"

/* With --indivisible dense, leaves the module dense if the group size of its scheme does not divide
 * the number of its columns, or of the columns that one GPU gets. */
void osh_indivisible_leave(const osh_matching *p, osh_plan_module *c, int *modifier);
/* Sets p->smaller_groups if `quality best` chooses other groups for the Linears. Otherwise, fails
 * if the group size of a Linear does not divide the number of its columns. */
osh_status osh_indivisible_check(osh_ctx *cx, osh_matching *p);
#endif
