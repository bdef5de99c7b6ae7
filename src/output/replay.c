/* replay.c - applies records to the emitter and the results. The records come from the journal of
 * an earlier run, or from other ranks. */
#include <string.h>

#include "base/num.h"
#include "output/emit_impl.h"
#include "rewrite/folds.h"
#include "schedule/tuning.h"

typedef struct replay {
    osh_emitter *e;
    osh_result *results;
    /* True while the records after the last barrier are applied. The bytes that these records
     * describe must be checked on the disk. */
    bool verify;
    int64_t n_bad; // number of records whose bytes are lost
    /* Own [n_out]: true if the tensor's bytes are lost, so that its record does not count. */
    bool *lost;
} replay;

/* Sets *ok to true if output tensors [first, first + n) have the recorded checksums on the disk. If
 * r->verify is false, sets *ok to true without reading the tensors. */
static osh_status replay_still_there(osh_ctx *cx, bool *ok, const replay *r, int64_t first, int n)
{
    osh_status rc = OSH_OK;
    *ok = true;
    for (int64_t i = first; r->verify && *ok && i < first + n; i++) {
        uint64_t sum = 0;
        OSH_TRY(osh_emit_sum(cx, &sum, r->e, i));
        *ok = sum == r->e->sums[i];
    }
done:
    return rc;
}

/* Stores the checksum of a source tensor that an earlier run has read. */
static osh_status replay_take_sum(osh_ctx *cx, osh_emitter *e, int64_t tensor, uint64_t sum)
{
    e->told[tensor] = true;
    return osh_checkpoint_saw(cx, e->plan->in.ck, tensor, sum);
}

static osh_status replay_take_sources(osh_ctx *cx, replay *r, osh_reader *in)
{
    osh_status rc = OSH_OK;
    while (in->left && !in->bad) {
        uint64_t tensor = osh_read_u64(in), sum = osh_read_u64(in);
        if (tensor >= (uint64_t)r->e->plan->in.ck->n_tensors) in->bad = true;
        if (!in->bad) OSH_TRY(replay_take_sum(cx, r->e, (int64_t)tensor, sum));
    }
done:
    return rc;
}

static osh_status replay_take_linear(osh_ctx *cx, replay *r, osh_reader *in)
{
    osh_status rc = OSH_OK;
    osh_emitter *e = r->e;
    uint32_t linear = osh_read_u32(in), n = osh_read_u32(in);
    osh_result res = {.done = true, .earlier = true};
    res.nmse = osh_read_f64(in), res.objective = osh_read_f64(in), res.nearest = osh_read_f64(in);
    if (linear >= (uint32_t)e->plan->match.n_linears ||
        n != (uint32_t)e->plan->match.linears[linear].out.n) {
        in->bad = true;
        goto done;
    }
    const osh_linear *l = &e->plan->match.linears[linear];
    for (uint32_t k = 0; k < n; k++) e->sums[l->out.first + k] = osh_read_u64(in);
    uint64_t source = osh_read_u64(in);
    size_t n_text;
    const char *text = osh_read_text(in, &n_text);
    uint32_t n_losses = osh_read_u32(in);
    if (n_losses > OSH_LOSSES) in->bad = true;
    for (uint32_t k = 0; k < n_losses && !in->bad; k++)
        res.losses.of[res.losses.n++] = osh_read_f64(in);
    res.losses.all = osh_read_f64(in);
    if (in->bad) goto done;
    OSH_TRY(replay_take_sum(cx, e, l->tensor, source));
    OSH_TRY(replay_still_there(cx, &res.done, r, l->out.first, l->out.n));
    if (res.done && n_text) {
        char *s = osh_sprintf(cx, "%.*s", (int)n_text, text);
        if (!s) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", l->name);
        rc = osh_emit_keep_text(cx, e, &res.fallback, s);
        osh_free(cx, s);
        if (rc) goto done;
    }
    if (!res.done) res = (osh_result){0}, r->n_bad++;
    if (n) r->lost[l->out.first] = !res.done;
    e->looked |= !n;
    r->results[linear] = res;
    for (uint32_t k = 0; k < n; k++) e->written[l->out.first + k] = res.done;
done:
    return rc;
}

/* Applies a record which says that output tensor i, a copy, is written. `sum` and `source` are the
 * recorded checksums of this tensor and of its source tensor. Stores both checksums. Then checks if
 * the bytes of the tensor are on the disk. */
