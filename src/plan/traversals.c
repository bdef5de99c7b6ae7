/* traversals.c - plans the traversals of --pipeline independent. */
#include "plan/traversals.h"

#include <string.h>

#include "budget/cost.h"
#include "budget/layout.h"
#include "budget/memory.h"

/* Fills of [modifiers] with the traversal of each modifier; -1: it wants no data. Returns the
 * number of traversals. */
static int traversals_number(int *of, const osh_recipe *r)
{
    int n = 0;
    for (size_t m = 0; m < r->n; m++) of[m] = osh_modifier_wants_data(&r->modifiers[m]) ? n++ : -1;
    return n;
}

/* Sets the traversal of a Linear. Up to three modifiers want data for it: its pruner, the one whose
 * cache has scales beside it, and its quantizer; they must have one traversal. */
static osh_status traversal_of_linear(osh_ctx *cx, const osh_plan *p, const int *of, osh_linear *l)
{
    osh_status rc = OSH_OK;
    const osh_modifier *m = p->in.recipe->modifiers;
    int who[3] = {-1, -1, -1}, first = -1;
    if (!l->kept && m[l->modifier].type->wants(&m[l->modifier], l->scheme)) who[2] = l->modifier;
    if (l->pruner >= 0 && m[l->pruner].type->wants(&m[l->pruner], l->scheme)) who[0] = l->pruner;
    for (size_t k = 0; l->ranged[0] >= 0 && k < p->in.recipe->n; k++)
        if (m[k].cache.present) who[1] = (int)k;
    l->traversal = -1;
    for (int k = 0; k < 3; k++) {
        if (who[k] < 0) continue;
        if (first >= 0 && of[who[k]] != of[first])
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "--pipeline independent: %s is worked on by %s and by %s, but the result of "
                     "the first cannot be kept until the second runs: want the first alone in a "
                     "recipe of its own, and its output as the --model of the rest; or --pipeline "
                     "sequential",
                     l->name, m[first].type->name, m[who[k]].type->name);
        first = who[k], l->traversal = of[first];
    }
done:
    return rc;
}

static osh_status traversals_refuse(osh_ctx *cx, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < p->match.n_linears; i++)
        if (p->match.linears[i].wants & (OSH_STAT_SHIFT | OSH_STAT_BLOCK))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "--pipeline independent: %s is compared with the original model, which "
                     "only a single traversal can carry: want --quality gptq, or --pipeline "
                     "sequential",
                     p->match.linears[i].name);
    if (p->schedule.tune.steps)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "--pipeline independent together with tuning is not made by this version: want "
                 "one of them");
done:
    return rc;
}

/* Makes the plan's lists views of a traversal's. */
static void plan_share_traversal(osh_plan *p, const osh_traversal *v)
{
    p->schedule.passes = v->passes, p->schedule.seen = v->seen, p->budget.memory = v->memory;
    p->schedule.visits = v->visits, p->schedule.n_visits = v->n_visits,
    p->schedule.looks = v->looks;
}

static void plan_turn_to(osh_plan *p, int traversal)
{
    p->schedule.traversal = traversal;
    for (int i = 0; i < p->match.n_linears; i++) {
        osh_linear *l = &p->match.linears[i];
        unsigned all = l->wants | l->elsewhere;
        l->wants = l->traversal == traversal ? all : 0;
        l->elsewhere = l->traversal == traversal ? 0 : all;
    }
    for (int i = 0; i < p->rewrites.n_folds; i++) {
        osh_fold *f = &p->rewrites.folds[i];
        f->subgraph = p->traversals[traversal].modifier == f->modifier ? f->home : -1;
    }
}

void osh_plan_traverse(osh_plan *p, int traversal)
{
    plan_turn_to(p, traversal);
    plan_share_traversal(p, &p->traversals[traversal]);
}

