/* loaders.c - prefetches batches on threads. osh_loaders_ask queues a task. Threads read the
 * samples of the task. Then osh_loaders_take or osh_loaders_load returns these samples.
 *
 * The blocks of a batch may be given back only after the batch is copied to GPU memory. So the
 * blocks are given back when the caller loads the next batch. */
#include "store/loaders.h"

#include "base/thread.h"
#include "store/blocks.h"

typedef struct task task;
struct task { // a request to read samples [first, first + n) of a value
    task *next;
    const osh_slot_file *file; // view
    int value;
    int64_t first, n;
    osh_tensor *t;     // own: without a GPU, the memory for the samples
    osh_block *block;  // own: with a GPU, the memory for the samples, which is a block of l->blocks
    char *to;          // view: address of the data of `t` or of `block`
    /* begun: number of samples whose read has begun.
     * over: number of samples whose read is complete. */
    int64_t begun, over;
    bool failed;         // true if the read of a sample has failed
};

typedef struct loader {
    osh_loaders *l;   // view
    osh_thread thread; // own
    /* a copy of *osh_loaders.slots; `frame` and `transit` are own, other pointers are views */
    osh_slots slots;
} loader;

struct osh_loaders {
    const osh_slots *slots; // view
    osh_device *device;     // view: device that gets the batches; NULL: they stay in host memory
    osh_blocks *blocks;     // own: only with a GPU
    loader *of;             // own [n]: one loader for each thread
    int n;
    task *asked;            // own: list of tasks, in the order of the calls of osh_loaders_ask
    task *leaving;          // own: tasks of the batch that is now copied to the GPU
    pthread_mutex_t lock;   // protects the list `asked`, the progress of its tasks, and `stop`
    pthread_cond_t work, done;
    bool stop;
};

int64_t osh_loaders_ahead(int64_t n_threads, int64_t n_samples, int64_t n_batches)
{
    int64_t n = n_samples ? (n_threads * n_batches + n_samples - 1) / n_samples : 0;
    return n < n_batches ? n : n_batches - 1;
}

int64_t osh_loaders_own_bytes(int64_t n_threads, int64_t frame)
{
    return (int64_t)(osh_mem_gross(sizeof(osh_loaders)) +
                     osh_mem_gross((size_t)n_threads * sizeof(loader))) +
           n_threads * frame;
}

int64_t osh_loaders_value_bytes(const osh_graph *g, int value, int64_t n_ahead, int64_t n_tokens,
                                bool gpu)
{
    size_t n = (size_t)n_tokens * osh_value_bytes(g, value);
    size_t rows = gpu ? osh_blocks_gross(n) : osh_tensor_gross(n);
    /* With a GPU, one more batch is in memory: the batch that is now copied to the GPU. */
    return (n_ahead + gpu) * (int64_t)(rows + osh_mem_gross(sizeof(task)));
}

osh_status osh_loaders_new(osh_ctx *cx, osh_loaders **out, const osh_slots *s, int n_threads,
                           osh_device *device, bool pin)
{
    osh_status rc = OSH_OK;
    osh_loaders *l = NULL; // own
    OSH_NEW(cx, l, 1);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    l->slots = s, l->device = device, l->n = n_threads;
    OSH_NEW(cx, l->of, n_threads);
    if (device) OSH_TRY(osh_blocks_new(cx, &l->blocks, device, pin));
    *out = l, l = NULL;
done:
    osh_loaders_free(cx, l);
    return rc;
}

static void task_free(osh_ctx *cx, osh_loaders *l, task *t)
{
    if (!t) return;
    osh_tensor_free(cx, t->t);
    osh_blocks_give(l->blocks, t->block);
    osh_free(cx, t);
}

static void tasks_free(osh_ctx *cx, osh_loaders *l, task **list)
{
    while (*list) {
        task *t = *list;
        *list = t->next;
        task_free(cx, l, t);
    }
}

void osh_loaders_free(osh_ctx *cx, osh_loaders *l)
{
    if (!l) return;
    osh_loaders_stop(cx, l);
    osh_blocks_free(cx, l->blocks);
    osh_free(cx, l->of);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    osh_free(cx, l);
}

/* ---- threads ---- */

/* True if no thread reads samples of the task now, and none will read any later. */
static bool task_is_over(const task *t)
{
    return t->over == t->begun && (t->failed || t->begun == t->n);
}

/* Returns the first task of l->asked that still has samples to read, or NULL if there is none. */
static task *task_next(const osh_loaders *l)
{
    task *t = l->asked;
    while (t && (t->failed || t->begun == t->n)) t = t->next;
    return t;
}

static osh_status loader_read_sample(loader *me, const task *t, int64_t k)
{
    size_t at = osh_slots_rows_bytes(&me->slots, t->value, t->first, k);
    return osh_slot_get(me->thread.cx, &me->slots, t->file, t->value, t->first + k, t->to + at);
}

