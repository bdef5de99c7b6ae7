/* stream.c - starts the worker threads of a stream (stream_worker.c), and passes finished tensors
 * to the caller. */
#include "output/stream_impl.h"

#include <stdlib.h>
#include <string.h>

#include "output/share.h"
#include "tensor/scalar.h"

static osh_status stream_worker_open(osh_ctx *cx, osh_stream_worker *w, const osh_band_room *r)
{
    osh_status rc = OSH_OK;
    if (r->codes) w->codes = osh_alloc(cx, r->codes);
    if (r->sums) w->sums = osh_alloc(cx, r->sums);
    if ((r->codes && !w->codes) || (r->sums && !w->sums))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for bands of tensors");
    w->in =
        (uint8_t *)osh_file_align(w->s->blocks) + (size_t)w->s->n_workers * osh_band_room_blocks(r);
    w->out = w->in + osh_file_room(r->in);
    OSH_TRY(osh_thread_open(cx, &w->thread, osh_stream_work, w, true, "process bands of tensors"));
    w->s->n_running++;
done:
    return rc;
}

static void stream_worker_close(osh_ctx *cx, osh_stream_worker *w)
{
    osh_thread_join(&w->thread);
    if (w->source) osh_file_close(w->thread.cx, w->source);
    osh_thread_close(&w->thread);
    osh_free(cx, w->codes);
    osh_free(cx, w->sums);
}

/* Passes finished tensors to job->finished and frees them. Returns when all workers have ended. */
static osh_status stream_follow(osh_ctx *cx, osh_stream *s, const osh_stream_job *job)
{
    osh_status rc = OSH_OK;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!s->first && s->n_running) pthread_cond_wait(&s->changed, &s->lock);
        osh_item *it = s->first; // own
        if (it && !(s->first = it->next)) s->last = NULL;
        bool ok = !s->failed;
        pthread_mutex_unlock(&s->lock);
        if (!it) break;
        if (ok && job->finished && it->linear >= 0)
            rc = job->finished(cx, job->user, it->linear, it->ref > 0 ? it->err / it->ref : 0);
        int64_t stays = it->stays;
        osh_item_free(cx, it);
        pthread_mutex_lock(&s->lock);
        s->stays -= stays;
        if (rc && ok) osh_stream_fail(s, s->workers, -1, rc);
        pthread_cond_broadcast(&s->may_take);
        pthread_mutex_unlock(&s->lock);
    }
    return rc;
}

static int stream_most_workers(const osh_stream *s)
{
    const osh_plan *p = s->e->plan;
    int64_t n_bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const osh_out_tensor *o = &p->manifest.out_info[s->ids[i]];
        const osh_entry *e =
            p->in.ck->tensors[o->source >= 0 ? o->source : p->match.linears[o->linear].tensor].e;
        n_bytes += e->end - e->begin;
    }
    return osh_stream_workers(p->budget.memory.n_stream, n_bytes);
}

static osh_status stream_run_workers(osh_ctx *cx, osh_stream *s, const osh_band_room *r,
                             const osh_stream_job *job)
{
    osh_status rc = OSH_OK;
    int most = stream_most_workers(s);
    if (!s->n) return OSH_OK;
    s->stays_most = osh_stream_stays_most(osh_max64(s->largest, osh_stream_copy_stays()), most);
    s->n_computing = osh_threads(cx);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->may_compute, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_cond_init(&s->may_take, NULL);
    OSH_NEW(cx, s->workers, most);
    osh_mem_class old = osh_mem_use(cx, s->class);
    rc = osh_held_new(cx, &s->held, s->e->plan, s->e->globals, s->ids, s->n);
    if (!rc) s->blocks = osh_alloc(cx, (size_t)most * osh_band_room_blocks(r) + OSH_BLOCK_BYTES);
    if (!rc && !s->blocks) rc = OSH_E_NOMEM;
    /* No worker begins before all workers exist, because the lock is held until then. */
    pthread_mutex_lock(&s->lock);
    for (; s->n_workers < most && !rc; s->n_workers++) {
        s->workers[s->n_workers].s = s;
        rc = stream_worker_open(cx, &s->workers[s->n_workers], r);
    }
    if (rc) s->failed = s->workers, s->failed_ticket = -1;
    pthread_mutex_unlock(&s->lock);
    osh_mem_use(cx, old);
    /* Gives free memory back to the system while the disk is busy. */
    if (s->last_one) osh_mem_trim(cx);
    osh_status followed = stream_follow(cx, s, job);
    if (rc || (rc = followed)) goto done;
    if (s->failed) OSH_FAIL(cx, s->rc, "%s", osh_error_text(s->failed->thread.cx));
    OSH_TRY(osh_edges_flush(cx, s->e->edges)); // after this, the written tensors can be read
done:
    for (int i = 0; i < s->n_workers; i++) stream_worker_close(cx, &s->workers[i]);
    osh_item_free(cx, s->now);
    osh_held_free(cx, s->held);
    osh_free(cx, s->blocks);
    osh_free(cx, s->workers);
    pthread_cond_destroy(&s->may_take);
    pthread_cond_destroy(&s->changed);
    pthread_cond_destroy(&s->may_compute);
    pthread_mutex_destroy(&s->lock);
    return rc;
}

