/* early.c - reads large output tensors again and compares them during the run, so that the seal has
 * less to read.
 *
 *   emitter's thread   writes a tensor | starts its writeback | records it | osh_early_add
 *   thread of early.c  after LAG more bytes: drops its pages | reads it with direct I/O | compares
 *   seal               reads the rest: small tensors, and the last LAG bytes
 *
 * If a tensor cannot be read or differs, the seal reads it again and reports the error. The check
 * alone does not prove that the bytes are on the disk; for this the seal also syncs every shard. */
#include "output/early.h"

#include <assert.h>

#include "base/profile.h"
#include "base/thread.h"
#include "output/emit_impl.h"
#include "budget/bands.h"

/* A tensor is read again when LAG bytes of later tensors have been written. With a smaller LAG,
 * reading would wait for the writeback. */
enum { LAG = 32 << 20 };

struct osh_early {
    const osh_emitter *e; // view
    osh_thread thread;    // own
    pthread_mutex_t lock;
    pthread_cond_t more;
    /* Own [most]: indices of output tensors, in the order in which they were written. */
    int64_t *queue;
    /* n: number of tensors that were added to the queue so far.
     * next: number of tensors that the thread of early checks has taken from the queue.
     * most: largest possible number of tensors in the queue. */
    int64_t n, next, most;
    int64_t waiting; // number of bytes of the queued tensors that the thread has not taken yet
    /* Own [n_out]: true if the tensor was read again and equals the bytes that were written. */
    bool *agrees;
    bool made, stop;
};

static int64_t early_bytes(const osh_early *y, int64_t out)
{
    return y->e->plan->manifest.out[out].end - y->e->plan->manifest.out[out].begin;
}

static bool early_compare(osh_early *y, int64_t out)
{
    const osh_emitter *e = y->e;
    uint64_t sum;
    osh_scope scope = osh_profile_time(y->thread.cx, "check", NULL);
    osh_file_forget_part(e->shards[e->plan->manifest.out_info[out].shard],
                         e->plan->manifest.out[out].begin, (size_t)early_bytes(y, out));
    bool agrees = !osh_emit_sum(y->thread.cx, &sum, e, out) && sum == e->sums[out];
    osh_profile_end(y->thread.cx, scope);
    return agrees;
}

static void *early_work(void *user)
{
    osh_early *y = user;
    pthread_mutex_lock(&y->lock);
    while (!y->stop) {
        int64_t out = y->next < y->n ? y->queue[y->next] : -1;
        if (out < 0 || y->waiting - early_bytes(y, out) < LAG) {
            pthread_cond_wait(&y->more, &y->lock);
            continue;
        }
        y->next++, y->waiting -= early_bytes(y, out);
        pthread_mutex_unlock(&y->lock);
        bool agrees = early_compare(y, out);
        pthread_mutex_lock(&y->lock);
        y->agrees[out] = agrees, y->stop |= !agrees;
    }
    pthread_mutex_unlock(&y->lock);
    return NULL;
}

osh_status osh_early_new(osh_ctx *cx, osh_early **out, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    osh_early *y = NULL; // own
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    if (!e->plan->budget.memory.early) goto done;
    OSH_NEW(cx, y, 1);
    y->e = e;
    pthread_mutex_init(&y->lock, NULL);
    pthread_cond_init(&y->more, NULL);
    y->made = true;
    y->most = osh_early_count(&e->plan->budget);
    OSH_NEW(cx, y->queue, y->most);
    OSH_NEW(cx, y->agrees, e->plan->manifest.n_out);
    OSH_TRY(osh_thread_open(cx, &y->thread, early_work, y, true, "read the written tensors"));
    *out = y, y = NULL; // give
done:
    osh_mem_use(cx, old);
    osh_early_free(cx, y);
    return rc;
}

void osh_early_add(osh_early *y, int64_t out)
{
    if (!y || !osh_early_takes(&y->e->plan->budget, out)) return;
    pthread_mutex_lock(&y->lock);
    assert(y->n < y->most); // there is room, because each tensor is added only once
    y->queue[y->n++] = out, y->waiting += early_bytes(y, out);
    pthread_cond_signal(&y->more);
    pthread_mutex_unlock(&y->lock);
}

void osh_early_stop(osh_early *y)
{
    if (!y || !y->thread.running) return;
    pthread_mutex_lock(&y->lock);
    y->stop = true;
    pthread_cond_signal(&y->more);
    pthread_mutex_unlock(&y->lock);
    osh_thread_join(&y->thread);
}

bool osh_early_agrees(const osh_early *y, int64_t out) { return y && y->agrees[out]; }

void osh_early_free(osh_ctx *cx, osh_early *y)
{
    if (!y) return;
    osh_early_stop(y);
    if (y->made) {
        pthread_cond_destroy(&y->more);
        pthread_mutex_destroy(&y->lock);
    }
    osh_thread_close(&y->thread);
    osh_free(cx, y->queue);
    osh_free(cx, y->agrees);
    osh_free(cx, y);
}
