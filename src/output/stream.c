/* stream.c - see stream.h.
 *
 *   worker:  take a band | read | compute (as many at a time as the program has threads) | its turn | write
 *
 * In its turn, which comes in the order of the bands, a band is added to its tensor's checksum and gives the bytes
 * behind its last whole block to the next band: all but the ends of a tensor is written in whole blocks. */
#include "output/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/profile.h"
#include "base/thread.h"
#include "output/emit_impl.h"
#include "output/turns.h"

typedef struct item { // a tensor on its way
    struct item *next;
    int linear;           // -1: a copy
    int64_t out;          // its bytes are those of this output tensor
    int64_t n_rows, band; // rows of a band
    size_t row_in, row_out;
    int64_t columns;      // of a copy that is changed or made: elements of a row
    int64_t taken, left;  // rows; bands that are not done
    XXH3_state_t *sum;    // own
    XXH3_state_t *source; // own: of a Linear, and of a copy that is changed: of what was read
    double err, ref;      // of a Linear: |w - dq|^2, |w|^2
    osh_qparams params;   // own: of a Linear
    size_t n_tail;        // bytes that the band before left
    uint8_t tail[OSH_BLOCK_BYTES];
} item;

_Static_assert(sizeof(item) <= OSH_BAND_ITEM_BYTES, "the plan counts an item with OSH_BAND_ITEM_BYTES");

typedef struct stream stream;
typedef struct worker {
    stream *s;   // view
    osh_ctx *cx; // own
    pthread_t thread;
    bool running;
    osh_file *source;   // own: a shard, open
    int64_t shard;      // which one
    uint8_t *in, *out;  // view: of the stream's blocks
    void *codes;        // own
    double *sums;       // own
} worker;

struct stream {
    osh_emitter *e;     // view
    osh_mem_class class; // of its memory
    const int64_t *ids; // view [n]: output tensors; of Linears the first one
    int64_t n, next;    // next: of ids
    pthread_mutex_t lock;
    pthread_cond_t may_compute, changed;
    item *now;             // own until its last band is taken: whose bands are being taken
    item *first, *last;    // own: done
    osh_turns turns;       // of bands
    int computing, n_computing, n_running;
    osh_status rc;         // of the failed band with the lowest ticket
    int64_t failed_ticket;
    const worker *failed;  // NULL: none
    void *blocks;          // own: of all workers in one piece, which the system may map by pages of 2 MiB: a disk's
                           // request then names few of them, which makes reads 2.4 times as fast on a virtual disk
    worker *workers;       // own
    int n_workers;
};

typedef struct band {
    item *it;
    int64_t ticket, first, n; // rows
    size_t n_out;             // bytes
    const uint8_t *from;      // what goes to the checksum
    const uint8_t *in;        // and to that of the source
    osh_qparams params;       // own
} band;

/* ---- items ---- */

static void item_free(osh_ctx *cx, item *it)
{
    if (!it) return;
    XXH3_freeState(it->sum);
    XXH3_freeState(it->source);
    osh_qparams_deinit(cx, &it->params);
    osh_free(cx, it);
}

static osh_status new_params(osh_ctx *cx, osh_qparams *q, const osh_linear *l, float global)
{
    osh_status rc = OSH_OK;
    osh_q_shape shape;
    OSH_TRY(osh_q_scale_shape(cx, &shape, &l->scheme->weights, l->O, l->I, l->name));
    q->global = global;
    OSH_TRY(osh_tensor_new(cx, &q->scale, global ? OSH_FP8 : l->dtype, shape.ndim, shape.dim));
    if (!l->scheme->weights.symmetric) OSH_TRY(osh_tensor_new(cx, &q->zero, OSH_I8, shape.ndim, shape.dim));
done:
    return rc;
}

