/* check.c - the checksums of what the disk holds, but for tensors that were read before (early.h): each shard from
 * front to back in chunks, past the page cache, several of them with the disk at a time. Their turns come in the order
 * of the files, so a tensor's bytes go to its sum in order, wherever chunks cut it. */
#include <stdlib.h>
#include <string.h>

#include "base/profile.h"
#include "base/thread.h"
#include "output/emit_impl.h"
#include "output/turns.h"
#include "plan/bands.h"

typedef struct check check;
typedef struct reader {
    check *c;    // view
    osh_ctx *cx; // own
    pthread_t thread;
    bool running;
    uint8_t *room; // view: of the blocks
} reader;

struct check {
    const osh_emitter *e; // view
    uint64_t *sums;       // view: [n_out]
    int64_t *order;       // own: output tensors as they lie in the files
    XXH3_state_t *state;  // own: of the tensor that is in its turn
    int64_t at;           // in order: that tensor
    pthread_mutex_t lock;
    int64_t next, taken;  // in order: the tensor where the next chunk begins; bytes of it that are in those before
    osh_turns turns;      // of chunks
    osh_status rc;        // of the failed chunk with the lowest ticket
    const reader *failed; // NULL: none
    void *blocks;         // own: of all readers in one piece, for pages of 2 MiB (stream.c)
    reader *readers;      // own
    int n_readers;
};

typedef struct chunk {
    int shard;
    int64_t ticket, at, n; // bytes [at, at + n) of the file
} chunk;

static int as_they_lie(const void *x, const void *y, void *plan)
{
    const osh_plan *p = plan;
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    int s = p->out_info[a].shard, t = p->out_info[b].shard;
    int64_t i = p->out[a].begin, j = p->out[b].begin;
    if (s != t) return s < t ? -1 : 1;
    if (i != j) return i < j ? -1 : 1;
    return (p->out[a].end > p->out[b].end) - (p->out[a].end < p->out[b].end); // an empty one first
}

/* Nothing of it is to be read. */
static bool is_known(const check *c, int64_t out)
{
    const osh_st_entry *t = &c->e->plan->out[out];
    return t->begin == t->end || osh_early_agrees(c->e->early, out);
}

/* The next chunk, of tensors that lie side by side; false: none. */
static bool take(osh_ctx *cx, check *c, chunk *k, osh_status *rc)
{
    const osh_plan *p = c->e->plan;
    *k = (chunk){0};
    pthread_mutex_lock(&c->lock);
    for (; c->next < p->n_out && !c->failed; c->next++, c->taken = 0) {
        int64_t i = c->order[c->next], at = p->out[i].begin + c->taken, n = p->out[i].end - at;
        if (!n || is_known(c, i)) continue;
        if (k->n && (p->out_info[i].shard != k->shard || at != k->at + k->n)) break;
        if (!k->n) k->shard = p->out_info[i].shard, k->at = at;
        if (n > OSH_BAND_BYTES - k->n) n = OSH_BAND_BYTES - k->n;
        k->n += n, c->taken += n;
        if (k->n == OSH_BAND_BYTES) break;
    }
    if (k->n) k->ticket = c->turns.next++, *rc = osh_check_interrupt(cx);
    pthread_mutex_unlock(&c->lock);
    return k->n;
}

/* With the turn. */
static void add(check *c, const chunk *k, const uint8_t *bytes)
{
    const osh_plan *p = c->e->plan;
    for (; c->at < p->n_out; c->at++) {
        int64_t i = c->order[c->at], end = k->at + k->n, from = p->out[i].begin, to = p->out[i].end;
        if (is_known(c, i)) continue;
        if (p->out_info[i].shard != k->shard || from >= end) break;
        if (from >= k->at) XXH3_64bits_reset(c->state);
        if (from < k->at) from = k->at;
        if (to > end) {
            XXH3_64bits_update(c->state, bytes + (from - k->at), (size_t)(end - from));
            break;
        }
        XXH3_64bits_update(c->state, bytes + (from - k->at), (size_t)(to - from));
        c->sums[i] = XXH3_64bits_digest(c->state);
    }
}

