/* calls.c - see calls.h. */
#include "plan/calls.h"

static bool is_together(const osh_linear *l, const osh_linear *lead)
{
    return l->modifier == lead->modifier && l->pruner == lead->pruner &&
           !((l->wants ^ lead->wants) & OSH_STAT_BLOCK); // a block learns as a whole
}

osh_status osh_call_find(osh_ctx *cx, osh_call *c, int first)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = c->p->linears, *lead = &l[first];
    int waiting = 0;
    c->n = c->others = 0;
    osh_free(cx, c->which), c->which = NULL;
    for (int i = osh_first_reader(c->p, lead->input); i >= 0; i = osh_next_reader(c->p, i))
        waiting += i >= c->of.first && i < c->of.end && !c->done(c->user, i);
    OSH_NEW(cx, c->which, waiting);
    for (int i = first; i >= 0 && i < c->of.end; i = osh_next_reader(c->p, i))
        if (is_together(&l[i], lead) && !c->done(c->user, i)) c->which[c->n++] = i;
    c->others = waiting - c->n;
done:
    return rc;
}

osh_linear_job osh_call_job(const osh_linear *l, bool on_card)
{
    return (osh_linear_job){.name = l->name, .scheme = l->scheme, .sparsity = l->sparsity,
                            .pack = on_card && l->format->pack_rows};
}
