/* emit_queue.c - the emitter's thread. It packs, writes and records one job after the other while
 * the run goes on.
 *
 * Waiting jobs may use memory up to the plan's peak. An allocation that would exceed the peak waits
 * until a job is done (osh_mem_give). A caller with a new job also waits while the memory in use is
 * above the peak.
 *
 * If a job fails, the run fails, and later jobs are dropped, as if the run had been killed. If the
 * run ends for another reason, it waits until the queue is empty, so no solved result is lost. */

#include "base/profile.h"
#include "output/emit_impl.h"
#include "budget/memory.h"

static void emit_job_deinit(osh_ctx *cx, osh_emit_job *j)
{
    osh_linear_job_deinit(cx, &j->result);
    osh_tensor_free(cx, j->in_scale);
    osh_tensor_free(cx, j->in_zero);
    osh_free(cx, j->bytes);
    for (int k = 0; k < OSH_FORMAT_MAX_TENSORS; k++) osh_free(cx, j->packed[k]);
}

/* Counts job j, which is done. The caller holds the lock. */
static void queue_count_done(osh_emit_queue *q, const osh_emit_job *j)
{
    q->n--, q->n_done++;
    q->n_views -= j->kind == OSH_EMIT_VIEW;
    pthread_cond_broadcast(&q->less);
}

static void *queue_writer(void *user)
{
    osh_emitter *e = user;
    osh_emit_queue *q = &e->queue;
    osh_ctx *cx = q->thread.cx;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->first && !q->stop) pthread_cond_wait(&q->more, &q->lock);
        if (!q->first) break;
        osh_emit_job *j = q->first;
        osh_status rc = q->rc;
        if (!(q->first = j->next)) q->last = NULL;
        pthread_mutex_unlock(&q->lock);
        if (!rc) {
            osh_scope scope = osh_profile_time(cx, "write", NULL);
            rc = q->work(cx, e, j);
            osh_profile_end(cx, scope);
        }
        emit_job_deinit(cx, j);
        pthread_mutex_lock(&q->lock);
        q->rc = rc;
        queue_count_done(q, j);
        osh_free(cx, j);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* A callback for osh_mem_give. Waits until a job is done, so that its memory is free. Returns false
 * if the queue has no jobs. */
static bool queue_give(void *user)
{
    osh_emit_queue *q = user;
    pthread_mutex_lock(&q->lock);
    bool any = q->n > 0;
    for (int64_t before = q->n_done; q->n && q->n_done == before;)
        pthread_cond_wait(&q->less, &q->lock);
    pthread_mutex_unlock(&q->lock);
    return any;
}

osh_status osh_emit_queue_start(osh_ctx *cx, osh_emitter *e, osh_emit_work *work)
{
    osh_status rc = OSH_OK;
    osh_emit_queue *q = &e->queue;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->less, NULL);
    q->made = true, q->work = work;
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    rc = osh_thread_open(cx, &q->thread, queue_writer, e, true, "write");
    osh_mem_use(cx, old);
    if (rc) goto done;
    osh_mem_give(cx, osh_memory_counted(&e->plan->budget), queue_give, q);
done:
    return rc;
}

void osh_emit_queue_stop(osh_ctx *cx, osh_emitter *e)
{
    osh_emit_queue *q = &e->queue;
    if (!q->made) return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
    if (q->thread.running) {
        osh_thread_join(&q->thread);
        osh_mem_give(cx, 0, NULL, NULL);
    }
    osh_thread_close(&q->thread);
    pthread_cond_destroy(&q->more);
    pthread_cond_destroy(&q->less);
    pthread_mutex_destroy(&q->lock);
    *q = (osh_emit_queue){0};
}

/* If a job failed, fails with the error of that job. The caller holds the lock. */
static osh_status queue_failure(osh_ctx *cx, const osh_emit_queue *q)
{
    return q->rc ? osh_fail(cx, q->rc, "%s", osh_error_text(q->thread.cx)) : OSH_OK;
}

osh_status osh_emit_push(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    osh_status rc = OSH_OK;
    osh_emit_queue *q = &e->queue;
    osh_emit_job *own = NULL, job = *j; // own
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    OSH_NEW(cx, own, 1);
    *own = job;
    pthread_mutex_lock(&q->lock);
    while (q->n && !q->rc && osh_mem_used(cx, OSH_MEM_HOST) > osh_memory_counted(&e->plan->budget))
        pthread_cond_wait(&q->less, &q->lock);
    if (!(rc = queue_failure(cx, q))) {
        if (q->last) q->last->next = own;
        else q->first = own;
        q->last = own, own = NULL; // give
        q->n++, q->n_views += job.kind == OSH_EMIT_VIEW;
        pthread_cond_signal(&q->more);
    }
    pthread_mutex_unlock(&q->lock);
done:
    osh_mem_use(cx, old);
    if (rc) emit_job_deinit(cx, &job);
    osh_free(cx, own);
    return rc;
}

osh_status osh_emit_wait(osh_ctx *cx, osh_emitter *e)
{
    osh_emit_queue *q = &e->queue;
    pthread_mutex_lock(&q->lock);
    while (q->n) pthread_cond_wait(&q->less, &q->lock);
    osh_status rc = queue_failure(cx, q);
    pthread_mutex_unlock(&q->lock);
    return rc;
}

void osh_emit_let_go(osh_emitter *e)
{
    osh_emit_queue *q = &e->queue;
    pthread_mutex_lock(&q->lock);
    while (q->n_views) pthread_cond_wait(&q->less, &q->lock);
    pthread_mutex_unlock(&q->lock);
}
