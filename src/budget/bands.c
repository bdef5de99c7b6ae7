/* bands.c - computes the sizes of pieces in which tensors are processed. A stream (threads that
 * read, round and write tensors, output/stream.h) processes bands of rows. The check of the output
 * reads it back in chunks. */
#include "budget/bands.h"

#include "base/file.h"
#include "match/globals.h"
#include "quant/source.h"
#include "tensor/scalar.h"

/* Limits of the number of threads of a stream.
 * MOST_COMPUTING: largest number of threads that compute; more of them would wait for the disk.
 * LEAST, EACH, WAITING: a stream also has threads that wait for the disk. Their number is LEAST,
 * plus one for every EACH bytes of the output, but at most WAITING. A small output gets few such
 * threads, because the bands of many threads would need most of the memory. */
enum { MOST_COMPUTING = 8, WAITING = 14, LEAST = 2, EACH = 64 << 20 };
/* A stream keeps bands in memory between its two passes. They have at most this number of bytes. */
enum { HELD_MOST = 1 << 30 };

static size_t band_larger(size_t a, size_t b) { return a > b ? a : b; }

int osh_stream_most(const osh_budget *p, int n_threads)
{
    int64_t waiting = osh_min64(LEAST + p->manifest->total_bytes / EACH, WAITING);
    return (n_threads < MOST_COMPUTING ? n_threads : MOST_COMPUTING) + (int)waiting;
}

int osh_stream_workers(int most, int64_t n_bytes)
{
    int64_t bands = n_bytes / OSH_BAND_BYTES + 1;
    return bands < most ? (int)bands : most;
}

int64_t osh_globals_scan_bytes(const osh_budget *p, int n_threads)
{
    size_t search = 0, piece = 0;
    for (int i = 0; i < p->match->n_linears; i++) {
        size_t of_thread, one;
        if (p->match->linears[i].joint < 0 || osh_stream_looks(p->schedule, i)) continue;
        one = osh_globals_search_bytes(p->match, i, &of_thread);
        search = band_larger(search, one), piece = band_larger(piece, of_thread);
    }
    return piece ? (int64_t)(search + osh_mem_gross((size_t)n_threads * piece)) : 0;
}

size_t osh_held_slot_bytes(const osh_budget *p)
{
    osh_band_room r = {0};
    for (int i = 0; i < p->match->n_linears; i++)
        if (osh_stream_looks(p->schedule, i)) osh_band_room_linear(&r, p, i);
    return r.in ? osh_file_room(r.in) : 0;
}

int osh_held_most(const osh_budget *p)
{
    int64_t most = 0, room = (int64_t)osh_held_slot_bytes(p);
    for (int first = 0; first < p->match->n_linears; first++) {
        int64_t n = 0;
        if (p->match->linears[first].joint != first || !osh_stream_looks(p->schedule, first))
            continue;
        for (int i = first; i >= 0; i = p->match->linears[i].next.joint)
            n += osh_band_count(&p->match->linears[i]);
        if (n > most) most = n;
    }
    return most ? (int)osh_min64(most, HELD_MOST / room) : 0;
}

/* Returns the number of bytes that are read from the source a second time. A weight with a shared
 * global scale is read once for its largest magnitude, and once to round it. Bands that a stream
 * keeps in memory are read only once. Assumes that all bands of the Linears that share a scale have
 * the same size. */
int64_t osh_held_reread(const osh_budget *p)
{
    int64_t all = 0;
    for (int first = 0; first < p->match->n_linears; first++) {
        int64_t n = 0, n_bytes = 0;
        if (p->match->linears[first].joint != first) continue;
        for (int i = first; i >= 0; i = p->match->linears[i].next.joint) {
            n += osh_band_count(&p->match->linears[i]);
            n_bytes += p->match->linears[i].O * (int64_t)osh_band_row_in(&p->match->linears[i]);
        }
        int64_t held = osh_stream_looks(p->schedule, first) ? osh_min64(n, p->memory.n_held) : 0;
        if (n) all += n_bytes / n * (n - held);
    }
    return all;
}

size_t osh_band_row_out(const osh_budget *p, const osh_linear *l)
{
    const osh_entry *t = &p->manifest->out[l->out.first];
    return (size_t)((t->end - t->begin) / l->O);
}

