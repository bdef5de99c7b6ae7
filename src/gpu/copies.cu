/* copies.cu - copies between the host and a GPU.
 *
 *   host memory ──memcpy──► ring of pinned pieces ─► compute stream   put
 *                           another ring          ─► copy stream      put_ahead
 *   page-locked host memory ───────────────────────► copy stream      put_ahead, large copies
 *   a file ──pread──► a piece of either ring ──────► its stream       osh_gpu_put_file
 *   page-locked blocks of values ──────────────────► stream of the lane IN        move
 *                                ◄────────────────── stream of the lane OUT       move
 *
 * Names at the right are functions. `put` copies in order with the work of the compute stream, and
 * `put_ahead` copies during this work. A large put_ahead of page-locked memory uses no ring, and
 * waits until the copy is complete. A lane is a stream for copies of values (tensor/device.h).
 * Several small copies share a piece of a ring. The time of small copies is not measured; the GPU's
 * clock measures all other copies.
 *
 * A copy counts as hidden if the compute stream had work when the copy was queued. The hidden time
 * of a move begins with the move. It ends when the compute stream begins to wait for the move, or
 * when the move is complete. */
#include "gpu/state.h"

enum { TIMED_BYTES = 256 << 10, ALIGN = 256, DIRECT_BYTES = 16 << 20 };

/* ---- the ring ---- */
osh_status osh_gpu_ring_init(osh_ctx *cx, osh_gpu_ring *r)
{
    osh_status rc = OSH_OK;
    OSH_CUDA(cx,
             cudaHostAlloc(&r->room, (size_t)OSH_GPU_PIECES * OSH_GPU_PIECE, cudaHostAllocDefault));
    for (int i = 0; i < OSH_GPU_PIECES; i++)
        OSH_CUDA(cx, cudaEventCreateWithFlags(&r->free[i], cudaEventDisableTiming));
    for (int i = 0; i < OSH_GPU_TIMED; i++) {
        OSH_CUDA(cx, cudaEventCreateWithFlags(&r->timed[i].begin, cudaEventDefault));
        OSH_CUDA(cx, cudaEventCreateWithFlags(&r->timed[i].end, cudaEventDefault));
    }
done:
    return rc;
}

void osh_gpu_ring_deinit(osh_gpu_ring *r)
{
    for (int i = 0; i < OSH_GPU_TIMED; i++) {
        if (r->timed[i].begin) cudaEventDestroy(r->timed[i].begin);
        if (r->timed[i].end) cudaEventDestroy(r->timed[i].end);
    }
    for (int i = 0; i < OSH_GPU_PIECES; i++)
        if (r->free[i]) cudaEventDestroy(r->free[i]);
    if (r->room) cudaFreeHost(r->room);
    pthread_mutex_destroy(&r->lock);
}

/* Reserves n <= OSH_GPU_PIECE bytes in a piece (staging buffer) of the ring, and sets *out to the
 * address of these bytes. Waits until a piece is free. */
static osh_status ring_take(osh_ctx *cx, osh_gpu_ring *r, char **out, size_t n)
{
    osh_status rc = OSH_OK;
    if (r->used + n > OSH_GPU_PIECE) {
        int next = (r->piece + 1) % OSH_GPU_PIECES;
        OSH_CUDA(cx, cudaEventSynchronize(r->free[next]));
        r->piece = next, r->used = 0;
    }
    *out = r->room + (size_t)r->piece * OSH_GPU_PIECE + r->used;
    r->used += (n + ALIGN - 1) / ALIGN * ALIGN;
done:
    return rc;
}

/* ---- time ---- */
/* Waits for a timed copy of a ring, and adds the time of the copy to the counters. */
static osh_status copy_harvest(osh_ctx *cx, osh_gpu *c, osh_gpu_copy *t)
{
    osh_status rc = OSH_OK;
    float ms = 0;
    if (!t->pending) return OSH_OK;
    t->pending = false;
    OSH_CUDA(cx, cudaEventSynchronize(t->end));
    OSH_CUDA(cx, cudaEventElapsedTime(&ms, t->begin, t->end));
    pthread_mutex_lock(&c->d->lock);
    if (t->ahead) c->d->count.ahead_s += 1e-3 * ms;
    else if (t->from_gpu) c->d->count.get_s += 1e-3 * ms;
    else c->d->count.put_s += 1e-3 * ms;
    if (t->hidden) c->d->count.hidden_s += 1e-3 * ms;
    pthread_mutex_unlock(&c->d->lock);
done:
    return rc;
}