/* Waits for the turn also where the chunk has failed: others wait behind it. */
static void take_turn(reader *r, const chunk *k, osh_status rc)
{
    check *c = r->c;
    pthread_mutex_lock(&c->lock);
    osh_turns_wait(&c->turns, &c->lock, k->ticket);
    if (rc && !c->failed) c->rc = rc, c->failed = r;
    bool go = !c->failed;
    pthread_mutex_unlock(&c->lock);
    if (go) add(c, k, r->room + k->at % OSH_BLOCK_BYTES);
    pthread_mutex_lock(&c->lock);
    osh_turns_pass(&c->turns);
    pthread_mutex_unlock(&c->lock);
}

static void *work(void *user)
{
    reader *r = user;
    chunk k;
    osh_status rc;
    while (take(r->cx, r->c, &k, &rc)) {
        osh_scope scope = osh_profile_time(r->cx, "read", NULL);
        if (!rc) rc = osh_file_read_blocks(r->cx, r->c->e->shards[k.shard], r->room, (size_t)k.n, k.at);
        osh_profile_end(r->cx, scope);
        take_turn(r, &k, rc);
    }
    return NULL;
}

static osh_status reader_open(osh_ctx *cx, reader *r)
{
    osh_status rc = OSH_OK;
    r->room = (uint8_t *)osh_file_align(r->c->blocks) +
              (size_t)r->c->n_readers * osh_file_room((size_t)osh_check_chunk(r->c->e->plan));
    OSH_TRY(osh_ctx_fork(&r->cx, cx));
    osh_ctx_alone(r->cx);
    if (!(r->running = osh_thread_start(&r->thread, work, r)))
        OSH_FAIL(cx, OSH_E_NOMEM, "cannot start a thread to read what was written");
done:
    return rc;
}

static osh_status read_all(osh_ctx *cx, check *c)
{
    osh_status rc = OSH_OK;
    int most = osh_stream_workers(c->e->plan->memory.n_stream, c->e->plan->total_bytes);
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    OSH_NEW(cx, c->readers, most);
    if (!(c->blocks = osh_alloc(cx, osh_check_blocks(c->e->plan, most))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory to read what was written");
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_lock(&c->lock); // none begins before all are there
    for (; c->n_readers < most && !rc; c->n_readers++) {
        c->readers[c->n_readers].c = c;
        rc = reader_open(cx, &c->readers[c->n_readers]);
    }
    if (rc) c->failed = c->readers, c->rc = rc;
    pthread_mutex_unlock(&c->lock);
    osh_mem_trim(cx); // as behind the last copies, where there were any
    for (int i = 0; i < c->n_readers; i++)
        if (c->readers[i].running) pthread_join(c->readers[i].thread, NULL);
    if (!rc && c->failed) rc = osh_fail(cx, c->rc, "%s", osh_error_text(c->failed->cx));
    for (int i = 0; i < c->n_readers; i++)
        if (c->readers[i].cx) osh_ctx_free(c->readers[i].cx);
    pthread_mutex_destroy(&c->lock);
done:
    osh_mem_use(cx, old);
    osh_free(cx, c->blocks);
    osh_free(cx, c->readers);
    return rc;
}

osh_status osh_emit_sums(osh_ctx *cx, const osh_emitter *e, uint64_t *sums)
{
    osh_status rc = OSH_OK;
    int64_t n = e->plan->n_out;
    check c = {.e = e, .sums = sums};
    OSH_NEW(cx, c.order, n);
    if (!(c.state = XXH3_createState())) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    for (int64_t i = 0; i < n; i++)
        c.order[i] = i, sums[i] = osh_early_agrees(e->early, i) ? e->sums[i] : XXH3_64bits(NULL, 0);
    qsort_r(c.order, (size_t)n, sizeof *c.order, as_they_lie, (void *)e->plan);
    OSH_TRY(read_all(cx, &c));
done:
    XXH3_freeState(c.state);
    osh_free(cx, c.order);
    return rc;
}