static osh_status replay_put(osh_ctx *cx, replay *r, int64_t i, uint64_t sum, uint64_t source)
{
    osh_status rc = OSH_OK;
    osh_emitter *e = r->e;
    bool ok;
    e->sums[i] = sum;
    OSH_TRY(replay_take_sum(cx, e, e->plan->manifest.out_info[i].source, source));
    OSH_TRY(replay_still_there(cx, &ok, r, i, 1));
    e->written[i] = ok, r->lost[i] = !ok;
    r->n_bad += !ok;
done:
    return rc;
}

static osh_status replay_take_copy(osh_ctx *cx, replay *r, osh_reader *in)
{
    const osh_emitter *e = r->e;
    uint64_t i = osh_read_u64(in), sum = osh_read_u64(in);
    if (i >= (uint64_t)e->plan->manifest.n_out || e->plan->manifest.out_info[i].source < 0)
        in->bad = true;
    return in->bad ? OSH_OK : replay_put(cx, r, (int64_t)i, sum, sum);
}

static osh_status replay_take_changed(osh_ctx *cx, replay *r, osh_reader *in)
{
    const osh_emitter *e = r->e;
    uint64_t i = osh_read_u64(in), sum = osh_read_u64(in), source = osh_read_u64(in);
    if (in->bad || i >= (uint64_t)e->plan->manifest.n_out ||
        e->plan->manifest.out_info[i].source < 0 ||
        !osh_checkpoint_is_changed(e->plan->in.ck, e->plan->manifest.out_info[i].source))
        in->bad = true;
    return in->bad ? OSH_OK : replay_put(cx, r, (int64_t)i, sum, source);
}

static osh_status replay_take_folds(osh_ctx *cx, replay *r, osh_reader *in)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = r->e->plan;
    while (in->left && !in->bad) {
        uint32_t i = osh_read_u32(in), n = osh_read_u32(in);
        if (i >= (uint32_t)p->rewrites.n_folds || n != p->rewrites.folds[i].n) in->bad = true;
        for (uint32_t c = 0; c < n && !in->bad; c++)
            p->rewrites.folds[i].s[c] = osh_f32_of_bits(osh_read_u32(in));
        if (!in->bad) OSH_TRY(osh_fold_known(cx, &p->rewrites, (int)i));
    }
done:
    return rc;
}

static void replay_take_void(replay *r, osh_reader *in)
{
    osh_emitter *e = r->e;
    uint64_t i = osh_read_u64(in);
    if (i >= (uint64_t)e->plan->manifest.n_out) in->bad = true;
    if (in->bad) return;
    int linear = e->plan->manifest.out_info[i].linear;
    bool tuned =
        e->tuned.kept &&
        (linear >= 0 || osh_is_tuned(&e->plan->manifest, e->plan->manifest.out_info[i].source));
    /* The tensor will be written again from the file of tuned tensors. */
    if (tuned) e->applied = false;
    e->written[i] = tuned;
    if (linear < 0 || tuned) return;
    const osh_linear *l = &e->plan->match.linears[linear];
    for (int k = 0; k < l->out.n; k++) e->written[l->out.first + k] = false;
    r->results[linear] = (osh_result){0};
    // the stored activations (e->boundary) no longer count, so all subgraphs are computed again
    // from the token ids
    e->boundary = -1, e->generation = -1;
}

static void replay_take_subgraph(replay *r, osh_reader *in)
{
    uint32_t s = osh_read_u32(in);
    int64_t generation = (int64_t)osh_read_u64(in);
    if (!r->e->plan->schedule.parts || s >= (uint32_t)r->e->plan->schedule.parts->n) in->bad = true;
    if (in->bad || generation < 0) return;
    r->e->boundary = (int)s, r->e->generation = generation;
}

static void replay_take_run(replay *r, osh_reader *in)
{
    uint64_t run = osh_read_u64(in);
    if (!in->bad) r->e->run = run;
}

