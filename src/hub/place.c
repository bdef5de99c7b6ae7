/* place.c - implements functions for osh_hub_place, the state that the threads of a pull share. */
#include <stdio.h>
#include <time.h>

#include "hub/pull.h"

void osh_hub_place_fail(osh_ctx *cx, osh_hub_place *p, osh_status rc)
{
    pthread_mutex_lock(&p->lock);
    if (!p->rc) p->rc = rc, snprintf(p->text, sizeof p->text, "%s", osh_error_text(cx));
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void osh_hub_place_wait(osh_hub_place *p)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&p->changed, &p->lock, &until);
}

osh_status osh_hub_file_url(osh_ctx *cx, char **out, const osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "%s/%s%s/resolve/%s/", p->hub->endpoint,
                           p->name->kind == OSH_HUB_DATASET ? "datasets/" : "", p->name->id,
                           p->commit));
    OSH_TRY(osh_http_encode(cx, &b, f->path, "/"));
    if (!(*out = osh_strdup(cx, b.data))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}
