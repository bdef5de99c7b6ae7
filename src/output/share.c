/* share.c - implements the emitters of ranks other than 0, and the records that these ranks send to
 * rank 0.
 *
 * A message contains records, one after the other: u32 type, u32 n, n bytes of the journal's record
 * (osh_emit_record). The last message of a rank contains no records. */
#include "output/share.h"

#include <string.h>

#include "output/emit_impl.h"
#include "plan/division.h"
#include "rewrite/folds.h"

/* Calls the callback s->seen for each Linear that is recorded in a message. */
static void message_tell(osh_ctx *cx, const void *bytes, size_t n, const osh_sharing *s)
{
    osh_reader in = {bytes, n, false};
    while (s && s->seen && in.left && !in.bad) {
        uint32_t type = osh_read_u32(&in);
        size_t len;
        osh_reader record = {(const uint8_t *)osh_read_text(&in, &len), 0, false};
        record.left = in.bad ? 0 : len;
        if (in.bad || type != OSH_REC_LINEAR) continue;
        int linear = (int)osh_read_u32(&record);
        osh_read_u32(&record);
        s->seen(cx, s->user, linear, osh_read_f64(&record));
    }
}

/* Takes one message of another rank. If `wait` is true, waits for it. Sets *any to false if there
 * is none. */
static osh_status emit_take_message(osh_ctx *cx, osh_emitter *e, const osh_sharing *s, bool wait,
                                    bool *any)
{
    osh_status rc = OSH_OK;
    void *bytes = NULL; // own
    size_t n;
    int from = -1;
    OSH_TRY(osh_ranks_take(cx, e->ranks, &bytes, &n, &from, wait));
    *any = bytes != NULL;
    if (bytes && !n) e->n_ended++;
    if (!n) goto done;
    message_tell(cx, bytes, n, s);
    osh_emit_job j = {.kind = OSH_EMIT_REMOTE, .bytes = bytes, .n_bytes = n};
    bytes = NULL; // the queue becomes the owner of the bytes, also after a failure
    OSH_TRY(osh_emit_push(cx, e, &j));
done:
    osh_free(cx, bytes);
    return rc;
}

/* ---- all ranks ---- */

/* Sends rank 0 the records whose bytes are on the disk (e->ready). */
static osh_status emit_post_ready(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *bytes = NULL; // own
    size_t n;
    pthread_mutex_lock(&e->queue.lock);
    if ((n = e->ready.len) && (bytes = osh_alloc(cx, n))) {
        memcpy(bytes, e->ready.data, n);
        osh_buf_clear(&e->ready);
    }
    pthread_mutex_unlock(&e->queue.lock);
    if (n && !bytes) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for records");
    if (n) OSH_TRY(osh_ranks_post(cx, e->ranks, bytes, n));
    OSH_TRY(osh_ranks_posted(cx, e->ranks, &(int){0}));
done:
    return rc;
}

osh_status osh_emit_exchange(osh_ctx *cx, osh_emitter *e, const osh_sharing *s)
{
    osh_status rc = OSH_OK;
    if (!e->writer) goto done;
    if (e->remote) return emit_post_ready(cx, e);
    for (bool any = true; any;) OSH_TRY(emit_take_message(cx, e, s, false, &any));
done:
    return rc;
}

osh_status osh_emit_exchange_all(osh_ctx *cx, osh_emitter *e, const osh_sharing *s)
{
    osh_status rc = OSH_OK;
    void *end = NULL; // own
    if (!e->writer) goto done;
    OSH_TRY(osh_emit_wait(cx, e));
    if (e->remote) {
        OSH_TRY(osh_emit_barrier(cx, e));
        OSH_TRY(emit_post_ready(cx, e));
        OSH_NEW(cx, end, 1);
        OSH_TRY(osh_ranks_post(cx, e->ranks, end, 0));
        OSH_TRY(osh_ranks_post_wait(cx, e->ranks, 0));
        goto done;
    }
    while (e->n_ended + 1 < osh_ranks_n(e->ranks))
        OSH_TRY(emit_take_message(cx, e, s, true, &(bool){false}));
    OSH_TRY(osh_emit_wait(cx, e));
    memcpy(e->taken, e->written, (size_t)e->plan->manifest.n_out * sizeof *e->taken);
done:
    return rc;
}

/* Opens the shards that this rank writes. */
static osh_status share_open_files(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    for (int s = 0; s < e->plan->manifest.n_shards && e->writer; s++)
        if (e->writer[s] == osh_ranks_me(e->ranks)) OSH_TRY(osh_emit_open_shard(cx, e, s));
done:
    return rc;
}

