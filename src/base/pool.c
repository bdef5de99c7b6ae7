/* pool.c - runs osh_parallel_for and osh_parallel_apart on persistent worker threads.
 *
 * Chunks begin in ascending order. When chunk k fails, all chunks below k have already begun and
 * run to their end; chunks above k that have not begun are skipped. So the lowest failing chunk is
 * the same in every run, and its message is the message of the call. The calling thread works too,
 * as worker 0. A call from inside a chunk finds the pool in use and runs inline.
 *
 * An idle worker spins for a while before it sleeps: most calls follow each other within
 * microseconds, and waking a thread takes as long as a small op, above all on a virtual machine. If
 * other processes use the processors, a worker sleeps at once, because spinning would take time
 * from them and from the other workers. While no worker sleeps, a call takes no lock and makes no
 * system call. No wake-up is lost: a worker first increments n_asleep and then checks for work a
 * last time. A thread that adds work reads n_asleep after it has added the work. */
#include "base/ctx.h"
#include "base/thread.h"

#include <stdlib.h>

typedef struct worker {
    osh_pool *pool; // view
    int index;
    pthread_t thread; // thread of the worker; not used for worker 0, the calling thread
    osh_ctx cx;       // context of the worker, with its own error text
    osh_status rc;
    int64_t failed_chunk;
} worker;

struct osh_pool {
    /* n: number of workers.
     * n_started: number of running threads (n - 1 when complete). */
    int n, n_started;
    worker *workers;       // own
    /* Held by the thread whose osh_parallel_for or osh_parallel_apart the pool executes. */
    pthread_mutex_t taken;

    pthread_mutex_t lock; // held while a thread goes to sleep or wakes others
    pthread_cond_t wake, finished;
    _Atomic int n_asleep; // number of sleeping workers
    _Atomic bool caller_asleep;
    /* Number of the current job (one call of osh_parallel_for). The number is raised after the
     * members of the job are set. A worker executes each job once. */
    _Atomic uint64_t job;
    _Atomic int n_busy;
    _Atomic bool stop;
    /* In the next `crowded` waits, workers do not spin. The number is above 0 if other processes
     * use the processors. */
    _Atomic int crowded;

    osh_chunk_fn fn; // function that the current call executes for each chunk
    void *user;
    osh_mem_class mem_class; // class of the chunks' allocations
    int64_t n_chunks;
    _Atomic int64_t next, lowest_failed;
};

static void worker_run_chunks(worker *w)
{
    osh_pool *p = w->pool;
    w->rc = OSH_OK;
    w->cx.mem_class = p->mem_class;
    for (;;) {
        int64_t chunk = atomic_fetch_add(&p->next, 1);
        if (chunk >= p->n_chunks || chunk > atomic_load(&p->lowest_failed)) return;
        osh_error_clear(&w->cx);
        osh_status rc = osh_check_interrupt(&w->cx);
        if (!rc) rc = p->fn(&w->cx, p->user, chunk, w->index);
        if (!rc) continue;
        w->rc = rc;
        w->failed_chunk = chunk;
        int64_t low = atomic_load(&p->lowest_failed);
        while (chunk < low && !atomic_compare_exchange_weak(&p->lowest_failed, &low, chunk)) {}
        return; // later chunks of this worker have higher numbers, so they are skipped, too
    }
}

static bool pool_has_work(const osh_pool *p, uint64_t seen) { return p->stop || p->job != seen; }
static bool pool_is_over(const osh_pool *p, uint64_t unused)
{
    return (void)unused, p->n_busy == 0;
}

/* A worker spins for at most watch_s seconds. If more than gap_s pass between two iterations of the
 * loop, another process has used the processor. */
static const double watch_s = 100e-6, gap_s = 30e-6;
enum { UNWATCHED = 1024 }; // value of `crowded` after another process has used the processor

/* Spins until the function `come` returns true or watch_s have passed. */
static void pool_watch(osh_pool *p, bool (*come)(const osh_pool *, uint64_t), uint64_t seen)
{
    double start = osh_now(), last = start;
    if (p->crowded > 0) {
        p->crowded--;
        return;
    }
    while (!come(p, seen) && last - start < watch_s) {
        for (int i = 0; i < 16 && !come(p, seen); i++) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        double now = osh_now();
        if (now - last > gap_s) p->crowded = UNWATCHED;
        last = now;
    }
}