static osh_status item_new(osh_ctx *cx, item **out, const stream *s, int64_t id)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = s->e->plan;
    item *it = NULL; // own
    OSH_NEW(cx, it, 1);
    it->linear = p->out_info[id].source >= 0 ? -1 : p->out_info[id].linear, it->out = id;
    if (!(it->sum = XXH3_createState())) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(it->sum);
    if (it->linear >= 0) {
        const osh_linear *l = &p->linears[it->linear];
        if (!(it->source = XXH3_createState())) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
        XXH3_64bits_reset(it->source);
        it->n_rows = l->O;
        it->row_in = osh_band_row_in(l), it->row_out = osh_band_row_out(p, l);
        it->band = osh_band_rows(l->O, it->row_in, osh_band_unit(l));
        OSH_TRY(new_params(cx, &it->params, l, osh_globals_of(s->e->globals, it->linear)));
    } else {
        bool changed = osh_checkpoint_is_changed(p->ck, p->out_info[id].source);
        if (changed && !(it->source = XXH3_createState())) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a checksum");
        if (changed) XXH3_64bits_reset(it->source);
        it->row_in = it->row_out = osh_band_row_copy(p, id, &it->columns);
        it->n_rows = (p->out[id].end - p->out[id].begin) / (int64_t)it->row_in;
        it->band = osh_band_rows(it->n_rows, it->row_in, 1);
    }
    it->left = it->n_rows ? (it->n_rows + it->band - 1) / it->band : 1; // an empty tensor is one empty band
    *out = it, it = NULL; // give
done:
    item_free(cx, it);
    return rc;
}

/* The next band, *b without an item: none. */
static osh_status take(osh_ctx *cx, stream *s, band *b)
{
    osh_status rc = OSH_OK;
    *b = (band){0};
    pthread_mutex_lock(&s->lock);
    if (s->failed || (!s->now && s->next == s->n)) goto done;
    b->ticket = s->turns.next;
    OSH_TRY(osh_check_interrupt(cx));
    if (!s->now) OSH_TRY(item_new(cx, &s->now, s, s->ids[s->next++]));
    b->it = s->now, b->first = s->now->taken, b->n = s->now->n_rows - b->first;
        if (b->n > s->now->band) b->n = s->now->band;
    b->n_out = (size_t)b->n * b->it->row_out;
    s->turns.next++;
    if ((s->now->taken += b->n) == s->now->n_rows) s->now = NULL; // give: to those who have its bands
done:
    if (rc) s->turns.next++;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* ---- one band ---- */

static const osh_ckpt_tensor *source_of(const osh_plan *p, const item *it)
{
    return &p->ck->tensors[it->linear >= 0 ? p->linears[it->linear].tensor : p->out_info[it->out].source];
}

static osh_status read_band(osh_ctx *cx, worker *w, const band *b, uint8_t **from)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = w->s->e->plan;
    const item *it = b->it;
    const osh_ckpt_tensor *t = source_of(p, it);
    int64_t first = b->first * (int64_t)it->row_in;
    size_t lead = (size_t)((t->e->begin + first) % OSH_BLOCK_BYTES), n = (size_t)b->n * it->row_in;
    osh_scope scope = osh_profile_time(cx, "read", NULL);
    if (t->shard < 0) {
        *from = w->in;
        OSH_TRY(osh_checkpoint_read_part(cx, w->in, p->ck, t, first, n));
        goto done;
    }
    if (w->source && w->shard != t->shard) osh_file_close(cx, w->source), w->source = NULL;
    w->shard = t->shard;
    if (!w->source) OSH_TRY(osh_st_reopen(cx, &w->source, p->ck->shards[t->shard]));
    OSH_TRY(osh_st_read_blocks(cx, w->in, w->source, t->e, first, n));
    *from = w->in + lead;
    if (it->linear < 0 || !(lead % osh_dtype_bytes(p->linears[it->linear].dtype))) goto done;
    *from = memmove(w->in, *from, n); // the file's header has an odd length
done:
    osh_profile_end(cx, scope);
    return rc;
}