/* True if the compute stream has unfinished work. */
static bool compute_is_busy(const osh_gpu *c)
{
    bool yes = cudaStreamQuery(c->compute) == cudaErrorNotReady;
    // clears cudaErrorNotReady, which only means that the stream has work
    if (yes) (void)cudaGetLastError();
    return yes;
}

typedef struct copying {
    void *to;
    const void *from;
    size_t n;
    cudaMemcpyKind kind;
    bool hidden; // true if the compute stream had work when the copy was queued
} copying;

/* Queues one copy on the stream of the ring and adds the bytes to the counters. A copy of
 * TIMED_BYTES or more is timed. */
static osh_status copy_timed(osh_ctx *cx, osh_gpu *c, osh_gpu_ring *r, const copying &x)
{
    osh_status rc = OSH_OK;
    bool ahead = r == &c->ahead;
    cudaStream_t s = ahead ? c->copy : c->compute;
    // record of the copy; view of an element of r->timed; NULL: the copy is not timed
    osh_gpu_copy *t = NULL;

    pthread_mutex_lock(&c->d->lock);
    (ahead                              ? c->d->count.ahead_bytes
     : x.kind == cudaMemcpyDeviceToHost ? c->d->count.get_bytes
                                        : c->d->count.put_bytes) += (int64_t)x.n;
    pthread_mutex_unlock(&c->d->lock);
    if (x.n >= TIMED_BYTES) {
        t = &r->timed[r->n_timed++ % OSH_GPU_TIMED];
        OSH_TRY(copy_harvest(cx, c, t));
        t->ahead = ahead, t->from_gpu = x.kind == cudaMemcpyDeviceToHost, t->hidden = x.hidden;
        OSH_CUDA(cx, cudaEventRecord(t->begin, s));
    }
    OSH_CUDA(cx, cudaMemcpyAsync(x.to, x.from, x.n, x.kind, s));
    if (t) {
        OSH_CUDA(cx, cudaEventRecord(t->end, s));
        t->pending = true;
    }
done:
    return rc;
}

/* Waits for a timed copy of a lane and adds the time of the copy to the counters. */
static osh_status move_harvest(osh_ctx *cx, osh_gpu *c, osh_lane lane, osh_gpu_move *m)
{
    osh_status rc = OSH_OK;
    float ms = 0, waited = 0;
    if (!m->pending) return OSH_OK;
    m->pending = false;
    OSH_CUDA(cx, cudaEventSynchronize(m->end));
    OSH_CUDA(cx, cudaEventElapsedTime(&ms, m->begin, m->end));
    if (m->is_wanted) {
        OSH_CUDA(cx, cudaEventSynchronize(m->wanted));
        // `waited` is negative if the copy ended before the compute stream began to wait for it.
        OSH_CUDA(cx, cudaEventElapsedTime(&waited, m->wanted, m->end));
        waited = waited < 0 ? 0 : waited > ms ? ms : waited;
    }
    pthread_mutex_lock(&c->d->lock);
    (lane == OSH_LANE_IN ? c->d->count.ahead_s : c->d->count.get_s) += 1e-3 * ms;
    (lane == OSH_LANE_IN ? c->d->count.hidden_s : c->d->count.get_hidden_s) += 1e-3 * (ms - waited);
    pthread_mutex_unlock(&c->d->lock);
done:
    return rc;
}

static osh_status gpu_count(osh_ctx *cx, osh_device *d, osh_device_counters *out)
{
    osh_status rc = OSH_OK;
    osh_gpu *c = osh_gpu_of(d);
    osh_gpu_ring *rings[2] = {&c->ring, &c->ahead};

    for (int k = 0; k < 2; k++) {
        pthread_mutex_lock(&rings[k]->lock);
        for (int i = 0; i < OSH_GPU_TIMED && !rc; i++)
            rc = copy_harvest(cx, c, &rings[k]->timed[i]);
        pthread_mutex_unlock(&rings[k]->lock);
    }
    for (int k = 0; k < OSH_N_LANES; k++)
        for (int i = 0; i < OSH_GPU_MOVES && !rc; i++)
            rc = move_harvest(cx, c, (osh_lane)k, &c->lane[k].timed[i]);
    pthread_mutex_lock(&c->d->lock);
    *out = c->d->count;
    pthread_mutex_unlock(&c->d->lock);
    return rc;
}

