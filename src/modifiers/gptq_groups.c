/* gptq_groups.c - solves several groups of jobs in one call on a device. A group is the jobs of one
 * input, and all groups have equal shapes. All Hessians are ordered and factored together, and all
 * weights are solved together. So even small matrices fill a GPU: the Hessian of an expert's
 * down_proj has 768 columns. A group whose Hessian cannot be factored with the first damping is
 * solved alone, with larger dampings (gptq_ladder.c). */
#include "modifiers/gptq.h"
#include "solver/columns.h"

#include <string.h>

typedef osh_gptq gptq;
typedef osh_gptq_gathered gathered;

bool osh_gptq_gathers(const osh_modifier *m, const osh_linear_job *jobs, int n)
{
    const gptq *g = m->args;
    for (int k = 0; k < n; k++)
        if (!osh_gptq_together(jobs, &jobs[k])) return false;
    return n && osh_gptq_is_plain(g) && !osh_gptq_is_original(g) &&
           jobs->w->shape[1] <= OSH_FACTORS_MOST;
}

static void gathered_deinit(osh_ctx *cx, gathered *x)
{
    for (int k = 0; x->f && k < x->n; k++) osh_gptq_factor_deinit(cx, &x->f[k]);
    osh_free(cx, x->f);
    osh_free(cx, x->diag);
    osh_free(cx, x->perm);
    osh_free(cx, x->h);
    osh_free(cx, x->which);
    osh_free(cx, x->failed);
}

static osh_status gathered_init(osh_ctx *cx, gathered *x)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, x->f, x->n);
    OSH_NEW(cx, x->diag, x->n * x->I);
    OSH_NEW(cx, x->perm, x->n * x->I);
    OSH_NEW(cx, x->h, x->n);
    OSH_NEW(cx, x->which, x->n);
    OSH_NEW(cx, x->failed, x->n);
    for (int k = 0; k < x->n; k++) {
        x->f[k].I = x->I, x->f[k].device = x->groups[k].h->device;
        x->h[k] = x->groups[k].h->data;
    }
done:
    return rc;
}

static osh_status gathered_order_chunk(osh_ctx *cx, void *user, int64_t k, int worker)
{
    const gathered *x = user;
    (void)worker;
    return osh_gptq_order(cx, &x->f[k], x->diag + k * x->I, osh_gptq_is_ordered(x->groups[k].jobs),
                          x->m->args, 0.5f * (float)x->n_samples);
}

/* Orders the columns of the Hessians of all groups, and factors the Hessians. For each group k that
 * can be factored with the first damping, sets x->f[k].u. */
static osh_status factor_gathered(osh_ctx *cx, const gathered *x)
{
    osh_status rc = OSH_OK;
    osh_device *d = x->groups->h->device;
    osh_gptq_hessians all = {x->h, NULL, NULL, x->I, x->n};
    OSH_TRY(osh_gptq_column_of(d)->diags(cx, d, x->diag, &all));
    OSH_TRY(osh_parallel_for(cx, x->n, gathered_order_chunk, (void *)(uintptr_t)x));
    all = (osh_gptq_hessians){x->h, x->perm, x->diag, x->I, 0};
    for (int k = 0; k < x->n; k++) {
        if (!osh_gptq_damp(x->diag + all.n * x->I, &x->f[k], x->m->args)) continue;
        memcpy(x->perm + all.n * x->I, x->f[k].perm, (size_t)x->I * sizeof *x->perm);
        x->h[all.n] = x->groups[k].h->data, x->which[all.n++] = k;
    }
    if (all.n) OSH_TRY(osh_device_ops_of(d)->factors(cx, d, x->failed, &all));
    for (int i = 0; i < all.n; i++)
        if (!x->failed[i]) x->f[x->which[i]].u = x->h[i];
done:
    return rc;
}

osh_status osh_gptq_compress_groups(osh_ctx *cx, const osh_modifier *m, const osh_job_group *groups,
                                    int n, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    // own
    gathered x = {
        .groups = groups, .m = m, .n = n, .I = groups->h->shape[0], .n_samples = n_samples};
    osh_gptq_part *parts = NULL; // own
    int n_parts = 0;
    OSH_TRY(gathered_init(cx, &x));
    OSH_NEW(cx, parts, n * groups->n);
    for (int k = 0; k < n; k++)
        for (int i = 0; i < groups[k].n; i++) {
            osh_linear_job *j = &groups[k].jobs[i];
            j->objective = j->nearest = -1, j->losses = (osh_losses){0};
        }
    OSH_TRY(factor_gathered(cx, &x));
    for (int k = 0; k < n; k++)
        for (int i = 0; x.f[k].u && i < groups[k].n; i++)
            parts[n_parts++] = (osh_gptq_part){&x.f[k], &groups[k].jobs[i]};
    if (n_parts) OSH_TRY(osh_gptq_solve_parts(cx, m, parts, n_parts));
    for (int k = 0; k < n; k++)
        if (!x.f[k].u)
            OSH_TRY(m->type->solver->compress(cx, m, groups[k].jobs, groups[k].n, groups[k].h,
                                              n_samples));
done:
    osh_free(cx, parts);
    gathered_deinit(cx, &x);
    return rc;
}
