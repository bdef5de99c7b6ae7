/* base_bytes.c - computes the host memory of the process outside of visits. (A visit is the work on
 * one subgraph.) This is the memory of libraries and threads, and of lists and blocks that exist
 * during the whole run. */
#include "budget/base_bytes.h"

#include "base/file.h"
#include "base/profile.h"
#include "budget/bands.h"
#include "graph/counted.h"
#include "io/edges.h"
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
/* Returns the number of bytes of small allocations outside of visits: of the emitter, the journal,
 * the results, the report and the lists. */
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

/* Returns the number of host bytes of copied rows. If only some rows of a value count in
 * statistics, the run copies these rows (graph/counted.h). */
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
    /* the rows are in the GPU's arena, and only their offsets are on the host */
    if (p->in->on_device) row = 0;
    return (int64_t)osh_counted_bytes(row, s->batch_tokens, samples, mask && original);
}

int64_t osh_base_blocks(void)
{
    return READERS * (int64_t)osh_mem_gross(OSH_DIRECT_BYTES + OSH_BLOCK_BYTES);
}

bool osh_base_has_blocks(const osh_budget *p) { return p->in->opt->host_memory > 0; }

size_t osh_base_lists(void) { return LISTS_BYTES; }

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
    if (osh_base_has_blocks(p)) m->base_bytes += osh_base_blocks();
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