/* ---- functions of osh_device_type ---- */
static size_t piece_bytes(size_t n) { return n < OSH_GPU_PIECE ? n : (size_t)OSH_GPU_PIECE; }

/* Copies host memory to the GPU through the pieces (staging buffers) of a ring. The caller holds
 * the lock of the ring. */
static osh_status put_pieces(osh_ctx *cx, osh_gpu *c, osh_gpu_ring *r, char *to, const char *from,
                             size_t n_bytes)
{
    osh_status rc = OSH_OK;
    bool ahead = r == &c->ahead;
    char *room = NULL; // staging buffer; view of a piece of r
    for (size_t at = 0, n; at < n_bytes; at += n) {
        n = piece_bytes(n_bytes - at);
        OSH_TRY(ring_take(cx, r, &room, n));
        memcpy(room, from + at, n);
        OSH_TRY(copy_timed(
            cx, c, r, {to + at, room, n, cudaMemcpyHostToDevice, ahead && compute_is_busy(c)}));
        OSH_CUDA(cx, cudaEventRecord(r->free[r->piece], ahead ? c->copy : c->compute));
    }
done:
    return rc;
}

/* Reads the bytes of f in whole blocks into the pieces (staging buffers) of a ring and copies the
 * bytes to the GPU. If the file is open for direct reads, the reads bypass the page cache. The
 * caller holds the lock of the ring. */
static osh_status put_file_pieces(osh_ctx *cx, osh_gpu *c, osh_gpu_ring *r, const osh_gpu_read *f)
{
    osh_status rc = OSH_OK;
    const size_t most = OSH_GPU_PIECE - 2 * OSH_BLOCK_BYTES;
    char *room = NULL; // staging buffer; view of a piece of r
    for (size_t at = 0, n; at < f->n_bytes; at += n) {
        int64_t from = f->at + (int64_t)at;
        n = f->n_bytes - at < most ? f->n_bytes - at : most;
        // a whole piece is reserved, because direct reads need a page-aligned address
        OSH_TRY(ring_take(cx, r, &room, OSH_GPU_PIECE));
        OSH_TRY(osh_file_read_blocks(cx, f->f, room, n, from));
        OSH_TRY(copy_timed(cx, c, r,
                           {f->to + at, room + from % OSH_BLOCK_BYTES, n, cudaMemcpyHostToDevice,
                            f->ahead && compute_is_busy(c)}));
        OSH_CUDA(cx, cudaEventRecord(r->free[r->piece], f->ahead ? c->copy : c->compute));
    }
done:
    return rc;
}

/* Makes the copy stream wait for all work that is queued so far on the compute stream. The caller
 * holds the lock of the ring c->ahead. */
static osh_status copies_follow(osh_ctx *cx, osh_gpu *c)
{
    osh_status rc = OSH_OK;
    OSH_CUDA(cx, cudaEventRecord(c->asked, c->compute));
    OSH_CUDA(cx, cudaStreamWaitEvent(c->copy, c->asked, 0));
done:
    return rc;
}

osh_status osh_gpu_follow(osh_ctx *cx, osh_gpu *c)
{
    pthread_mutex_lock(&c->ahead.lock);
    osh_status rc = copies_follow(cx, c);
    pthread_mutex_unlock(&c->ahead.lock);
    return rc;
}