static osh_status round_band(osh_ctx *cx, worker *w, band *b, uint8_t *from, uint8_t *to)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = w->s->e->plan;
    const osh_linear *l = &p->linears[b->it->linear];
    const osh_modifier *m = &p->recipe->modifiers[l->modifier];
    osh_tensor part = osh_tensor_view(l->dtype, 2, (int64_t[]){b->n, l->I}, from);
    osh_linear_job job = {.name = l->name, .scheme = l->scheme, .w = &part, .sums = w->sums,
                          .keep_w = true, // the source's checksum is made of it behind this
                          .room = l->format->pack_rows ? w->codes : to};
    job.params.global = b->it->params.global;
    rc = m->type->compress(cx, m, &job, 1, NULL, 0);
    if (rc == OSH_E_NUMERIC) {
        int64_t bad = osh_find_nonfinite(from, l->dtype, b->n * l->I);
        if (bad < 0) goto done;
        osh_error_clear(cx);
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s holds a value that is not finite at row %ld, column %ld",
                 p->ck->tensors[l->tensor].e->name, (long)(b->first + bad / l->I), (long)(bad % l->I));
    }
    if (rc) goto done;
    if (l->format->pack_rows) l->format->pack_rows(to, l->scheme, l->I, w->codes, b->n);
    b->params = job.params, job.params = (osh_qparams){0}; // give
done:
    osh_linear_job_deinit(cx, &job);
    return rc;
}

