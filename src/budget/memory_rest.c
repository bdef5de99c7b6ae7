/* memory_rest.c - computes the memory for work outside of visits. This work copies tensors, and
 * rounds Linears without data, in bands of rows or as whole weights. */
#include "base/file.h"
#include "budget/bands.h"
#include "budget/base_bytes.h"
#include "budget/memory_rest.h"
#include "budget/simulate_solve.h"
#include "quant/source.h"

/* Raises *device and *host to the peaks of rounding whole weights without data, one Linear after
 * the other. ahead: true if the next weight is read while a Linear is rounded. No memory is added
 * for results that wait to be written: if memory is short, rounding waits until they are written
 * (output/emit_queue.c). */
static void round_peaks(const osh_budget *p, int threads, bool ahead, int64_t *device,
                        int64_t *host)
{
    /* before: bytes of the previous Linear (its weight, and the memory for rounding it).
     * reading: bytes for reading a weight. If `datafree` is false, this is 0, because base_bytes
     * includes these bytes. */
    int64_t before = 0;
    bool datafree = p->in->pipeline == OSH_PIPELINE_DATAFREE;
    int64_t reading = datafree ? (int64_t)osh_source_scratch(p->in->source) : 0;
    if (datafree && !osh_base_has_blocks(p))
        reading += (int64_t)osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES);
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        if ((p->in->pipeline != OSH_PIPELINE_DATAFREE && !osh_wants_no_data(l)) ||
            osh_stream_takes(p->schedule, i))
            continue;
        const osh_entry *e = p->in->ck->tensors[l->tensor].e;
        osh_tensor w = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
        osh_linear_job job = {.name = l->name, .scheme = l->scheme, .w = &w};
        int64_t weight = (int64_t)osh_tensor_gross((size_t)(e->end - e->begin));
        int64_t now = weight + osh_memory_compress_bytes(p, &job, 1, l, threads, NULL);
        if (ahead) max_into(device, before + weight), max_into(host, before + weight + reading);
        max_into(device, now), max_into(host, now), max_into(host, weight + reading);
        max_into(host, (int64_t)osh_job_result_bytes(&job) + osh_memory_pack_bytes(p, l));
        before = now;
    }
}

static void memory_count_io(const osh_budget *p, osh_memory *m, bool *seen)
{
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_entry *e = p->in->ck->tensors[p->match->linears[i].tensor].e;
        bool datafree =
            p->in->pipeline == OSH_PIPELINE_DATAFREE || osh_wants_no_data(&p->match->linears[i]);
        if (datafree) m->read_bytes += e->end - e->begin;
    }
    for (int64_t i = 0; i < p->manifest->n_out; i++) {
        m->write_bytes += p->manifest->out[i].end - p->manifest->out[i].begin;
        int64_t from = p->manifest->out_info[i].source;
        if (from < 0) continue;
        if (!seen[from]) m->read_bytes += p->manifest->out[i].end - p->manifest->out[i].begin;
        // if the output has the tensor twice, the source is read again for the second copy
        seen[from] = false;
    }
    for (int s = 0; s < p->manifest->n_shards; s++)
        m->write_bytes += (int64_t)p->manifest->shards[s].header_bytes;
    m->read_bytes += osh_held_reread(p);
    m->reread_bytes = p->manifest->total_bytes;
}

static void stream_peaks(const osh_budget *p, int n_workers, int n_threads, osh_peaks *b)
{
    int64_t device, host = osh_stream_bytes(p, n_workers, n_threads, &device);
    max_into(&b->device, device), max_into(&b->host, host);
    max_into(&b->host, (int64_t)osh_mem_gross(osh_check_blocks(p, n_workers)));
    if (osh_streams_all(p->schedule)) max_into(&b->host, osh_globals_scan_bytes(p, n_threads));
}

/* If a stream of p->memory.n_stream threads fits in the budget b, sets *more to its peaks and
 * returns true. Otherwise returns false. */
static bool stream_fits(const osh_budget *p, int threads, const osh_peaks *b, osh_peaks *more)
{
    osh_peaks all = {0};
    stream_peaks(p, p->memory.n_stream, threads, &all);
    if (p->in->on_device) all.device = 0; // a stream rounds on the host, so it needs no GPU memory
    bool fits = peaks_fit(&all, b);
    if (fits) *more = all;
    return fits;
}

/* Chooses the number of threads of a stream. Then chooses the number of bands that the stream keeps
 * in memory between its two passes. It tries all bands of the largest set of Linears that share a
 * global scale, and then fewer, in steps of 1/16. */
static void stream_choose(osh_budget *p, int threads, const osh_peaks *b, osh_peaks *more)
{
    osh_memory *m = &p->memory;
    bool prefetch = p->in->opt->prefetch;
    m->n_stream = prefetch ? osh_stream_most(p, threads) : 1;
    while (m->n_stream > 1 && !stream_fits(p, threads, b, more)) m->n_stream--;
    int most = prefetch ? osh_held_most(p) : 0, step = most / 16 + 1;
    m->n_held = most;
    while (m->n_held > 0 && !stream_fits(p, threads, b, more)) m->n_held -= step;
    if (m->n_held < 0) m->n_held = 0;
}

osh_status osh_memory_rest(osh_ctx *cx, osh_budget *p, const bool *ever, const osh_peaks *b,
                           osh_peaks *least)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    int threads = osh_threads(cx);
    // own [source tensors]: true if a visit loads the tensor, so that its copy needs no second read
    bool *seen = NULL;
    OSH_NEW(cx, seen, p->in->ck->n_tensors);
    for (int w = 0; ever && w < p->in->graph->n_weights; w++)
        if (ever[w] && p->in->graph->weights[w].tensor >= 0 && !p->in->graph->weights[w].part)
            seen[p->in->graph->weights[w].tensor] = true;
    *least = (osh_peaks){0};
    m->n_held = 0;
    stream_peaks(p, 1, threads, least);
    osh_peaks more = *least;
    stream_choose(p, threads, b, &more);
    osh_peaks now = more;
    round_peaks(p, threads, false, &least->device, &least->host);
    round_peaks(p, threads, false, &now.device, &now.host);
    round_peaks(p, threads, true, &more.device, &more.host);
    if (p->in->on_device) least->device = now.device = more.device = 0;
    m->read_ahead = p->in->opt->prefetch && peaks_fit(&more, b);
    m->peak = m->read_ahead ? more : now;
    memory_count_io(p, m, seen);
done:
    osh_free(cx, seen);
    return rc;
}

int64_t osh_memory_kept(const osh_budget *p, osh_tier tier)
{
    // with a GPU, all values are copied to the activation store
    if (p->in->on_device || tier == OSH_TIER_HOST) return 0;
    return tier == OSH_TIER_DEVICE ? p->schedule->n_batches : p->memory.n_kept;
}