static osh_status replay_take_record(osh_ctx *cx, replay *r, const osh_journal_record *rec)
{
    osh_status rc = OSH_OK;
    osh_reader in = {rec->data, rec->n, false};
    switch (rec->type) {
    case OSH_REC_LINEAR: OSH_TRY(replay_take_linear(cx, r, &in)); break;
    case OSH_REC_COPY: OSH_TRY(replay_take_copy(cx, r, &in)); break;
    case OSH_REC_CHANGED: OSH_TRY(replay_take_changed(cx, r, &in)); break;
    case OSH_REC_FOLDS: OSH_TRY(replay_take_folds(cx, r, &in)); break;
    case OSH_REC_TUNED:
    case OSH_REC_APPLIED: OSH_TRY(osh_tuned_take(cx, r->e, rec->type, &in, r->results)); break;
    case OSH_REC_VOID: replay_take_void(r, &in); break;
    case OSH_REC_SUBGRAPH: replay_take_subgraph(r, &in); break;
    case OSH_REC_SOURCES: OSH_TRY(replay_take_sources(cx, r, &in)); break;
    /* Not read here: osh_origin_resume reads the last stamps. */
    case OSH_REC_STAMPS: in.left = 0; break;
    case OSH_REC_BARRIER: break;
    case OSH_REC_RESUMED: r->e->n_resumed++; break;
    case OSH_REC_SEALED: r->e->complete = true; break;
    case OSH_REC_RUN: replay_take_run(r, &in); break;
    /* journal_find_replaced (resume.c) has already read the value, so it is skipped here */
    case OSH_REC_REPLACED: osh_read_u64(&in); break;
    default: in.bad = true;
    }
    if (in.bad || in.left)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s/%s holds a record of type %u that does not fit this run: want --restart",
                 r->e->partial, OSH_JOURNAL_NAME, rec->type);
done:
    return rc;
}

/* Applies a record of another rank to the emitter and the results. */
static osh_status replay_take_remote(osh_ctx *cx, osh_emitter *e, const osh_journal_record *rec)
{
    osh_status rc = OSH_OK;
    replay r = {.e = e, .results = e->results};
    bool linear = rec->type == OSH_REC_LINEAR;
    OSH_NEW(cx, r.lost, e->plan->manifest.n_out);
    OSH_TRY(replay_take_record(cx, &r, rec));
    if (linear) { // the record begins with the index of the Linear (replay_take_linear)
        osh_reader in = {rec->data, rec->n, false};
        int i = (int)osh_read_u32(&in);
        osh_result *of = &e->results[i];
        of->earlier = false;
        if (of->fallback)
            osh_log(cx, OSH_LOG_WARN, "%s: %s", e->plan->match.linears[i].name, of->fallback);
    }
done:
    osh_free(cx, r.lost);
    return rc;
}

osh_status osh_emit_do_remote(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    osh_status rc = OSH_OK;
    osh_reader in = {j->bytes, j->n_bytes, false};
    while (in.left && !in.bad) {
        size_t n;
        osh_journal_record r = {.type = osh_read_u32(&in)};
        r.data = (const uint8_t *)osh_read_text(&in, &n), r.n = (uint32_t)n;
        if (in.bad) break;
        OSH_TRY(replay_take_remote(cx, e, &r));
        OSH_TRY(osh_journal_append(cx, e->journal, r.type, r.data, r.n));
    }
    if (in.bad) OSH_FAIL(cx, OSH_E_INTERNAL, "a message of another rank is truncated");
done:
    return rc;
}

/* Writes void records for lost tensors. Without them, the next barrier would declare the lost bytes
 * to be on the disk. */
static osh_status replay_record_lost(osh_ctx *cx, const replay *r)
{
    osh_status rc = OSH_OK;
    for (int64_t i = 0; i < r->e->plan->manifest.n_out; i++)
        if (r->lost[i]) OSH_TRY(osh_emit_void(cx, r->e, i));
done:
    return rc;
}

osh_status osh_emit_replay(osh_ctx *cx, osh_emitter *e, osh_result *results)
{
    osh_status rc = OSH_OK;
    replay r = {.e = e, .results = results};
    int64_t n = osh_journal_count(e->journal), barrier = 0;
    OSH_NEW(cx, r.lost, e->plan->manifest.n_out);
    for (int64_t i = 1; i < n; i++)
        if (osh_journal_at(e->journal, i)->type == OSH_REC_BARRIER) barrier = i;
    for (int64_t i = 1; i < n; i++) {
        r.verify = i > barrier;
        OSH_TRY(replay_take_record(cx, &r, osh_journal_at(e->journal, i)));
    }
    if (osh_journal_damaged(e->journal))
        osh_log(cx, OSH_LOG_WARN, "%s/%s: %lld bytes after its last good record are dropped",
                e->partial, OSH_JOURNAL_NAME, (long long)osh_journal_damaged(e->journal));
    if (r.n_bad)
        osh_log(cx, OSH_LOG_WARN,
                "%s: %lld recorded tensors are not on the disk: the run computes them again",
                e->partial, (long long)r.n_bad);
    OSH_TRY(osh_origin_resume(cx, e));
    osh_journal_drop(cx, e->journal);
    OSH_TRY(replay_record_lost(cx, &r));
done:
    osh_free(cx, r.lost);
    return rc;
}
