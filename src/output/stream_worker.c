/* stream_worker.c - runs the worker threads of a stream.
 *
 *   worker:  take a band | read | compute (on all threads of the program) | join | write
 *       or:  take a band to search (held.h) | read | search for the largest magnitude
 *
 * "join" adds the band to the checksum of its tensor. The workers join in the order of the bands:
 * each waits for its turn (turns.h). Tensors are written in whole blocks of the file system, except
 * at both ends. So the bytes of a band after its last whole block are written with the next
 * band. */
#include "output/stream_impl.h"

#include <string.h>

#include "base/profile.h"
#include "output/share.h"

typedef struct band {
    osh_item *it;
    int64_t ticket, first, n; // the band is rows [first, first + n) of the tensor
    size_t n_out;             // number of bytes of the band in the output
    const uint8_t *from;      // view: bytes that are added to the checksum of the output tensor
    const uint8_t *in;        // view: bytes that are added to the checksum of the source tensor
    osh_qparams params;       // own
    int slot; // index of the slot (held.h) that has the rows in memory; -1: the rows must be read
    uint8_t *held;            // view: rows of the band in its slot
} band;

/* Returns the index of the Linear from which bands will be taken next. Returns -1 if a tensor still
 * has bands to take, or if the next tensor in `ids` belongs to no Linear. */
static int stream_next_linear(const osh_stream *s)
{
    const osh_plan *p = s->e->plan;
    return s->now || p->manifest.out_info[s->ids[s->next]].source >= 0
               ? -1
               : p->manifest.out_info[s->ids[s->next]].linear;
}

static bool stream_is_empty(const osh_stream *s)
{
    return s->failed || (!s->now && s->next == s->n);
}

static bool stream_has_room(const osh_stream *s, int linear)
{
    if (s->now || !s->stays) return true;
    int64_t more =
        linear < 0 ? osh_stream_copy_stays() : osh_stream_stays(&s->e->plan->budget, linear);
    return s->stays + more <= s->stays_most;
}

/* Waits until a worker can do something. Returns true and sets *look if a band must be searched for
 * its largest magnitude. Returns false if a band can be rounded or copied, or if no band is left.
 * The caller holds the lock. */
static bool stream_wait_for_work(osh_ctx *cx, osh_stream *s, osh_held_band *look, osh_status *rc)
{
    while (!stream_is_empty(s) && !(*rc = osh_check_interrupt(cx))) {
        int linear = stream_next_linear(s);
        bool known = linear < 0 || osh_held_knows(s->held, linear);
        if (osh_held_take(s->held, look, known ? -1 : linear)) return true;
        if (known && stream_has_room(s, linear)) break;
        pthread_cond_wait(&s->may_take, &s->lock);
    }
    return false;
}

/* Gets the next band for a worker. If the band must be searched for its largest magnitude, returns
 * true and sets *look. If not, returns false and sets *b to a band to round or copy. b->it is NULL
 * if no band is left. */
static bool stream_take(osh_ctx *cx, osh_stream *s, band *b, osh_held_band *look,
                        osh_status *status)
{
    osh_status rc = OSH_OK;
    *b = (band){.slot = -1};
    pthread_mutex_lock(&s->lock);
    bool looks = stream_wait_for_work(cx, s, look, &rc);
    b->ticket = s->turns.next;
    if (looks || rc || stream_is_empty(s)) goto done;
    if (!s->now) {
        OSH_TRY(osh_item_new(cx, &s->now, s->e, s->ids[s->next++]));
        s->stays += s->now->stays;
    }
    b->it = s->now, b->first = s->now->taken, b->n = s->now->n_rows - b->first;
    if (b->n > s->now->band) b->n = s->now->band;
    b->n_out = (size_t)b->n * b->it->row_out;
    if (b->it->linear >= 0) b->held = osh_held_find(s->held, b->it->linear, b->first, &b->slot);
    s->turns.next++;
    if ((s->now->taken += b->n) == s->now->n_rows)
        s->now = NULL; // all bands are taken, so the workers with these bands own the tensor now
done:
    if (rc) s->turns.next++;
    pthread_mutex_unlock(&s->lock);
    *status = rc;
    return looks;
}

/* ---- bands ---- */