static void *loader_main(void *user)
{
    loader *me = user;
    osh_loaders *l = me->l;
    osh_ctx *cx = me->thread.cx;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        task *t = task_next(l);
        if (!t) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        int64_t k = t->begun++;
        pthread_mutex_unlock(&l->lock);
        osh_status rc = loader_read_sample(me, t, k);
        if (rc)
            osh_log(cx, OSH_LOG_INFO, "reading values ahead: %s; they are read again",
                    osh_error_text(cx));
        if (rc) osh_error_clear(cx);
        pthread_mutex_lock(&l->lock);
        t->over++, t->failed |= rc != OSH_OK;
        if (task_is_over(t)) pthread_cond_signal(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

osh_status osh_loaders_start(osh_ctx *cx, osh_loaders *l)
{
    osh_status rc = OSH_OK;
    l->stop = false;
    for (int i = 0; i < l->n; i++) {
        loader *me = &l->of[i];
        *me = (loader){.l = l, .slots = *l->slots};
        me->slots.frame = me->slots.transit = NULL,
        me->slots.frame_room = me->slots.transit_room = 0;
        OSH_TRY(osh_thread_open(cx, &me->thread, loader_main, me, false, "read values ahead"));
    }
done:
    return rc;
}

osh_status osh_loaders_stop(osh_ctx *cx, osh_loaders *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_mutex_unlock(&l->lock);
    pthread_cond_broadcast(&l->work);
    for (int i = 0; l->of && i < l->n; i++) {
        loader *me = &l->of[i];
        osh_thread_close(&me->thread);
        osh_slots_deinit(cx, &me->slots);
        *me = (loader){0};
    }
    osh_status rc = l->leaving ? l->device->type->sync(cx, l->device) : OSH_OK;
    tasks_free(cx, l, &l->asked);
    tasks_free(cx, l, &l->leaving);
    return rc;
}

/* ---- calls of the caller's thread ---- */

osh_status osh_loaders_ask(osh_ctx *cx, osh_loaders *l, const osh_slot_file *f, int value,
                           int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    task *t = NULL; // own
    int64_t width = l->slots->g->values[value].width, *at = l->slots->d->offsets;
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    OSH_NEW(cx, t, 1);
    *t = (task){.file = f, .value = value, .first = first, .n = n};
    if (l->blocks)
        OSH_TRY(osh_blocks_take(cx, l->blocks, &t->block,
                                osh_slots_rows_bytes(l->slots, value, first, n)));
    else
        OSH_TRY(osh_tensor_new(cx, &t->t, osh_slots_dtype(l->slots, value), 2,
                               (int64_t[]){at[first + n] - at[first], width}));
    t->to = l->blocks ? osh_block_data(t->block) : t->t->data;
    pthread_mutex_lock(&l->lock);
    task **end = &l->asked;
    while (*end) end = &(*end)->next;
    *end = t, t = NULL; // give
    pthread_mutex_unlock(&l->lock);
    pthread_cond_broadcast(&l->work);
done:
    osh_mem_use(cx, old);
    task_free(cx, l, t);
    return rc;
}

/* Waits for the task that begins with sample `first` of the value, and removes it from l->asked.
 * The caller frees the task. Returns NULL if there is no such task, or if its samples could not be
 * read. */
static task *task_take(osh_ctx *cx, osh_loaders *l, int value, int64_t first)
{
    pthread_mutex_lock(&l->lock);
    task **at = &l->asked;
    while (*at && ((*at)->value != value || (*at)->first != first)) at = &(*at)->next;
    task *t = *at;
    while (t && !task_is_over(t)) pthread_cond_wait(&l->done, &l->lock);
    // Only the caller's thread changes l->asked, so `at` is still valid.
    if (t) *at = t->next;
    pthread_mutex_unlock(&l->lock);
    if (!t || !t->failed) return t;
    task_free(cx, l, t);
    return NULL;
}

osh_status osh_loaders_take(osh_ctx *cx, osh_loaders *l, int value, int64_t first, osh_tensor **t)
{
    task *of = task_take(cx, l, value, first); // own
    osh_mem_class now = osh_mem_use(cx, OSH_MEM_HOST);
    osh_mem_use(cx, now);
    *t = NULL;
    if (of) {
        osh_mem_move(cx, of->t->data, now);
        osh_mem_move(cx, of->t, now);
        *t = of->t, of->t = NULL; // give
    }
    task_free(cx, l, of);
    return OSH_OK;
}

osh_status osh_loaders_load(osh_ctx *cx, osh_loaders *l, int value, int64_t first, osh_tensor *t,
                            bool *found)
{
    osh_status rc = OSH_OK;
    task *of = task_take(cx, l, value, first); // own
    *found = of;
    if (l->leaving && l->leaving->first != first) {
        OSH_TRY(l->device->type->sync(cx, l->device));
        tasks_free(cx, l, &l->leaving);
    }
    if (!of) goto done;
    OSH_TRY(osh_block_load(cx, l->blocks, of->block, t));
    of->next = l->leaving, l->leaving = of, of = NULL; // give
done:
    task_free(cx, l, of);
    return rc;
}
