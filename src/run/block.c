/* block.c - learns the codes of a subgraph's Linears from the output of the whole block
 * (learn/block.h), instead of solving each Linear. If a killed run has written only some Linears of
 * a block, the resumed run learns all Linears of the block again. Its results equal those of a run
 * that was not killed. On a GPU, the copies of the weights in host memory are the original
 * weights. */
#include <string.h>

#include "schedule/blocks.h"
#include "run/run.h"

typedef struct blocked {
    osh_run *r;
    osh_block_of of;      // own
    /* One job for each Linear that learns. Also owns the objects to which members of the jobs
     * point. */
    osh_linear_job *jobs; // own [n_learns]
    /* own [n_learns]: copies of the original weights; NULL on a GPU */
    osh_tensor **dense;
} blocked;

/* Reads one sample of a value of the block from the activation store. Callback for the member
 * `rows` of osh_block. */
static osh_status blocked_rows(osh_ctx *cx, void *user, int k, int64_t sample, osh_tensor *to)
{
    const blocked *x = user;
    const osh_block *b = &x->of.b;
    int n = b->n_in + b->n_out;
    int v =
        k < b->n_in ? b->in[k] : b->g->values[k < n ? b->out[k - b->n_in] : b->in[k - n]].original;
    return osh_acts_sample(cx, x->r->acts, v, sample, to);
}

static void blocked_step(osh_ctx *cx, void *user, int64_t t)
{
    const blocked *x = user;
    osh_run_step(cx, x->r, (double)t / (double)x->of.b.rule.steps);
}

/* Rounds the weight of Linear k of the block to nearest. Learning begins with this result. */
static osh_status blocked_job_begin(osh_ctx *cx, blocked *x, const osh_stats *stats, int k)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = x->r->budget;
    const osh_modifier *m = osh_block_modifier(p->schedule, &x->of);
    osh_linear_job *j = &x->jobs[k];
    float *importance = NULL; // own
    OSH_TRY(osh_stats_importance(cx, &importance, stats,
                                 p->match->linears[x->of.linears[k]].input));
    if (!importance) OSH_TRY(osh_run_unweighted(cx, j));
    j->params.importance = importance;
    OSH_TRY(m->type->learner->learns(cx, m, j, &x->of.b.learns[k].args));
done:
    j->params.importance = NULL;
    osh_free(cx, importance);
    return rc;
}

/* Sets *w to the original weight of Linear k in host memory. Without a GPU, the original weight is
 * a copy, because learning changes the weight in memory. With a GPU, the copy in host memory
 * remains unchanged. If a resumed run does not have this copy, because the Linear was written
 * already, the copy is made from the weight on the GPU. */
static osh_status blocked_original(osh_ctx *cx, blocked *x, const osh_solving *s, int k,
                                   osh_tensor **w)
{
    osh_status rc = OSH_OK;
    int weight = x->r->budget->match->linears[x->of.linears[k]].weight;
    const osh_tensor *now = s->w->w[weight];
    osh_tensor **own = s->w->device ? &s->w->host[weight] : &x->dense[k];
    if (!*own) {
        OSH_TRY(osh_tensor_new(cx, own, now->dtype, now->ndim, now->shape));
        OSH_TRY(osh_tensor_copy(cx, *own, now));
    }
    *w = *own;
done:
    return rc;
}

/* Makes a job (arguments and results of a modifier for one Linear) for each Linear that learns. */
static osh_status blocked_jobs_new(osh_ctx *cx, blocked *x, const osh_solving *s)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = x->r->budget;
    osh_block *b = &x->of.b;
    OSH_NEW(cx, x->jobs, b->n_learns);
    OSH_NEW(cx, x->dense, b->n_learns);
    OSH_TRY(osh_globals_find(cx, osh_emit_globals(x->r->emitter), x->of.linears, b->n_learns));
    for (int k = 0; k < b->n_learns; k++) {
        const osh_linear *l = &p->match->linears[x->of.linears[k]];
        osh_linear_job *j = &x->jobs[k];
        *j = (osh_linear_job){.name = l->name,
                              .scheme = l->scheme,
                              .sparsity = l->prune.sparsity,
                              .objective = -1,
                              .nearest = -1};
        OSH_TRY(blocked_original(cx, x, s, k, &j->w));
        j->params.global = osh_globals_of(osh_emit_globals(x->r->emitter), x->of.linears[k]);
        OSH_TRY(blocked_job_begin(cx, x, s->stats, k));
    }
done:
    return rc;
}

