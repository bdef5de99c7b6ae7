/* groups.c - finds the config group of a module. One matcher contains the targets of all groups. */
#include "quant/groups.h"

#include "text/match.h"

struct osh_groups {
    osh_matcher *targets; // own: matches a module with the targets of all config groups
    int *group;           // own: index of the config group of each target
};

osh_status osh_groups_new(osh_ctx *cx, osh_groups **out, const osh_q_config *c)
{
    osh_status rc = OSH_OK;
    osh_groups *g = NULL;     // own
    const char **all = NULL;  // own array of views: the targets of all config groups
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) n += c->schemes[i].targets.n;
    OSH_NEW(cx, g, 1);
    OSH_NEW(cx, all, n);
    OSH_NEW(cx, g->group, n);
    n = 0;
    for (size_t i = 0; i < c->n; i++)
        for (size_t t = 0; t < c->schemes[i].targets.n; t++, n++)
            all[n] = c->schemes[i].targets.items[t], g->group[n] = (int)i;
    OSH_TRY(osh_matcher_new(cx, &g->targets, all, n));
    *out = g, g = NULL; // give
done:
    osh_groups_free(cx, g);
    osh_free(cx, all);
    return rc;
}

void osh_groups_free(osh_ctx *cx, osh_groups *g)
{
    if (!g) return;
    osh_matcher_free(cx, g->targets);
    osh_free(cx, g->group);
    osh_free(cx, g);
}

osh_status osh_groups_find(osh_ctx *cx, int *group, osh_groups *g, const char *module,
                           const char *cls)
{
    int64_t which = -1;
    osh_status rc = osh_matcher_find(cx, &which, g->targets, module, cls);
    *group = which < 0 ? -1 : g->group[which];
    return rc;
}