static osh_status traversal_plan(osh_ctx *cx, osh_plan *p, int traversal)
{
    osh_status rc = OSH_OK;
    osh_traversal *v = &p->traversals[traversal];
    osh_cost *cost = NULL; // own
    int n = 0;
    p->schedule.passes = NULL, p->schedule.seen = NULL;
    p->schedule.visits = NULL, p->schedule.n_visits = 0, p->schedule.looks = OSH_LOOK_RAM;
    p->budget.memory = (osh_memory){.load_bytes = p->budget.memory.load_bytes};
    plan_turn_to(p, traversal);
    OSH_TRY(osh_plan_passes(cx, &p->schedule));
    OSH_TRY(osh_plan_seen(cx, &p->schedule));
    OSH_TRY(osh_plan_memory(cx, &p->budget));
    OSH_TRY(osh_cost_new(cx, &cost, &n, &p->budget));
    for (int s = 0; s + 1 < n; s++)
        for (int k = 0; k < OSH_PHASE_ROUND; k++) v->work[k] += cost[s].work[k];
done:
    v->passes = p->schedule.passes, v->seen = p->schedule.seen,
    v->memory = p->budget.memory; // take, also after a failure
    v->visits = p->schedule.visits, v->n_visits = p->schedule.n_visits,
    v->looks = p->schedule.looks;
    osh_free(cx, cost);
    return rc;
}

void osh_plan_traversed(osh_plan *p)
{
    osh_memory all = {0};
    int64_t read = 0;
    int highest = 0;
    for (int t = 0; t < p->schedule.n_traversals; t++) {
        const osh_memory *m = &p->traversals[t].memory;
        if (m->host_peak > p->traversals[highest].memory.host_peak) highest = t;
        if (m->device_peak > all.device_peak) all.device_peak = m->device_peak;
        if (m->scratch_peak > all.scratch_peak) all.scratch_peak = m->scratch_peak;
        if (m->least_host > all.least_host) all.least_host = m->least_host;
        if (m->least_device > all.least_device) all.least_device = m->least_device;
        if (m->least_scratch > all.least_scratch) all.least_scratch = m->least_scratch;
        for (int i = 0; t && i < p->traversals[t].n_visits; i++)
            read += p->traversals[t].visits[i].read_bytes;
    }
    osh_plan_traverse(p, highest);
    p->budget.memory.device_peak = all.device_peak,
    p->budget.memory.scratch_peak = all.scratch_peak;
    p->budget.memory.least_host = all.least_host, p->budget.memory.least_device = all.least_device;
    p->budget.memory.least_scratch = all.least_scratch;
    p->budget.memory.read_bytes = p->traversals[0].memory.read_bytes + read;
}

osh_status osh_plan_traversals(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const char *asked = p->in.opt->pipeline;
    bool independent = asked && !strcmp(asked, "independent") && !p->in.opt->survey &&
                       p->in.pipeline == OSH_PIPELINE_SEQUENTIAL;
    int *of = NULL, n = 0; // own: [modifiers]
    if (independent) {
        OSH_NEW(cx, of, p->in.recipe->n);
        n = traversals_number(of, p->in.recipe);
    }
    if (n < 2) {
        rc = osh_plan_memory(cx, &p->budget);
        goto done;
    }
    OSH_TRY(traversals_refuse(cx, p));
    for (int i = 0; i < p->match.n_linears; i++)
        OSH_TRY(traversal_of_linear(cx, p, of, &p->match.linears[i]));
    for (int i = 0; i < p->rewrites.n_folds; i++)
        p->rewrites.folds[i].home = p->rewrites.folds[i].subgraph;
    OSH_NEW(cx, p->traversals, n);
    osh_free(cx, p->schedule.passes), osh_free(cx, p->schedule.seen);
    p->schedule.passes = NULL, p->schedule.seen = NULL, p->schedule.n_traversals = n;
    for (size_t m = 0; m < p->in.recipe->n; m++)
        if (of[m] >= 0) p->traversals[of[m]].modifier = (int)m;
    for (int t = 0; t < n; t++) OSH_TRY(traversal_plan(cx, p, t));
    osh_plan_traversed(p);
done:
    osh_free(cx, of);
    return rc;
}

void osh_plan_traversals_free(osh_ctx *cx, osh_plan *p)
{
    if (!p->traversals) return;
    for (int t = 0; t < p->schedule.n_traversals; t++) {
        osh_traversal *v = &p->traversals[t];
        osh_free(cx, v->passes);
        osh_free(cx, v->seen);
        osh_free(cx, v->visits);
        osh_places_free(cx, v->memory.places);
    }
    osh_free(cx, p->traversals);
    p->traversals = NULL, p->schedule.passes = NULL, p->schedule.seen = NULL;
    p->schedule.visits = NULL, p->budget.memory.places = NULL;
}
