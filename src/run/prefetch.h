/* prefetch.h - reads the weights of the next visit on a thread of its own while this one computes. */
#ifndef OSH_PREFETCH_H
#define OSH_PREFETCH_H
#include "plan/plan.h"

typedef struct osh_prefetch osh_prefetch;
/* want [weights]: those to read for this visit; they count as host memory until they are taken. On a card their places
 * are taken now, where the plan has any, and they are copied there beside the work; else, or without room, that is left
 * to the one who takes them. solved: nothing is left to solve in the visit. p must outlive it. */
osh_status osh_prefetch_start(osh_ctx *cx, osh_prefetch **out, const osh_plan *p, const bool *want, int visit,
                              bool solved);
/* Waits, and gives w what it lacks: without a device as device memory, else to its host copies, and to w what is on the
 * device already. The reader's failure is this call's. */
osh_status osh_prefetch_take(osh_ctx *cx, osh_prefetch *f, osh_weights *w);
void osh_prefetch_free(osh_ctx *cx, osh_prefetch *f); // waits; what was not taken goes
#endif
