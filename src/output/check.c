/* check.c - reads the output again from the disk, and computes the checksums of its tensors. It
 * leaves out tensors that early.c has already checked.
 *
 * Threads read each shard from front to back in chunks, with direct I/O, so the disk has several
 * requests at a time. Before a thread adds its chunk to the checksums, it waits until all earlier
 * chunks are added. So the bytes of a tensor are added in order, even if the tensor is in several
 * chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/profile.h"
#include "base/thread.h"
#include "output/emit_impl.h"
#include "output/turns.h"
#include "budget/bands.h"

typedef struct check check;
typedef struct reader {
    check *c;          // view
    osh_thread thread; // own
    uint8_t *room;     // view: buffer of this reader in check.blocks
} reader;

struct check {
    const osh_emitter *e; // view
    uint64_t *sums;       // result, view [n_out]: checksums of the output tensors
    int64_t *order; // own: indices of the output tensors, in the order of their bytes in the files
    XXH3_state_t *state;  // own: checksum state of the tensor order[at]
    int64_t at; // index in `order` of the tensor whose checksum is being computed
    pthread_mutex_t lock;
    /* next: index in `order` of the tensor with which the next chunk begins.
     * taken: number of bytes of this tensor that are in earlier chunks. */
    int64_t next, taken;
    /* Makes the threads add their chunks to the checksums in the order of the files. The ticket of
     * a chunk is its number in this order. */
    osh_turns turns;
    osh_status rc; // status of the first failed chunk, in the order of the chunks in the files
    const reader *failed; // reader of the first failed chunk; NULL: no chunk failed
    /* Buffers of all readers, in one allocation, which the system can map with pages of 2 MiB. */
    void *blocks;         // own
    reader *readers;      // own
    int n_readers;
};

typedef struct chunk {
    int shard;
    int64_t ticket, at, n; // the chunk is bytes [at, at + n) of the shard
    int64_t first;         // index in `order` of the first tensor in the chunk
} chunk;

static int check_by_offset(const void *x, const void *y, void *plan)
{
    const osh_plan *p = plan;
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    int s = p->manifest.out_info[a].shard, t = p->manifest.out_info[b].shard;
    int64_t i = p->manifest.out[a].begin, j = p->manifest.out[b].begin;
    if (s != t) return s < t ? -1 : 1;
    if (i != j) return i < j ? -1 : 1;
    return (p->manifest.out[a].end > p->manifest.out[b].end) -
           /* if tensors have the same offset, empty tensors come first */
           (p->manifest.out[a].end < p->manifest.out[b].end);
}

/* True if the tensor need not be read: either it is empty, or early.c has checked its bytes. */
static bool check_has_sum(const check *c, int64_t out)
{
    const osh_entry *t = &c->e->plan->manifest.out[out];
    return t->begin == t->end || osh_early_agrees(c->e->early, out);
}

/* Gets the next chunk. A chunk is at most OSH_BAND_BYTES adjacent bytes of a shard. They belong to
 * one tensor or to several. Returns false if no chunk is left or if a chunk has failed. If the
 * function returns true, *rc is OSH_OK or the status of an interrupt. */
static bool check_take(osh_ctx *cx, check *c, chunk *k, osh_status *rc)
{
    const osh_plan *p = c->e->plan;
    *k = (chunk){0};
    pthread_mutex_lock(&c->lock);
    for (; c->next < p->manifest.n_out && !c->failed; c->next++, c->taken = 0) {
        int64_t i = c->order[c->next], at = p->manifest.out[i].begin + c->taken,
                n = p->manifest.out[i].end - at;
        if (!n || check_has_sum(c, i)) continue;
        if (k->n && (p->manifest.out_info[i].shard != k->shard || at != k->at + k->n)) break;
        if (!k->n) k->shard = p->manifest.out_info[i].shard, k->at = at, k->first = c->next;
        bool cut = n > OSH_BAND_BYTES - k->n;
        if (cut) // no element of the tensor is split between two chunks
            n = (OSH_BAND_BYTES - k->n) & -(int64_t)osh_dtype_bytes(p->manifest.out[i].dtype);
        k->n += n, c->taken += n;
        if (cut || k->n == OSH_BAND_BYTES) break;
    }
    if (k->n) k->ticket = c->turns.next++, *rc = osh_check_interrupt(cx);
    pthread_mutex_unlock(&c->lock);
    return k->n;
}

/* Adds the bytes of a chunk to the checksums of its tensors. All earlier chunks must already be
 * added. */
