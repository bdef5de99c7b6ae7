/* datafree.c - rounds weights without calibration data, tensor by tensor. This needs no graph, so
 * it works for any safetensors checkpoint.
 *
 * If the modifier can round rows independently, a stream processes a Linear in bands of rows
 * (output/stream.h). All other Linears are processed as a whole, in a pipeline: while one Linear is
 * rounded, the next one is read, and the previous one is packed and written. */
#include "base/ahead.h"
#include "output/share.h"
#include "plan/division.h"
#include "output/stream.h"
#include "run/run.h"

typedef struct wholes { // the Linears that are rounded as a whole
    const osh_budget *p;    // view
    int *which, n;          // own [n]: indices of the Linears
    osh_read_ahead *reader; // own: reads the weights, with one item for each Linear
    osh_tensor *ready;      // own: weight that was read and is not rounded yet; NULL: there is none
} wholes;

typedef struct progress {
    osh_run *r;
    bool *todo; // own [linears]: true for Linears that this rank must round and that are not done
    /* Decides what is a step of the progress. True (pipeline datafree): each Linear is a step.
     * False: all Linears together are one step. */
    bool all_of_it;
    /* work: work (osh_cost_of_linear) of the Linears that are done.
     * all: work of all Linears. */
    double work, all;
} progress;

static void datafree_count(osh_ctx *cx, progress *p, int linear)
{
    osh_run *r = p->r;
    p->work += osh_cost_of_linear(r->budget, linear);
    osh_pace_step(&r->pace, p->work / p->all);
    r->progress.small = true;
    if (p->all_of_it) osh_run_finished(cx, r, r->budget->match->linears[linear].name);
    r->progress.small = false;
}

static void datafree_show(const progress *p, int linear)
{
    osh_run *r = p->r;
    if (p->all_of_it)
        r->progress.step++, r->progress.name = r->budget->match->linears[linear].name,
                            osh_run_no_error(r);
}

/* Shows a Linear that another rank has rounded. Callback for the member `seen` of osh_sharing. */
static void datafree_seen(osh_ctx *cx, void *user, int linear, double nmse)
{
    progress *p = user;
    datafree_show(p, linear);
    if (nmse > p->r->progress.error) p->r->progress.error = nmse;
    datafree_count(cx, p, linear);
}

/* Sends the progress of this rank to the other ranks, and receives theirs. */
static osh_status datafree_exchange(osh_ctx *cx, progress *p)
{
    return osh_emit_exchange(cx, p->r->emitter, &(osh_sharing){datafree_seen, p});
}

/* Records a Linear that a stream has rounded, and shows the progress. Callback for the member
 * `finished` of osh_stream_job. */
static osh_status datafree_streamed(osh_ctx *cx, void *user, int linear, double nmse)
{
    progress *p = user;
    datafree_show(p, linear);
    osh_run_rounded(cx, p->r, linear, nmse);
    datafree_count(cx, p, linear);
    return datafree_exchange(cx, p);
}

static osh_status datafree_stream(osh_ctx *cx, progress *p)
{
    osh_status rc = OSH_OK;
    osh_run *r = p->r;
    int *which = NULL, n = 0; // own
    OSH_NEW(cx, which, r->budget->match->n_linears);
    for (int k = 0; k < r->budget->match->n_linears; k++)
        if (p->todo[k] && osh_stream_takes(r->budget->schedule, k))
            which[n++] = k, p->todo[k] = false;
    OSH_TRY(osh_stream_linears(cx, r->emitter,
                               &(osh_stream_job){.linears = which,
                                                 .n = n,
                                                 .copies = p->all_of_it,
                                                 .finished = datafree_streamed,
                                                 .user = p}));
done:
    osh_free(cx, which);
    return rc;
}

osh_status osh_linear_read(osh_ctx *cx, osh_tensor **w, const osh_budget *p, int linear)
{
    osh_status rc = OSH_OK;
    const osh_ckpt_tensor *t = &p->in->ck->tensors[p->match->linears[linear].tensor];
    osh_tensor *new = NULL; // own
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_DEVICE);
    OSH_TRY(osh_tensor_new(cx, &new, p->match->linears[linear].dtype, 2, t->e->shape));
    OSH_TRY(osh_checkpoint_read(cx, new->data, p->in->ck, t));
    *w = new, new = NULL; // passes ownership
done:
    osh_mem_use(cx, old);
    osh_tensor_free(cx, new);
    return rc;
}

/* Reads the weight of the Linear which[item]. Callback for the member `read` of osh_read_items. */
static osh_status whole_read(osh_ctx *cx, void *user, int item)
{
    wholes *of = user;
    return osh_linear_read(cx, &of->ready, of->p, of->which[item]);
}

/* Rounds the Linears k for which p->todo[k] is true, one whole weight after the other. */
static osh_status datafree_round_wholes(osh_ctx *cx, progress *p)
{
    osh_status rc = OSH_OK;
    const osh_budget *b = p->r->budget;
    wholes of = {.p = b}; // own
    osh_tensor *w = NULL; // own
    OSH_NEW(cx, of.which, b->match->n_linears);
    for (int k = 0; k < b->match->n_linears; k++)
        if (p->todo[k]) of.which[of.n++] = k;
    OSH_TRY(osh_read_ahead_start(cx, &of.reader,
                                 &(osh_read_items){whole_read, &of, of.n, .many = true,
                                                   .ahead = b->memory.read_ahead && of.n > 1}));
    for (int k = 0; k < of.n; k++) {
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_read_ahead_wait(cx, of.reader));
        w = of.ready, of.ready = NULL; // passes ownership
        osh_read_ahead_next(of.reader);
        datafree_show(p, of.which[k]);
        OSH_TRY(osh_run_round(cx, p->r, of.which[k], &w));
        datafree_count(cx, p, of.which[k]);
        OSH_TRY(datafree_exchange(cx, p));
    }
done:
    osh_read_ahead_free(cx, of.reader);
    osh_tensor_free(cx, of.ready);
    osh_tensor_free(cx, w);
    osh_free(cx, of.which);
    return rc;
}

osh_status osh_run_datafree(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->budget;
    progress now = {.r = r, .all_of_it = p->in->pipeline == OSH_PIPELINE_DATAFREE};
    int left = 0;
    OSH_NEW(cx, now.todo, p->match->n_linears);
    for (int k = 0; k < p->match->n_linears; k++) {
        if (r->results[k].done) continue;
        now.all += osh_cost_of_linear(p, k), left++;
        now.todo[k] = osh_emit_is_mine(r->emitter, p->match->linears[k].out.first);
    }
    if (!left && !now.all_of_it) goto done;
    osh_scope scope = osh_run_begin(cx, r, OSH_PHASE_ROUND, -1);
    if (now.all_of_it) // the progress has one more step, the sealing of the output
        r->progress.n_steps = p->match->n_linears + 1,
        r->progress.step = p->match->n_linears - left;
    OSH_TRY(datafree_stream(cx, &now));
    OSH_TRY(datafree_round_wholes(cx, &now));
    OSH_TRY(osh_emit_exchange_all(cx, r->emitter, &(osh_sharing){datafree_seen, &now}));
    osh_run_end(cx, r, scope);
    if (osh_divide(r->plan).kind == OSH_DIVIDE_FILES)
        OSH_TRY(osh_times_gather(cx, p->in->opt->ranks, &r->times, &r->mine));
done:
    osh_free(cx, now.todo);
    return rc;
}