static const osh_ckpt_tensor *item_source(const osh_plan *p, const osh_item *it)
{
    return &p->in.ck->tensors[it->linear >= 0 ? p->match.linears[it->linear].tensor
                                           : p->manifest.out_info[it->out].source];
}

typedef struct source_part { // consecutive rows of a source tensor
    const osh_ckpt_tensor *t; // view
    int64_t first;            // offset of the rows in the data of the tensor, in bytes
    /* n: number of bytes of the rows.
     * element: size of an element; the address of the rows in memory must be a multiple of this
     * size. */
    size_t n, element;
} source_part;

static source_part band_source_part(const osh_plan *p, const band *b)
{
    const osh_item *it = b->it;
    size_t element = it->linear < 0 ? 1 : osh_dtype_bytes(p->match.linears[it->linear].dtype);
    return (source_part){item_source(p, it), b->first * (int64_t)it->row_in,
                         (size_t)b->n * it->row_in, element};
}

static osh_status worker_open(osh_ctx *cx, osh_stream_worker *w, const osh_container *shard)
{
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    osh_status rc = osh_container_reopen(cx, &w->source, shard);
    osh_mem_use(cx, old);
    return rc;
}

/* Reads the rows that r describes into the memory `room`. Sets *from to the address of these rows.
 * If the tensor is stored, reads whole blocks of its file, so `room` also contains bytes before and
 * after the rows. */
static osh_status worker_read_part(osh_ctx *cx, osh_stream_worker *w, const source_part *r,
                                   uint8_t *room, uint8_t **from)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = w->s->e->plan;
    const osh_ckpt_tensor *t = r->t;
    size_t lead = (size_t)((t->e->begin + r->first) % OSH_BLOCK_BYTES);
    osh_scope scope = osh_profile_time(cx, "read", NULL);
    if (t->shard < 0) {
        *from = room;
        OSH_TRY(osh_checkpoint_read_part(cx, room, p->in.ck, t, r->first, r->n));
        goto done;
    }
    if (w->source && w->shard != t->shard) osh_file_close(cx, w->source), w->source = NULL;
    w->shard = t->shard;
    if (!w->source) OSH_TRY(worker_open(cx, w, p->in.ck->shards[t->shard]));
    OSH_TRY(osh_container_read_blocks(cx, room, w->source, t->e, r->first, r->n));
    *from = room + lead;
    if (lead % r->element)
        /* The header of the file has an odd length, so the elements would not be aligned. */
        *from = memmove(room, *from, r->n);
done:
    osh_profile_end(cx, scope);
    return rc;
}

static osh_status band_round(osh_ctx *cx, osh_stream_worker *w, band *b, uint8_t *from, uint8_t *to)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = w->s->e->plan;
    const osh_linear *l = &p->match.linears[b->it->linear];
    const osh_modifier *m = &p->in.recipe->modifiers[l->modifier];
    osh_tensor part = osh_tensor_view(l->dtype, 2, (int64_t[]){b->n, l->I}, from);
    osh_linear_job job = {.name = l->name, .scheme = l->scheme, .w = &part, .sums = w->sums,
                          /* the checksum of the source is computed from w later, so w must not
                           * change */
                          .keep_w = true,
                          .room = l->format->pack_rows ? w->codes : to};
    job.params.global = b->it->params.global;
    rc = m->type->solver->compress(cx, m, &job, 1, NULL, 0);
    if (rc == OSH_E_NUMERIC) {
        int64_t bad = osh_find_nonfinite(from, l->dtype, b->n * l->I);
        if (bad < 0) goto done;
        osh_error_clear(cx);
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s holds a value that is not finite at row %ld, column %ld",
                 p->in.ck->tensors[l->tensor].e->name, (long)(b->first + bad / l->I),
                 (long)(bad % l->I));
    }
    if (rc) goto done;
    if (l->format->pack_rows) l->format->pack_rows(to, l->scheme, l->I, w->codes, b->n);
    b->params = job.params, job.params = (osh_qparams){0}; // give
done:
    osh_linear_job_deinit(cx, &job);
    return rc;
}

/* Waits until fewer than osh_threads workers compute. A worker that waits for the disk does not
 * compute. */
static void stream_begin_work(osh_stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->computing == s->n_computing) pthread_cond_wait(&s->may_compute, &s->lock);
    s->computing++;
    pthread_mutex_unlock(&s->lock);
}