osh_status osh_gpu_put_file(osh_ctx *cx, osh_gpu *c, const osh_gpu_read *f)
{
    osh_gpu_ring *r = f->ahead ? &c->ahead : &c->ring;
    pthread_mutex_lock(&r->lock);
    osh_status rc = f->ahead ? copies_follow(cx, c) : OSH_OK;
    if (!rc) rc = put_file_pieces(cx, c, r, f);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static osh_status gpu_put(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes)
{
    osh_gpu *c = osh_gpu_of(d);
    cudaSetDevice(c->ordinal);
    pthread_mutex_lock(&c->ring.lock);
    osh_status rc = put_pieces(cx, c, &c->ring, (char *)to, (const char *)from, n_bytes);
    pthread_mutex_unlock(&c->ring.lock);
    return rc;
}

/* True if [p, p + n_bytes) is page-locked memory from osh_device_type.pinned. */
static bool is_pinned(osh_gpu *c, const void *p, size_t n_bytes)
{
    const char *at = (const char *)p;
    bool yes = false;
    pthread_mutex_lock(&c->d->lock);
    for (const osh_gpu_pinned *b = c->pinned; b && !yes; b = b->next)
        yes = at >= b->data && at + n_bytes <= b->data + b->n_bytes;
    pthread_mutex_unlock(&c->d->lock);
    return yes;
}

/* Copies page-locked memory to the GPU without a ring, and waits for the copy. */
static osh_status put_direct(osh_ctx *cx, osh_gpu *c, char *to, const char *from, size_t n_bytes,
                             bool hidden)
{
    osh_status rc = OSH_OK;
    for (size_t at = 0, n; at < n_bytes; at += n, hidden = compute_is_busy(c)) {
        n = n_bytes - at < DIRECT_BYTES ? n_bytes - at : (size_t)DIRECT_BYTES;
        OSH_TRY(
            copy_timed(cx, c, &c->ahead, {to + at, from + at, n, cudaMemcpyHostToDevice, hidden}));
    }
    OSH_CUDA(cx, cudaStreamSynchronize(c->copy));
done:
    return rc;
}

static osh_status put_ahead_locked(osh_ctx *cx, osh_gpu *c, char *to, const char *from,
                                   size_t n_bytes)
{
    osh_status rc = OSH_OK;
    bool hidden = compute_is_busy(c);
    if (n_bytes >= TIMED_BYTES && is_pinned(c, from, n_bytes))
        OSH_TRY(put_direct(cx, c, to, from, n_bytes, hidden));
    else OSH_TRY(put_pieces(cx, c, &c->ahead, to, from, n_bytes));
done:
    return rc;
}

static osh_status gpu_put_ahead(osh_ctx *cx, osh_device *d, void *to, const void *from,
                                size_t n_bytes)
{
    osh_gpu *c = osh_gpu_of(d);
    cudaSetDevice(c->ordinal);
    pthread_mutex_lock(&c->ahead.lock);
    osh_status rc = put_ahead_locked(cx, c, (char *)to, (const char *)from, n_bytes);
    pthread_mutex_unlock(&c->ahead.lock);
    return rc;
}

static osh_status gpu_follow(osh_ctx *cx, osh_device *d)
{
    osh_gpu *c = osh_gpu_of(d);
    cudaSetDevice(c->ordinal);
    return osh_gpu_follow(cx, c);
}

static osh_status gpu_fence(osh_ctx *cx, osh_device *d)
{
    osh_status rc = OSH_OK;
    osh_gpu *c = osh_gpu_of(d);
    cudaSetDevice(c->ordinal);
    pthread_mutex_lock(&c->ahead.lock);
    OSH_CUDA(cx, cudaEventRecord(c->copied, c->copy));
    OSH_CUDA(cx, cudaStreamWaitEvent(c->compute, c->copied, 0));
done:
    pthread_mutex_unlock(&c->ahead.lock);
    return rc;
}

/* Copies GPU memory to the host through two staging buffers. The GPU fills one buffer while the
 * host copies from the other. */
static osh_status get_pieces(osh_ctx *cx, osh_gpu *c, char *to, const char *from, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_gpu_ring *r = &c->ring;
    struct { char *room; int piece; } under_way[2] = {};
    // asked: number of bytes whose copy is queued. have: number of bytes that are copied.
    size_t asked = 0, have = 0;
    int n_asked = 0, n_have = 0;

    while (have < n_bytes) {
        if (asked < n_bytes && n_asked - n_have < 2) {
            size_t n = piece_bytes(n_bytes - asked);
            OSH_TRY(ring_take(cx, r, &under_way[n_asked % 2].room, n));
            OSH_TRY(copy_timed(
                cx, c, r,
                {under_way[n_asked % 2].room, from + asked, n, cudaMemcpyDeviceToHost, false}));
            OSH_CUDA(cx, cudaEventRecord(r->free[r->piece], c->compute));
            under_way[n_asked % 2].piece = r->piece;
            asked += n, n_asked++;
        } else {
            size_t n = piece_bytes(n_bytes - have);
            OSH_CUDA(cx, cudaEventSynchronize(r->free[under_way[n_have % 2].piece]));
            memcpy(to + have, under_way[n_have % 2].room, n);
            have += n, n_have++;
        }
    }
done:
    return rc;
}

/* Copies GPU memory to page-locked host memory, and waits for the copy. */
static osh_status get_direct(osh_ctx *cx, osh_gpu *c, void *to, const void *from, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    OSH_TRY(copy_timed(cx, c, &c->ring, {to, from, n_bytes, cudaMemcpyDeviceToHost, false}));
    OSH_CUDA(cx, cudaStreamSynchronize(c->compute));
done:
    return rc;
}

static osh_status gpu_get(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes)
{
    osh_gpu *c = osh_gpu_of(d);
    cudaSetDevice(c->ordinal);
    pthread_mutex_lock(&c->ring.lock);
    osh_status rc = is_pinned(c, to, n_bytes)
                        ? get_direct(cx, c, to, from, n_bytes)
                        : get_pieces(cx, c, (char *)to, (const char *)from, n_bytes);
    pthread_mutex_unlock(&c->ring.lock);
    return rc;
}

static osh_status gpu_copy(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    OSH_CUDA(cx, cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToDevice, osh_cuda_stream(d)));
done:
    return rc;
}

