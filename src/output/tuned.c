/* tuned.c - writes the file of tuned tensors, and copies these tensors to the shards. The file and
 * two records of the journal have these layouts, in little-endian order:
 *
 *   oneshot-tuned   ( | u64 output tensor | u64 n | n bytes | )*
 *   OSH_REC_TUNED   f64 before, f64 after, u64 changed, u64 codes, u64 bytes of the file,
 *                   XXH3 of the file, (u32 Linear, f64 error of its weight)*
 *   OSH_REC_APPLIED (u64 output tensor, u64 checksum)*
 *
 * If the tuned tensors are not kept, the bytes and the XXH3 of the file are 0. */
#include "output/tuned.h"

#include <string.h>

#include "base/num.h"
#include "output/emit_impl.h"
#include "schedule/tuning.h"

struct osh_tuned_writer {
    osh_emitter *e;
    osh_file *file; // own
    char *path, *temp; // own
    XXH3_state_t *state; // own
    int64_t at;
    osh_buf errors; // own: the part of the record that lists the errors of the tuned weights
};

const osh_tuned *osh_emit_tuned(const osh_emitter *e) { return &e->tuned; }

osh_status osh_emit_read_linear(osh_ctx *cx, osh_emitter *e, int linear, osh_tensor **raw)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    const osh_linear *l = &p->match.linears[linear];
    OSH_TRY(osh_emit_wait(cx, e));
    for (int k = 0; k < l->out.n; k++) {
        int64_t i = l->out.first + k;
        const osh_entry *t = &p->manifest.out[i];
        OSH_TRY(osh_tensor_new(cx, &raw[k], t->dtype, t->ndim, t->shape));
        OSH_TRY(osh_file_pread(cx, e->shards[p->manifest.out_info[i].shard], raw[k]->data,
                               osh_tensor_bytes(raw[k]), t->begin));
        if (XXH3_64bits(raw[k]->data, osh_tensor_bytes(raw[k])) == e->sums[i]) continue;
        OSH_TRY(osh_emit_void(cx, e, i));
        OSH_FAIL(cx, OSH_E_IO, "%s of %s: the bytes on the disk differ from the written bytes",
                 t->name, osh_file_path(e->shards[p->manifest.out_info[i].shard]));
    }
done:
    return rc;
}

static osh_status tuned_paths(osh_ctx *cx, char **path, char **temp, const osh_emitter *e)
{
    osh_status rc = OSH_OK;
    if (!(*path = osh_path_join(cx, e->partial, OSH_TUNED_NAME)) ||
        !(*temp = osh_path_join(cx, e->partial, OSH_TUNED_NAME ".tmp")))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
done:
    return rc;
}

osh_status osh_tuned_begin(osh_ctx *cx, osh_tuned_writer **out, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    osh_tuned_writer *w = NULL; // own
    OSH_NEW(cx, w, 1);
    w->e = e;
    osh_buf_init(&w->errors, 0);
    OSH_TRY(tuned_paths(cx, &w->path, &w->temp, e));
    if (!(w->state = XXH3_createState())) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(w->state);
    OSH_TRY(osh_emit_wait(cx, e));
    OSH_TRY(
        /* A run that continues after this barrier does not compare earlier records with the disk.
         * So tensors that tuning replaces do not count as lost. */
        osh_emit_barrier(cx, e));
    OSH_TRY(osh_file_create_exclusive(cx, &w->file, w->temp));
    *out = w, w = NULL; // give
done:
    osh_tuned_free(cx, w);
    return rc;
}

static osh_status tuned_put(osh_ctx *cx, osh_tuned_writer *w, const void *data, size_t n)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_file_pwrite(cx, w->file, data, n, w->at));
    XXH3_64bits_update(w->state, data, n);
    w->at += (int64_t)n;
done:
    return rc;
}

