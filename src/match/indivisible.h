/* indivisible.h - finds modules whose number of columns is not a multiple of the group size of
 * their scheme. (padding.h can add zeros to such modules.) */
#ifndef OSH_INDIVISIBLE_H
#define OSH_INDIVISIBLE_H
#include "match/modules.h"

/* With --indivisible dense, leaves the module dense if its number of columns is not a multiple of
 * the group size. With --tensor-parallel, the columns that one GPU gets are counted. */
void osh_indivisible_leave(const osh_matching *p, osh_plan_module *c, int *modifier);
/* Sets p->smaller_groups if `quality best` chooses smaller groups for the Linears. Otherwise fails
 * if the number of columns of a Linear is not a multiple of its group size. */
osh_status osh_indivisible_check(osh_ctx *cx, osh_matching *p);
#endif