/* Wakes the threads that wait for the condition `who`. Stores before the call are visible to these
 * threads. */
static void pool_wake(osh_pool *p, pthread_cond_t *who)
{
    // once this lock is free, every waiting thread is asleep, or will check its condition later
    pthread_mutex_lock(&p->lock);
    pthread_mutex_unlock(&p->lock);
    pthread_cond_broadcast(who);
}

static void pool_wait_work(osh_pool *p, uint64_t seen)
{
    pool_watch(p, pool_has_work, seen);
    if (pool_has_work(p, seen)) return;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_asleep, 1);
    while (!pool_has_work(p, seen)) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_asleep, 1);
    pthread_mutex_unlock(&p->lock);
}

static void pool_wait_end(osh_pool *p)
{
    pool_watch(p, pool_is_over, 0);
    if (pool_is_over(p, 0)) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_asleep, true);
    while (!pool_is_over(p, 0)) pthread_cond_wait(&p->finished, &p->lock);
    atomic_store(&p->caller_asleep, false);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *user)
{
    worker *w = user;
    osh_pool *p = w->pool;
    uint64_t seen = 0;

    for (;;) {
        pool_wait_work(p, seen);
        if (p->stop) return NULL;
        /* `seen` is the number of the worker's previous job. The next job has the next number,
         * because no job begins before all workers have finished the previous one. */
        seen++;
        worker_run_chunks(w);
        if (atomic_fetch_sub(&p->n_busy, 1) == 1 && p->caller_asleep) pool_wake(p, &p->finished);
    }
}

osh_status osh_pool_new(osh_pool **out, osh_shared *sh, int n_threads)
{
    osh_status rc = OSH_OK;
    osh_pool *p = calloc(1, sizeof *p);

    *out = NULL;
    if (!p) return OSH_E_NOMEM;
    pthread_mutex_init(&p->taken, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->finished, NULL);
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    if (!p->workers) {
        osh_pool_free(p);
        return OSH_E_NOMEM;
    }
    p->n = n_threads;
    for (int i = 0; i < n_threads && !rc; i++) {
        worker *w = &p->workers[i];
        w->pool = p;
        w->index = i;
        w->cx.sh = sh;
        if (i == 0) continue;
        if (osh_thread_start(&w->thread, worker_main, w)) p->n_started++;
        else rc = OSH_E_NOMEM;
    }
    if (rc) osh_pool_free(p);
    else *out = p;
    return rc;
}

void osh_pool_free(osh_pool *p)
{
    if (!p) return;
    p->stop = true;
    pool_wake(p, &p->wake);
    for (int i = 1; i <= p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->taken);
    free(p->workers);
    free(p);
}

int osh_threads(const osh_ctx *cx)
{
    return cx->alone || cx->inlined ? 1 : cx->sh->pool->n;
}

static osh_status chunks_run_inline(osh_ctx *cx, int64_t n_chunks, osh_chunk_fn fn, void *user)
{
    osh_status rc = OSH_OK;
    for (int64_t i = 0; i < n_chunks && !rc; i++)
        if (!(rc = osh_check_interrupt(cx))) rc = fn(cx, user, i, 0);
    return rc;
}

osh_status osh_parallel_for(osh_ctx *cx, int64_t n_chunks, osh_chunk_fn fn, void *user)
{
    osh_pool *p = cx->sh->pool;
    const worker *first = NULL; // view: the worker with the lowest failing chunk

    if (n_chunks <= 0) return OSH_OK;
    if (p->n == 1 || n_chunks == 1 || cx->alone || cx->inlined || pthread_mutex_trylock(&p->taken))
        return chunks_run_inline(cx, n_chunks, fn, user);

    p->fn = fn;
    p->user = user;
    p->mem_class = cx->mem_class;
    p->n_chunks = n_chunks;
    atomic_store(&p->next, 0);
    atomic_store(&p->lowest_failed, INT64_MAX);
    p->n_busy = p->n - 1;
    p->job++;
    if (p->n_asleep) pool_wake(p, &p->wake);

    worker_run_chunks(&p->workers[0]);

    pool_wait_end(p);

    for (int i = 0; i < p->n; i++) {
        const worker *w = &p->workers[i];
        if (w->rc && (!first || w->failed_chunk < first->failed_chunk)) first = w;
    }
    osh_status rc = first ? first->rc : OSH_OK;
    if (first && first->cx.n_text) osh_fail(cx, rc, "%s", first->cx.text);
    pthread_mutex_unlock(&p->taken);
    return rc;
}

