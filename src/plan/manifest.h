/* manifest.h - the fate of every tensor of the source. */
#ifndef OSH_MANIFEST_H
#define OSH_MANIFEST_H
#include "plan/plan.h"

typedef enum { OSH_FATE_NONE, OSH_FATE_COPIED, OSH_FATE_CHANGED, OSH_FATE_QUANTIZED } osh_fate;
/* Finds the fate of each source tensor; a tensor without exactly one is a plan error. *out: own
 * [ck->n_tensors]. */
osh_status osh_plan_fates(osh_ctx *cx, osh_fate **out, const osh_plan *p);
#endif
