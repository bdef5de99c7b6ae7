/* plain.c - makes a schedule that runs a model and changes no weight. */
#include "schedule/plain.h"

osh_status osh_plain_new(osh_ctx *cx, osh_plain **out, osh_graph *graph, osh_checkpoint *ck,
                         osh_partition *parts)
{
    osh_status rc = OSH_OK;
    osh_plain *p = NULL; // own
    OSH_NEW(cx, p, 1);
    osh_schedule *s = &p->schedule;
    p->in = (osh_inputs){.opt = &p->opt, .graph = graph, .ck = ck};
    p->match.in = &p->in;
    p->rewrites = (osh_rewrites){.in = &p->in, .match = &p->match};
    *s = (osh_schedule){.in = &p->in, .match = &p->match, .rewrites = &p->rewrites,
                        .parts = parts, .n_visits = parts->n, .apart = true};
    OSH_NEW(cx, s->passes, parts->n);
    OSH_NEW(cx, s->visits, parts->n);
    for (int i = 0; i < parts->n; i++) s->passes[i].propagate = true;
    *out = p, p = NULL; // passes ownership
done:
    osh_plain_free(cx, p);
    return rc;
}

void osh_plain_measure(osh_plain *p, osh_measured *measured, bool again)
{
    osh_schedule *s = &p->schedule;
    s->measured = measured;
    s->all_rows = true; // a statistic is collected of the rows of all tokens
    for (int k = 0; k < s->parts->n; k++) {
        const osh_subgraph *sub = &s->parts->parts[k];
        osh_pass *pass = &s->passes[k];
        for (int i = sub->first; i < sub->first + sub->n_nodes; i++)
            pass->observe |= measured[i].value >= 0;
        pass->merged = pass->observe && !again;
        pass->propagate = !again || k + 1 < s->parts->n;
    }
}

void osh_plain_free(osh_ctx *cx, osh_plain *p)
{
    if (!p) return;
    osh_free(cx, p->schedule.measured);
    osh_free(cx, p->schedule.passes);
    osh_free(cx, p->schedule.visits);
    osh_free(cx, p);
}