/* Turns the learned state of Linear k of the block into codes and scales, and passes them to the
 * emitter. First restores the original weight in memory, because the error is computed relative to
 * the original weight. If s->in_memory is not NULL, the quantized weight finally replaces the
 * weight in memory. */
static osh_status blocked_job_finish(osh_ctx *cx, blocked *x, const osh_solving *s, int k)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = x->r->budget;
    const osh_modifier *m = osh_block_modifier(p->schedule, &x->of);
    int linear = x->of.linears[k], weight = p->match->linears[linear].weight;
    osh_linear_job *j = &x->jobs[k];
    osh_tensor *now = s->w->w[weight];
    m->type->learner->learned(cx, m, j, &x->of.b.learns[k].args);
    if (x->of.b.diverged)
        j->fallback = "learning of its block diverged: rounded to nearest; want a smaller rate";
    if (!s->w->device || !s->in_memory) OSH_TRY(osh_tensor_copy(cx, now, j->w));
    if (s->w->device) j->device_w = now;
    else j->w = now;
    if (x->of.b.learns[k].bias_rate > 0) {
        const osh_tensor *bias = s->w->w[x->of.b.learns[k].bias];
        if (!(j->bias = osh_alloc(cx, osh_tensor_bytes(bias))))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a bias");
        OSH_TRY(osh_tensor_get(cx, j->bias, bias, 0, osh_tensor_bytes(bias)));
    }
    OSH_TRY(osh_job_finish(cx, j, s->in_memory != NULL));
    if (!x->r->results[linear].done) OSH_TRY(osh_run_emit(cx, x->r, s->stats, linear, j));
    if (s->in_memory) s->in_memory[linear] = true;
    if (s->w->device) osh_tensor_free(cx, s->w->host[weight]), s->w->host[weight] = NULL;
done:
    return rc;
}

static void blocked_log(osh_ctx *cx, const osh_block *b, const char *name)
{
    int64_t n = osh_ada_points(b->rule.steps, b->rule.period);
    for (int64_t k = 0; k < n; k++)
        osh_log(cx, OSH_LOG_DEBUG, "%s: step %lld: loss %.7g", name,
                (long long)(k * b->rule.period), b->curve[k]);
    osh_log(cx, OSH_LOG_INFO,
            "%s: mean squared error of its output %.4g in the last step, %.4g in the first", name,
            b->ended, b->begun);
    if (b->n_steps < b->rule.steps)
        osh_log(cx, OSH_LOG_INFO, "%s: stopped after step %lld of %lld", name,
                (long long)b->n_steps, (long long)b->rule.steps);
    if (b->rule.selective)
        osh_log(cx, OSH_LOG_INFO,
                "%s: mean squared error of all samples %.4g, with rounding to nearest %.4g%s",
                name, b->learned, b->nearest, b->kept ? "" : ": rounding to nearest is kept");
}

osh_status osh_run_block(osh_ctx *cx, osh_run *r, const osh_solving *s)
{
    osh_status rc = OSH_OK;
    blocked x = {.r = r}; // own
    osh_range range = osh_range_at(r->budget->schedule, s->first);
    OSH_TRY(osh_block_init(cx, &x.of, r->budget->schedule, &range));
    osh_block *b = &x.of.b;
    OSH_NEW(cx, b->curve, osh_ada_points(b->rule.steps, b->rule.period));
    OSH_TRY(blocked_jobs_new(cx, &x, s));
    b->w = s->w, b->rows = blocked_rows, b->step = blocked_step, b->user = &x;
    b->rule.seed += (uint64_t)s->first;
    OSH_TRY(osh_block_learn(cx, b));
    blocked_log(cx, b, range.name);
    for (int k = 0; k < b->n_learns; k++) OSH_TRY(blocked_job_finish(cx, &x, s, k));
done:
    if (rc && rc != OSH_E_INTERRUPTED) osh_note(cx, "learning the codes of %s", range.name);
    for (int k = 0; x.jobs && k < x.of.b.n_learns; k++) {
        osh_modifier const *m = osh_block_modifier(r->budget->schedule, &x.of);
        m->type->learner->learned(cx, m, &x.jobs[k], &x.of.b.learns[k].args);
        osh_linear_job_deinit(cx, &x.jobs[k]);
    }
    for (int k = 0; x.dense && k < x.of.b.n_learns; k++) osh_tensor_free(cx, x.dense[k]);
    osh_free(cx, x.jobs);
    osh_free(cx, x.dense);
    osh_free(cx, x.of.b.curve);
    osh_block_deinit(cx, &x.of);
    return rc;
}
