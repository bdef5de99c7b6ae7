/* sequential.c - the calibration loops swapped: for each subgraph, for each batch.
 *
 *   onload -> observe (only the nodes that the statistics need) -> solve, emit
 *          -> propagate through the changed weights -> release
 *
 * What lives between subgraphs is exactly the values that a later one reads. `basic` is the same
 * with the whole graph as one subgraph: everything onloaded, every statistic at once, nothing
 * propagated. */
#include <string.h>

#include "pipeline/run.h"

typedef struct calibration {
    osh_run *r;
    osh_batch **batches; // own
    int64_t n_batches;
    osh_weights *w;      // own
    bool *run, *keep;    // own: nodes, values
} calibration;

static osh_status make_batches(osh_ctx *cx, calibration *c)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = c->r->plan;
    int64_t size = p->opt->batch_size > 0 ? p->opt->batch_size : 1;
    int64_t n = (p->data.n + size - 1) / size;
    OSH_NEW(cx, c->batches, n);
    for (int64_t b = 0; b < n; b++) {
        int64_t first = b * size, count = p->data.n - first < size ? p->data.n - first : size;
        OSH_TRY(osh_batch_new(cx, &c->batches[b], p->graph, p->data.ids, p->data.offsets + first, count));
        c->batches[b]->first_sample = first;
        c->n_batches = b + 1;
    }
done:
    return rc;
}

static osh_status begin(osh_ctx *cx, calibration *c)
{
    osh_status rc = OSH_OK;
    OSH_TRY(make_batches(cx, c));
    OSH_TRY(osh_weights_new(cx, &c->w, c->r->plan->graph));
    OSH_NEW(cx, c->run, c->r->plan->graph->n_nodes);
    OSH_NEW(cx, c->keep, c->r->plan->graph->n_values);
done:
    return rc;
}

static void end(osh_ctx *cx, calibration *c)
{
    for (int64_t b = 0; b < c->n_batches; b++) osh_batch_free(cx, c->batches[b]);
    osh_free(cx, c->batches);
    osh_weights_free(cx, c->w);
    osh_free(cx, c->run);
    osh_free(cx, c->keep);
}

/* Weights of the nodes that run, and of the Linears that are solved. */
static osh_status onload(osh_ctx *cx, calibration *c, int first, int n)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = c->r->plan;
    osh_scope scope = osh_profile_begin(cx, "load", c->r->progress.name);
    for (int i = 0; i < n; i++)
        if (c->run[i]) OSH_TRY(osh_weights_load(cx, c->w, p->graph, p->ck, first + i, 1));
    for (int k = 0; k < p->n_linears; k++) {
        const osh_linear *l = &p->linears[k];
        if (l->wants && l->node >= first && l->node < first + n)
            OSH_TRY(osh_weights_load(cx, c->w, p->graph, p->ck, l->node, 1));
    }
done:
    osh_profile_end(cx, scope);
    return rc;
}

static osh_status pass(osh_ctx *cx, calibration *c, int first, int n, osh_stats *stats)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = c->r->plan;
    osh_progress *pr = &c->r->progress;
    osh_exec_hooks hooks = {.value = osh_stats_feed, .user = stats};
    pr->done = 0, pr->total = p->data.n;
    for (int64_t b = 0; b < c->n_batches; b++) {
        if (osh_interrupted(cx)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted");
        OSH_TRY(osh_exec_run(cx, p->graph, first, n, c->run, c->w, c->batches[b], c->keep,
                             stats ? &hooks : NULL, true));
        pr->done += c->batches[b]->seqs.n;
        osh_run_step(cx, c->r, (double)pr->done / (double)pr->total, c->batches[b]->n_tokens);
    }
done:
    if (rc) osh_note(cx, "%s pass over %s", pr->phase, pr->name);
    return rc;
}

static void keep_only(calibration *c, const int *values, int n)
{
    memset(c->keep, 0, (size_t)c->r->plan->graph->n_values * sizeof *c->keep);
    for (int i = 0; i < n; i++) c->keep[values[i]] = true;
}

/* Nodes that make the wanted statistics and, where outputs too, the values that later subgraphs read. */
static osh_status choose_nodes(osh_ctx *cx, calibration *c, const osh_subgraph *s, const osh_stats *stats, bool outputs)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = c->r->plan->graph;
    bool *want = NULL; // own
    OSH_NEW(cx, want, g->n_values);
    if (stats) memcpy(want, osh_stats_wanted(stats), (size_t)g->n_values * sizeof *want);
    for (int i = 0; outputs && i < s->n_live_out; i++) want[s->live_out[i]] = true;
    osh_exec_needed(c->run, g, s->first, s->n_nodes, want);
