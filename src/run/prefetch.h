/* prefetch.h - reads the weights of the next visit on a thread during the current visit. */
#ifndef OSH_PREFETCH_H
#define OSH_PREFETCH_H
#include "budget/layout.h"

typedef struct osh_prefetch osh_prefetch;
/* Begins to read weights for visit number `visit`. want [graph weights]: true for the weights to
 * read. begins: OSH_WAY_AHEAD, or in a resumed run that skips parts of the visit, its first part.
 * The weights count as host memory until osh_prefetch_take. If the plan has decided so
 * (prefetch_device), this call also allocates blocks on the GPU, and the thread copies the weights
 * to the blocks. If the blocks do not fit, the weights are read only to host memory. p must outlive
 * *out. */
osh_status osh_prefetch_start(osh_ctx *cx, osh_prefetch **out, const osh_budget *p,
                              const bool *want, int visit, osh_way begins);
/* Waits for the thread, and passes ownership of the weights that `w` does not have to `w`. Without
 * a GPU the weights change to the memory class OSH_MEM_DEVICE. With a GPU the weights become host
 * copies, and ownership of their blocks on the GPU also passes to `w`. Fails with the error of the
 * thread if the thread failed. f may be NULL. */
osh_status osh_prefetch_take(osh_ctx *cx, osh_prefetch *f, osh_weights *w);
/* Stops and joins the thread. Frees the weights that were not taken. */
void osh_prefetch_free(osh_ctx *cx, osh_prefetch *f);
#endif