osh_status osh_tuned_tensor(osh_ctx *cx, osh_tuned_writer *w, int64_t out, const void *data)
{
    osh_status rc = OSH_OK;
    const osh_entry *t = &w->e->plan->manifest.out[out];
    size_t n = (size_t)(t->end - t->begin);
    osh_buf head;
    osh_buf_init(&head, 0);
    OSH_TRY(osh_put_u64(cx, &head, (uint64_t)out));
    OSH_TRY(osh_put_u64(cx, &head, n));
    OSH_TRY(tuned_put(cx, w, head.data, head.len));
    OSH_TRY(tuned_put(cx, w, data, n));
done:
    osh_buf_deinit(cx, &head);
    return rc;
}

osh_status osh_tuned_error(osh_ctx *cx, osh_tuned_writer *w, int linear, double nmse)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_put_u32(cx, &w->errors, (uint32_t)linear));
    OSH_TRY(osh_put_f64(cx, &w->errors, nmse));
done:
    return rc;
}

/* Reads a record OSH_REC_TUNED into the emitter and the results. */
static void tuned_take_record(osh_emitter *e, osh_reader *in, osh_result *results)
{
    osh_tuned t = {.known = true,
                   .before = osh_read_f64(in),
                   .after = osh_read_f64(in),
                   .n_changed = osh_read_u64(in),
                   .n_codes = osh_read_u64(in)};
    e->tuned_bytes = (int64_t)osh_read_u64(in), e->tuned_sum = osh_read_u64(in);
    t.kept = e->tuned_bytes > 0;
    while (in->left && !in->bad) {
        uint32_t linear = osh_read_u32(in);
        double nmse = osh_read_f64(in);
        if (linear >= (uint32_t)e->plan->match.n_linears) in->bad = true;
        else results[linear].nmse = nmse;
    }
    if (!in->bad) e->tuned = t;
}

osh_status osh_tuned_end(osh_ctx *cx, osh_tuned_writer *w, const osh_tuned *t, osh_result *results)
{
    osh_status rc = OSH_OK;
    osh_emitter *e = w->e;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_file_sync(cx, w->file));
    osh_file_close(cx, w->file), w->file = NULL;
    if (t->kept) OSH_TRY(osh_rename(cx, w->temp, w->path));
    else OSH_TRY(osh_file_remove(cx, w->temp));
    OSH_TRY(osh_put_f64(cx, &b, t->before));
    OSH_TRY(osh_put_f64(cx, &b, t->after));
    OSH_TRY(osh_put_u64(cx, &b, t->n_changed));
    OSH_TRY(osh_put_u64(cx, &b, t->n_codes));
    OSH_TRY(osh_put_u64(cx, &b, t->kept ? (uint64_t)w->at : 0));
    OSH_TRY(osh_put_u64(cx, &b, t->kept ? XXH3_64bits_digest(w->state) : 0));
    if (t->kept) OSH_TRY(osh_buf_append(cx, &b, w->errors.data, w->errors.len));
    OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_TUNED, b.data, b.len));
    OSH_TRY(osh_journal_sync(cx, e->journal));
    tuned_take_record(e, &(osh_reader){(const uint8_t *)b.data, b.len, false}, results);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

void osh_tuned_free(osh_ctx *cx, osh_tuned_writer *w)
{
    if (!w) return;
    osh_file_close(cx, w->file);
    XXH3_freeState(w->state);
    osh_buf_deinit(cx, &w->errors);
    osh_free(cx, w->path);
    osh_free(cx, w->temp);
    osh_free(cx, w);
}

/* ---- copies to the shards ---- */

static void tuned_update(void *user, const void *p, size_t n) { XXH3_64bits_update(user, p, n); }

static osh_status tuned_check_file(osh_ctx *cx, const osh_emitter *e, osh_file *f)
{
    osh_status rc = OSH_OK;
    XXH3_state_t *state = XXH3_createState(); // own
    if (!state) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(state);
    bool same = osh_file_bytes(f) == e->tuned_bytes;
    if (same) OSH_TRY(osh_file_scan(cx, f, (size_t)e->tuned_bytes, 0, tuned_update, state));
    if (!same || XXH3_64bits_digest(state) != e->tuned_sum)
        OSH_FAIL(cx, OSH_E_IO, "%s differs from the written bytes: want --restart",
                 osh_file_path(f));
done:
    XXH3_freeState(state);
    return rc;
}