done:
    osh_free(cx, want);
    return rc;
}

static osh_status visit(osh_ctx *cx, calibration *c, int index)
{
    osh_status rc = OSH_OK;
    osh_run *r = c->r;
    const osh_plan *p = r->plan;
    const osh_subgraph *s = &p->parts->parts[index];
    const osh_pass *ps = &p->passes[index];
    osh_stats *stats = NULL; // own
    bool solved = osh_run_solved(r, index, 1); // by an earlier run, or nothing to solve

    if (ps->observe && !solved) {
        osh_scope scope = osh_run_begin(cx, r, OSH_PHASE_OBSERVE, index);
        OSH_TRY(osh_stats_new(cx, &stats, p, index, 1));
        OSH_TRY(choose_nodes(cx, c, s, stats, ps->merged));
        OSH_TRY(onload(cx, c, s->first, s->n_nodes));
        if (ps->merged) keep_only(c, s->live_out, s->n_live_out);
        else {
            keep_only(c, s->live_in, s->n_live_in);
            for (int i = 0; i < s->n_live_out; i++)
                c->keep[s->live_out[i]] |= p->graph->values[s->live_out[i]].producer < s->first;
            c->keep[p->graph->input_ids] |= s->first == 0;
        }
        OSH_TRY(pass(cx, c, s->first, s->n_nodes, stats));
        osh_run_end(cx, r, scope);
        OSH_TRY(osh_run_solve(cx, r, stats, c->w, index, 1));
    }
    if (ps->propagate && (!ps->merged || solved)) {
        osh_scope scope = osh_run_begin(cx, r, OSH_PHASE_PROPAGATE, index);
        OSH_TRY(choose_nodes(cx, c, s, NULL, true));
        OSH_TRY(onload(cx, c, s->first, s->n_nodes));
        OSH_TRY(osh_run_take_up(cx, r, c->w, index));
        keep_only(c, s->live_out, s->n_live_out);
        OSH_TRY(pass(cx, c, s->first, s->n_nodes, NULL));
        osh_run_end(cx, r, scope);
    }
    osh_weights_release(cx, c->w, p->graph, s->first, s->n_nodes);
    if (!solved) OSH_TRY(osh_emit_subgraph(cx, r->emitter, index, -1));
done:
    osh_stats_free(cx, stats);
    return rc;
}

static osh_status sequential(osh_ctx *cx, calibration *c)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = c->r->plan;
    osh_progress *pr = &c->r->progress;
    pr->n_steps = p->parts->n + 1; // and the output
    for (int i = 0; i < p->parts->n; i++) {
        if (osh_run_solved(c->r, i, p->parts->n - i)) break; // an earlier run did the rest
        if (!p->passes[i].observe && !p->passes[i].propagate) continue;
        pr->step = i + 1, pr->name = p->parts->parts[i].name, pr->error = -1;
        OSH_TRY(visit(cx, c, i));
        osh_run_finished(cx, c->r, p->parts->parts[i].name);
    }
done:
    return rc;
}

static osh_status basic(osh_ctx *cx, calibration *c)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = c->r->plan;
    osh_stats *stats = NULL; // own
    osh_progress *pr = &c->r->progress;
    pr->n_steps = 2, pr->step = 1, pr->name = "the whole model", pr->error = -1;
    if (osh_run_solved(c->r, 0, p->parts->n)) return OSH_OK; // by an earlier run
    osh_scope scope = osh_run_begin(cx, c->r, OSH_PHASE_OBSERVE, 0);
    OSH_TRY(osh_stats_new(cx, &stats, p, 0, p->parts->n));
    osh_exec_needed(c->run, p->graph, 0, p->graph->n_nodes, osh_stats_wanted(stats));
    OSH_TRY(onload(cx, c, 0, p->graph->n_nodes));
    OSH_TRY(pass(cx, c, 0, p->graph->n_nodes, stats));
    osh_run_end(cx, c->r, scope);
    OSH_TRY(osh_run_solve(cx, c->r, stats, c->w, 0, p->parts->n));
    osh_run_finished(cx, c->r, "the whole model");
done:
    osh_stats_free(cx, stats);
    return rc;
}

osh_status osh_run_calibrated(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    calibration c = {.r = r};
    OSH_TRY(begin(cx, &c));
    OSH_TRY(r->plan->pipeline == OSH_PIPELINE_BASIC ? basic(cx, &c) : sequential(cx, &c));
done:
    end(cx, &c);
    return rc;
}