typedef struct apart {
    const osh_apart *of;
    osh_ctx *caller;    // view: context of the calling thread, on which `take` runs
    /* n: number of chunks.
     * at_once: largest number of chunks that have begun and are not taken yet. */
    int64_t n, at_once;
    /* made[chunk % at_once] is true if the chunk is finished and not taken yet. */
    bool *made;         // view [at_once]
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* next: index of the first chunk that has not begun.
     * taken: index of the first chunk that is not taken. */
    int64_t next, taken;
    int64_t failed;      // index of the lowest chunk whose fn or take failed; n: no chunk failed
    osh_status rc;       // status of the chunk `failed`
    char text[OSH_ERROR_BYTES];
} apart;

/* Records that chunk k failed with the message of cx, unless a lower chunk failed. The caller holds
 * the lock. */
static void apart_fail(apart *a, const osh_ctx *cx, int64_t k, osh_status rc)
{
    if (k >= a->failed) return;
    a->failed = k, a->rc = rc;
    snprintf(a->text, sizeof a->text, "%s", osh_error_text(cx));
}

/* Takes the finished chunks in order, on the calling thread. The caller holds the lock. */
static void apart_take(apart *a)
{
    while (a->taken < a->next && a->taken < a->failed && a->made[a->taken % a->at_once]) {
        pthread_mutex_unlock(&a->lock);
        osh_status rc = a->of->take(a->caller, a->of->user, a->taken);
        pthread_mutex_lock(&a->lock);
        if (rc) {
            apart_fail(a, a->caller, a->taken, rc);
            osh_error_clear(a->caller); // a->text has a copy of the error text
        } else {
            a->made[a->taken++ % a->at_once] = false;
        }
        pthread_cond_broadcast(&a->changed);
    }
}

/* Runs the next chunk. The caller holds the lock; the lock is released while the chunk runs. */
static void apart_make(apart *a, osh_ctx *cx, int index)
{
    int64_t k = a->next++;
    pthread_mutex_unlock(&a->lock);
    bool was = osh_ctx_inline(cx, true);
    osh_error_clear(cx);
    osh_status rc = osh_check_interrupt(cx);
    if (!rc) rc = a->of->fn(cx, a->of->user, k, index);
    osh_ctx_inline(cx, was);
    pthread_mutex_lock(&a->lock);
    if (rc) apart_fail(a, cx, k, rc);
    else a->made[k % a->at_once] = true;
    pthread_cond_broadcast(&a->changed);
}

/* Runs chunks until all have begun or a chunk has failed. Worker 0, the thread that called
 * osh_parallel_apart, also takes finished chunks. */
static osh_status apart_work(osh_ctx *cx, void *user, int64_t share, int index)
{
    apart *a = user;
    (void)share;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        if (index == 0) apart_take(a);
        if (a->failed < a->n || a->next == a->n) break;
        if (a->next - a->taken < a->at_once) apart_make(a, cx, index);
        else pthread_cond_wait(&a->changed, &a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    osh_error_clear(cx);
    return OSH_OK;
}

size_t osh_apart_bytes(int at_once) { return osh_mem_gross((size_t)at_once * sizeof(bool)); }

osh_status osh_parallel_apart(osh_ctx *cx, int64_t n_chunks, int at_once, const osh_apart *of)
{
    osh_status rc = OSH_OK;
    apart a = {.of = of, .caller = cx, .n = n_chunks, .at_once = at_once, .failed = n_chunks};
    pthread_mutex_init(&a.lock, NULL);
    pthread_cond_init(&a.changed, NULL);
    OSH_NEW(cx, a.made, at_once);
    OSH_TRY(osh_parallel_for(cx, osh_threads(cx), apart_work, &a));
    pthread_mutex_lock(&a.lock);
    apart_take(&a); // takes the finished chunks that are not taken yet
    pthread_mutex_unlock(&a.lock);
    if (a.failed < a.n) OSH_FAIL(cx, a.rc, "%s", a.text);
done:
    osh_free(cx, a.made);
    pthread_cond_destroy(&a.changed);
    pthread_mutex_destroy(&a.lock);
    return rc;
}
