/* pruned.c - finds the Linears that pruning modifiers match. The targets name modules, and every
 * Linear inside of such a module is pruned, as in LLM Compressor (sgpt_base.py). If the sparsity is
 * a list, it has one value for each module that the targets name, in the order of the model. */
#include "match/pruned.h"

#include <string.h>

#include "base/map.h"
#include "modifiers/prune.h"

static char pruned_name[] = "pruned";
const osh_q_scheme osh_pruned_scheme = {.group_name = pruned_name};

/* Finds the innermost module that a target of the modifier matches. Considers the module with the
 * name of->name, and all modules that contain it. Sets *len to the length of the name that was
 * found. This name is a prefix of of->name. Sets *len to 0 if no target matches. */
static osh_status pruner_find_target(osh_ctx *cx, size_t *len, const osh_matching *p,
                                     const osh_map *modules, osh_modifier *mod,
                                     const osh_prunable *of)
{
    osh_status rc = OSH_OK;
    const char *cls = of->cls;
    osh_buf b;
    osh_buf_init(&b, 0);
    *len = 0;
    for (size_t n = strlen(of->name); n;) {
        int64_t at, hit = -1;
        osh_buf_clear(&b);
        OSH_TRY(osh_buf_append(cx, &b, of->name, n));
        if (modules && osh_map_get(modules, of->name, n, &at)) cls = p->in->graph->modules[at].cls;
        OSH_TRY(osh_matcher_find(cx, &hit, mod->targets, b.data, cls));
        if (hit >= 0) {
            *len = n;
            break;
        }
        while (n && of->name[n - 1] != '.') n--;
        if (n) n--;
        cls = NULL;
    }
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Sets *out to the sparsity that OWL (eval/owl.c) gives to the decoder layer of the module `name`.
 * Before OWL has measured the layers, all layers have the same sparsity. */
static osh_status owl_share(osh_ctx *cx, double *out, const osh_matching *p, const osh_map *modules,
                            const osh_owl *owl, const char *name)
{
    const char *cls = p->in->graph ? p->in->graph->layer_class : NULL;
    int64_t at = -1;
    for (size_t n = strlen(name); n && modules; n--) {
        if (name[n] && name[n] != '.') continue;
        if (!osh_map_get(modules, name, n, &at) || !cls ||
            strcmp(p->in->graph->modules[at].cls, cls))
            continue;
        *out = owl->sparsity;
        for (size_t i = 0; i < owl->n_shares; i++) {
            const osh_layer_share *s = &owl->shares[i];
            *out = s->sparsity;
            if (strlen(s->layer) == n && !memcmp(s->layer, name, n)) return OSH_OK;
        }
        if (!owl->n_shares) return OSH_OK;
        return osh_fail(cx, OSH_E_USAGE, "layer_sparsities has no entry for %.*s", (int)n, name);
    }
    return osh_fail(cx, OSH_E_USAGE,
                    "%s is not in a decoder layer, and sparsity_profile owl sets a sparsity only "
                    "for decoder layers: want it in ignore",
                    name);
}

static osh_status pruner_match(osh_ctx *cx, osh_matching *p, const osh_map *modules, int m,
                               osh_prunable *of, int64_t n_of)
{
    osh_status rc = OSH_OK;
    osh_modifier *mod = &p->in->recipe->modifiers[m];
    const char *last = NULL; // view: name of the module that a target matched last
    size_t n_last = 0;
    int n = 0;
    for (int64_t i = 0; i < n_of; i++) {
        osh_prunable *c = &of[i];
        size_t len;
        int64_t out = -1;
        if (c->never) continue;
        OSH_TRY(pruner_find_target(cx, &len, p, modules, mod, c));
        if (!len) continue;
        if (!last || n_last != len || memcmp(last, c->name, len)) n++;
        last = c->name, n_last = len;
        OSH_TRY(osh_matcher_find(cx, &out, mod->ignored, c->name, c->cls));
        if (out >= 0) continue;
        if (c->unseen && mod->type->solver->wants(mod, &osh_pruned_scheme)) {
            c->unreached = true;
            continue;
        }
        if (c->modifier >= 0)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s is a target of %s and of %s: want one of them to prune it", c->name,
                     p->in->recipe->modifiers[c->modifier].type->name, mod->type->name);
        c->modifier = m, c->aimed = n - 1;
        if (!strcmp(c->name, "lm_head"))
            osh_log(cx, OSH_LOG_WARN,
                    "lm_head is also pruned, as with %s of LLM Compressor: want it in ignore to "
                    "keep it",
                    mod->type->name);
    }
    const osh_owl *owl = mod->type->pruner->owl(mod);
    for (int64_t i = 0; i < n_of; i++) {
        if (of[i].modifier != m) continue;
        if (owl) OSH_TRY(owl_share(cx, &of[i].sparsity, p, modules, owl, of[i].name));
        else
            OSH_TRY(mod->type->pruner->sparsity(cx, &of[i].sparsity, mod, of[i].aimed, n));
    }
done:
    return rc;
}

osh_status osh_plan_prune(osh_ctx *cx, osh_matching *p, osh_prunable *of, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_map *modules = NULL; // own: maps the name of a module to its index in the graph
    bool any = false;
    for (int64_t i = 0; i < n; i++) of[i].modifier = -1, of[i].sparsity = 0;
    for (size_t m = 0; m < p->in->recipe->n; m++)
        any |= p->in->recipe->modifiers[m].type->pruner != NULL;
    if (!any) goto done;
    if (p->in->graph) {
        OSH_TRY(osh_map_new(cx, &modules, (size_t)p->in->graph->n_modules));
        for (int i = 0; i < p->in->graph->n_modules; i++) {
            const char *name = p->in->graph->modules[i].name;
            OSH_TRY(osh_map_put(cx, modules, name, strlen(name), i));
        }
    }
    for (size_t m = 0; m < p->in->recipe->n; m++)
        if (p->in->recipe->modifiers[m].type->pruner)
            OSH_TRY(pruner_match(cx, p, modules, (int)m, of, n));
done:
    osh_map_free(cx, modules);
    return rc;
}

osh_status osh_plan_pruned(osh_ctx *cx, const osh_matching *p, osh_linear *l, int pruner)
{
    osh_status rc = OSH_OK;
    const osh_modifier *m = &p->in->recipe->modifiers[l->modifier],
                       *by = &p->in->recipe->modifiers[pruner];
    l->wants |= by->type->solver->wants(by, l->scheme);
    OSH_TRY(by->type->pruner->takes(cx, by, l->name, l->I));
    if (m != by && (osh_modifier_freedom(m) & OSH_FREE_ZEROS))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s is pruned by %s, and target 'original' or refine of %s would change its "
                 "zeros: want no refine and no target 'original' (--quality gptq)",
                 l->name, by->type->name, m->type->name);
done:
    return rc;
}
