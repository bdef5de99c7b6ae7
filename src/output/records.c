/* records.c - writes barriers and void records to the journal. A barrier means that all earlier
 * records, and the bytes that they describe, are on the disk. A void record means that the earlier
 * records of an output tensor do not count. */
#include <string.h>

#include "base/num.h"
#include "base/profile.h"
#include "output/emit_impl.h"
#include "output/share.h"

bool osh_emit_is_mine(const osh_emitter *e, int64_t out)
{
    return !e->writer ||
           e->writer[e->plan->manifest.out_info[out].shard] == osh_ranks_me(e->ranks);
}

osh_status osh_emit_record(osh_ctx *cx, osh_emitter *e, uint32_t type, const void *data, size_t n)
{
    osh_status rc = OSH_OK;
    if (!e->remote) return osh_journal_append(cx, e->journal, type, data, n);
    OSH_TRY(osh_put_u32(cx, &e->outbox, type));
    OSH_TRY(osh_put_u32(cx, &e->outbox, (uint32_t)n));
    OSH_TRY(osh_buf_append(cx, &e->outbox, data, n));
done:
    return rc;
}

/* Makes a barrier on a rank other than 0: syncs its files, so that its records can be sent. */
static osh_status barrier_remote(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = osh_edges_flush(cx, e->edges);
    for (int s = 0; s < e->plan->manifest.n_shards && !rc; s++)
        if (e->dirty[s]) rc = osh_file_sync_data(cx, e->shards[s]);
    if (rc) goto done;
    memset(e->dirty, 0, (size_t)e->plan->manifest.n_shards * sizeof *e->dirty);
    pthread_mutex_lock(&e->queue.lock);
    rc = osh_buf_append(cx, &e->ready, e->outbox.data, e->outbox.len);
    pthread_mutex_unlock(&e->queue.lock);
    osh_buf_clear(&e->outbox);
    e->unsynced = 0, e->synced_at = osh_now();
done:
    return rc;
}

/* Syncs the shards, then writes the record of a barrier. After a failed sync, all pages written
 * since the last barrier may be lost, and a second sync would not report the loss. So a failed sync
 * sets the journal back to the last barrier. */
osh_status osh_emit_barrier(osh_ctx *cx, osh_emitter *e)
{
    if (e->remote) return barrier_remote(cx, e);
    // if a file of the output has been moved, its bytes will be lost, so there must be no barrier
    osh_status rc = osh_emit_still_held(cx, e);
    if (!rc) rc = osh_edges_flush(cx, e->edges);
    for (int s = 0; s < e->plan->manifest.n_shards && !rc; s++)
        if (e->dirty[s]) rc = osh_file_sync_data(cx, e->shards[s]);
    if (rc) {
        osh_journal_rewind(cx, e->journal);
        goto done;
    }
    memset(e->dirty, 0, (size_t)e->plan->manifest.n_shards * sizeof *e->dirty);
    OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_BARRIER, NULL, 0));
    OSH_TRY(osh_journal_sync(cx, e->journal));
    e->unsynced = 0, e->synced_at = osh_now();
done:
    return rc;
}

osh_status osh_emit_void(osh_ctx *cx, osh_emitter *e, int64_t out)
{
    osh_status rc = OSH_OK;
    int linear = e->plan->manifest.out_info[out].linear;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_put_u64(cx, &b, (uint64_t)out));
    OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_VOID, b.data, b.len));
    OSH_TRY(osh_journal_sync(cx, e->journal));
    e->written[out] = false;
    for (int k = 0; linear >= 0 && k < e->plan->match.linears[linear].out.n; k++)
        e->written[e->plan->match.linears[linear].out.first + k] = false;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

void osh_emit_look(const osh_emitter *e, int64_t out, const void *bytes, size_t n)
{
    osh_dtype dtype = e->plan->manifest.out[out].dtype;
    if (e->plan->manifest.out_info[out].source < 0 || !osh_dtype_is_float(dtype)) return;
    if (osh_find_nonfinite(bytes, dtype, (int64_t)(n / osh_dtype_bytes(dtype))) >= 0)
        atomic_store(&e->nonfinite[out], true);
}

bool osh_emit_not_finite(const osh_emitter *e, int64_t out) { return e->nonfinite[out]; }

typedef struct record_sum {
    const osh_emitter *e; // view
    int64_t out;
    XXH3_state_t *state; // own
} record_sum;

static void records_update(void *user, const void *p, size_t n)
{
    record_sum *s = user;
    XXH3_64bits_update(s->state, p, n);
    osh_emit_look(s->e, s->out, p, n);
}

osh_status osh_emit_sum(osh_ctx *cx, uint64_t *sum, const osh_emitter *e, int64_t out)
{
    osh_status rc = OSH_OK;
    const osh_entry *t = &e->plan->manifest.out[out];
    record_sum s = {e, out, XXH3_createState()};
    if (!s.state) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(s.state);
    OSH_TRY(osh_file_scan(cx, e->shards[e->plan->manifest.out_info[out].shard],
                          (size_t)(t->end - t->begin), t->begin, records_update, &s));
    *sum = XXH3_64bits_digest(s.state);
done:
    XXH3_freeState(s.state);
    return rc;
}

osh_status osh_emit_keep_text(osh_ctx *cx, osh_emitter *e, const char **out, const char *text)
{
    osh_status rc = OSH_OK;
    char *s = osh_strdup(cx, text), **more = NULL; // s: own
    if (s) more = osh_realloc(cx, e->fallbacks, (e->n_fallbacks + 1) * sizeof *more);
    if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a text");
    e->fallbacks = more;
    *out = e->fallbacks[e->n_fallbacks++] = s, s = NULL; // give
done:
    osh_free(cx, s);
    return rc;
}
