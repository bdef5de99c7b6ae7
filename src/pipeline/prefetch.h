/* prefetch.h - reads the weights of the next visit on a thread of its own while this one computes. */
#ifndef OSH_PREFETCH_H
#define OSH_PREFETCH_H
#include "graph/exec.h"

typedef struct osh_prefetch osh_prefetch;
/* want [weights]: those to read; they count as host memory until they are taken. device: where their place is taken now
 * and they are copied to beside the work; NULL, or no room there: that is left to the one who takes them. g and ck must
 * outlive it. */
osh_status osh_prefetch_start(osh_ctx *cx, osh_prefetch **out, const osh_graph *g, const osh_checkpoint *ck,
                              const bool *want, osh_device *device);
/* Waits, and gives w what it lacks: without a device as device memory, else to its host copies, and to w what is on the
 * device already. The reader's failure is this call's. */
osh_status osh_prefetch_take(osh_ctx *cx, osh_prefetch *f, osh_weights *w);
void osh_prefetch_free(osh_ctx *cx, osh_prefetch *f); // waits; what was not taken goes
#endif