static void check_add(check *c, const chunk *k, const uint8_t *bytes)
{
    const osh_plan *p = c->e->plan;
    for (; c->at < p->manifest.n_out; c->at++) {
        int64_t i = c->order[c->at], end = k->at + k->n, from = p->manifest.out[i].begin,
                to = p->manifest.out[i].end;
        if (check_has_sum(c, i)) continue;
        if (p->manifest.out_info[i].shard != k->shard || from >= end) break;
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

/* Searches the copied tensors of a chunk for NaN and infinities. */
static void check_look(const check *c, const chunk *k, const uint8_t *bytes)
{
    const osh_plan *p = c->e->plan;
    for (int64_t o = k->first; o < p->manifest.n_out; o++) {
        int64_t i = c->order[o], end = k->at + k->n, from = p->manifest.out[i].begin,
                to = p->manifest.out[i].end;
        if (p->manifest.out_info[i].shard != k->shard || from >= end) break;
        if (to <= k->at || check_has_sum(c, i)) continue;
        if (from < k->at) from = k->at;
        osh_emit_look(c->e, i, bytes + (from - k->at), (size_t)((to < end ? to : end) - from));
    }
}

/* Waits until all earlier chunks are added to the checksums. Then adds the bytes of this chunk, and
 * wakes the thread that has the next chunk. Must also be called for a chunk that failed, because
 * later chunks wait for it. */
static void check_take_turn(reader *r, const chunk *k, osh_status rc)
{
    check *c = r->c;
    pthread_mutex_lock(&c->lock);
    osh_turns_wait(&c->turns, &c->lock, k->ticket);
    if (rc && !c->failed) c->rc = rc, c->failed = r;
    bool go = !c->failed;
    pthread_mutex_unlock(&c->lock);
    if (go) check_add(c, k, r->room + k->at % OSH_BLOCK_BYTES);
    pthread_mutex_lock(&c->lock);
    osh_turns_pass(&c->turns);
    pthread_mutex_unlock(&c->lock);
}

static void *check_work(void *user)
{
    reader *r = user;
    chunk k;
    osh_status rc;
    osh_ctx *cx = r->thread.cx;
    while (check_take(cx, r->c, &k, &rc)) {
        osh_scope scope = osh_profile_time(cx, "read", NULL);
        if (!rc)
            rc = osh_file_read_blocks(cx, r->c->e->shards[k.shard], r->room, (size_t)k.n, k.at);
        osh_profile_end(cx, scope);
        if (!rc) check_look(r->c, &k, r->room + k.at % OSH_BLOCK_BYTES);
        check_take_turn(r, &k, rc);
    }
    return NULL;
}

static osh_status check_reader_open(osh_ctx *cx, reader *r)
{
    r->room =
        (uint8_t *)osh_file_align(r->c->blocks) +
        (size_t)r->c->n_readers * osh_file_room((size_t)osh_check_chunk(&r->c->e->plan->budget));
    return osh_thread_open(cx, &r->thread, check_work, r, true, "read the written tensors");
}

static osh_status check_read_all(osh_ctx *cx, check *c)
{
    osh_status rc = OSH_OK;
    int most =
        osh_stream_workers(c->e->plan->budget.memory.n_stream, c->e->plan->manifest.total_bytes);
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    OSH_NEW(cx, c->readers, most);
    if (!(c->blocks = osh_alloc(cx, osh_check_blocks(&c->e->plan->budget, most))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory to read the written tensors");
    pthread_mutex_init(&c->lock, NULL);
    /* no reader begins before all readers exist, because the lock is held until then */
    pthread_mutex_lock(&c->lock);
    for (; c->n_readers < most && !rc; c->n_readers++) {
        c->readers[c->n_readers].c = c;
        rc = check_reader_open(cx, &c->readers[c->n_readers]);
    }
    if (rc) c->failed = c->readers, c->rc = rc;
    pthread_mutex_unlock(&c->lock);
    osh_mem_trim(cx); // gives free memory back to the system while the readers work
    for (int i = 0; i < c->n_readers; i++) osh_thread_join(&c->readers[i].thread);
    if (!rc && c->failed) rc = osh_fail(cx, c->rc, "%s", osh_error_text(c->failed->thread.cx));
    for (int i = 0; i < c->n_readers; i++) osh_thread_close(&c->readers[i].thread);
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
    int64_t n = e->plan->manifest.n_out;
    check c = {.e = e, .sums = sums};
    OSH_NEW(cx, c.order, n);
    if (!(c.state = XXH3_createState())) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    for (int64_t i = 0; i < n; i++)
        c.order[i] = i, sums[i] = osh_early_agrees(e->early, i) ? e->sums[i] : XXH3_64bits(NULL, 0);
    qsort_r(c.order, (size_t)n, sizeof *c.order, check_by_offset, (void *)e->plan);
    OSH_TRY(check_read_all(cx, &c));
done:
    XXH3_freeState(c.state);
    osh_free(cx, c.order);
    return rc;
}
