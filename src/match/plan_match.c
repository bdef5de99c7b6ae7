/* plan_match.c - assigns schemes to modules as compressed-tensors does. Also finds the statistics
 * that the modules need, and makes the output's config, which is checked with vLLM's rules. */
#include <stdio.h>
#include <string.h>

#include "base/name.h"
#include "base/near.h"
#include "graph/heads.h"
#include "match/cache.h"
#include "match/dense.h"
#include "match/globals.h"
#include "match/indivisible.h"
#include "match/loaders.h"
#include "match/modules.h"
#include "match/only.h"
#include "match/parallel.h"
#include "match/pruned.h"
#include "quant/source.h"

static osh_status scheme_copy(osh_ctx *cx, osh_q_scheme *to, const osh_q_scheme *from, char *name)
{
    osh_status rc = OSH_OK;
    *to = *from;
    to->group_name = name; // the copy `to` owns the name
    to->targets = (osh_strs){0};
    if (!name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a group's name");
    OSH_NEW(cx, to->targets.items, from->targets.n);
    for (size_t i = 0; i < from->targets.n; i++) {
        if (!(to->targets.items[i] = osh_strdup(cx, from->targets.items[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for targets");
        to->targets.n = i + 1;
    }
done:
    return rc;
}

/* Collects the config groups of all modifiers that quantize. A group is a scheme with its targets.
 * If several modifiers have groups, all groups get new names. first_of[m]: set to the index of the
 * first group of modifier m. */
static osh_status collect_schemes(osh_ctx *cx, osh_matching *p, int *first_of)
{
    osh_status rc = OSH_OK;
    size_t n = 0;
    int n_active = 0;
    for (size_t m = 0; m < p->in->recipe->n; m++) {
        if (p->in->recipe->modifiers[m].replaced ||
            !osh_modifier_quantizes(&p->in->recipe->modifiers[m]))
            continue;
        n += p->in->recipe->modifiers[m].n_schemes;
        n_active++;
    }
    const osh_q_config *kept = p->in->only ? osh_source_config(p->in->source) : NULL;
    OSH_NEW(cx, p->schemes, n + (kept ? kept->n : 0));
    OSH_TRY(osh_only_schemes(cx, p));
    for (size_t m = 0; m < p->in->recipe->n; m++) {
        const osh_modifier *mod = &p->in->recipe->modifiers[m];
        first_of[m] = (int)p->n_schemes;
        for (size_t i = 0; osh_modifier_quantizes(mod) && !mod->replaced && i < mod->n_schemes;
             i++) {
            char *name = n_active == 1 ? osh_strdup(cx, mod->schemes[i].group_name)
                                       : osh_sprintf(cx, "group_%zu", p->n_schemes);
            rc = scheme_copy(cx, &p->schemes[p->n_schemes], &mod->schemes[i], name);
            p->n_schemes++;
            if (rc) goto done;
        }
    }
done:
    return rc;
}

/* True if a target of the modifier contains the last part of the module's name. For an embedding,
 * also true if a target is the class Embedding. */
static bool is_named(const osh_modifier *mod, const osh_plan_module *c)
{
    const char *dot = strrchr(c->name, '.'), *leaf = dot ? dot + 1 : c->name;
    for (size_t s = 0; s < mod->n_schemes; s++)
        for (size_t t = 0; t < mod->schemes[s].targets.n; t++) {
            const char *target = mod->schemes[s].targets.items[t];
            if (strstr(target, leaf) || (osh_is_embedding(c) && !strcmp(target, c->cls)))
                return true;
        }
    return false;
}

/* Fails if a target is exactly the name of a module that stays dense. (Loaders would not look for a
 * quantized weight of this module.) */
static osh_status refuse_named(osh_ctx *cx, const osh_modifier *mod, const osh_plan_module *c)
{
    osh_status rc = OSH_OK;
    for (size_t s = 0; s < mod->n_schemes; s++)
        for (size_t t = 0; t < mod->schemes[s].targets.n; t++)
            if (!strcmp(mod->schemes[s].targets.items[t], c->name))
                OSH_FAIL(cx, OSH_E_USAGE,
                         "target %s of %s is %s and stays dense: want it out of the targets",
                         c->name, mod->type->name, c->why);
done:
    return rc;
}

/* Matches a module by its name in transformers, because a recipe may use this name. If the ignore
 * list matches the name, sets *hit to a number >= 0, and *scheme to -1. Otherwise sets *scheme if a
 * target matches the name. */
static osh_status module_match_loaded(osh_ctx *cx, int *scheme, int64_t *hit, osh_modifier *mod,
                                      const osh_plan_module *c)
{
    osh_status rc = OSH_OK;
    if (mod->ignored) OSH_TRY(osh_matcher_find(cx, hit, mod->ignored, c->loaded, c->cls));
    if (*hit >= 0) *scheme = -1;
    else if (*scheme < 0) OSH_TRY(osh_modifier_match(cx, scheme, mod, c->loaded, c->cls));
done:
    return rc;
}

static osh_status module_match(osh_ctx *cx, osh_matching *p, osh_plan_module *c,
                               const int *first_of, int *modifier)
{
    osh_status rc = OSH_OK;
    bool ignored = false;
    *modifier = -1;
    if (c->left) c->why = "not among --only";
    if (c->left) goto done;
    for (size_t m = 0; m < p->in->recipe->n; m++) {
        osh_modifier *mod = &p->in->recipe->modifiers[m];
        int s = -1;
        int64_t hit = -1;
        if (mod->replaced || !osh_modifier_quantizes(mod)) continue;
        if (c->never) OSH_TRY(refuse_named(cx, mod, c));
        if (c->never || (c->by_name && !is_named(mod, c))) {
            if (mod->targets) OSH_TRY(osh_matcher_find(cx, &hit, mod->targets, c->name, NULL));
            c->reached |= hit >= 0;
            continue;
        }
        OSH_TRY(osh_modifier_match(cx, &s, mod, c->name,
                                   c->by_name && !osh_is_embedding(c) ? NULL : c->cls));
        if (s < 0 && mod->ignored)
            OSH_TRY(osh_matcher_find(cx, &hit, mod->ignored, c->name, c->cls));
        if (hit < 0 && c->loaded) OSH_TRY(module_match_loaded(cx, &s, &hit, mod, c));
        ignored |= hit >= 0;
        if (s < 0) continue;
        if (c->unseen && mod->type->solver->wants(mod, &mod->schemes[s])) {
            c->why = "it does not process text";
            continue;
        }
        if (c->scheme >= 0)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s is a target of %s and of %s: want one modifier for each module", c->name,
                     p->in->recipe->modifiers[*modifier].type->name, mod->type->name);
        c->scheme = first_of[m] + s;
        *modifier = (int)m;
    }
    bool head = p->in->spared && !strcmp(c->name, p->in->spared);
    if (ignored)
        c->why = head ? "the output head: want it among --targets to quantize it"
                      : "ignored by the recipe";
    else if (!c->why) c->why = osh_is_embedding(c) ? "an embedding" : "no target of the recipe";
done:
    return rc;
}

static osh_status make_linear(osh_ctx *cx, osh_matching *p, const osh_plan_module *c, int modifier)
{
    osh_status rc = OSH_OK;
    osh_linear *l = &p->linears[p->n_linears];
    const osh_entry *e = p->in->ck->tensors[c->tensor].e;
    const osh_modifier *m = &p->in->recipe->modifiers[modifier];
    bool kept = c->scheme < 0 && c->pruner < 0;
    const osh_q_scheme *s = c->scheme >= 0 ? &p->schemes[c->scheme]
                            : kept         ? &osh_kept_scheme
                                           : &osh_pruned_scheme;
    osh_q_shape shape;

    if (osh_q_of_attention(s))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s: group %s quantizes the inputs of attention: want targets that match no "
                 "Linear, such as LlamaAttention or re:.*self_attn$",
                 c->name, s->group_name);
    if (!s->weights.present && c->scheme >= 0)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: group %s quantizes no weights: want weights, or the module in ignore",
                 c->name, s->group_name);
    if (e->dtype != OSH_BF16 && e->dtype != OSH_F16 && e->dtype != OSH_F32)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s.weight is %s: want BF16, F16 or F32", c->name,
                 osh_dtype_name(e->dtype));
    *l = (osh_linear){.tensor = c->tensor,
                      .O = e->shape[0],
                      .I = e->shape[1],
                      .dtype = e->dtype,
                      .modifier = modifier,
                      .scheme = s,
                      .scheme_index = c->scheme,
                      .prune.modifier = c->scheme >= 0 ? c->pruner : -1,
                      .prune.sparsity = c->sparsity,
                      .kept = kept,
                      .node = -1,
                      .weight = -1,
                      .input = -1,
                      .subgraph = -1};
    if (!(l->name = osh_strdup(cx, c->name)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", c->name);
    p->n_linears++;
    l->wants = kept ? 0 : m->type->solver->wants(m, s);
    if (!strcmp(c->cls, "Embedding") && l->wants)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s is an Embedding: %s needs statistics of its input, but the input is token ids",
                 c->name, m->type->name);
    if (c->module >= 0) {
        const osh_node *n = &p->in->graph->nodes[p->in->graph->modules[c->module].node];
        l->node = p->in->graph->modules[c->module].node, l->weight = n->w[0], l->input = n->in[0];
    }
    /* if the group size does not divide the columns, osh_indivisible_check fails later */
    bool divides = !osh_q_in_groups(&s->weights) || l->I % s->weights.group_size == 0;
    if (divides) OSH_TRY(osh_q_scale_shape(cx, &shape, &s->weights, l->O, l->I, l->name));
    if (c->scheme < 0) l->format = &osh_format_dense;
    else OSH_TRY(osh_format_infer(cx, &l->format, s, l->name));
    if (c->pruner >= 0) OSH_TRY(osh_plan_pruned(cx, p, l, c->pruner));
done:
    return rc;
}

/* Removes the groups that match no module, so that the output's config does not have them.
 * compressed-tensors does the same. */
static void drop_unused_schemes(osh_ctx *cx, osh_matching *p, osh_plan_modules *cs)
{
    size_t kept = 0, kept_source = p->n_kept_schemes;
    for (size_t i = 0; i < p->n_schemes; i++) {
        // if a group for attention matches no attention, cache.c has already refused the group
        bool used = osh_q_of_attention(&p->schemes[i]);
        for (int64_t k = 0; k < cs->n; k++) used |= cs->c[k].scheme == (int)i;
        if (!used) {
            if (i >= p->n_kept_schemes)
                osh_log(cx, OSH_LOG_WARN, "%s matches no module", p->schemes[i].group_name);
            else kept_source--;
            osh_q_scheme_deinit(cx, &p->schemes[i]);
            continue;
        }
        for (int64_t k = 0; k < cs->n; k++)
            if (cs->c[k].scheme == (int)i) cs->c[k].scheme = (int)kept;
        for (int k = 0; k < p->n_linears; k++)
            if (p->linears[k].scheme_index == (int)i)
                p->linears[k].scheme_index = (int)kept, p->linears[k].scheme = &p->schemes[kept];
        if (kept != i) p->schemes[kept] = p->schemes[i];
        kept++;
    }
    p->n_schemes = kept, p->n_kept_schemes = kept_source;
}

/* Counts the modules that match each entry of the modifier's ignore list. Modules that no target
 * matches count, too, because a recipe for MLPs may ignore "lm_head". */
static osh_status match_ignored(osh_ctx *cx, const osh_matching *p, const osh_modifier *mod,
                                const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    int64_t unused;
    for (int m = 0; p->in->graph && m < p->in->graph->n_modules; m++)
        OSH_TRY(osh_matcher_find(cx, &unused, mod->ignored, p->in->graph->modules[m].name,
                                 p->in->graph->modules[m].cls));
    for (int64_t i = 0; (!p->in->graph || p->in->graph->wrapped) && i < cs->n; i++) {
        OSH_TRY(osh_matcher_find(cx, &unused, mod->ignored, cs->c[i].name, cs->c[i].cls));
        if (cs->c[i].loaded)
            OSH_TRY(osh_matcher_find(cx, &unused, mod->ignored, cs->c[i].loaded, cs->c[i].cls));
    }
done:
    return rc;
}

/* Returns a hint for a target that matches no module: the most similar name of a module or class.
 * If the target is the end of a module's name, the hint is a regex for such names. */
static const char *near_module(osh_near *near, char room[240], const char *text,
                               const osh_plan_modules *cs)
{
    size_t n = strlen(text);
    osh_near_init(near, text);
    for (int64_t i = 0; i < cs->n && strncmp(text, "re:", 3); i++) {
        const char *name = cs->c[i].name;
        size_t all = strlen(name);
        if (all > n && name[all - n - 1] == '.' && !strcmp(name + all - n, text)) {
            snprintf(room, 240, "; did you mean re:.*%.200s$?", text);
            return room;
        }
        osh_near_see(near, cs->c[i].cls);
        osh_near_see(near, name);
    }
    return osh_near_hint(near, "");
}

/* Works like near_module. But if `text` is "lm_head", and the head of this model has a different
 * name, returns the name of the head. */
static const char *near_ignored(osh_near *near, char room[240], const char *text,
                                const osh_matching *p, const osh_plan_modules *cs)
{
    for (int64_t i = 0; !strcmp(text, "lm_head") && i < cs->n; i++) {
        const osh_plan_module *c = &cs->c[i];
        const char *name = strrchr(c->name, '.');
        if (c->tensor < 0 || !strcmp(name ? name + 1 : c->name, "lm_head")) continue;
        if (!osh_head_is(p->in->ck->config, p->in->ck->tensors[c->tensor].e)) continue;
        snprintf(room, 240, ": the head of this model is %.180s, and %s", c->name,
                 c->scheme < 0 ? "stays dense" : "is quantized");
        return room;
    }
    return near_module(near, room, text, cs);
}

static osh_status warn_unmatched(osh_ctx *cx, const osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    osh_near near;
    char room[240];
    for (size_t m = 0; m < p->in->recipe->n; m++) {
        const osh_modifier *mod = &p->in->recipe->modifiers[m];
        /* index in the matcher; targets that occur several times are in the matcher only once */
        size_t k = 0;
        if (mod->replaced || osh_modifier_changes_others(mod)) continue;
        // cache.c matches groups for attention
        if (mod->n_schemes == 1 && osh_q_of_attention(mod->schemes)) continue;
        const osh_strs none = {0},
                       *targets = mod->n_schemes == 1 ? &mod->schemes[0].targets : &none;
        for (size_t i = 0; i < targets->n; i++) {
            bool again = false;
            for (size_t h = 0; h < i; h++) again |= !strcmp(targets->items[h], targets->items[i]);
            if (!again && !osh_matcher_hits(mod->targets, k++))
                osh_log(cx, OSH_LOG_WARN, "target %s of %s matches no module%s", targets->items[i],
                        mod->type->name, near_module(&near, room, targets->items[i], cs));
        }
        if (mod->ignore.n) OSH_TRY(match_ignored(cx, p, mod, cs));
        for (size_t t = 0; t < mod->ignore.n; t++)
            if (!osh_matcher_hits(mod->ignored, t))
                osh_log(cx, OSH_LOG_WARN, "ignore %s of %s matches no module%s",
                        mod->ignore.items[t], mod->type->name,
                        near_ignored(&near, room, mod->ignore.items[t], p, cs));
    }
done:
    return rc;
}

/* Sets the member `left` of the modules that --only does not name. If the source quantizes such a
 * module, the module keeps its config group, and its member `scheme` becomes the index of this
 * group. */
static osh_status modules_match_only(osh_ctx *cx, const osh_matching *p, osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    for (int64_t i = 0; i < cs->n; i++) {
        osh_plan_module *c = &cs->c[i];
        bool takes;
        OSH_TRY(osh_only_takes(cx, &takes, p, c->name));
        c->left = !takes;
        int group = osh_only_kept(p, c->tensor, c->name);
        if (group >= 0) c->scheme = group;
    }
done:
    return rc;
}

/* Fails if --only names a module that is quantized in the source and that the recipe leaves dense.
 * The program has decoded the weight of such a module. So it can neither copy the codes bit for bit
 * nor quantize the module. */
static osh_status modules_refuse_left(osh_ctx *cx, const osh_matching *p,
                                      const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    for (int64_t i = 0; p->in->only && i < cs->n; i++) {
        const osh_plan_module *c = &cs->c[i];
        if (c->left || c->scheme >= 0 || p->in->ck->tensors[c->tensor].shard >= 0) continue;
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--only names %s, but the source has it quantized and the recipe leaves it dense: "
                 "want it out of --only, which keeps its codes, or among the targets",
                 c->name);
    }
done:
    return rc;
}

static osh_status modules_match_pruners(osh_ctx *cx, osh_matching *p, osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    osh_prunable *of = NULL; // own
    OSH_NEW(cx, of, cs->n);
    for (int64_t i = 0; i < cs->n; i++) {
        const osh_plan_module *c = &cs->c[i];
        of[i] = (osh_prunable){.name = c->name, .cls = c->by_name ? NULL : c->cls,
                               .never = c->never || c->left || osh_is_embedding(c),
                               .unseen = c->unseen};
    }
    OSH_TRY(osh_plan_prune(cx, p, of, cs->n));
    for (int64_t i = 0; i < cs->n; i++) {
        cs->c[i].pruner = of[i].modifier, cs->c[i].sparsity = of[i].sparsity;
        if (of[i].unreached) cs->c[i].why = "it does not process text";
    }
done:
    osh_free(cx, of);
    return rc;
}

/* Sorts the Linears: first the Linears that are not in the graph, then all others. The order within
 * both sets stays. */
static osh_status linears_order(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_linear *ordered = NULL; // own
    int n = 0;
    OSH_NEW(cx, ordered, p->n_linears);
    for (int i = 0; i < p->n_linears; i++)
        if (p->linears[i].node < 0) ordered[n++] = p->linears[i];
    for (int i = 0; i < p->n_linears; i++)
        if (p->linears[i].node >= 0) ordered[n++] = p->linears[i];
    for (int i = 0; i < n; i++) p->linears[i] = ordered[i];
done:
    osh_free(cx, ordered);
    return rc;
}

/* Finds the scheme of each module, and makes the list of Linears. */
static osh_status modules_take_schemes(osh_ctx *cx, osh_matching *p, osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    int *first_of = NULL; // own
    OSH_NEW(cx, first_of, p->in->recipe->n);
    OSH_TRY(collect_schemes(cx, p, first_of));
    OSH_NEW(cx, p->linears, cs->n);
    OSH_TRY(modules_match_only(cx, p, cs));
    OSH_TRY(modules_match_pruners(cx, p, cs));
    for (int64_t i = 0; i < cs->n; i++) {
        int modifier = -1;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(module_match(cx, p, &cs->c[i], first_of, &modifier));
        osh_indivisible_leave(p, &cs->c[i], &modifier);
        if (modifier < 0) modifier = cs->c[i].pruner;
        if (modifier < 0 && cs->c[i].module >= 0)
            modifier = osh_cache_modifier(p, p->in->graph->modules[cs->c[i].module].node);
        if (modifier >= 0) OSH_TRY(make_linear(cx, p, &cs->c[i], modifier));
    }
done:
    osh_free(cx, first_of);
    return rc;
}

static osh_status modules_match(osh_ctx *cx, osh_matching *p, osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    OSH_TRY(modules_take_schemes(cx, p, cs));
    OSH_TRY(osh_indivisible_check(cx, p));
    if (p->smaller_groups) goto done;
    OSH_TRY(osh_only_warn(cx, p));
    OSH_TRY(linears_order(cx, p));
    OSH_TRY(modules_refuse_left(cx, p, cs));
    OSH_TRY(warn_unmatched(cx, p, cs));
    OSH_TRY(osh_match_experts(cx, p));
done:
    return rc;
}

static osh_status modules_list_dense(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs)
{
    osh_status rc = OSH_OK;
    // own [source tensors]: reason why each tensor stays dense. A tied head has the tensor of the
    // embedding, and so the same reason.
    const char **why = NULL;
    OSH_NEW(cx, why, p->in->ck->n_tensors);
    for (int64_t i = 0; i < cs->n; i++)
        if (!why[cs->c[i].tensor]) why[cs->c[i].tensor] = cs->c[i].why;
    OSH_TRY(osh_plan_dense(cx, p, why));
done:
    osh_free(cx, why);
    return rc;
}

static osh_status plan_refuse_nothing(osh_ctx *cx, const osh_matching *p)
{
    const osh_dense *d = NULL;
    for (int64_t i = 0; i < p->n_dense; i++)
        if (p->dense[i].in_block && (!d || p->dense[i].bytes > d->bytes)) d = &p->dense[i];
    return osh_fail(
        cx, OSH_E_USAGE, "the recipe matches no module of %s: nothing would be done%s%s%s%s",
        p->in->ck->dir, d ? "; " : "", d ? d->names : "", d ? ": " : "", d ? d->why : "");
}

static bool changes_model_alone(const osh_matching *p)
{
    bool alone = p->transforms || p->experts_left;
    for (size_t m = 0; m < p->in->recipe->n; m++)
        alone &= osh_modifier_rewrites(&p->in->recipe->modifiers[m]);
    return alone;
}

osh_status osh_match_trial(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_plan_modules cs = {0}; // own
    OSH_TRY(osh_modules_list(cx, &cs, p));
    OSH_TRY(modules_take_schemes(cx, p, &cs));
done:
    osh_modules_deinit(cx, &cs);
    return rc;
}

void osh_match_clear(osh_ctx *cx, osh_matching *p)
{
    for (size_t i = 0; i < p->n_schemes; i++) osh_q_scheme_deinit(cx, &p->schemes[i]);
    for (int i = 0; i < p->n_linears; i++) {
        osh_free(cx, p->linears[i].name);
        osh_tensor_free(cx, p->linears[i].gradients.outputs);
        osh_tensor_free(cx, p->linears[i].gradients.inputs);
    }
    osh_free(cx, p->schemes);
    osh_free(cx, p->linears);
    p->schemes = NULL, p->n_schemes = p->n_kept_schemes = 0;
    p->linears = NULL, p->n_linears = 0;
}

osh_status osh_plan_match(osh_ctx *cx, osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_plan_modules cs = {0}; // own
    OSH_TRY(osh_modules_list(cx, &cs, p));
    OSH_TRY(modules_match(cx, p, &cs));
    if (p->smaller_groups) goto done;
    OSH_TRY(modules_list_dense(cx, p, &cs));
    if (!p->n_linears && !changes_model_alone(p)) OSH_TRY(plan_refuse_nothing(cx, p));
    OSH_TRY(osh_plan_cache(cx, p));
    drop_unused_schemes(cx, p, &cs);
    OSH_TRY(osh_match_names(cx, p, &cs));
    OSH_TRY(osh_plan_parallel(cx, &p->n_split, &p->n_split_other, p));
    OSH_TRY(osh_plan_joint(cx, p));
    OSH_TRY(osh_match_ignore(cx, p, &cs));
    OSH_TRY(osh_match_config(cx, p));
    if (p->n_schemes) OSH_TRY(osh_match_vllm(cx, p, &cs));
    OSH_TRY(osh_match_transformers(cx, p));
done:
    osh_modules_deinit(cx, &cs);
    return rc;
}
