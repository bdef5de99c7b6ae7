/* calls.c - finds the Linears that one call of a modifier solves together. */
#include "schedule/calls.h"

static bool call_joins(const osh_linear *l, const osh_linear *lead)
{
    return l->modifier == lead->modifier && l->prune.modifier == lead->prune.modifier &&
           !((l->wants ^ lead->wants) & OSH_STAT_BLOCK); // both Linears learn by block, or neither
}

osh_status osh_call_find(osh_ctx *cx, osh_call *c, int first)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = c->p->match->linears, *lead = &l[first];
    int waiting = 0;
    osh_call_free(cx, c);
    c->n = c->others = 0;
    for (int i = osh_first_reader(c->p->match, lead->input); i >= 0;
         i = osh_next_reader(c->p->match, i))
        waiting += i >= c->of.first && i < c->of.end && !c->done(c->user, i);
    OSH_NEW(cx, c->which, waiting);
    for (int i = first; i >= 0 && i < c->of.end; i = osh_next_reader(c->p->match, i))
        if (call_joins(&l[i], lead) && !c->done(c->user, i)) c->which[c->n++] = i;
    c->others = waiting - c->n;
    OSH_NEW(cx, c->jobs, c->n);
    for (int k = 0; k < c->n; k++) {
        const osh_linear *of = &l[c->which[k]];
        c->jobs[k] = (osh_linear_job){.name = of->name, .scheme = of->scheme,
                                      .sparsity = of->prune.sparsity,
                                      .pack = c->on_gpu && of->format->pack_rows};
    }
done:
    return rc;
}

void osh_call_free(osh_ctx *cx, osh_call *c)
{
    osh_free(cx, c->which), c->which = NULL;
    osh_free(cx, c->jobs), c->jobs = NULL;
}

size_t osh_call_bytes(int n_linears)
{
    const osh_call *c = NULL; // never dereferenced, because only sizeof uses it
    return osh_mem_gross((size_t)n_linears * sizeof *c->which) +
           osh_mem_gross((size_t)n_linears * sizeof *c->jobs);
}

bool osh_call_is_apart(const osh_call *c, int first)
{
    const osh_linear *l = &c->p->match->linears[first];
    return !c->others && !l->kept && l->prune.modifier < 0 && !(l->wants & OSH_STAT_BLOCK) &&
           c->p->in->recipe->modifiers[l->modifier].type->solver->apart;
}

bool osh_call_gathers(const osh_call *c, int first)
{
    const osh_modifier *m = &c->p->in->recipe->modifiers[c->p->match->linears[first].modifier];
    return c->on_gpu && !c->p->in->by_route && osh_call_is_apart(c, first) &&
           m->type->solver->gathers && m->type->solver->gathers(m, c->jobs, c->n);
}

int64_t osh_call_weights(const osh_call *c)
{
    int64_t sum = 0;
    for (int k = 0; k < c->n; k++)
        sum += c->p->match->linears[c->which[k]].O * c->p->match->linears[c->which[k]].I;
    return sum;
}
