/* prefetch.h - reads weights of the next visit during the current visit, on a thread. */
#ifndef OSH_PREFETCH_H
#define OSH_PREFETCH_H
#include "budget/layout.h"

typedef struct osh_prefetch osh_prefetch;
/* Begins to read weights for visit number `visit`. want [graph weights]: true for the weights to
 * read. begins: the first part of the visit. It is OSH_WAY_AHEAD, or a later part if a resumed run
 * skips parts. The weights count as host memory until osh_prefetch_take. p must outlive *out.
 * If the plan has decided so (prefetch_device), this call also allocates blocks on the GPU, and the
 * thread copies the weights to these blocks. If the blocks do not fit, the weights are only read to
 * host memory. */
osh_status osh_prefetch_start(osh_ctx *cx, osh_prefetch **out, const osh_budget *p,
                              const bool *want, int visit, osh_way begins);
/* Waits for the thread. Passes ownership of the weights to `w`, except of weights that `w` already
 * has. Without a GPU, the memory class of the weights becomes OSH_MEM_DEVICE. With a GPU, the
 * weights become the copies in host memory, and `w` also gets their blocks on the GPU. If the
 * thread failed, fails with its error. f may be NULL. */
osh_status osh_prefetch_take(osh_ctx *cx, osh_prefetch *f, osh_weights *w);
/* Stops the thread and waits for its end. Frees the weights that were not taken. */
void osh_prefetch_free(osh_ctx *cx, osh_prefetch *f);
#endif
