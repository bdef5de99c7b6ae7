/* thread_open.c - starts and ends threads with a context of their own. */
#include "base/thread.h"

osh_status osh_thread_open(osh_ctx *cx, osh_thread *t, void *(*fn)(void *), void *user, bool alone,
                           const char *task)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_ctx_fork(&t->cx, cx));
    if (alone) osh_ctx_alone(t->cx);
    t->running = osh_thread_start(&t->id, fn, user);
    if (!t->running) OSH_FAIL(cx, OSH_E_NOMEM, "cannot start a thread to %s", task);
done:
    return rc;
}

void osh_thread_join(osh_thread *t)
{
    if (t->running) pthread_join(t->id, NULL);
    t->running = false;
}

void osh_thread_close(osh_thread *t)
{
    osh_thread_join(t);
    if (t->cx) osh_ctx_free(t->cx);
    t->cx = NULL;
}