/* At most so many threads work on bands as the program has: the others wait for the disk. from NULL: it is decoded. */
static osh_status compute(osh_ctx *cx, worker *w, band *b, uint8_t *from, uint8_t *to)
{
    osh_status rc = OSH_OK;
    stream *s = w->s;
    const osh_plan *p = s->e->plan;
    pthread_mutex_lock(&s->lock);
    while (s->computing == s->n_computing) pthread_cond_wait(&s->may_compute, &s->lock);
    s->computing++;
    pthread_mutex_unlock(&s->lock);
    if (!from && (rc = read_band(cx, w, b, &from))) goto done;
    if (b->it->linear >= 0) {
        osh_scope scope = osh_profile_time(cx, "round", NULL);
        rc = round_band(cx, w, b, from, to);
        osh_profile_end(cx, scope);
    } else {
        memcpy(to, from, b->n_out);
        if (b->it->source)
            rc = osh_checkpoint_apply(cx, p->ck, p->out_info[b->it->out].source, to, b->first * b->it->columns,
                                      b->n * b->it->columns);
    }
    b->from = to, b->in = from;
done:
    pthread_mutex_lock(&s->lock);
    s->computing--;
    pthread_cond_signal(&s->may_compute);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void put_rows(osh_tensor *to, const osh_tensor *from, int64_t first_row)
{
    if (!to) return;
    size_t row = (size_t)to->shape[1] * osh_dtype_bytes(to->dtype);
    memcpy((uint8_t *)to->data + (size_t)first_row * row, from->data, osh_tensor_bytes(from));
}

/* With the turn. *from, *n, *at: what is to be written, where. */
static void join(const worker *w, band *b, const uint8_t **from, size_t *n, int64_t *at)
{
    item *it = b->it;
    const osh_plan *p = w->s->e->plan;
    XXH3_64bits_update(it->sum, b->from, b->n_out);
    for (int64_t r = 0; it->linear >= 0 && r < b->n; r++) it->err += w->sums[2 * r], it->ref += w->sums[2 * r + 1];
    if (it->source) XXH3_64bits_update(it->source, b->in, (size_t)b->n * it->row_in);
    if (it->linear >= 0) {
        int64_t row = b->first / osh_band_unit(&p->linears[it->linear]);
        put_rows(it->params.scale, b->params.scale, row);
        put_rows(it->params.zero, b->params.zero, row);
    }
    *at = p->out[it->out].begin + b->first * (int64_t)it->row_out - (int64_t)it->n_tail;
    *n = b->n_out + it->n_tail;
    *from = memcpy((uint8_t *)b->from - it->n_tail, it->tail, it->n_tail);
    size_t keep = (size_t)((*at + (int64_t)*n) % OSH_BLOCK_BYTES);
    it->n_tail = b->first + b->n == it->n_rows ? 0 : keep < *n ? keep : *n;
    *n -= it->n_tail;
    memcpy(it->tail, *from + *n, it->n_tail);
}

/* All but tensor 0 of a Linear, whose bands are written. */
static osh_status finish_linear(osh_ctx *cx, stream *s, item *it)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = s->e->plan;
    const osh_linear *l = &p->linears[it->linear];
    void *blocks[OSH_FORMAT_MAX_TENSORS] = {0}; // own
    void *packed[OSH_FORMAT_MAX_TENSORS] = {0};
    uint64_t sums[OSH_FORMAT_MAX_TENSORS] = {XXH3_64bits_digest(it->sum)};
    osh_format_weight weight = osh_linear_stored(l);
    for (int k = 1; k < l->n_out; k++) {
        const osh_st_entry *t = &p->out[l->first_out + k];
        if (!(blocks[k] = osh_alloc(cx, (size_t)(t->end - t->begin) + 2 * OSH_BLOCK_BYTES)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory to pack %s", l->name);
        packed[k] = (uint8_t *)osh_file_align(blocks[k]) + t->begin % OSH_BLOCK_BYTES;
    }
    OSH_TRY(l->format->pack(cx, packed, &weight, NULL, &it->params, NULL));
    for (int k = 1; k < l->n_out; k++) {
        const osh_st_entry *t = &p->out[l->first_out + k];
        OSH_TRY(osh_emit_piece(cx, s->e, l->first_out + k, packed[k], (size_t)(t->end - t->begin), t->begin));
        sums[k] = XXH3_64bits(packed[k], (size_t)(t->end - t->begin));
    }
    OSH_TRY(osh_checkpoint_saw(cx, p->ck, l->tensor, XXH3_64bits_digest(it->source)));
    OSH_TRY(osh_emit_written_linear(cx, s->e, it->linear, it->ref > 0 ? it->err / it->ref : 0, sums));
done:
    for (int k = 1; k < l->n_out; k++) osh_free(cx, blocks[k]);
    return rc;
}

static osh_status finish(osh_ctx *cx, stream *s, item *it)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = s->e->plan;
    uint64_t sum = XXH3_64bits_digest(it->sum);
    if (it->linear >= 0) return finish_linear(cx, s, it);
    OSH_TRY(osh_checkpoint_saw(cx, p->ck, p->out_info[it->out].source,
                               it->source ? XXH3_64bits_digest(it->source) : sum)); // else not a bit is changed
    OSH_TRY(osh_emit_written_copy(cx, s->e, it->out, sum));
done:
    return rc;
}

/* With the lock. */
static void fail(stream *s, const worker *w, int64_t ticket, osh_status rc)
{
    if (s->failed && s->failed_ticket < ticket) return;
    s->rc = rc, s->failed = w, s->failed_ticket = ticket;
}

/* Waits for the turn also where the band has failed: others wait behind it. */
static void take_turn(worker *w, band *b, osh_status *rc, const uint8_t **from, size_t *n, int64_t *at)
{
    stream *s = w->s;
    pthread_mutex_lock(&s->lock);
    osh_turns_wait(&s->turns, &s->lock, b->ticket);
    if (*rc) fail(s, w, b->ticket, *rc);
    bool go = !s->failed;
    pthread_mutex_unlock(&s->lock);
    if (go) join(w, b, from, n, at);
    pthread_mutex_lock(&s->lock);
    osh_turns_pass(&s->turns);
    pthread_mutex_unlock(&s->lock);
}

static void do_band(worker *w, band *b)
{
    osh_status rc = OSH_OK;
    stream *s = w->s;
    osh_ctx *cx = w->cx;
    item *it = b->it;
    const uint8_t *from = NULL;
    uint8_t *in = NULL;
    size_t n = 0;
    int64_t at = 0;
    uint8_t *to = w->out + (s->e->plan->out[it->out].begin + b->first * (int64_t)it->row_out) % OSH_BLOCK_BYTES;
    if (source_of(s->e->plan, it)->shard >= 0) rc = read_band(cx, w, b, &in); // else it is decoded: that is work
    if (!rc) rc = compute(cx, w, b, in, to);
    take_turn(w, b, &rc, &from, &n, &at);
    osh_qparams_deinit(cx, &b->params);
    if (!rc && n) {
        osh_scope scope = osh_profile_time(cx, "write", NULL);
        rc = osh_emit_piece(cx, s->e, it->out, from, n, at);
        osh_profile_end(cx, scope);
    }
    pthread_mutex_lock(&s->lock);
    if (rc) fail(s, w, b->ticket, rc);
    bool last = !--it->left, go = !s->failed;
    pthread_mutex_unlock(&s->lock);
    if (!last) return;
    if (go) rc = finish(cx, s, it);
    pthread_mutex_lock(&s->lock);
    if (rc) fail(s, w, b->ticket, rc);
    if (s->last) s->last->next = it;
    else s->first = it;
    s->last = it;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void *work(void *user)
{
    worker *w = user;
    stream *s = w->s;
    for (;;) {
        band b;
        osh_status rc = take(w->cx, s, &b);
        if (rc) take_turn(w, &b, &rc, &(const uint8_t *){0}, &(size_t){0}, &(int64_t){0});
        if (!b.it) break;
        do_band(w, &b);
    }
    pthread_mutex_lock(&s->lock);
    s->n_running--;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the stream ---- */

static osh_status worker_open(osh_ctx *cx, worker *w, const osh_band_room *r)
{
    osh_status rc = OSH_OK;
    if (r->codes) w->codes = osh_alloc(cx, r->codes);
    if (r->sums) w->sums = osh_alloc(cx, r->sums);
    if ((r->codes && !w->codes) || (r->sums && !w->sums)) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for bands of tensors");
    w->in = (uint8_t *)osh_file_align(w->s->blocks) + (size_t)w->s->n_workers * osh_band_room_blocks(r);
    w->out = w->in + osh_file_room(r->in);
    OSH_TRY(osh_ctx_fork(&w->cx, cx));
    osh_ctx_alone(w->cx);
    osh_mem_use(w->cx, w->s->class);
    w->s->n_running++; // before it runs
    if ((w->running = osh_thread_start(&w->thread, work, w))) goto done;
    w->s->n_running--;
    rc = osh_fail(cx, OSH_E_NOMEM, "cannot start a thread for bands of tensors");
done:
    return rc;
}

static void worker_close(osh_ctx *cx, worker *w)
{
    if (w->running) pthread_join(w->thread, NULL);
    if (w->source) osh_file_close(w->cx, w->source);
    if (w->cx) osh_ctx_free(w->cx);
    osh_free(cx, w->codes);
    osh_free(cx, w->sums);
}

/* Hands on what is done until no worker runs. */
static osh_status follow(osh_ctx *cx, stream *s, const osh_stream_job *job)
{
    osh_status rc = OSH_OK;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!s->first && s->n_running) pthread_cond_wait(&s->changed, &s->lock);
        item *it = s->first; // own
        if (it && !(s->first = it->next)) s->last = NULL;
        bool ok = !s->failed;
        pthread_mutex_unlock(&s->lock);
        if (!it) break;
        if (ok && job->finished && it->linear >= 0)
            rc = job->finished(cx, job->user, it->linear, it->ref > 0 ? it->err / it->ref : 0);
        item_free(cx, it);
        if (!rc || !ok) continue;
        pthread_mutex_lock(&s->lock);
        fail(s, s->workers, -1, rc);
        pthread_mutex_unlock(&s->lock);
    }
    return rc;
}

static int most_workers(const stream *s)
{
    const osh_plan *p = s->e->plan;
    int64_t n_bytes = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const osh_out_tensor *o = &p->out_info[s->ids[i]];
        const osh_st_entry *e = p->ck->tensors[o->source >= 0 ? o->source : p->linears[o->linear].tensor].e;
        n_bytes += e->end - e->begin;
    }
    return osh_stream_workers(p->memory.n_stream, n_bytes);
}