static void stream_end_work(osh_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->computing--;
    pthread_cond_signal(&s->may_compute);
    pthread_mutex_unlock(&s->lock);
}

/* Reads rows and calls stream_begin_work. Calls it even if the read fails. Rows that must be
 * decoded are read after stream_begin_work, because decoding is computation. Other rows are read
 * before it. */
static osh_status worker_read_and_begin(osh_ctx *cx, osh_stream_worker *w, const source_part *r,
                                        uint8_t *room, uint8_t **from)
{
    bool decoded = r->t->shard < 0;
    osh_status rc = decoded ? OSH_OK : worker_read_part(cx, w, r, room, from);
    stream_begin_work(w->s);
    return decoded ? worker_read_part(cx, w, r, room, from) : rc;
}

/* Computes the output of a band: rounds, copies or changes its rows. The caller has called
 * stream_begin_work. */
static osh_status band_compute(osh_ctx *cx, osh_stream_worker *w, band *b, uint8_t *from,
                               uint8_t *to)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = w->s->e->plan;
    if (b->it->linear >= 0) {
        osh_scope scope = osh_profile_time(cx, "round", NULL);
        rc = band_round(cx, w, b, from, to);
        osh_profile_end(cx, scope);
    } else {
        memcpy(to, from, b->n_out);
        if (b->it->source)
            rc = osh_checkpoint_apply(cx, p->in.ck, p->manifest.out_info[b->it->out].source, to,
                                      b->first * b->it->columns, b->n * b->it->columns);
    }
    b->from = to, b->in = from;
    return rc;
}

static void tensor_put_rows(osh_tensor *to, const osh_tensor *from, int64_t first_row)
{
    if (!to) return;
    size_t row = (size_t)to->shape[1] * osh_dtype_bytes(to->dtype);
    memcpy((uint8_t *)to->data + (size_t)first_row * row, from->data, osh_tensor_bytes(from));
}

/* Adds a band to the checksums, errors and scales of its tensor. Sets *from to the bytes to write,
 * *n to their number, and *at to their offset in the file. All earlier bands must already be
 * added. */
static void band_join(const osh_stream_worker *w, band *b, const uint8_t **from, size_t *n,
                      int64_t *at)
{
    osh_item *it = b->it;
    const osh_plan *p = w->s->e->plan;
    XXH3_64bits_update(it->sum, b->from, b->n_out);
    for (int64_t r = 0; it->linear >= 0 && r < b->n; r++)
        it->err += w->sums[2 * r], it->ref += w->sums[2 * r + 1];
    if (it->source) XXH3_64bits_update(it->source, b->in, (size_t)b->n * it->row_in);
    if (it->linear >= 0) {
        int64_t row = b->first / osh_band_unit(&p->match.linears[it->linear]);
        tensor_put_rows(it->params.scale, b->params.scale, row);
        tensor_put_rows(it->params.zero, b->params.zero, row);
    }
    *at = p->manifest.out[it->out].begin + b->first * (int64_t)it->row_out - (int64_t)it->n_tail;
    *n = b->n_out + it->n_tail;
    *from = memcpy((uint8_t *)b->from - it->n_tail, it->tail, it->n_tail);
    size_t keep = (size_t)((*at + (int64_t)*n) % OSH_BLOCK_BYTES);
    it->n_tail = b->first + b->n == it->n_rows ? 0 : keep < *n ? keep : *n;
    *n -= it->n_tail;
    memcpy(it->tail, *from + *n, it->n_tail);
}

void osh_stream_fail(osh_stream *s, const osh_stream_worker *w, int64_t ticket, osh_status rc)
{
    if (s->failed && s->failed_ticket < ticket) return;
    s->rc = rc, s->failed = w, s->failed_ticket = ticket;
    pthread_cond_broadcast(&s->may_take);
}

/* Waits until all earlier bands are added to their tensors. Then adds this band to its tensor
 * (band_join), and wakes the worker of the next band. Must also be called for a band that failed,
 * because later bands wait for it. */
