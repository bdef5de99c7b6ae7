/* emit.c - writes and records output tensors. A tensor is written with pwrite at its planned
 * offset. Its XXH3 checksum goes to the journal. Before the directory gets its final name, the
 * checksum is compared with the bytes on the disk. */
#include "output/emit.h"

#include <string.h>

#include "base/num.h"
#include "output/emit_impl.h"
#include "output/known.h"
#include "match/cache.h"
#include "rewrite/folds.h"

/* A barrier is made after this number of bytes or of seconds. After a crash, the next run checks
 * all work since the last barrier. */
enum { BARRIER_BYTES = 256 << 20, BARRIER_SECONDS = 5 };

/* Fails if the output directory exists, is not empty, and the run must not replace it. */
static osh_status emit_check_target(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *mark = NULL, *manifest = NULL; // own
    size_t n = 0;
    if (!osh_dir_exists(e->final)) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, e->final));
    if (!n) goto done; // an empty directory is no problem, because the final rename replaces it
    mark = osh_path_join(cx, e->final, OSH_MARK_NAME),
    manifest = osh_path_join(cx, e->final, OSH_MANIFEST_NAME);
    if (!mark || !manifest) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (!osh_file_exists(mark) || !osh_file_exists(manifest))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s is not empty and was not made by oneshot: want another --output", e->final);
    if (!e->plan->in.opt->overwrite)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s holds a finished checkpoint: want --overwrite or another --output", e->final);
    e->replaces = true;
    OSH_TRY(osh_file_hold(cx, &e->old, e->final));
    OSH_TRY(osh_claim_output(cx, e, OSH_E_USAGE));
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, mark);
    osh_free(cx, manifest);
    return rc;
}

static osh_status emit_do_job(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j);

osh_status osh_emitter_new(osh_ctx *cx, osh_emitter **out, const osh_plan *p, osh_result *results,
                           bool *finished)
{
    osh_status rc = OSH_OK;
    osh_emitter *e = NULL; // own
    *out = NULL, *finished = false;
    OSH_NEW(cx, e, 1);
    e->plan = p, e->boundary = -1, e->generation = -1, e->results = results;
    OSH_TRY(osh_output_dirs(cx, &e->final, &e->partial, p->in.opt->output));
    if (!(e->replaced = osh_sprintf(cx, "%s.oneshot-replaced", e->final)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_dir_is_mount(e->final))
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s is a mount point, which the finished directory cannot replace: want a "
                 "directory in it, such as --output %s/model",
                 e->final, e->final);
    if (osh_file_exists(e->final))
        OSH_FAIL(cx, OSH_E_USAGE, "%s is a file: want a directory for --output", e->final);
    OSH_TRY(osh_identity_new(cx, &e->id, p));
    OSH_TRY(osh_origin_open(cx, e));
    OSH_TRY(osh_emit_is_finished(cx, e, finished));
    if (*finished) goto done;
    OSH_TRY(emit_check_target(cx, e));
    OSH_NEW(cx, e->sums, p->manifest.n_out);
    OSH_NEW(cx, e->written, p->manifest.n_out);
    OSH_NEW(cx, e->nonfinite, p->manifest.n_out);
    OSH_NEW(cx, e->shards, p->manifest.n_shards);
    OSH_NEW(cx, e->dirty, p->manifest.n_shards);
    OSH_NEW(cx, e->taken, p->manifest.n_out);
    OSH_TRY(osh_edges_new(cx, &e->edges));
    OSH_TRY(osh_globals_new(cx, &e->globals, &p->match));
    OSH_TRY(osh_emit_begin(cx, e, results));
    memcpy(e->taken, e->written, (size_t)p->manifest.n_out * sizeof *e->taken);
    OSH_TRY(osh_early_new(cx, &e->early, e));
    OSH_TRY(osh_emit_start(cx, e));
    *out = e, e = NULL; // give
done:
    osh_emitter_free(cx, e);
    return rc;
}

