/* measure.c - runs the passes of a measurement before the run. */
#include "eval/measure.h"

#include "budget/cost.h"
#include "plan/exchange.h"

osh_status osh_measuring_open(osh_ctx *cx, osh_measuring *m, osh_plan *p)
{
    const osh_options *o = p->in.opt;
    m->p = p;
    // a single group of samples is not divided among ranks: each rank then measures all samples
    if (p->in.groups.n > 1) m->ranks = o->ranks;
    return osh_forward_open(cx, &m->f, o->model, o->adapter, o->models_dir);
}

void osh_measuring_close(osh_ctx *cx, osh_measuring *m)
{
    osh_forward_close(cx, m->f);
    osh_sweep_close(cx, &m->sweep);
}

osh_status osh_measuring_run(osh_ctx *cx, osh_measuring *m, const osh_forward_visitor *v,
                             osh_progress *pr)
{
    osh_status rc = OSH_OK;
    const osh_dataset *d = &m->p->in.data;
    osh_forward *f = m->f;
    osh_forward_visitor all = *v;
    OSH_TRY(osh_sweep_samples(cx, f, d, &m->p->in.groups, m->ranks));
    all.loads = f->n_batches > 0; // a rank without samples reads no weights
    pr->n_steps = f->parts->n;
    OSH_TRY(osh_sweep_open(cx, &m->sweep, pr, f, d));
    m->sweep.ranks = m->ranks;
    osh_sweep_begin(&m->sweep, 0);
    OSH_TRY(osh_sweep_walk(cx, &m->sweep, f, &all));
done:
    return rc;
}

typedef struct pass { // a pass that runs
    osh_measuring *m;             // view
    const osh_forward_batches *k; // view: hooks and callbacks of the measurement
    double work;
} pass;

static void pass_show(osh_ctx *cx, void *user, int64_t batch)
{
    const pass *k = user;
    osh_sweep_show(cx, &k->m->sweep, k->work, batch + 1, k->m->f->n_batches);
}

static osh_status pass_merge(osh_ctx *cx, void *user, int64_t round)
{
    const pass *k = user;
    return k->k->merge(cx, k->k->user, round);
}

osh_status osh_measuring_pass(osh_ctx *cx, osh_measuring *m, const osh_forward_part *p,
                              const osh_forward_batches *k)
{
    osh_exec_span span = osh_forward_span(p);
    pass now = {m, k, osh_cost_of_nodes(&span, &m->p->in.data)};
    return osh_forward_pass(cx, p,
                            &(osh_forward_batches){k->hooks, &m->p->in.groups, m->ranks, pass_show,
                                                   pass_merge, &now});
}

osh_status osh_measuring_begin(osh_ctx *cx, osh_stat **out, const osh_measuring *m,
                               const osh_stat_type *type, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_where host = {NULL, OSH_LIFE_LONG};
    OSH_TRY(osh_stat_new(cx, out, type, m->p->in.groups, n, host));
    OSH_TRY(osh_stat_new_part(cx, *out, host));
    (*out)->open = m->ranks != NULL;
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