/* Copies a tuned tensor from the file to its shard. *at is the offset of its header in the file;
 * moves *at to the next header. */
static osh_status tuned_move_tensor(osh_ctx *cx, osh_emitter *e, osh_file *f, int64_t *at,
                                    osh_buf *record)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    uint8_t head[16];
    void *data = NULL; // own
    OSH_TRY(osh_file_pread(cx, f, head, sizeof head, *at));
    osh_reader in = {head, sizeof head, false};
    uint64_t out = osh_read_u64(&in), n = osh_read_u64(&in);
    if (out >= (uint64_t)p->manifest.n_out ||
        n != (uint64_t)(p->manifest.out[out].end - p->manifest.out[out].begin))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s holds a tensor of another run: want --restart",
                 osh_file_path(f));
    if (!(data = osh_alloc(cx, n)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", p->manifest.out[out].name);
    OSH_TRY(osh_file_pread(cx, f, data, n, *at + (int64_t)sizeof head));
    int shard = p->manifest.out_info[out].shard;
    e->dirty[shard] = true;
    OSH_TRY(osh_file_pwrite(cx, e->shards[shard], data, n, p->manifest.out[out].begin));
    e->sums[out] = XXH3_64bits(data, n), e->written[out] = true;
    OSH_TRY(osh_put_u64(cx, record, out));
    OSH_TRY(osh_put_u64(cx, record, e->sums[out]));
    *at += (int64_t)(sizeof head + n);
done:
    osh_free(cx, data);
    return rc;
}

osh_status osh_tuned_apply(osh_ctx *cx, osh_emitter *e)
{
    osh_status rc = OSH_OK;
    char *path = NULL, *temp = NULL; // own
    osh_file *f = NULL;              // own
    osh_buf b;
    osh_buf_init(&b, 0);
    if (!e->tuned.kept) goto done;
    OSH_TRY(osh_tuning_kept(cx, &((osh_plan *)e->plan)->manifest));
    if (e->applied) goto done;
    OSH_TRY(tuned_paths(cx, &path, &temp, e));
    OSH_TRY(osh_file_open(cx, &f, path));
    OSH_TRY(tuned_check_file(cx, e, f));
    for (int64_t at = 0; at < e->tuned_bytes;) OSH_TRY(tuned_move_tensor(cx, e, f, &at, &b));
    OSH_TRY(osh_emit_barrier(cx, e));
    OSH_TRY(osh_journal_append(cx, e->journal, OSH_REC_APPLIED, b.data, b.len));
    OSH_TRY(osh_journal_sync(cx, e->journal));
    e->applied = true;
done:
    if (rc) osh_note(cx, "writing the tuned tensors into the output");
    osh_file_close(cx, f);
    osh_buf_deinit(cx, &b);
    osh_free(cx, path);
    osh_free(cx, temp);
    return rc;
}

osh_status osh_tuned_take(osh_ctx *cx, osh_emitter *e, uint32_t type, osh_reader *in,
                          osh_result *results)
{
    osh_status rc = OSH_OK;
    // this run does not tune, so the record belongs to another run
    if (!e->plan->schedule.tune.steps) {
        in->bad = true;
        goto done;
    }
    if (type == OSH_REC_TUNED) {
        tuned_take_record(e, in, results);
        goto done;
    }
    while (in->left && !in->bad) {
        uint64_t out = osh_read_u64(in), sum = osh_read_u64(in);
        if (out >= (uint64_t)e->plan->manifest.n_out) in->bad = true;
        else e->sums[out] = sum, e->written[out] = true;
    }
    e->applied = !in->bad;
    if (e->applied && e->plan->in.graph)
        OSH_TRY(osh_tuning_kept(cx, &((osh_plan *)e->plan)->manifest));
done:
    return rc;
}
