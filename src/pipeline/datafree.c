/* datafree.c - tensor by tensor, without a graph: works on any safetensors checkpoint. */
#include "pipeline/run.h"

osh_status osh_run_datafree(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = r->plan;
    double work = 0, all = 0;
    osh_scope scope = osh_run_begin(cx, r, OSH_PHASE_ROUND, -1);
    r->progress.n_steps = p->n_linears + 1; // and the output
    for (int i = 0; i < p->n_linears; i++)
        if (!r->results[i].done) all += osh_cost_of_linear(p, i);
    for (int i = 0; i < p->n_linears; i++) {
        if (r->results[i].done) continue;
        work += osh_cost_of_linear(p, i);
        if (osh_interrupted(cx)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted");
        r->progress.step = i + 1, r->progress.name = p->linears[i].name, r->progress.error = -1;
        OSH_TRY(osh_run_linear_without_data(cx, r, i));
        osh_pace_step(&r->pace, work / all, 0, osh_now());
        osh_run_finished(cx, r, p->linears[i].name);
    }
    osh_run_end(cx, r, scope);
done:
    return rc;
}