void osh_band_room_linear(osh_band_room *r, const osh_budget *p, int linear)
{
    const osh_linear *l = &p->match->linears[linear];
    int64_t n = osh_min64(osh_band_of_linear(l), l->O);
    r->in = band_larger(r->in, (size_t)n * osh_band_row_in(l));
    r->out = band_larger(r->out, (size_t)n * osh_band_row_out(p, l));
    if (l->format->pack_rows) r->codes = band_larger(r->codes, (size_t)(n * l->I));
    r->sums = band_larger(r->sums, (size_t)(2 * n) * sizeof(double));
}

size_t osh_band_row_copy(const osh_budget *p, int64_t out, int64_t *columns)
{
    int64_t source = p->manifest->out_info[out].source,
            unit = osh_checkpoint_unit(p->in->ck, source);
    const osh_ckpt_tensor *t = &p->in->ck->tensors[source];
    bool bytes = t->shard >= 0 && !t->e->row && !osh_checkpoint_is_changed(p->in->ck, source);
    /* Rows of a stored tensor are read in pieces of `unit` elements. A virtual tensor (computed
     * when it is read) is read in whole rows, or in pieces of `unit` elements if its rows are
     * shorter. */
    *columns = t->shard < 0 && osh_ckpt_columns(t->e) > unit ? osh_ckpt_columns(t->e) : unit;
    return bytes ? 1 : (size_t)*columns * osh_dtype_bytes(t->e->dtype);
}

void osh_band_room_copy(osh_band_room *r, const osh_budget *p, int64_t out)
{
    int64_t columns;
    size_t n =
        (size_t)osh_min64(p->manifest->out[out].end - p->manifest->out[out].begin, OSH_BAND_BYTES);
    n = band_larger(n, osh_band_row_copy(p, out, &columns));
    r->in = band_larger(r->in, n);
    r->out = band_larger(r->out, n ? n : 1);
}

size_t osh_band_room_blocks(const osh_band_room *r)
{
    return osh_file_room(r->in) + osh_file_room(r->out);
}

static int64_t band_room_bytes(const osh_band_room *r, int n_workers)
{
    size_t n = 0;
    if (r->codes) n += osh_mem_gross(r->codes);
    if (r->sums) n += osh_mem_gross(r->sums);
    return (int64_t)(n_workers * n +
                     osh_mem_gross((size_t)n_workers * osh_band_room_blocks(r) + OSH_BLOCK_BYTES));
}

static int64_t held_bytes(const osh_budget *p)
{
    size_t n = (size_t)p->memory.n_held;
    if (!n) return 0;
    return (int64_t)(osh_mem_gross(n * osh_held_slot_bytes(p) + OSH_BLOCK_BYTES) +
                     osh_mem_gross(n * OSH_HELD_SLOT));
}

typedef struct band_bytes {
    /* Bytes for rounding one band of a Linear. The buffers of the thread are not counted. */
    int64_t work;
    int64_t result; // bytes of the rounded band, until it is written
    int64_t stays;  // bytes that a Linear keeps in memory until all its tensors are written
} band_bytes;

int64_t osh_stream_stays(const osh_budget *p, int linear)
{
    const osh_linear *l = &p->match->linears[linear];
    osh_tensor whole = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
    osh_linear_job job = {.scheme = l->scheme, .w = &whole, .room = &whole};
    size_t stays = osh_job_result_bytes(&job) + osh_mem_gross(OSH_BAND_ITEM_BYTES);
    for (int k = 1; k < l->out.n; k++) {
        const osh_entry *t = &p->manifest->out[l->out.first + k];
        stays += osh_mem_gross((size_t)(t->end - t->begin) + 2 * OSH_BLOCK_BYTES);
    }
    return (int64_t)stays;
}

int64_t osh_stream_copy_stays(void) { return (int64_t)osh_mem_gross(OSH_BAND_ITEM_BYTES); }

int64_t osh_stream_stays_most(int64_t largest, int n_workers)
{
    /* The result is the larger of two numbers: SMALL, and FEW times the bytes of the largest
     * Linear. But the result is at most the number of threads times the bytes of the largest
     * Linear. */
    enum { FEW = 2, SMALL = 2 << 20 };
    return osh_min64(n_workers * largest, FEW * largest > SMALL ? FEW * largest : SMALL);
}

