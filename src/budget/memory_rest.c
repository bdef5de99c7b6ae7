/* memory_rest.c - computes the memory outside of visits. (A visit is the work on one subgraph.)
 * base_bytes is the memory of libraries and threads, and of lists and blocks that exist during the
 * whole run. The rest is the memory of work before and after visits. This work copies tensors,
 * rounds Linears that need no data (in bands of rows or as whole weights), and tunes. The program
 * does not allocate all of base_bytes itself, so the limit of its allocations is lower than the
 * budget. */
#include "budget/memory_rest.h"

#include "base/file.h"
#include "base/profile.h"
#include "budget/bands.h"
#include "budget/memory.h"
#include "budget/simulate.h"
#include "graph/counted.h"
#include "io/edges.h"
#include "learn/tune.h"
#include "match/globals.h"
#include "math/isa.h"
#include "quant/source.h"
#include "ranks/ranks.h"

/* Number of threads that read tensors: the main thread and the prefetch thread. If reads bypass the
 * page cache, each of these threads needs an aligned block. */
enum { READERS = 2 };
/* Memory of a process that computes no matrix products.
 * STILL_BYTES: bytes of the C library.
 * STILL_THREAD_BYTES: bytes of the stack and the allocator cache of one thread.
 * STILL_THREADS: number of threads in addition to those of a stream. */
enum { STILL_BYTES = 1 << 18, STILL_THREAD_BYTES = 48 << 10, STILL_THREADS = 3 };
/* Bytes of the lists of a run.
 * LISTS_BYTES: once in every run.
 * LINEAR_BYTES: for each Linear.
 * SOLVED_BYTES: in addition for each Linear that is solved with data (its loss and statistics).
 * OUT_BYTES: for each output tensor.
 * PART_BYTES: for each subgraph (its times). */
enum {
    LISTS_BYTES = 1 << 18, LINEAR_BYTES = 304, SOLVED_BYTES = 80, OUT_BYTES = 64, PART_BYTES = 640
};
/* Returns how many bytes the small allocations outside of visits take. These are allocations of the
 * emitter, the journal, the results, the report and the lists. */
static int64_t small_bytes(const osh_budget *p, int n_threads)
{
    bool passes = p->in->pipeline != OSH_PIPELINE_DATAFREE;
    int64_t n = LISTS_BYTES + (int64_t)osh_edges_bytes() + p->manifest->n_out * OUT_BYTES;
    n += (int64_t)p->match->n_linears * (LINEAR_BYTES + (passes ? SOLVED_BYTES : 0));
    if (p->schedule->parts && p->in->pipeline == OSH_PIPELINE_SEQUENTIAL)
        n += (int64_t)p->schedule->parts->n * PART_BYTES;
    n += osh_globals_bytes(p->match) +
         (osh_streams_all(p->schedule) ? 0 : osh_globals_scan_bytes(p, n_threads));
    return n + (passes ? ((int64_t)p->in->graph->n_values + p->in->graph->n_weights) * 32 : 0);
}

static int64_t still_bytes(const osh_budget *p, int n_threads)
{
    int most = p->in->opt->prefetch ? osh_stream_most(p, n_threads) : n_threads;
    return STILL_BYTES + (most + STILL_THREADS) * (int64_t)STILL_THREAD_BYTES;
}

/* If only some rows of a value count in statistics, the run copies these rows (graph/counted.h).
 * Returns the number of host bytes that the copies and their lists need. */
static int64_t counted_bytes(const osh_budget *p)
{
    const osh_schedule *s = p->schedule;
    const osh_graph *g = p->in->graph;
    size_t row = 0;
    int64_t samples = 0;
    bool mask = p->in->data.counted != NULL, original = false;
    for (int v = 0; (p->in->by_route || mask) && v < g->n_values; v++) {
        if (!(mask && s->seen[v]) && !(p->in->by_route && osh_is_by_route(g, v))) continue;
        if (osh_value_bytes(g, v) > row) row = osh_value_bytes(g, v);
        original |= g->values[v].original >= 0;
    }
    if (!row) return 0;
    for (int64_t k = 0; k < s->n_batches; k++)
        if (s->batch_at[k + 1] - s->batch_at[k] > samples)
            samples = s->batch_at[k + 1] - s->batch_at[k];
    /* the rows are in the GPU's arena, and only their lists are on the host */
    if (p->in->on_device) row = 0;
    size_t bytes = osh_counted_bytes(row, s->batch_tokens, samples, mask && original);
    // the lists of an expert (osh_expert_counted_new)
    if (p->in->on_device) bytes += osh_counted_bytes(0, 2 * s->batch_tokens, samples, false);
    return (int64_t)bytes;
}

/* An aligned block, through which a thread reads past the page cache. */
static int64_t aligned_block(void)
{
    return (int64_t)osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES);
}

/* True if all reads bypass the page cache. Each read then needs an aligned block. base_bytes
 * includes these blocks.
 * If false, reads bypass the page cache only if the source is large and is rounded without data.
 * In this case, a stream reads into its bands, without an aligned block. Whole tensors are read by
 * one thread, which needs one aligned block. round_peaks counts this block. */
static bool has_blocks(const osh_budget *p) { return p->in->opt->host_memory > 0; }

int64_t osh_base_more(const osh_budget *p) { return has_blocks(p) ? 0 : READERS * aligned_block(); }

