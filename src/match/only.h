/* only.h - implements the option --only. The run quantizes the modules that the option names, and
 * copies everything else bit for bit. If the source is a compressed-tensors checkpoint, the other
 * modules keep their codes, and the output's config keeps their groups. */
#ifndef OSH_ONLY_H
#define OSH_ONLY_H
#include "match/matching.h"

/* Makes in->only, which matches the modules that --only names. Must be called before the source is
 * opened. */
osh_status osh_only_open(osh_ctx *cx, osh_inputs *in);
/* With --only, fails if a modifier also changes weights of modules that --only does not name. */
osh_status osh_only_check(osh_ctx *cx, const osh_matching *p);
/* Sets *yes to true if --only names the module, or if the option is not given. */
osh_status osh_only_takes(osh_ctx *cx, bool *yes, const osh_matching *p, const char *module);
/* Some modules keep their codes. Inserts the config groups that these modules have in the source
 * into p->schemes, before the groups of the recipe. */
osh_status osh_only_schemes(osh_ctx *cx, osh_matching *p);
/* If the module keeps its codes, returns the index in p->schemes of its config group, which
 * osh_only_schemes has inserted. Otherwise returns -1. */
int osh_only_kept(const osh_matching *p, int64_t tensor, const char *module);
/* Replaces the targets of each group of the recipe by the names of the group's modules. (Groups of
 * the source may have the same targets.) names [n]: names of all modules. which[i]: index of the
 * group of module names[i]. */
osh_status osh_only_name(osh_ctx *cx, osh_matching *p, const char *const *names, const int *which,
                         int64_t n);
/* Warns about patterns of --only that match no module. */
osh_status osh_only_warn(osh_ctx *cx, const osh_matching *p);
#endif
