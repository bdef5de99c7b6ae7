/* only.h - the option --only: some modules are quantized, everything else is copied bit for bit. If
 * the source is a compressed-tensors checkpoint, all other modules keep their codes and groups. */
#ifndef OSH_ONLY_H
#define OSH_ONLY_H
#include "match/matching.h"

/* Makes the matcher. Called before the source is opened. */
osh_status osh_only_open(osh_ctx *cx, osh_inputs *in);
/* Refuses --only together with modifiers that also change weights of other modules. */
osh_status osh_only_check(osh_ctx *cx, const osh_matching *p);
/* Sets *yes to true if --only names the module, or is not given. */
osh_status osh_only_takes(osh_ctx *cx, bool *yes, const osh_matching *p, const char *module);
/* Inserts the groups of the source that modules keep before the groups of the recipe. */
osh_status osh_only_schemes(osh_ctx *cx, osh_matching *p);
/* Returns the index in the plan's groups of the group that the module keeps. -1: it keeps none. */
int osh_only_kept(const osh_matching *p, int64_t tensor, const char *module);
/* Replaces the targets of the recipe's groups by the names of their modules, because a target of
 * the source may be equal to a target of the recipe. Module names[i] is in group which[i]. */
osh_status osh_only_name(osh_ctx *cx, osh_matching *p, const char *const *names, const int *which,
                         int64_t n);
/* Warns about patterns without a match. */
osh_status osh_only_warn(osh_ctx *cx, const osh_matching *p);
#endif