osh_status osh_base_bytes(osh_ctx *cx, osh_budget *p)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    bool passes = p->in->pipeline != OSH_PIPELINE_DATAFREE;
    int n = osh_threads(cx);
    // loads OpenBLAS, so that base_bytes includes the memory of this library
    if (passes) OSH_TRY(osh_isa_load(cx));
    m->uncounted = passes ? osh_isa_uncounted(cx) : osh_mem_uncounted(cx) + still_bytes(p, n);
    m->uncounted += (int64_t)osh_plan_kind(p->in)->host_bytes;
    m->base_bytes = m->uncounted + (int64_t)osh_mem_used(cx, OSH_MEM_HOST) + small_bytes(p, n);
    if (has_blocks(p)) m->base_bytes += READERS * aligned_block();
    if (passes)
        m->base_bytes += counted_bytes(p) + READERS * (int64_t)osh_source_scratch(p->in->source);
    m->base_bytes += (int64_t)osh_plan_kind(p->in)->plan_bytes;
    // each of the n threads, and the prefetch thread, may compute a changed tensor
    m->base_bytes += (n + 1) * (int64_t)osh_checkpoint_rewrite_bytes(p->in->ck);
    if (osh_is_divided(p->in->opt)) m->base_bytes += OSH_RANKS_BYTES;
    if (osh_is_divided(p->in->opt) && !p->in->opt->ranks) m->base_bytes += OSH_MPI_BYTES;
    // all ranks use the largest numbers of any rank, so that their plans have equal steps
    OSH_TRY(osh_ranks_largest(cx, p->in->opt->ranks, &m->uncounted));
    OSH_TRY(osh_ranks_largest(cx, p->in->opt->ranks, &m->base_bytes));
done:
    return rc;
}

/* Linears whose weights are rounded as a whole, without data, run one after the other. Raises
 * *device and *host to the peaks of this work. ahead: true if the next weight is read while a
 * Linear is rounded. No memory is added for results that wait to be written: if memory is short,
 * rounding waits until they are written (output/emit_queue.c). */
static void round_peaks(const osh_budget *p, int threads, bool ahead, int64_t *device,
                        int64_t *host)
{
    /* before: bytes of the previous Linear (its weight, and the memory for rounding it).
     * reading: bytes for reading a weight. If `datafree` is false, this is 0, because base_bytes
     * includes these bytes. */
    int64_t before = 0;
    bool datafree = p->in->pipeline == OSH_PIPELINE_DATAFREE;
    int64_t reading = datafree ? (int64_t)osh_source_scratch(p->in->source) : 0;
    if (datafree && !has_blocks(p)) reading += aligned_block();
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
 * in memory between its two passes. Tries all bands of the largest set of Linears that share a
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

osh_status osh_memory_rest(osh_ctx *cx, osh_budget *p, const osh_peaks *b, osh_peaks *least)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    int threads = osh_threads(cx);
    // own [source tensors]: true if a visit loads the tensor, so that its copy needs no second read
    bool *seen = NULL;
    OSH_NEW(cx, seen, p->in->ck->n_tensors);
    for (int w = 0; m->ever && w < p->in->graph->n_weights; w++)
        if (m->ever[w] && p->in->graph->weights[w].tensor >= 0 && !p->in->graph->weights[w].part)
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

osh_status osh_tuning_bytes(osh_ctx *cx, osh_peaks *peak, const osh_budget *p)
{
    osh_status rc = OSH_OK;
    int64_t *n_scales = NULL; // own
    osh_tune_memory m;
    size_t most = 0;
    *peak = (osh_peaks){0};
    if (!p->schedule->tune.steps) goto done;
    OSH_NEW(cx, n_scales, p->in->graph->n_weights);
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        osh_q_shape shape;
        OSH_TRY(osh_q_scale_shape(cx, &shape, &l->scheme->weights, l->O, l->I, l->name));
        n_scales[l->weight] = shape.dim[0] * shape.dim[1];
        size_t one = osh_mem_gross((size_t)(l->O * l->I)) + (size_t)osh_memory_pack_bytes(p, l) +
                     osh_mem_gross((size_t)n_scales[l->weight] * 8) +
                     osh_mem_gross((size_t)(l->O * l->I) * osh_dtype_bytes(l->dtype));
        // `one`: bytes of the codes, packed tensors, scales and source weight of one Linear
        if (one > most) most = one;
    }
    osh_tune_model of = {p->schedule->tune_graph, p->in->ck, &p->in->data, p->in->on_device, NULL};
    OSH_TRY(osh_tune_bytes(cx, &m, &of, n_scales));
    most += m.copy;
    if (m.row > most) most = m.row;
    peak->host = (int64_t)(m.kept + most + (size_t)p->manifest->n_out * 32);
    if (p->in->on_device)
        peak->device = (int64_t)(osh_arena_gross(osh_plan_kind(p->in)->workspace) +
                                 m.device_kept + m.device_row);
done:
    osh_free(cx, n_scales);
    return rc;
}

size_t osh_memory_counted(const osh_budget *p)
{
    return (size_t)(p->memory.peak.host - p->memory.uncounted) - LISTS_BYTES;
}

void osh_memory_enforce(osh_ctx *cx, const osh_budget *p)
{
    const osh_memory *m = &p->memory;
    for (int s = 0; m->direct && s < p->in->ck->n_shards; s++)
        osh_container_read_direct(p->in->ck->shards[s]);
    if (p->in->opt->device_memory > 0 && !p->in->on_device)
        osh_mem_limit(cx, OSH_MEM_DEVICE, (size_t)p->in->opt->device_memory);
    if (p->in->opt->host_memory > 0)
        osh_mem_limit(cx, OSH_MEM_HOST, (size_t)(p->in->opt->host_memory - m->uncounted));
}