static void band_bytes_widen(band_bytes *to, const osh_budget *p, int linear)
{
    const osh_linear *l = &p->match->linears[linear];
    const osh_modifier *m = &p->in->recipe->modifiers[l->modifier];
    double sums;
    int64_t n = osh_min64(osh_band_of_linear(l), l->O);
    osh_tensor part = osh_tensor_view(l->dtype, 2, (int64_t[]){n, l->I}, NULL);
    osh_linear_job job = {.scheme = l->scheme, .w = &part, .room = &part, .sums = &sums};
    size_t result = osh_job_result_bytes(&job),
           work = m->type->solver->needs(m, &job, 1, 1, NULL) - result;
    int64_t stays = osh_stream_stays(p, linear);
    if ((int64_t)work > to->work) to->work = (int64_t)work;
    if ((int64_t)result > to->result) to->result = (int64_t)result;
    if (stays > to->stays) to->stays = stays;
}

/* Counts scratch for at most n_threads bands, because at most n_threads threads of the stream are
 * rounding at the same time. All other threads read, or wait for the disk. */
int64_t osh_stream_bytes(const osh_budget *p, int n_workers, int n_threads, int64_t *device)
{
    osh_band_room linears = {0}, copies = {0};
    int64_t n_bytes = 0;
    band_bytes each = {0};
    bool any = false;
    for (int64_t i = 0; i < p->manifest->n_out; i++) {
        if (p->manifest->out_info[i].source < 0) continue;
        osh_band_room_copy(&copies, p, i);
        n_bytes += p->manifest->out[i].end - p->manifest->out[i].begin;
    }
    int n_copying = osh_stream_workers(n_workers, n_bytes);
    // without calibration data, one stream processes the copied tensors and the Linears
    if (p->in->pipeline == OSH_PIPELINE_DATAFREE) linears = copies;
    for (int i = 0; i < p->match->n_linears; i++) {
        if (!osh_stream_takes(p->schedule, i)) continue;
        osh_band_room_linear(&linears, p, i);
        band_bytes_widen(&each, p, i);
        any = true;
        const osh_entry *e = p->in->ck->tensors[p->match->linears[i].tensor].e;
        n_bytes += e->end - e->begin;
    }
    n_workers = osh_stream_workers(n_workers, n_bytes);
    if (p->in->pipeline == OSH_PIPELINE_DATAFREE) n_copying = n_workers;
    int n_rounding = n_workers < n_threads ? n_workers : n_threads;
    int64_t on_way = n_workers * (each.result + (int64_t)osh_mem_gross(OSH_BAND_ITEM_BYTES)) +
                     osh_stream_stays_most(each.stays, n_workers);
    *device =
        any ? held_bytes(p) + band_room_bytes(&linears, n_workers) + on_way + n_rounding * each.work
            : 0;
    int64_t other = band_room_bytes(&copies, n_copying) +
                    n_copying * (int64_t)osh_mem_gross(OSH_BAND_ITEM_BYTES);
    int most = n_workers > n_copying ? n_workers : n_copying,
        n_decoding = most < n_threads ? most : n_threads;
    return (other > *device ? other : *device) +
           n_decoding * (int64_t)osh_source_scratch(p->in->source);
}

/* ---- reading the output back ---- */

int64_t osh_check_chunk(const osh_budget *p)
{
    int64_t longest = 0;
    for (int s = 0; s < p->manifest->n_shards; s++)
        if (p->manifest->shards[s].n_bytes > longest) longest = p->manifest->shards[s].n_bytes;
    return longest < OSH_BAND_BYTES ? longest : OSH_BAND_BYTES;
}

bool osh_early_takes(const osh_budget *p, int64_t out)
{
    // Tensors with fewer than LEAST_BYTES bytes are not checked early, because one request to the
    // disk takes as long as reading LEAST_BYTES.
    enum { LEAST_BYTES = 512 << 10 };
    return p->manifest->out[out].end - p->manifest->out[out].begin >= LEAST_BYTES;
}

int64_t osh_early_count(const osh_budget *p)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->manifest->n_out; i++) n += osh_early_takes(p, i);
    return n;
}

/* Returns the number of host bytes that early checks (bands.h) need: a list of the tensors to
 * check, a flag for each output tensor, and the block of osh_file_scan. */
int64_t osh_early_bytes(const osh_budget *p)
{
    int64_t n = osh_early_count(p);
    if (!n) return 0;
    return (int64_t)(osh_mem_gross((size_t)n * sizeof(int64_t)) +
                     osh_mem_gross((size_t)p->manifest->n_out) +
                     osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES));
}

size_t osh_check_blocks(const osh_budget *p, int n_threads)
{
    n_threads = osh_stream_workers(n_threads, p->manifest->total_bytes);
    return (size_t)n_threads * osh_file_room((size_t)osh_check_chunk(p)) + OSH_BLOCK_BYTES;
}
