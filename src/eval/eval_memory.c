/* eval_memory.c - predicts the host memory of an evaluation.
 *
 *   host = base + max(passes of the reference model,
 *                     values left by the reference + passes of the model,
 *                     values left by both models + scores)
 *
 * The values of all windows are in memory at the same time, so the peak grows with the number of
 * windows. --max-windows lowers the peak. */
#include "eval/eval_memory.h"

#include <stdio.h>

#include "budget/budget.h"
#include "eval/saved.h"
#include "eval/share.h"
#include "math/isa.h"
#include "tensor/scalar.h"

/* Numbers of bytes. SMALL_BYTES are for small lists. READER_BYTES are for the stack and the heap of
 * the thread that prefetches weights. */
enum { SMALL_BYTES = 2 << 20, READER_BYTES = 3 << 20 };
/* Bytes for an evaluation that follows a run.
 * AFTER_BYTES: memory that the run leaves allocated in the process.
 * TENSOR_BYTES: bytes for each tensor of the source, for the list of its output tensors. */
enum { AFTER_BYTES = 1 << 20, TENSOR_BYTES = 1 << 10 };

/* Returns the smallest --host-memory, in MiB, for a run with this peak. */
static double budget_mib(int64_t peak) { return mib_for(peak + OSH_ISA_NOISE_BYTES); }

typedef struct job {
    const osh_eval_options *o;
    const osh_eval_models *m;
    int64_t gpu; // host bytes for passes and scores if they run on a GPU; -1: they run on the host
    int64_t load;            // peak of host bytes while models and data are read
    /* base: host bytes before the first pass.
     * uncounted: bytes that osh_mem_used does not count. */
    int64_t base, uncounted;
} job;

/* Returns the number of tokens of the longest batch. The batches have `size` samples each, and
 * contain the first n samples. */
static int64_t batch_tokens(const osh_dataset *d, int64_t n, int64_t size)
{
    int64_t most = 0;
    for (int64_t first = 0; first < n; first += size)
        most = osh_max64(most, d->offsets[osh_min64(first + size, n)] - d->offsets[first]);
    return most;
}

static int64_t scores_host_bytes(const job *j, int64_t n, int64_t size, int n_threads)
{
    const osh_graph *g = j->m->f->graph;
    int64_t most = batch_tokens(&j->m->d, n, size), D = g->values[g->hidden].width,
            width[4] = {D, D, D, D};
    if (j->m->ref) width[2] = j->m->ref->graph->values[j->m->ref->graph->hidden].width;
    int64_t each = 5 * (int64_t)osh_tensor_gross((size_t)most * 4);
    const osh_op *op = j->m->ref ? &osh_op_kl : &osh_op_nll;
    /* The scratch is allocated in several blocks, so twice its size is an upper bound. */
    return each + osh_eval_share_bytes(j->o->ranks, most) +
           2 * (int64_t)osh_mem_gross(op->scratch(NULL, width, g->n_vocab, most, n_threads));
}

/* Sets *peak to the largest peak of all ranks, so that all ranks accept or refuse the same
 * budget. */
static osh_status job_predict(osh_ctx *cx, int64_t *peak, const job *j, int64_t n, int64_t size)
{
    osh_status rc = OSH_OK;
    bool here = j->gpu < 0;
    const osh_eval_models *m = j->m;
    osh_forward_memory ref = {0}, own = {.peak = here ? 0 : j->gpu};
    int64_t scores = here ? scores_host_bytes(j, n, size, osh_threads(cx)) : 0;
    if (here && m->ref) OSH_TRY(osh_forward_bytes(cx, &ref, m->ref, &m->d, n, size));
    if (here) OSH_TRY(osh_forward_bytes(cx, &own, m->f, &m->d, n, size));
    *peak = ref.peak > ref.left + own.peak ? ref.peak : ref.left + own.peak;
    if (ref.left + own.left + scores > *peak) *peak = ref.left + own.left + scores;
    if (j->o->save_logits) // counts only copies: on the host, head and values exist already
        *peak += osh_saved_bytes(m);
    *peak += j->base + (m->ref ? 2 : 1) *
                           (int64_t)osh_mem_gross((size_t)m->d.offsets[m->d.n] * sizeof(float));
    if (*peak < j->load) *peak = j->load;
    OSH_TRY(osh_ranks_largest(cx, j->o->ranks, peak));
done:
    return rc;
}

/* Sets *n to the largest number of windows (samples of the text) that fit in the budget, or to 0 if
 * none fits. */
static osh_status job_most_windows(osh_ctx *cx, int64_t *n, const job *j, int64_t size)
{
    osh_status rc = OSH_OK;
    int64_t low = 0, high = j->m->d.n;
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2, peak;
        OSH_TRY(job_predict(cx, &peak, j, mid, size));
        if (peak + OSH_ISA_NOISE_BYTES <= j->o->host_memory) low = mid;
        else high = mid;
    }
    *n = low;
