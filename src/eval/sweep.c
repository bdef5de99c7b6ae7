/* sweep.c - reports the progress of a measurement that runs a model subgraph by subgraph. */
#include "eval/sweep.h"

#include "budget/cost.h"

static osh_status sweep_price_part(osh_ctx *cx, void *user, osh_forward_part *part)
{
    void **of = user; // views: of[0] is the osh_sweep, of[1] the osh_dataset
    osh_exec_span span = osh_forward_span(part);
    (void)cx;
    ((osh_sweep *)of[0])->work[part->index] += osh_cost_of_nodes(&span, of[1]);
    return OSH_OK;
}

osh_status osh_sweep_open(osh_ctx *cx, osh_sweep *p, osh_progress *pr, const osh_forward *f,
                          const osh_dataset *d)
{
    osh_status rc = OSH_OK;
    void *of[] = {p, (void *)d};
    *p = (osh_sweep){.pr = pr, .n = f->parts->n, .tokens = (double)d->offsets[d->n]};
    OSH_NEW(cx, p->work, p->n);
    OSH_NEW(cx, p->times, p->n);
    for (int i = 0; i < p->n; i++) p->times[i] = 1;
    OSH_TRY(osh_forward_walk(cx, f, &(osh_forward_visitor){sweep_price_part, of, false}));
done:
    if (rc) osh_sweep_close(cx, p);
    return rc;
}

void osh_sweep_close(osh_ctx *cx, osh_sweep *p)
{
    osh_free(cx, p->work);
    osh_free(cx, p->times);
    *p = (osh_sweep){0};
}

void osh_sweep_begin(osh_sweep *p, double more)
{
    p->begun = osh_now(), p->done = p->before = 0;
    p->pr->step = 0, p->pr->error = -1, p->pr->loss = p->pr->eta_s = p->pr->fraction = 0;
    p->pr->work_done = 0, p->pr->work_total = more;
    for (int i = 0; i < p->n; i++) p->pr->work_total += p->work[i] * p->times[i];
}

void osh_sweep_show(osh_ctx *cx, osh_sweep *p, double work, int64_t done, int64_t total)
{
    p->pr->done = done, p->pr->total = total;
    p->pr->work_done = p->before + work * (double)done / (double)total;
    if (done == total) p->before = p->pr->work_done;
    osh_forward_rate(p->pr, p->tokens, p->begun);
    osh_progress_show(cx, p->pr);
}

/* Shows that a subgraph is complete. */
static void sweep_end(osh_ctx *cx, osh_sweep *p, int subgraph)
{
    p->before = p->done += p->work[subgraph] * p->times[subgraph];
    p->pr->work_done = p->before, p->pr->done = p->pr->total = 0;
    osh_forward_rate(p->pr, p->tokens, p->begun);
    p->pr->finished = true;
    osh_progress_show(cx, p->pr);
    p->pr->finished = false;
}

osh_status osh_sweep_visit(osh_ctx *cx, osh_sweep *p, const osh_forward *f, int index, int64_t step,
                           const osh_forward_visitor *v)
{
    osh_status rc = OSH_OK;
    p->pr->step = step, p->pr->name = f->parts->parts[index].name;
    osh_ranks_phase(p->ranks, p->pr->phase, p->pr->name);
    OSH_TRY(osh_forward_visit(cx, f, index, v));
    sweep_end(cx, p, index);
done:
    return rc;
}

osh_status osh_sweep_walk(osh_ctx *cx, osh_sweep *p, const osh_forward *f,
                          const osh_forward_visitor *v)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < f->parts->n && !rc; i++) rc = osh_sweep_visit(cx, p, f, i, i + 1, v);
    return rc;
}
