/* only.c - implements --only. The option names modules. For all other modules, the output keeps the
 * codes and the config groups of the quantized source. */
#include "match/only.h"

#include <stdio.h>
#include <string.h>

#include "quant/source.h"

osh_status osh_only_open(osh_ctx *cx, osh_inputs *in)
{
    const osh_strs *only = &in->opt->only;
    if (!only->n) return OSH_OK;
    return osh_matcher_new(cx, &in->only, (const char *const *)only->items, only->n);
}

osh_status osh_only_check(osh_ctx *cx, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    if (p->in->only && osh_source_queries(p->in->source))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "the source has a config group for attention, and --only does not support such a "
                 "group");
    for (size_t m = 0; p->in->only && m < p->in->recipe->n; m++) {
        const osh_modifier *mod = &p->in->recipe->modifiers[m];
        if (osh_modifier_changes_others(mod))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "--only copies all other tensors unchanged, but %s changes weights that are "
                     "not quantized",
                     mod->type->name);
        if (mod->cache.present && osh_source_cache(p->in->source))
            OSH_FAIL(cx, OSH_E_USAGE,
                     "--only keeps the kv_cache_scheme of the source, and the recipe has another: "
                     "want one of them");
    }
done:
    return rc;
}

osh_status osh_only_takes(osh_ctx *cx, bool *yes, const osh_matching *p, const char *module)
{
    int64_t which = 0;
    osh_status rc = p->in->only ? osh_matcher_find(cx, &which, p->in->only, module, NULL) : OSH_OK;
    *yes = which >= 0;
    return rc;
}

static osh_status scheme_keep(osh_ctx *cx, osh_q_scheme *to, const osh_q_scheme *from,
                              const cJSON *groups)
{
    osh_status rc = OSH_OK;
    const osh_format *f;
    *to = *from;
    to->raw = cJSON_GetObjectItemCaseSensitive(groups, from->group_name);
    to->targets = (osh_strs){0}, to->group_name = osh_strdup(cx, from->group_name);
    if (!to->group_name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a group's name");
    OSH_NEW(cx, to->targets.items, from->targets.n);
    for (; to->targets.n < from->targets.n; to->targets.n++)
        if (!(to->targets.items[to->targets.n] =
                  osh_strdup(cx, from->targets.items[to->targets.n])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for targets");
    OSH_TRY(osh_format_infer(cx, &f, to, to->group_name));
    snprintf(to->format, sizeof to->format, "%s", f->name);
done:
    return rc;
}

osh_status osh_only_schemes(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    const osh_q_config *c = osh_source_config(p->in->source);
    const cJSON *groups =
        cJSON_GetObjectItemCaseSensitive(p->in->ck->config->quantization_config, "config_groups");
    for (size_t i = 0; p->in->only && c && i < c->n; i++) {
        rc = scheme_keep(cx, &p->schemes[p->n_schemes++], &c->schemes[i], groups);
        if (rc) goto done;
    }
    p->n_kept_schemes = p->n_schemes;
done:
    return rc;
}

int osh_only_kept(const osh_matching *p, int64_t tensor, const char *module)
{
    const osh_tensor *scale, *zero;
    if (!osh_checkpoint_is_kept(p->in->ck, tensor)) return -1;
    return (int)(osh_source_scheme(p->in->source, module, &scale, &zero) -
                 osh_source_config(p->in->source)->schemes);
}

static bool is_group_name(const osh_matching *p, const char *name)
{
    for (size_t i = 0; i < p->n_schemes; i++)
        if (p->schemes[i].group_name && !strcmp(p->schemes[i].group_name, name)) return true;
    return false;
}

static osh_status name_targets(osh_ctx *cx, osh_matching *p, int scheme, const char *const *names,
                               const int *which, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_q_scheme *s = &p->schemes[scheme];
    char name[32];
    osh_strs_deinit(cx, &s->targets);
    OSH_NEW(cx, s->targets.items, n);
    for (int64_t i = 0; i < n; i++) {
        if (which[i] != scheme) continue;
        if (!(s->targets.items[s->targets.n] = osh_strdup(cx, names[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for targets");
        s->targets.n++;
    }
    osh_free(cx, s->group_name);
    s->group_name = NULL;
    for (int k = 0; snprintf(name, sizeof name, "group_%d", k), is_group_name(p, name); k++) {}
    if (!(s->group_name = osh_strdup(cx, name)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a group's name");
done:
    return rc;
}

osh_status osh_only_name(osh_ctx *cx, osh_matching *p, const char *const *names, const int *which,
                         int64_t n)
{
    osh_status rc = OSH_OK;
    for (size_t s = p->n_kept_schemes; p->n_kept_schemes && s < p->n_schemes; s++)
        OSH_TRY(name_targets(cx, p, (int)s, names, which, n));
done:
    return rc;
}

osh_status osh_only_warn(osh_ctx *cx, const osh_matching *p)
{
    for (size_t i = 0; i < p->in->opt->only.n; i++) {
        bool again = false;
        for (size_t h = 0; h < i; h++)
            again |= !strcmp(p->in->opt->only.items[h], p->in->opt->only.items[i]);
        if (!again && !osh_matcher_hits(p->in->only, i))
            osh_log(cx, OSH_LOG_WARN, "--only %s matches no module", p->in->opt->only.items[i]);
    }
    return OSH_OK;
}