osh_status osh_emit_start(osh_ctx *cx, osh_emitter *e)
{
    return osh_emit_queue_start(cx, e, emit_do_job);
}

static void emit_remove_partial(osh_ctx *cx, const osh_emitter *e)
{
    osh_known k = {0}; // own
    osh_status rc = osh_known_of_run(cx, &k, &e->plan->manifest, e->journal);
    // the removal is recorded before it begins, because a kill may interrupt it
    if (!rc && e->journal)
        osh_journal_append(cx, e->journal, OSH_REC_DISCARDED, NULL, 0);
    if (!rc) osh_known_remove(cx, &k, e->partial, OSH_JOURNAL_NAME, false);
    osh_known_deinit(cx, &k);
}

void osh_emitter_free(osh_ctx *cx, osh_emitter *e)
{
    if (!e) return;
    osh_emit_queue_stop(cx, e);
    osh_early_free(cx, e->early);
    osh_edges_free(cx, e->edges);
    osh_globals_free(cx, e->globals);
    for (int s = 0; e->shards && s < e->plan->manifest.n_shards; s++)
        osh_file_close(cx, e->shards[s]);
    bool still = e->dir && osh_file_is_at(e->dir, e->partial);
    if (e->ours && still && !e->sealed && (e->discard || !osh_emitter_holds_work(e)))
        emit_remove_partial(cx, e);
    osh_file_close(cx, e->dir);
    osh_file_close(cx, e->old);
    osh_journal_close(cx, e->journal);
    for (size_t i = 0; i < e->n_fallbacks; i++) osh_free(cx, e->fallbacks[i]);
    osh_free(cx, e->fallbacks);
    osh_free(cx, e->shards);
    osh_free(cx, e->dirty);
    osh_free(cx, e->writer);
    osh_buf_deinit(cx, &e->outbox);
    osh_buf_deinit(cx, &e->ready);
    osh_free(cx, e->sums);
    osh_free(cx, e->written);
    osh_free(cx, e->nonfinite);
    osh_free(cx, e->taken);
    osh_free(cx, e->told);
    osh_free(cx, e->stamps);
    osh_checkpoint_unwatch(cx, e->plan->in.ck);
    osh_free(cx, e->final);
    osh_free(cx, e->partial);
    osh_free(cx, e->replaced);
    osh_identity_free(cx, e->id);
    osh_free(cx, e);
}

void osh_emitter_discard(osh_emitter *e) { e->discard = true; }
const char *osh_emit_dir(const osh_emitter *e) { return e->partial; }
uint64_t osh_emit_run(const osh_emitter *e) { return e->run; }

osh_globals *osh_emit_globals(osh_emitter *e) { return e->globals; }

bool osh_emitter_resumed(const osh_emitter *e) { return e->resumed; }
int osh_emitter_n_resumed(const osh_emitter *e) { return e->n_resumed; }

bool osh_emitter_holds_work(const osh_emitter *e)
{
    for (int64_t i = 0; e->written && i < e->plan->manifest.n_out; i++)
        if (e->written[i]) return true;
    return e->looked;
}

int osh_emit_boundary(const osh_emitter *e, int64_t *generation)
{
    *generation = e->generation;
    return e->boundary;
}

/* Makes a barrier if enough bytes were written since the last barrier, or enough time has
 * passed. */
static osh_status emit_tick(osh_ctx *cx, osh_emitter *e, int64_t n_bytes)
{
    e->unsynced += n_bytes;
    if (e->unsynced < BARRIER_BYTES && osh_now() - e->synced_at < BARRIER_SECONDS) return OSH_OK;
    return osh_emit_barrier(cx, e);
}

