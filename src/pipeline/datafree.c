/* datafree.c - tensor by tensor, without a graph: works on any safetensors checkpoint. */
#include "pipeline/run.h"

osh_status osh_run_datafree(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = r->plan;
    r->progress.n_steps = p->n_linears, r->progress.phase = "quantize";
    for (int i = 0; i < p->n_linears; i++) {
        if (r->results[i].done) continue;
        r->progress.work_total += (double)p->linears[i].O * (double)p->linears[i].I;
    }
    for (int i = 0; i < p->n_linears; i++) {
        if (r->results[i].done) continue;
        if (osh_interrupted(cx)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted");
        r->progress.step = i + 1, r->progress.name = p->linears[i].name, r->progress.error = -1;
        OSH_TRY(osh_run_linear_without_data(cx, r, i));
        r->progress.work_done += (double)p->linears[i].O * (double)p->linears[i].I;
        r->progress.finished = true;
        osh_progress_show(cx, &r->progress);
        r->progress.finished = false;
    }
done:
    return rc;
}
