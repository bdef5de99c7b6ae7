/* ahead.c - reads items before the caller needs them. */
#include "base/ahead.h"

#include <stdatomic.h>

#include "base/profile.h"
#include "base/thread.h"

struct osh_read_ahead {
    osh_read_items of;
    osh_thread thread; // own
    pthread_mutex_t lock;
    pthread_cond_t change;
    /* n_read: number of items that were read.
     * n_given: number of items that the caller no longer needs. */
    int n_read, n_given;
    _Atomic bool stop;
    osh_status rc;       // status that the thread's last read returned
};

static osh_status reader_read(osh_read_ahead *r, int item)
{
    osh_ctx *cx = r->thread.cx;
    osh_scope scope = (r->of.many ? osh_profile_time : osh_profile_begin)(cx, "read ahead", NULL);
    osh_status rc = r->of.read(cx, r->of.user, item);
    osh_profile_end(cx, scope);
    return rc;
}

static void *reader_main(void *user)
{
    osh_read_ahead *r = user;
    osh_status rc = OSH_OK;
    for (int k = 0; k < r->of.n && !rc; k++) {
        pthread_mutex_lock(&r->lock);
        while (r->n_given < k && !r->stop) pthread_cond_wait(&r->change, &r->lock);
        pthread_mutex_unlock(&r->lock);
        if (r->stop) break;
        rc = reader_read(r, k);
        pthread_mutex_lock(&r->lock);
        r->rc = rc, r->n_read += !rc;
        pthread_cond_signal(&r->change);
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

osh_status osh_read_ahead_start(osh_ctx *cx, osh_read_ahead **out, const osh_read_items *of)
{
    osh_status rc = OSH_OK;
    osh_read_ahead *r = NULL;
    OSH_NEW(cx, r, 1);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->change, NULL);
    r->of = *of;
    *out = r;
    if (of->ahead) OSH_TRY(osh_thread_open(cx, &r->thread, reader_main, r, false, "read ahead"));
done:
    if (rc) osh_read_ahead_free(cx, r), *out = NULL;
    return rc;
}

osh_status osh_read_ahead_wait(osh_ctx *cx, osh_read_ahead *r)
{
    osh_status rc = OSH_OK;
    if (!r->of.ahead) return r->of.read(cx, r->of.user, r->n_given);
    pthread_mutex_lock(&r->lock);
    while (r->n_read <= r->n_given && !r->rc) pthread_cond_wait(&r->change, &r->lock);
    if (r->n_read <= r->n_given) rc = r->rc;
    pthread_mutex_unlock(&r->lock);
    if (rc) OSH_FAIL(cx, rc, "%s", osh_error_text(r->thread.cx));
done:
    return rc;
}

void osh_read_ahead_next(osh_read_ahead *r)
{
    pthread_mutex_lock(&r->lock);
    r->n_given++;
    pthread_cond_signal(&r->change);
    pthread_mutex_unlock(&r->lock);
}

bool osh_read_ahead_stops(osh_ctx *cx, const osh_read_ahead *r)
{
    return r->stop || osh_interrupted(cx);
}

void osh_read_ahead_free(osh_ctx *cx, osh_read_ahead *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->change);
    pthread_mutex_unlock(&r->lock);
    osh_thread_close(&r->thread);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->change);
    osh_free(cx, r);
}