static osh_status run(osh_ctx *cx, stream *s, const osh_band_room *r, const osh_stream_job *job)
{
    osh_status rc = OSH_OK;
    int most = most_workers(s);
    if (!s->n) return OSH_OK;
    s->n_computing = osh_threads(cx);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->may_compute, NULL);
    pthread_cond_init(&s->changed, NULL);
    OSH_NEW(cx, s->workers, most);
    osh_mem_class old = osh_mem_use(cx, s->class);
    s->blocks = osh_alloc(cx, (size_t)most * osh_band_room_blocks(r) + OSH_BLOCK_BYTES);
    if (!s->blocks) rc = OSH_E_NOMEM;
    pthread_mutex_lock(&s->lock); // none begins before all are there
    for (; s->n_workers < most && !rc; s->n_workers++) {
        s->workers[s->n_workers].s = s;
        rc = worker_open(cx, &s->workers[s->n_workers], r);
    }
    if (rc) s->failed = s->workers, s->failed_ticket = -1;
    pthread_mutex_unlock(&s->lock);
    osh_mem_use(cx, old);
    osh_status followed = follow(cx, s, job);
    if (rc || (rc = followed)) goto done;
    if (s->failed) OSH_FAIL(cx, s->rc, "%s", osh_error_text(s->failed->cx));
    OSH_TRY(osh_edges_flush(cx, s->e->edges)); // others may read what was written
