/* prefetch.h - reads the weights of the next visit on a thread during the current visit. */
#ifndef OSH_PREFETCH_H
#define OSH_PREFETCH_H
#include "budget/budget.h"

typedef struct osh_prefetch osh_prefetch;
/* Begins to read weights for a visit. want [weights]: true for the weights to read. The weights
 * count as host memory until osh_prefetch_take. If the plan prefetches to the device, this call
 * allocates blocks for the weights on the device, and the thread copies the weights to them. If the
 * device does not have enough free memory, osh_prefetch_take gives only host copies. solved: the
 * visit has nothing to solve. p must outlive *out. */
osh_status osh_prefetch_start(osh_ctx *cx, osh_prefetch **out, const osh_budget *p,
                              const bool *want, int visit, bool solved);
/* Waits for the thread, and moves the weights that w does not have to w. Without a device they
 * become weights of class OSH_MEM_DEVICE. With a device they become host copies, and their blocks
 * on the device are moved too. Returns the error of the thread, if it failed. f may be NULL. */
osh_status osh_prefetch_take(osh_ctx *cx, osh_prefetch *f, osh_weights *w);
/* Stops and joins the thread, and frees the weights that were not taken. */
void osh_prefetch_free(osh_ctx *cx, osh_prefetch *f);
#endif
