/* ahead.c - prefetches the weights of Linears that are rounded without data. */
#include "run/ahead.h"

#include "base/profile.h"
#include "base/ahead.h"

struct osh_ahead {
    const osh_budget *p; // view
    int *todo;         // own [n]: indices of the Linears to read
    int n, taken;
    osh_read_ahead *reader; // own; NULL: the caller's thread reads
    osh_tensor *ready;  // own: weight of todo[taken]; NULL: not read yet
};

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

/* Callback for the member `read` of osh_read_items. */
static osh_status ahead_read(osh_ctx *cx, void *user, int item)
{
    osh_ahead *a = user;
    osh_scope scope = osh_profile_time(cx, "read ahead", NULL);
    osh_status rc = osh_linear_read(cx, &a->ready, a->p, a->todo[item]);
    osh_profile_end(cx, scope);
    return rc;
}

osh_status osh_ahead_new(osh_ctx *cx, osh_ahead **out, const osh_budget *p, const bool *todo)
{
    osh_status rc = OSH_OK;
    osh_ahead *a = NULL; // own
    OSH_NEW(cx, a, 1);
    a->p = p;
    OSH_NEW(cx, a->todo, p->match->n_linears);
    for (int i = 0; i < p->match->n_linears; i++)
        if (todo[i]) a->todo[a->n++] = i;
    if (p->memory.read_ahead && a->n > 1)
        OSH_TRY(osh_read_ahead_start(cx, &a->reader, &(osh_read_items){ahead_read, a, a->n}));
    *out = a, a = NULL;
done:
    osh_ahead_free(cx, a);
    return rc;
}

osh_status osh_ahead_take(osh_ctx *cx, osh_ahead *a, int *linear, osh_tensor **w)
{
    osh_status rc = OSH_OK;
    *linear = -1, *w = NULL;
    if (a->taken == a->n) goto done;
    if (a->reader) OSH_TRY(osh_read_ahead_wait(cx, a->reader));
    else OSH_TRY(osh_linear_read(cx, &a->ready, a->p, a->todo[a->taken]));
    *w = a->ready, a->ready = NULL; // passes ownership
    *linear = a->todo[a->taken++];
    if (a->reader) osh_read_ahead_next(a->reader);
done:
    return rc;
}

void osh_ahead_free(osh_ctx *cx, osh_ahead *a)
{
    if (!a) return;
    osh_read_ahead_free(cx, a->reader);
    osh_tensor_free(cx, a->ready);
    osh_free(cx, a->todo);
    osh_free(cx, a);
}