done:
    for (int i = 0; i < s->n_workers; i++) worker_close(cx, &s->workers[i]);
    item_free(cx, s->now);
    osh_free(cx, s->blocks);
    osh_free(cx, s->workers);
    pthread_cond_destroy(&s->changed);
    pthread_cond_destroy(&s->may_compute);
    pthread_mutex_destroy(&s->lock);
    return rc;
}

static int64_t add_copies(const osh_emitter *e, const bool *which, int64_t *ids, int64_t n, osh_band_room *r)
{
    const osh_plan *p = e->plan;
    for (int64_t i = 0; i < p->n_out; i++) {
        if (p->out_info[i].source < 0 || e->taken[i] || (which && !which[i])) continue;
        e->taken[i] = true;
        osh_band_room_copy(r, p, i);
        ids[n++] = i;
    }
    return n;
}

/* A file is sorted by dtype, then by name: by name its sections are written side by side, with few open ends. */
static int by_name(const void *x, const void *y, void *plan)
{
    const osh_plan *p = plan;
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    int s = p->out_info[a].shard, t = p->out_info[b].shard;
    return s != t ? (s > t) - (s < t) : strcmp(p->out[a].name, p->out[b].name);
}

osh_status osh_stream_linears(osh_ctx *cx, osh_emitter *e, const osh_stream_job *job)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->plan;
    int n = job->n;
    stream s = {.e = e, .class = OSH_MEM_DEVICE, .n = n};
    int64_t *ids = NULL; // own
    osh_band_room r = {0};
    OSH_NEW(cx, ids, n + (job->copies ? p->n_out : 0));
    for (int i = 0; i < n; i++) {
        osh_band_room_linear(&r, p, job->linears[i]);
        ids[i] = p->linears[job->linears[i]].first_out;
    }
    OSH_TRY(osh_globals_find(cx, e->globals, job->linears, n));
    if (job->copies) s.n = add_copies(e, NULL, ids, n, &r);
    qsort_r(ids, (size_t)s.n, sizeof *ids, by_name, (void *)p);
    s.ids = ids;
    OSH_TRY(run(cx, &s, &r, job));
done:
    osh_free(cx, ids);
    return rc;
}

osh_status osh_stream_copies(osh_ctx *cx, osh_emitter *e, const bool *which)
{
    osh_status rc = OSH_OK;
    stream s = {.e = e, .class = OSH_MEM_HOST};
    int64_t *ids = NULL; // own
    osh_band_room r = {0};
    OSH_NEW(cx, ids, e->plan->n_out);
    s.n = add_copies(e, which, ids, 0, &r), s.ids = ids;
    OSH_TRY(run(cx, &s, &r, &(osh_stream_job){.finished = NULL}));
done:
    osh_free(cx, ids);
    return rc;
}