static osh_status emit_write_tensor(osh_ctx *cx, osh_emitter *e, int64_t i, const void *data)
{
    osh_status rc = OSH_OK;
    const osh_entry *t = &e->plan->manifest.out[i];
    int shard = e->plan->manifest.out_info[i].shard;
    size_t n = (size_t)(t->end - t->begin);
    e->dirty[shard] = true;
    OSH_TRY(osh_file_pwrite(cx, e->shards[shard], data, n, t->begin));
    osh_file_start_write(e->shards[shard], t->begin, n);
    e->sums[i] = XXH3_64bits(data, n);
done:
    if (rc) osh_note(cx, "writing %s", t->name);
    return rc;
}

static osh_status emit_record_linear(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &e->plan->match.linears[j->index];
    int64_t n_bytes = 0;
    uint64_t source;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_put_u32(cx, &b, (uint32_t)j->index));
    OSH_TRY(osh_put_u32(cx, &b, (uint32_t)l->out.n));
    OSH_TRY(osh_put_f64(cx, &b, j->result.nmse));
    OSH_TRY(osh_put_f64(cx, &b, j->result.objective));
    OSH_TRY(osh_put_f64(cx, &b, j->result.nearest));
    for (int64_t i = l->out.first; i < l->out.first + l->out.n; i++) {
        OSH_TRY(osh_put_u64(cx, &b, e->sums[i]));
        n_bytes += e->plan->manifest.out[i].end - e->plan->manifest.out[i].begin;
    }
    if (!osh_checkpoint_seen(e->plan->in.ck, l->tensor, &source))
        OSH_FAIL(cx, OSH_E_INTERNAL, "the source weight of %s was not read", l->name);
    OSH_TRY(osh_put_u64(cx, &b, source));
    OSH_TRY(osh_put_text(cx, &b, j->result.fallback ? j->result.fallback : ""));
    OSH_TRY(osh_put_u32(cx, &b, (uint32_t)j->result.losses.n));
    for (int k = 0; k < j->result.losses.n; k++)
        OSH_TRY(osh_put_f64(cx, &b, j->result.losses.of[k]));
    OSH_TRY(osh_put_f64(cx, &b, j->result.losses.all));
    OSH_TRY(osh_emit_record(cx, e, OSH_REC_LINEAR, b.data, b.len));
    e->told[l->tensor] = true;
    for (int64_t i = l->out.first; i < l->out.first + l->out.n; i++)
        e->written[i] = true, osh_early_add(e->early, i);
    e->looked |= !l->out.n;
    OSH_TRY(emit_tick(cx, e, n_bytes));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status emit_do_linear(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &e->plan->match.linears[j->index];
    osh_cache_leaf c[OSH_CACHE_LEAVES];
    osh_format_weight weight = osh_linear_stored(l);
    // a survey writes no tensors, so there is only a result to record
    if (!l->out.n) return emit_record_linear(cx, e, j);
    OSH_TRY(l->format->pack(cx, j->packed, &weight, j->result.codes, &j->result.params,
                            &(osh_format_input){j->in_scale, j->in_zero}));
    int n = osh_cache_leaves(c, &e->plan->match, l), last = l->out.n - (l->out.bias >= 0);
    const char *at = j->result.cache;
    for (int k = 0; k < n; at += c[k++].bytes) memcpy(j->packed[last - n + k], at, c[k].bytes);
    if (l->out.bias >= 0) {
        const osh_entry *t = &e->plan->manifest.out[l->out.first + last];
        memcpy(j->packed[last], j->result.bias, (size_t)(t->end - t->begin));
    }
    for (int k = 0; k < l->out.n; k++)
        OSH_TRY(emit_write_tensor(cx, e, l->out.first + k, j->packed[k]));
    OSH_TRY(emit_record_linear(cx, e, j));
done:
    return rc;
}