/* Makes the emitter of a rank other than 0. It has no journal. */
static osh_status share_join(osh_ctx *cx, osh_emitter **out, const osh_plan *p, osh_result *results)
{
    osh_status rc = OSH_OK;
    osh_emitter *e = NULL; // own
    OSH_NEW(cx, e, 1);
    e->plan = p, e->boundary = -1, e->generation = -1, e->remote = true, e->results = results;
    osh_buf_init(&e->outbox, 0), osh_buf_init(&e->ready, 0);
    OSH_TRY(osh_output_dirs(cx, &e->final, &e->partial, p->in.opt->output));
    OSH_TRY(osh_identity_new(cx, &e->id, p));
    OSH_TRY(osh_origin_open(cx, e));
    OSH_NEW(cx, e->sums, p->manifest.n_out);
    OSH_NEW(cx, e->written, p->manifest.n_out);
    OSH_NEW(cx, e->nonfinite, p->manifest.n_out);
    OSH_NEW(cx, e->shards, p->manifest.n_shards);
    OSH_NEW(cx, e->dirty, p->manifest.n_shards);
    OSH_NEW(cx, e->taken, p->manifest.n_out);
    OSH_TRY(osh_edges_new(cx, &e->edges));
    OSH_TRY(osh_globals_new(cx, &e->globals, &p->match));
    *out = e, e = NULL; // give
done:
    osh_emitter_free(cx, e);
    return rc;
}

/* Rank 0 sends all ranks the factors of folds that an earlier run has computed. */
static osh_status share_factors(osh_ctx *cx, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    const osh_rewrites *w = &e->plan->rewrites;
    for (int i = 0; i < w->n_folds; i++) {
        bool known = w->folds[i].known;
        OSH_TRY(osh_ranks_broadcast(cx, e->ranks, &known, sizeof known, 0));
        if (!known) continue;
        OSH_TRY(osh_ranks_broadcast(cx, e->ranks, w->folds[i].s,
                                    (size_t)w->folds[i].n * sizeof *w->folds[i].s, 0));
        OSH_TRY(osh_fold_known(cx, w, i));
    }
done:
    return rc;
}

/* Rank 0 sends all ranks the state of the output, as it is in the partial directory. */
static osh_status share_state(osh_ctx *cx, osh_emitter *e, osh_result *results)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    bool *done = NULL; // own
    OSH_NEW(cx, done, p->match.n_linears);
    for (int i = 0; i < p->match.n_linears; i++) done[i] = results[i].done;
    OSH_TRY(osh_ranks_broadcast(cx, e->ranks, &e->run, sizeof e->run, 0));
    OSH_TRY(osh_ranks_broadcast(cx, e->ranks, &e->tuned.known, sizeof e->tuned.known, 0));
    OSH_TRY(osh_ranks_broadcast(cx, e->ranks, e->written,
                                (size_t)p->manifest.n_out * sizeof *e->written, 0));
    OSH_TRY(osh_ranks_broadcast(cx, e->ranks, done, (size_t)p->match.n_linears * sizeof *done, 0));
    OSH_TRY(share_factors(cx, e));
    for (int i = 0; i < p->match.n_linears && e->remote; i++) results[i].done = done[i];
    for (int64_t i = 0; i < p->manifest.n_out && e->remote; i++)
        e->taken[i] = e->written[i] || osh_divide(p).kind != OSH_DIVIDE_FILES;
    if (osh_divide(p).kind != OSH_DIVIDE_FILES) goto done; // only rank 0 writes files
    OSH_NEW(cx, e->writer, p->manifest.n_shards);
    OSH_TRY(osh_divide_files(cx, e->writer, p, e->written, osh_ranks_n(e->ranks)));
done:
    osh_free(cx, done);
    return rc;
}

osh_status osh_emitter_share(osh_ctx *cx, osh_emitter **out, const osh_plan *p, osh_result *results,
                             bool *finished)
{
    osh_status rc = OSH_OK;
    osh_ranks *ranks = p->in.opt->ranks;
    osh_emitter *e = NULL; // own
    bool alone = osh_ranks_me(ranks) == 0;
    *out = NULL, *finished = false;
    if (alone) OSH_TRY(osh_emitter_new(cx, &e, p, results, finished));
    OSH_TRY(osh_ranks_broadcast(cx, ranks, finished, sizeof *finished, 0));
    if (*finished) goto done;
    if (!alone) OSH_TRY(share_join(cx, &e, p, results));
    e->ranks = ranks;
    OSH_TRY(share_state(cx, e, results));
    if (!alone) OSH_TRY(share_open_files(cx, e));
    if (!alone) OSH_TRY(osh_emit_start(cx, e));
    *out = e, e = NULL; // give
done:
    osh_emitter_free(cx, e);
    return rc;
}
