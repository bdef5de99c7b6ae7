/* indivisible.h - handles modules whose number of columns is not a multiple of the group size of
 * their scheme. (padding.h can add zeros to such modules instead.) */
#ifndef OSH_INDIVISIBLE_H
#define OSH_INDIVISIBLE_H
#include "match/modules.h"

/* With --indivisible dense, leaves the module dense if its number of columns is not a multiple of
 * the group size. With --tensor-parallel, only the columns that one GPU gets are counted. */
void osh_indivisible_leave(const osh_matching *p, osh_plan_module *c, int *modifier);
/* Checks that the number of columns of each Linear is a multiple of its group size. If it is not,
 * and `quality best` may choose a smaller group size, sets p->smaller_groups to this size. If there
 * is no such size, fails. */
osh_status osh_indivisible_check(osh_ctx *cx, osh_matching *p);
#endif
