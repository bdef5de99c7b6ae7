/* only.h - --only: a part of the modules is quantized, everything else copied bit for bit. A source of
 * compressed-tensors keeps the codes and the groups of the modules that are not named. */
#ifndef OSH_ONLY_H
#define OSH_ONLY_H
#include "plan/plan.h"

osh_status osh_only_open(osh_ctx *cx, osh_plan *p); // the matcher, before the source is opened
/* What --only does not go with: modifiers that change weights beside those that they are for. */
osh_status osh_only_check(osh_ctx *cx, const osh_plan *p);
osh_status osh_only_takes(osh_ctx *cx, bool *yes, const osh_plan *p, const char *module); // without --only: each
/* The groups of the source that some module keeps, in front of the recipe's. */
osh_status osh_only_schemes(osh_ctx *cx, osh_plan *p);
int osh_only_kept(const osh_plan *p, int64_t tensor, const char *module); // its group among the plan's; -1: not kept
/* names[i] of group which[i]: the recipe's groups get their modules by name, as a target of the source's may be the
 * same. */
osh_status osh_only_name(osh_ctx *cx, osh_plan *p, const char *const *names, const int *which, int64_t n);
osh_status osh_only_warn(osh_ctx *cx, const osh_plan *p); // of what matches nothing
#endif
