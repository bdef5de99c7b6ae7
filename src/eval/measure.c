/* measure.c - runs the passes of a measurement before the run. */
#include "eval/measure.h"

#include "budget/cost.h"
#include "plan/division.h"
#include "plan/exchange.h"

osh_status osh_measuring_open(osh_ctx *cx, osh_measuring *m, const osh_measurement *type,
                              osh_plan *p)
{
    const osh_options *o = p->in.opt;
    m->type = type, m->p = p;
    // a single group of samples is not divided among ranks: each rank then measures all samples
    if (p->in.groups.n > 1) m->ranks = o->ranks;
    return osh_forward_open(cx, &m->f, o->model, o->adapter, o->models_dir);
}

osh_status osh_measuring_ask(osh_ctx *cx, osh_measuring *m, osh_measured *measured, bool again,
                             int n)
{
    osh_status rc = OSH_OK;
    osh_plain_measure(m->f->plain, measured, again);
    OSH_NEW(cx, m->of, n);
    m->n = n;
done:
    return rc;
}

static void measuring_drop(osh_ctx *cx, osh_measuring *m)
{
    for (int k = 0; k < m->n; k++) osh_stat_free(cx, m->of[k]), m->of[k] = NULL;
}

void osh_measuring_close(osh_ctx *cx, osh_measuring *m)
{
    measuring_drop(cx, m);
    osh_free(cx, m->of);
    osh_forward_close(cx, m->f);
    osh_sweep_close(cx, &m->sweep);
}

/* Makes a batch of each sample that this rank runs. */
static osh_status measuring_samples(osh_ctx *cx, const osh_measuring *m)
{
    osh_status rc = OSH_OK;
    osh_forward *f = m->f;
    const osh_dataset *d = &m->p->in.data;
    OSH_NEW(cx, f->batches, d->n);
    for (int64_t k = 0; k < d->n; k++) {
        if (!osh_divide_sample(&m->p->in.groups, m->ranks, k)) continue;
        OSH_TRY(osh_batch_new(cx, &f->batches[f->n_batches], f->graph, d->ids, d->offsets + k, 1));
        f->batches[f->n_batches++]->first_sample = k;
    }
done:
    return rc;
}

typedef struct pass { // a pass that runs
    osh_measuring *m; // view
    double work;
} pass;

static void pass_show(osh_ctx *cx, void *user, int64_t batch)
{
    const pass *k = user;
    osh_sweep_show(cx, &k->m->sweep, k->work, batch + 1, k->m->f->n_batches);
}

static osh_status pass_merge(osh_ctx *cx, void *user, int64_t round)
{
    osh_status rc = OSH_OK;
    const osh_measuring *m = ((const pass *)user)->m;
    for (int k = 0; k < m->n; k++)
        if (m->of[k]) OSH_TRY(osh_exchange_groups(cx, m->ranks, m->of[k], 0, round));
done:
    return rc;
}

static osh_status measuring_pass(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_measuring *m = user;
    osh_exec_span span = osh_forward_span(p);
    osh_exec_hooks hooks = {.value = m->type->value, .user = m};
    pass now = {m, osh_cost_of_nodes(&span, &m->p->in.data)};
    return osh_forward_pass(
        cx, p,
        &(osh_forward_batches){&hooks, &m->p->in.groups, m->ranks, pass_show, pass_merge, &now});
}

osh_status osh_measuring_begin(osh_ctx *cx, osh_measuring *m, int k, const osh_stat_type *type,
                               int64_t width)
{
    osh_status rc = OSH_OK;
    const osh_where host = {NULL, OSH_LIFE_LONG};
    OSH_TRY(osh_stat_new(cx, &m->of[k], type, m->p->in.groups, width, host));
    OSH_TRY(osh_stat_new_part(cx, m->of[k], host));
    m->of[k]->open = m->ranks != NULL;
done:
    return rc;
}

static osh_status measuring_solve(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    osh_measuring *m = user;
    for (int k = 0; k < m->n; k++)
        if (m->of[k]) OSH_TRY(osh_stat_finish(cx, m->of[k]));
    OSH_TRY(m->type->solve(cx, m, p));
done:
    measuring_drop(cx, m);
    return rc;
}

osh_status osh_measuring_run(osh_ctx *cx, osh_measuring *m, osh_progress *pr)
{
    osh_status rc = OSH_OK;
    osh_forward *f = m->f;
    OSH_TRY(measuring_samples(cx, m));
    pr->n_steps = f->parts->n, pr->phase = m->type->what;
    OSH_TRY(osh_sweep_open(cx, &m->sweep, pr, f, &m->p->in.data));
    m->sweep.ranks = m->ranks;
    osh_sweep_begin(&m->sweep, 0);
    // a rank without samples reads no weights
    OSH_TRY(osh_sweep_walk(cx, &m->sweep, f,
                           &(osh_forward_visitor){measuring_pass, m, f->n_batches > 0,
                                                  m->type->begin, measuring_solve}));
    OSH_TRY(m->type->over(cx, m));
done:
    return rc;
}

osh_status osh_measuring_bytes(osh_ctx *cx, int64_t *peak, const osh_measuring *m)
{
    osh_forward_memory bytes = {0};
    const osh_dataset *d = &m->p->in.data;
    osh_status rc = osh_forward_bytes(cx, &bytes, m->f, d, d->n, 1);
    *peak = bytes.peak + (m->ranks ? OSH_RANKS_BYTES : 0);
    return rc;
}