static void band_take_turn(osh_stream_worker *w, band *b, osh_status *rc, const uint8_t **from,
                           size_t *n, int64_t *at)
{
    osh_stream *s = w->s;
    pthread_mutex_lock(&s->lock);
    osh_turns_wait(&s->turns, &s->lock, b->ticket);
    if (*rc) osh_stream_fail(s, w, b->ticket, *rc);
    bool go = !s->failed;
    pthread_mutex_unlock(&s->lock);
    if (go) band_join(w, b, from, n, at);
    pthread_mutex_lock(&s->lock);
    osh_turns_pass(&s->turns);
    pthread_mutex_unlock(&s->lock);
}

static void band_give_back(osh_stream *s, const band *b)
{
    if (b->slot < 0) return;
    pthread_mutex_lock(&s->lock);
    osh_held_give_back(s->held, b->slot);
    pthread_cond_broadcast(&s->may_take);
    pthread_mutex_unlock(&s->lock);
}

static void worker_do_look(osh_stream_worker *w, const osh_held_band *b)
{
    osh_status rc = OSH_OK;
    osh_stream *s = w->s;
    osh_ctx *cx = w->thread.cx;
    const osh_linear *l = &s->e->plan->match.linears[b->linear];
    size_t row = osh_band_row_in(l);
    source_part r = {&s->e->plan->in.ck->tensors[l->tensor], b->first * (int64_t)row,
                     (size_t)b->n * row, osh_dtype_bytes(l->dtype)};
    uint8_t *room = b->slot < 0 ? w->in : osh_held_room(s->held, b->slot), *from = NULL;
    float amax = 0;
    if (!(rc = worker_read_and_begin(cx, w, &r, room, &from))) {
        osh_tensor rows = osh_tensor_view(l->dtype, 2, (int64_t[]){b->n, l->I}, from);
        rc = osh_q_weight_amax(cx, &amax, &rows, &l->scheme->weights, r.t->e->name);
    }
    stream_end_work(s);
    pthread_mutex_lock(&s->lock);
    if (rc) osh_stream_fail(s, w, s->turns.next, rc);
    else osh_held_saw(s->held, b, amax, from);
    pthread_cond_broadcast(&s->may_take);
    pthread_mutex_unlock(&s->lock);
}

static void worker_do_band(osh_stream_worker *w, band *b)
{
    osh_status rc = OSH_OK;
    osh_stream *s = w->s;
    osh_ctx *cx = w->thread.cx;
    osh_item *it = b->it;
    const uint8_t *from = NULL;
    uint8_t *in = b->held;
    size_t n = 0;
    int64_t at = 0;
    uint8_t *to =
        w->out + (s->e->plan->manifest.out[it->out].begin + b->first * (int64_t)it->row_out) %
                     OSH_BLOCK_BYTES;
    source_part r = band_source_part(s->e->plan, b);
    if (in) stream_begin_work(s);
    else rc = worker_read_and_begin(cx, w, &r, w->in, &in);
    if (!rc) rc = band_compute(cx, w, b, in, to);
    stream_end_work(s);
    band_take_turn(w, b, &rc, &from, &n, &at);
    band_give_back(s, b);
    osh_qparams_deinit(cx, &b->params);
    if (!rc && n) {
        osh_scope scope = osh_profile_time(cx, "write", NULL);
        rc = osh_emit_piece(cx, s->e, it->out, from, n, at);
        osh_profile_end(cx, scope);
    }
    pthread_mutex_lock(&s->lock);
    if (rc) osh_stream_fail(s, w, b->ticket, rc);
    bool last = !--it->left, go = !s->failed;
    pthread_mutex_unlock(&s->lock);
    if (!last) return;
    if (go) rc = osh_item_finish(cx, s->e, it);
    pthread_mutex_lock(&s->lock);
    if (rc) osh_stream_fail(s, w, b->ticket, rc);
    if (s->last) s->last->next = it;
    else s->first = it;
    s->last = it;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void *osh_stream_work(void *user)
{
    osh_stream_worker *w = user;
    osh_stream *s = w->s;
    for (;;) {
        band b;
        osh_held_band look;
        osh_status rc;
        if (stream_take(w->thread.cx, s, &b, &look, &rc)) {
            worker_do_look(w, &look);
            continue;
        }
        if (rc) band_take_turn(w, &b, &rc, &(const uint8_t *){0}, &(size_t){0}, &(int64_t){0});
        if (!b.it) break;
        worker_do_band(w, &b);
    }
    pthread_mutex_lock(&s->lock);
    s->n_running--;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
