/* only.h - --only: some modules are quantized, everything else is copied bit for bit. If the source
 * is in compressed-tensors, the modules that are not named keep their codes and groups. */
#ifndef OSH_ONLY_H
#define OSH_ONLY_H
#include "match/matching.h"

/* Makes the matcher, before the source is opened. */
osh_status osh_only_open(osh_ctx *cx, osh_inputs *in);
/* Refuses --only with modifiers that change weights of other modules, too. */
osh_status osh_only_check(osh_ctx *cx, const osh_matching *p);
/* Without --only: always true. */
osh_status osh_only_takes(osh_ctx *cx, bool *yes, const osh_matching *p, const char *module);
/* Puts the groups of the source that some module keeps before the recipe's groups. */
osh_status osh_only_schemes(osh_ctx *cx, osh_matching *p);
/* Its group among the plan's; -1: not kept. */
int osh_only_kept(const osh_matching *p, int64_t tensor, const char *module);
/* names[i] belongs to group which[i]. The recipe's groups list their modules by name, since a
 * target of the source may be the same. */
osh_status osh_only_name(osh_ctx *cx, osh_matching *p, const char *const *names, const int *which,
                         int64_t n);
osh_status osh_only_warn(osh_ctx *cx, const osh_matching *p); // warns about patterns without a match
#endif
