/* indivisible.h - handles modules whose number of columns is not a multiple of the group size of
 * their scheme. (padding.h can add zeros to such modules instead.) */
#ifndef OSH_INDIVISIBLE_H
#define OSH_INDIVISIBLE_H
#include "match/modules.h"

/* With --indivisible dense, leaves the module dense if its number of columns is not a multiple of
 * the group size. With --tensor-parallel, only the columns that one GPU gets are counted. */
void osh_indivisible_leave(const osh_matching *p, osh_plan_module *c, int *modifier);
/* Checks that the number of columns of each Linear is a multiple of the Linear's group size. If it
 * is not, sets p->smaller_groups to the smaller group size that `quality best` chooses. Fails if
 * `quality best` chooses none. */
osh_status osh_indivisible_check(osh_ctx *cx, osh_matching *p);
#endif
