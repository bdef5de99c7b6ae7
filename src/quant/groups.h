/* groups.h - finds the config group of a module by the targets of all groups. Exact names are tried
 * first, then regexes, then class names (compressed_tensors/utils/match.py, match_targets). */
#ifndef OSH_GROUPS_H
#define OSH_GROUPS_H
#include "quant/scheme.h"

typedef struct osh_groups osh_groups;
/* Compiles the targets of the config groups of `c`, which must outlive *out. The caller frees *out
 * with osh_groups_free. Fails if a target is not a valid regex. */
osh_status osh_groups_new(osh_ctx *cx, osh_groups **out, const osh_q_config *c);
void osh_groups_free(osh_ctx *cx, osh_groups *g);
/* Sets *group to the index of the config group of the module, or to -1 if no target matches the
 * module. */
osh_status osh_groups_find(osh_ctx *cx, int *group, osh_groups *g, const char *module,
                           const char *cls);
#endif