done:
    return rc;
}

static osh_status job_refuse(osh_ctx *cx, const job *j, int64_t size, int64_t peak)
{
    osh_status rc = OSH_OK;
    char batch[80] = "", windows[96] = "";
    int64_t alone = peak, n = 0;
    if (size > 1) OSH_TRY(job_predict(cx, &alone, j, j->m->d.n, 1));
    if (mib_for(alone) < mib_for(peak))
        snprintf(batch, sizeof batch, ", or --host-memory %.0fMiB with --batch-size 1",
                 budget_mib(alone));
    OSH_TRY(job_most_windows(cx, &n, j, size));
    if (n)
        snprintf(windows, sizeof windows, "; of the %lld windows %lld fit: --max-windows %lld",
                 (long long)j->m->d.n, (long long)n, (long long)n);
    OSH_FAIL(cx, OSH_E_USAGE,
             "--host-memory %.0fMiB is too small: want at least --host-memory %.0fMiB%s%s",
             mib_for(j->o->host_memory), budget_mib(peak), batch, windows);
done:
    return rc;
}

static osh_status job_refuse_on_gpu(osh_ctx *cx, const job *j, int64_t peak)
{
    return osh_fail(cx, OSH_E_USAGE,
                    "--host-memory %.0fMiB is too small for this GPU: want at least --host-memory "
                    "%.0fMiB",
                    mib_for(j->o->host_memory), budget_mib(peak));
}

static job job_make(osh_ctx *cx, const osh_eval_options *o, const osh_eval_models *m, int64_t load)
{
    job j = {.o = o,
             .m = m,
             .gpu = m->gpu ? osh_eval_gpu_host_bytes(m->gpu, false) : -1,
             .load = load};
    j.uncounted = osh_isa_uncounted(cx);
    j.base = j.uncounted + (int64_t)osh_mem_used(cx, OSH_MEM_HOST) + SMALL_BYTES;
    return j;
}

int64_t osh_eval_output_bytes(const osh_forward *f, int64_t n_tokens)
{
    const osh_graph *g = f->graph;
    int64_t weight = 0, row = 0;
    for (int i = 0; i < g->head; i++) {
        const osh_node *n = &g->nodes[i];
        if (!osh_node_is(n, OSH_OP_LINEAR)) continue;
        const osh_weight *w = &g->weights[n->w[0]];
        int64_t now = w->shape[0] * w->shape[1] * (int64_t)sizeof(float),
                in = (int64_t)osh_value_bytes(g, n->in[0]);
        if (now > weight) weight = now;
        if (in > row) row = in;
    }
    int64_t lists =
        AFTER_BYTES + osh_source_checkpoint(f->source)->n_tensors * (int64_t)TENSOR_BYTES;
    return lists + (int64_t)osh_mem_gross((size_t)weight) +
           (int64_t)osh_mem_gross((size_t)(row * n_tokens));
}

osh_status osh_eval_least(osh_ctx *cx, int64_t *host, const osh_eval_options *o,
                          const osh_eval_models *m, int64_t load)
{
    osh_status rc = OSH_OK;
    job j = job_make(cx, o, m, load);
    int64_t size = o->batch_size > 0 ? o->batch_size : 1, peak = 0;
    OSH_TRY(job_predict(cx, &peak, &j, m->d.n, size));
    int64_t more = m->gpu ? 0 : osh_eval_output_bytes(m->f, batch_tokens(&m->d, m->d.n, size));
    *host = peak + more + OSH_ISA_NOISE_BYTES;
done:
    return rc;
}

osh_status osh_eval_memory(osh_ctx *cx, const osh_eval_options *o, const osh_eval_models *m,
                           int64_t load)
{
    osh_status rc = OSH_OK;
    int64_t size = o->batch_size > 0 ? o->batch_size : 1, peak = 0;
    osh_eval_gpu *gpu = m->gpu;
    if (o->host_memory <= 0) goto done;
    job j = job_make(cx, o, m, load);
    OSH_TRY(job_predict(cx, &peak, &j, m->d.n, size));
    if (peak > o->host_memory)
        OSH_TRY(gpu ? job_refuse_on_gpu(cx, &j, peak) : job_refuse(cx, &j, size, peak));
    if (gpu && osh_eval_gpu_ahead(gpu)) {
        int64_t more = osh_eval_gpu_host_bytes(gpu, true) - j.gpu + READER_BYTES;
        if (peak + more > o->host_memory) osh_eval_gpu_not_ahead(gpu);
        else j.uncounted += READER_BYTES;
    }
    osh_mem_limit(cx, OSH_MEM_HOST, (size_t)(o->host_memory - j.uncounted));
done:
    return rc;
}