osh_status osh_emit_linear(osh_ctx *cx, osh_emitter *e, int linear, osh_linear_job *job,
                           osh_tensor **in_scale, osh_tensor **in_zero)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &e->plan->match.linears[linear];
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    osh_emit_job j = {.kind = OSH_EMIT_LINEAR, .index = linear};
    for (int k = job->packed ? 1 : 0; k < l->out.n; k++) {
        const osh_entry *t = &e->plan->manifest.out[l->out.first + k];
        if (!(j.packed[k] = osh_alloc(cx, (size_t)(t->end - t->begin))))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory to pack %s", l->name);
    }
    for (int k = 0; k < l->out.n; k++) e->taken[l->out.first + k] = true;
    j.result = *job, j.in_scale = *in_scale, j.in_zero = *in_zero;
    job->codes = job->cache = job->bias = NULL, job->params = (osh_qparams){0},
    *in_scale = *in_zero = NULL; // give
    osh_mem_move(cx, j.result.codes, OSH_MEM_HOST);
    osh_mem_move(cx, j.result.cache, OSH_MEM_HOST);
    osh_mem_move(cx, j.result.bias, OSH_MEM_HOST);
    osh_tensor *const waiting[] = {j.result.params.scale, j.result.params.zero, j.in_scale,
                                   j.in_zero};
    for (size_t k = 0; k < sizeof waiting / sizeof *waiting; k++)
        if (waiting[k])
            osh_mem_move(cx, waiting[k]->data, OSH_MEM_HOST),
                osh_mem_move(cx, waiting[k], OSH_MEM_HOST);
    if (j.result.packed)
        /* the modifier has already packed the codes; j.packed becomes their owner */
        j.packed[0] = j.result.codes, j.result.codes = NULL;
    rc = osh_emit_push(cx, e, &j);
    memset(j.packed, 0, sizeof j.packed); // the queued job owns the buffers, also after a failure
done:
    osh_mem_use(cx, old);
    for (int k = 0; k < OSH_FORMAT_MAX_TENSORS; k++) osh_free(cx, j.packed[k]);
    return rc;
}

/* Allocates memory for the output tensors of a Linear. Rank 0 then sends the tensors to this
 * rank. */
static osh_status emit_new_raw(osh_ctx *cx, const osh_emitter *e, const osh_linear *l,
                               osh_tensor **raw)
{
    osh_status rc = OSH_OK;
    for (int k = 0; k < l->out.n; k++) {
        const osh_entry *t = &e->plan->manifest.out[l->out.first + k];
        OSH_TRY(osh_tensor_new(cx, &raw[k], t->dtype, t->ndim, t->shape));
    }
done:
    return rc;
}

