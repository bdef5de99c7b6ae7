/* ahead.c - prefetches weights on a thread. The thread begins to read weight i + 1 when the caller
 * has taken weight i, so at most two weights are in memory. */
#include "run/ahead.h"

#include <pthread.h>

#include "base/profile.h"
#include "base/thread.h"

struct osh_ahead {
    const osh_budget *p; // view
    int *todo;         // own [n]: indices of the Linears to read
    int n, taken;
    osh_ctx *cx;       // own: context of the thread
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    osh_tensor *ready; // own: weight of todo[taken]; NULL: not read yet
    bool running, stop;
    osh_status rc;
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

static void *ahead_reader(void *user)
{
    osh_ahead *a = user;
    for (int i = 0; i < a->n && !a->rc; i++) {
        osh_tensor *w = NULL;
        pthread_mutex_lock(&a->lock);
        while (a->taken < i && !a->stop) pthread_cond_wait(&a->change, &a->lock);
        bool stop = a->stop;
        pthread_mutex_unlock(&a->lock);
        if (stop) break;
        osh_scope scope = osh_profile_time(a->cx, "read ahead", NULL);
        osh_status rc = osh_linear_read(a->cx, &w, a->p, a->todo[i]);
        osh_profile_end(a->cx, scope);
        pthread_mutex_lock(&a->lock);
        a->ready = w, a->rc = rc;
        pthread_cond_signal(&a->change);
        pthread_mutex_unlock(&a->lock);
    }
    return NULL;
}

osh_status osh_ahead_new(osh_ctx *cx, osh_ahead **out, const osh_budget *p, const bool *todo)
{
    osh_status rc = OSH_OK;
    osh_ahead *a = NULL; // own
    OSH_NEW(cx, a, 1);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, NULL);
    a->p = p;
    OSH_NEW(cx, a->todo, p->match->n_linears);
    for (int i = 0; i < p->match->n_linears; i++)
        if (todo[i]) a->todo[a->n++] = i;
    if (p->memory.read_ahead && a->n > 1) {
        OSH_TRY(osh_ctx_fork(&a->cx, cx));
        a->running = osh_thread_start(&a->thread, ahead_reader, a);
        if (!a->running) OSH_FAIL(cx, OSH_E_NOMEM, "cannot start a thread to read ahead");
    }
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
    if (!a->running) {
        OSH_TRY(osh_linear_read(cx, w, a->p, a->todo[a->taken]));
        *linear = a->todo[a->taken++];
        goto done;
    }
    pthread_mutex_lock(&a->lock);
    while (!a->ready && !a->rc) pthread_cond_wait(&a->change, &a->lock);
    if (!(rc = a->rc)) {
        *w = a->ready, a->ready = NULL; // passes ownership
        *linear = a->todo[a->taken++];
        pthread_cond_signal(&a->change);
    }
    pthread_mutex_unlock(&a->lock);
    if (rc) OSH_FAIL(cx, rc, "%s", osh_error_text(a->cx));
done:
    return rc;
}

void osh_ahead_free(osh_ctx *cx, osh_ahead *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->change);
    pthread_mutex_unlock(&a->lock);
    if (a->running) pthread_join(a->thread, NULL);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->change);
    osh_tensor_free(cx, a->ready);
    osh_free(cx, a->todo);
    if (a->cx) osh_ctx_free(a->cx);
    osh_free(cx, a);
}