static osh_status gpu_fill(osh_ctx *cx, osh_device *d, void *to, int byte, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    OSH_CUDA(cx, cudaMemsetAsync(to, byte, n_bytes, osh_cuda_stream(d)));
done:
    return rc;
}

static osh_status gpu_sync(osh_ctx *cx, osh_device *d)
{
    osh_status rc = OSH_OK;
    OSH_CUDA(cx, cudaStreamSynchronize(osh_cuda_stream(d)));
    OSH_CUDA(cx, cudaStreamSynchronize(osh_gpu_of(d)->copy));
    OSH_TRY(osh_cuda_check(cx, osh_gpu_lanes_wait(osh_gpu_of(d)), "cudaStreamSynchronize"));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* ---- lanes ---- */
osh_status osh_gpu_lanes_init(osh_ctx *cx, osh_gpu *c)
{
    osh_status rc = OSH_OK;
    for (int k = 0; k < OSH_N_LANES; k++) {
        osh_gpu_lane *l = &c->lane[k];
        OSH_CUDA(cx, cudaEventCreateWithFlags(&c->lane_end[k], cudaEventDisableTiming));
        if (k == OSH_LANE_WORK) continue;
        OSH_CUDA(cx, cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking));
        for (int i = 0; i < OSH_GPU_MOVES; i++) {
            OSH_CUDA(cx, cudaEventCreateWithFlags(&l->timed[i].begin, cudaEventDefault));
            OSH_CUDA(cx, cudaEventCreateWithFlags(&l->timed[i].end, cudaEventDefault));
            OSH_CUDA(cx, cudaEventCreateWithFlags(&l->timed[i].wanted, cudaEventDefault));
        }
    }
done:
    return rc;
}

void osh_gpu_lanes_deinit(osh_gpu *c)
{
    for (int k = 0; k < OSH_N_LANES; k++) {
        osh_gpu_lane *l = &c->lane[k];
        for (int i = 0; i < OSH_GPU_MOVES; i++) {
            if (l->timed[i].begin) cudaEventDestroy(l->timed[i].begin);
            if (l->timed[i].end) cudaEventDestroy(l->timed[i].end);
            if (l->timed[i].wanted) cudaEventDestroy(l->timed[i].wanted);
        }
        if (c->lane_end[k]) cudaEventDestroy(c->lane_end[k]);
        if (l->stream) cudaStreamDestroy(l->stream);
    }
}