osh_status osh_emit_reload(osh_ctx *cx, osh_emitter *e, int linear, osh_tensor *w, osh_tensor *bias)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &e->plan->match.linears[linear];
    osh_format_weight weight = osh_linear_stored(l);
    osh_tensor *raw[OSH_FORMAT_MAX_TENSORS] = {0}; // own
    osh_qparams params = {0};                      // own
    void *codes = NULL;                            // own
    OSH_TRY(e->remote ? emit_new_raw(cx, e, l, raw) : osh_emit_read_linear(cx, e, linear, raw));
    for (int k = 0; k < l->out.n && !e->writer; k++)
        OSH_TRY(osh_ranks_broadcast(cx, e->ranks, raw[k]->data, osh_tensor_bytes(raw[k]), 0));
    if (bias) memcpy(bias->data, raw[l->out.n - 1]->data, osh_tensor_bytes(bias));
    if (l->scheme_index < 0) {
        memcpy(w->data, raw[0]->data, osh_tensor_bytes(w));
        goto done;
    }
    if (!(codes = osh_alloc(cx, (size_t)(l->O * l->I))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for codes");
    OSH_TRY(l->format->unpack(cx, codes, &params, &weight, (const osh_tensor *const *)raw));
    OSH_TRY(osh_q_decode(cx, w, codes, &params, &l->scheme->weights));
done:
    if (rc) osh_note(cx, "reading %s from the output", l->name);
    for (int k = 0; k < OSH_FORMAT_MAX_TENSORS; k++) osh_tensor_free(cx, raw[k]);
    osh_qparams_deinit(cx, &params);
    osh_free(cx, codes);
    return rc;
}

/* Records the checksums of the source tensors that were read since the last such record. The
 * results so far depend on these tensors. */
static osh_status emit_record_sources(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    uint64_t sum;
    for (int64_t i; osh_checkpoint_next_seen(e->plan->in.ck, e->n_looked, &i, &sum);
         e->n_looked++) {
        if (e->told[i]) continue;
        OSH_TRY(osh_put_u64(cx, &b, (uint64_t)i));
        OSH_TRY(osh_put_u64(cx, &b, sum));
        e->told[i] = true;
    }
    if (b.len) OSH_TRY(osh_emit_record(cx, e, OSH_REC_SOURCES, b.data, b.len));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status emit_do_subgraph(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_put_u32(cx, &b, (uint32_t)j->index));
    OSH_TRY(osh_put_u64(cx, &b, (uint64_t)j->generation));
    OSH_TRY(emit_record_sources(cx, e));
    OSH_TRY(osh_emit_record(cx, e, OSH_REC_SUBGRAPH, b.data, b.len));
    if (j->generation >= 0) OSH_TRY(osh_emit_barrier(cx, e));
    else OSH_TRY(emit_tick(cx, e, 0));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_emit_subgraph(osh_ctx *cx, osh_emitter *e, int subgraph, int64_t generation)
{
    osh_emit_job j = {.kind = OSH_EMIT_SUBGRAPH, .index = subgraph, .generation = generation};
    if (e->remote) return OSH_OK;
    osh_status rc = osh_emit_push(cx, e, &j);
    return rc || generation < 0 ? rc : osh_emit_wait(cx, e);
}

static osh_status emit_record_copy(osh_ctx *cx, osh_emitter *e, int64_t i)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_put_u64(cx, &b, (uint64_t)i));
    OSH_TRY(osh_put_u64(cx, &b, e->sums[i]));
    OSH_TRY(osh_emit_record(cx, e, OSH_REC_COPY, b.data, b.len));
    e->written[i] = e->told[e->plan->manifest.out_info[i].source] = true;
    osh_early_add(e->early, i);
    OSH_TRY(emit_tick(cx, e, e->plan->manifest.out[i].end - e->plan->manifest.out[i].begin));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status emit_record_changed(osh_ctx *cx, osh_emitter *e, int64_t i)
{
    osh_status rc = OSH_OK;
    int64_t from = e->plan->manifest.out_info[i].source;
    uint64_t source;
    osh_buf b;
    osh_buf_init(&b, 0);
    if (!osh_checkpoint_seen(e->plan->in.ck, from, &source))
        OSH_FAIL(cx, OSH_E_INTERNAL, "the source tensor of %s was not read",
                 e->plan->manifest.out[i].name);
    OSH_TRY(osh_put_u64(cx, &b, (uint64_t)i));
    OSH_TRY(osh_put_u64(cx, &b, e->sums[i]));
    OSH_TRY(osh_put_u64(cx, &b, source));
    OSH_TRY(osh_emit_record(cx, e, OSH_REC_CHANGED, b.data, b.len));
    e->written[i] = e->told[from] = true;
    osh_early_add(e->early, i);
    OSH_TRY(emit_tick(cx, e, e->plan->manifest.out[i].end - e->plan->manifest.out[i].begin));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status emit_do_folds(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int i = 0; i < p->rewrites.n_folds; i++) {
        const osh_fold *f = &p->rewrites.folds[i];
        if (!osh_fold_in(j->schedule, f, j->index, j->n)) continue;
        OSH_TRY(osh_put_u32(cx, &b, (uint32_t)i));
        OSH_TRY(osh_put_u32(cx, &b, (uint32_t)f->n));
        for (int64_t c = 0; c < f->n; c++) OSH_TRY(osh_put_u32(cx, &b, osh_bits_of_f32(f->s[c])));
    }
    OSH_TRY(osh_emit_record(cx, e, OSH_REC_FOLDS, b.data, b.len));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_emit_folds(osh_ctx *cx, osh_emitter *e, const osh_schedule *s, int first_subgraph,
                          int n_subgraphs)
{
    osh_emit_job j = {
        .kind = OSH_EMIT_FOLDS, .schedule = s, .index = first_subgraph, .n = n_subgraphs};
    if (e->remote) return OSH_OK; // rank 0 writes all records
    return osh_emit_push(cx, e, &j);
}

static osh_status emit_do_view(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    osh_status rc = emit_write_tensor(cx, e, j->out, j->view);
    return rc ? rc : emit_record_copy(cx, e, j->out);
}

/* Records tensors whose bytes are already written. Marks their shards dirty here, and not after the
 * write, because a barrier between the write and the record would clear the mark. */
static osh_status emit_do_written(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    const osh_linear *l = j->index >= 0 ? &e->plan->match.linears[j->index] : NULL;
    for (int k = 0; k < (l ? l->out.n : 1); k++)
        e->dirty[e->plan->manifest.out_info[l ? l->out.first + k : j->out].shard] = true;
    if (l) return emit_record_linear(cx, e, j);
    bool changed =
        osh_checkpoint_is_changed(e->plan->in.ck, e->plan->manifest.out_info[j->out].source);
    return changed ? emit_record_changed(cx, e, j->out) : emit_record_copy(cx, e, j->out);
}

/* Packs, writes and records the tensors of one job, on the emitter's thread. */
static osh_status emit_do_job(osh_ctx *cx, osh_emitter *e, const osh_emit_job *j)
{
    switch (j->kind) {
    case OSH_EMIT_LINEAR: return emit_do_linear(cx, e, j);
    case OSH_EMIT_VIEW: return emit_do_view(cx, e, j);
    case OSH_EMIT_WRITTEN: return emit_do_written(cx, e, j);
    case OSH_EMIT_FOLDS: return emit_do_folds(cx, e, j);
    case OSH_EMIT_SUBGRAPH: return emit_do_subgraph(cx, e, j);
    case OSH_EMIT_REMOTE: {
        osh_status rc = osh_emit_do_remote(cx, e, j);
        return rc ? rc : emit_tick(cx, e, (int64_t)j->n_bytes);
    }
    }
    return OSH_OK;
}

osh_status osh_emit_copy_from(osh_ctx *cx, osh_emitter *e, int64_t out, const void *data)
{
    osh_emit_job j = {.kind = OSH_EMIT_VIEW, .out = out, .view = data};
    if (e->taken[out]) return OSH_OK;
    e->taken[out] = true;
    return osh_emit_push(cx, e, &j);
}

osh_status osh_emit_piece(osh_ctx *cx, osh_emitter *e, int64_t out, const void *from, size_t n,
                          int64_t at)
{
    osh_status rc = osh_edges_write(cx, e->edges, e->shards[e->plan->manifest.out_info[out].shard],
                                    from, n, at);
    if (rc) osh_note(cx, "writing %s", e->plan->manifest.out[out].name);
    return rc;
}

osh_status osh_emit_written_linear(osh_ctx *cx, osh_emitter *e, int linear, double nmse,
                                   const uint64_t *sums)
{
    const osh_linear *l = &e->plan->match.linears[linear];
    osh_emit_job j = {.kind = OSH_EMIT_WRITTEN, .index = linear,
                      .result = {.nmse = nmse, .objective = -1, .nearest = -1}};
    for (int k = 0; k < l->out.n; k++)
        e->sums[l->out.first + k] = sums[k], e->taken[l->out.first + k] = true;
    return osh_emit_push(cx, e, &j);
}

osh_status osh_emit_written_copy(osh_ctx *cx, osh_emitter *e, int64_t out, uint64_t sum)
{
    osh_emit_job j = {.kind = OSH_EMIT_WRITTEN, .index = -1, .out = out};
    e->sums[out] = sum;
    return osh_emit_push(cx, e, &j);
}
