/* traversals.c - plans the traversals of `--pipeline independent`: one traversal for each modifier
 * that needs data. */
#include "plan/traversals.h"

#include <string.h>

#include "budget/cost.h"
#include "budget/layout.h"
#include "budget/memory.h"

/* Counts the traversals and returns their number. Sets element m of the array `of` to the index of
 * the traversal for modifier m, or to -1 if this modifier needs no data. */
static int traversals_number(int *of, const osh_recipe *r)
{
    int n = 0;
    for (size_t m = 0; m < r->n; m++) of[m] = osh_modifier_wants_data(&r->modifiers[m]) ? n++ : -1;
    return n;
}

/* Sets l->traversal, the index of the traversal that collects data for the Linear. Up to three
 * modifiers need data for it: its pruner, its quantizer, and the modifier with kv_cache_scheme if
 * the scales of keys and values belong to the Linear. Fails if these modifiers have different
 * traversals. */
static osh_status traversal_of_linear(osh_ctx *cx, const osh_plan *p, const int *of, osh_linear *l)
{
    osh_status rc = OSH_OK;
    const osh_modifier *m = p->in.recipe->modifiers;
    int who[3] = {-1, -1, -1}, first = -1;
    if (!l->kept && m[l->modifier].type->solver->wants(&m[l->modifier], l->scheme))
        who[2] = l->modifier;
    if (l->prune.modifier >= 0 &&
        m[l->prune.modifier].type->solver->wants(&m[l->prune.modifier], l->scheme))
        who[0] = l->prune.modifier;
    for (size_t k = 0; l->ranged[0] >= 0 && k < p->in.recipe->n; k++)
        if (m[k].cache.present) who[1] = (int)k;
    l->traversal = -1;
    for (int k = 0; k < 3; k++) {
        if (who[k] < 0) continue;
        if (first >= 0 && of[who[k]] != of[first])
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "--pipeline independent: %s is changed by %s and by %s, but the result of the "
                     "first cannot be kept until the second runs: want the first alone in a "
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
                     "--pipeline independent: %s is compared with the original model, and this "
                     "needs a single traversal: want --quality gptq, or --pipeline "
                     "sequential",
                     p->match.linears[i].name);
    if (p->schedule.tune.steps)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "--pipeline independent together with tuning is not supported: want "
                 "one of them");
done:
    return rc;
}

/* Plans batches, passes and memory of a traversal. At first, batches have batch_size samples.
 * osh_plan_memory may choose another size. */
static osh_status traversal_plan(osh_ctx *cx, osh_traversal *v, int64_t batch_size)
{
    osh_status rc = OSH_OK;
    osh_cost *cost = NULL; // own
    int n = 0;
    OSH_TRY(osh_plan_batches(cx, &v->schedule, batch_size));
    OSH_TRY(osh_plan_passes(cx, &v->schedule));
    OSH_TRY(osh_plan_seen(cx, &v->schedule));
    OSH_TRY(osh_plan_memory(cx, &v->budget));
    OSH_TRY(osh_cost_new(cx, &cost, &n, &v->budget));
    for (int s = 0; s + 1 < n; s++)
        for (int k = 0; k < OSH_PHASE_ROUND; k++) v->work[k] += cost[s].work[k];
done:
    osh_free(cx, cost);
    return rc;
}

/* Initializes `v` with the data that all traversals share: the subgraphs, and the peak while inputs
 * are read. */
static void traversal_begin(osh_traversal *v, const osh_plan *p, int traversal, int modifier)
{
    v->schedule = p->schedule;
    v->schedule.n_traversals = p->n_traversals;
    v->schedule.traversal = traversal, v->schedule.modifier = modifier;
    v->schedule.passes = NULL, v->schedule.seen = NULL, v->schedule.batch_at = NULL; // own
    v->budget = p->budget;
    v->budget.schedule = &v->schedule;
    v->budget.memory = (osh_memory){.load_bytes = p->budget.memory.load_bytes};
}

/* Finds the traversal with the highest host peak, and copies its schedule and its budget to the
 * plan. Then raises the plan's peaks to the largest of all traversals. Sets the plan's read_bytes
 * to the sum over all traversals, because each of them reads the weights. */
static void traversals_summarize(osh_ctx *cx, osh_plan *p)
{
    osh_memory *all = &p->budget.memory;
    const osh_traversal *v = p->traversals, *highest = v;
    int n = p->n_traversals;
    for (int t = 1; t < n; t++)
        if (v[t].budget.memory.peak.host > highest->budget.memory.peak.host) highest = &v[t];
    osh_free(cx, p->schedule.passes), osh_free(cx, p->schedule.seen);
    osh_free(cx, p->schedule.batch_at);
    p->schedule = highest->schedule;
    *all = highest->budget.memory;
    all->read_bytes = 0;
    for (int t = 0; t < n; t++) {
        const osh_memory *m = &v[t].budget.memory;
        max_into(&all->peak.device, m->peak.device), max_into(&all->peak.scratch, m->peak.scratch);
        max_into(&all->least.host, m->least.host), max_into(&all->least.device, m->least.device);
        max_into(&all->least.scratch, m->least.scratch);
        if (!t) all->read_bytes = m->read_bytes;
        for (int i = 0; t && i < v[t].schedule.n_visits; i++)
            all->read_bytes += v[t].schedule.visits[i].read_bytes;
    }
}

osh_status osh_plan_traversals(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_recipe *r = p->in.recipe;
    const char *asked = p->in.opt->pipeline;
    bool independent = asked && !strcmp(asked, "independent") && !p->in.opt->survey &&
                       p->in.pipeline == OSH_PIPELINE_SEQUENTIAL;
    int *of = NULL, n; // own [modifiers]: index of the traversal of each modifier
    if (!independent) goto done;
    OSH_NEW(cx, of, r->n);
    n = traversals_number(of, r);
    if (n < 2) goto done;
    OSH_TRY(traversals_refuse(cx, p));
    for (int i = 0; i < p->match.n_linears; i++)
        OSH_TRY(traversal_of_linear(cx, p, of, &p->match.linears[i]));
    OSH_NEW(cx, p->traversals, n);
    p->n_traversals = n;
    for (size_t m = 0; m < r->n; m++)
        if (of[m] >= 0) traversal_begin(&p->traversals[of[m]], p, of[m], (int)m);
    for (int t = 0; t < n; t++)
        OSH_TRY(traversal_plan(cx, &p->traversals[t], p->schedule.batch_size));
    traversals_summarize(cx, p);
done:
    osh_free(cx, of);
    return rc;
}

void osh_plan_traversals_free(osh_ctx *cx, osh_plan *p)
{
    // true if the lists of p->schedule belong to one of p->traversals
    bool shown = p->schedule.n_traversals;
    for (int t = 0; t < p->n_traversals; t++) {
        osh_schedule *s = &p->traversals[t].schedule;
        osh_free(cx, s->passes);
        osh_free(cx, s->seen);
        osh_free(cx, s->visits);
        osh_free(cx, s->batch_at);
        osh_places_free(cx, p->traversals[t].budget.memory.places);
    }
    osh_free(cx, p->traversals), p->traversals = NULL, p->n_traversals = 0;
    if (!shown) return;
    p->schedule.passes = NULL, p->schedule.seen = NULL, p->schedule.visits = NULL;
    p->schedule.batch_at = NULL, p->budget.memory.places = NULL;
}