cudaError_t osh_gpu_lanes_wait(const osh_gpu *c)
{
    cudaError_t first = cudaSuccess;
    for (int k = 0; k < OSH_N_LANES; k++) {
        cudaError_t e = c->lane[k].stream ? cudaStreamSynchronize(c->lane[k].stream) : cudaSuccess;
        if (!first) first = e;
    }
    return first;
}

static cudaStream_t lane_stream(const osh_gpu *c, osh_lane lane)
{
    return lane == OSH_LANE_WORK ? c->compute : c->lane[lane].stream;
}

static osh_status gpu_move(osh_ctx *cx, osh_device *d, osh_lane lane, void *to, const void *from,
                           size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_gpu *c = osh_gpu_of(d);
    osh_gpu_lane *l = &c->lane[lane];
    // record of the copy; view of an element of l->timed; NULL: the copy is not timed
    osh_gpu_move *m = n_bytes >= TIMED_BYTES ? &l->timed[l->n_timed++ % OSH_GPU_MOVES] : NULL;

    cudaSetDevice(c->ordinal);
    if (m) {
        OSH_TRY(move_harvest(cx, c, lane, m));
        m->is_wanted = false;
        OSH_CUDA(cx, cudaEventRecord(m->begin, l->stream));
    }
    OSH_CUDA(cx, cudaMemcpyAsync(to, from, n_bytes, lane == OSH_LANE_IN ? cudaMemcpyHostToDevice :
                                 cudaMemcpyDeviceToHost, l->stream));
    if (m) OSH_CUDA(cx, cudaEventRecord(m->end, l->stream));
    if (m) m->pending = true;
    pthread_mutex_lock(&c->d->lock);
    (lane == OSH_LANE_IN ? c->d->count.ahead_bytes : c->d->count.get_bytes) += (int64_t)n_bytes;
    pthread_mutex_unlock(&c->d->lock);
done:
    return rc;
}

static osh_status gpu_order(osh_ctx *cx, osh_device *d, osh_lane later, osh_lane earlier)
{
    osh_status rc = OSH_OK;
    osh_gpu *c = osh_gpu_of(d);
    cudaSetDevice(c->ordinal);
    for (int i = 0; later == OSH_LANE_WORK && i < OSH_GPU_MOVES; i++) {
        osh_gpu_move *m = &c->lane[earlier].timed[i];
        if (!m->pending || m->is_wanted) continue;
        OSH_CUDA(cx, cudaEventRecord(m->wanted, c->compute));
        m->is_wanted = true;
    }
    OSH_CUDA(cx, cudaEventRecord(c->lane_end[earlier], lane_stream(c, earlier)));
    OSH_CUDA(cx, cudaStreamWaitEvent(lane_stream(c, later), c->lane_end[earlier], 0));
done:
    return rc;
}

/* ---- memory outside the arena ---- */
static void *gpu_take(osh_device *d, size_t n_bytes)
{
    void *p = NULL;
    (void)osh_cuda_stream(d); // makes the GPU current in this thread
    cudaError_t e = cudaMalloc(&p, n_bytes ? n_bytes : 1);
    if (e == cudaSuccess) return p;
    // clears an out-of-memory error, because the caller reports it; the next check reports any
    // other error
    if (e == cudaErrorMemoryAllocation) (void)cudaGetLastError();
    return NULL;
}

static void gpu_give(osh_device *d, void *p)
{
    // errors are ignored here, because an earlier call has reported them
    cudaStreamSynchronize(osh_cuda_stream(d));
    cudaFree(p);
}

extern const osh_device_type osh_cuda_type = {
    "cuda",           OSH_CUDA,             osh_gpu_present,   osh_gpu_open,
    osh_gpu_close,    osh_gpu_free_bytes,   osh_gpu_driver_bytes, osh_gpu_number,
    osh_gpu_identify, gpu_put,              gpu_get,           gpu_copy,
    gpu_fill,         gpu_put_ahead,        gpu_follow,        gpu_fence,
    gpu_move,         gpu_order,            gpu_sync,          gpu_take,
    gpu_give,         gpu_count,            osh_gpu_mark_new,  osh_gpu_mark_between,
    osh_gpu_mark_free, &osh_gpu_pinned_type, &osh_gpu_files};
