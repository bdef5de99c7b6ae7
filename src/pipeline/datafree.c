/* datafree.c - tensor by tensor, without a graph: works on any safetensors checkpoint. The next tensor is read while
 * this one is rounded and the one before is packed and written. */
#include "pipeline/ahead.h"
#include "pipeline/run.h"

osh_status osh_run_datafree(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = r->plan;
    bool all_of_it = p->pipeline == OSH_PIPELINE_DATAFREE; // else: what the subgraphs leave, as one step
    double work = 0, all = 0;
    int i = 0, left = 0;
    osh_ahead *a = NULL;  // own
    osh_tensor *w = NULL; // own
    for (int k = 0; k < p->n_linears; k++)
        if (!r->results[k].done) all += osh_cost_of_linear(p, k), left++;
    if (!left && !all_of_it) goto done;
    osh_scope scope = osh_run_begin(cx, r, OSH_PHASE_ROUND, -1);
    if (all_of_it) r->progress.n_steps = p->n_linears + 1; // and the output
    OSH_TRY(osh_ahead_new(cx, &a, p, r->results));
    for (;;) {
        if (osh_interrupted(cx)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted");
        OSH_TRY(osh_ahead_take(cx, a, &i, &w));
        if (i < 0) break;
        if (all_of_it) r->progress.step = i + 1, r->progress.name = p->linears[i].name, r->progress.error = -1;
        OSH_TRY(osh_run_round(cx, r, i, &w));
        work += osh_cost_of_linear(p, i);
        osh_pace_step(&r->pace, work / all, 0, osh_now());
        if (all_of_it) osh_run_finished(cx, r, p->linears[i].name);
    }
    osh_run_end(cx, r, scope);
done:
    osh_tensor_free(cx, w);
    osh_ahead_free(cx, a);
    return rc;
}