static int64_t stream_add_copies(const osh_emitter *e, const bool *which, int64_t *ids, int64_t n,
                                 osh_band_room *r)
{
    const osh_plan *p = e->plan;
    for (int64_t i = 0; i < p->manifest.n_out; i++) {
        if (p->manifest.out_info[i].source < 0 || e->taken[i] || (which && !which[i])) continue;
        if (!osh_emit_is_mine(e, i)) continue;
        e->taken[i] = true;
        osh_band_room_copy(r, &p->budget, i);
        ids[n++] = i;
    }
    return n;
}

/* Compares two output tensors by shard and name, for a sort. A file has one range of bytes for each
 * dtype, and the tensors in a range are sorted by name. So the stream writes each range from front
 * to back, and at most one block of each range is incomplete at a time. */
static int stream_by_name(const void *x, const void *y, void *plan)
{
    const osh_plan *p = plan;
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    int s = p->manifest.out_info[a].shard, t = p->manifest.out_info[b].shard;
    return s != t ? (s > t) - (s < t) : strcmp(p->manifest.out[a].name, p->manifest.out[b].name);
}

/* Finds the global scales of those Linears whose largest magnitude the stream does not search
 * itself. */
static osh_status stream_find_scales(osh_ctx *cx, osh_emitter *e, const osh_stream_job *job)
{
    osh_status rc = OSH_OK;
    int *which = NULL, n = 0; // own
    OSH_NEW(cx, which, job->n);
    for (int i = 0; i < job->n; i++)
        if (!osh_stream_looks(e->plan->budget.schedule, job->linears[i]))
            which[n++] = job->linears[i];
    OSH_TRY(osh_globals_find(cx, e->globals, which, n));
done:
    osh_free(cx, which);
    return rc;
}

osh_status osh_stream_linears(osh_ctx *cx, osh_emitter *e, const osh_stream_job *job)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    int n = job->n;
    osh_stream s = {.e = e, .class = n ? OSH_MEM_DEVICE : OSH_MEM_HOST, .n = n};
    int64_t *ids = NULL; // own
    osh_band_room r = {0};
    OSH_NEW(cx, ids, n + (job->copies ? p->manifest.n_out : 0));
    for (int i = 0; i < n; i++) {
        int64_t stays = osh_stream_stays(&p->budget, job->linears[i]);
        osh_band_room_linear(&r, &p->budget, job->linears[i]);
        int joint = osh_stream_looks(p->budget.schedule, job->linears[i])
                        ? p->match.linears[job->linears[i]].joint
                        : -1;
        /* The stream searches the bands of all Linears that share the global scale, so it needs
         * room for all of them. This includes Linears that an earlier run wrote. */
        for (; joint >= 0; joint = p->match.linears[joint].next.joint)
            osh_band_room_linear(&r, &p->budget, joint);
        if (stays > s.largest) s.largest = stays;
        ids[i] = p->match.linears[job->linears[i]].out.first;
    }
    OSH_TRY(stream_find_scales(cx, e, job));
    if (job->copies) s.n = stream_add_copies(e, NULL, ids, n, &r);
    qsort_r(ids, (size_t)s.n, sizeof *ids, stream_by_name, (void *)p);
    s.ids = ids;
    OSH_TRY(stream_run_workers(cx, &s, &r, job));
done:
    osh_free(cx, ids);
    return rc;
}

osh_status osh_stream_copies(osh_ctx *cx, osh_emitter *e, const bool *which)
{
    osh_status rc = OSH_OK;
    osh_stream s = {.e = e, .class = OSH_MEM_HOST, .last_one = !which};
    int64_t *ids = NULL; // own
    osh_band_room r = {0};
    OSH_NEW(cx, ids, e->plan->manifest.n_out);
    s.n = stream_add_copies(e, which, ids, 0, &r), s.ids = ids;
    OSH_TRY(stream_run_workers(cx, &s, &r, &(osh_stream_job){.finished = NULL}));
done:
    osh_free(cx, ids);
    return rc;
}
