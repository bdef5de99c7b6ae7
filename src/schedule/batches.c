/* batches.c - cuts the samples into batches that run through the model together.
 *
 * On a GPU, a batch consists of whole samples of one group (ops/stat.h), in their order. A batch
 * ends with the last sample of the group, or with the sample that brings the batch to
 * OSH_DEVICE_BATCH_TOKENS tokens. So the batches depend only on the samples of the group. This
 * matters because the last bits of a matrix product depend on the number of its rows.
 *
 * On the host, results do not depend on batches. A batch has --batch-size samples, or a few samples
 * for each thread. It may have samples of several groups. If several ranks share the job, a batch
 * has samples of one group, because each group belongs to one rank. */
#include "schedule/schedule.h"
#include "tensor/scalar.h"

int64_t osh_batch_end_on_device(const osh_dataset *d, int64_t first)
{
    int64_t end = first;
    while (end < d->n && d->offsets[end] - d->offsets[first] < OSH_DEVICE_BATCH_TOKENS) end++;
    return end;
}

/* BATCH_LANES: largest number of samples per thread in a batch. The values of so few samples fit in
 * the CPU's caches.
 * BATCH_BYTES, THREAD_BYTES: limit for the bytes of the widest value of a batch. It is THREAD_BYTES
 * for each thread, but at least BATCH_BYTES. */
enum { BATCH_LANES = 2, BATCH_BYTES = 32 << 20, THREAD_BYTES = 4 << 20 };

static int64_t batch_end(const osh_schedule *p, int64_t first)
{
    const osh_dataset *d = &p->in->data;
    int64_t end = d->n - first < p->batch_size ? d->n : first + p->batch_size;
    if (p->in->on_device) end = osh_batch_end_on_device(d, first);
    else if (!osh_is_divided(p->in->opt)) return end;
    int64_t group = osh_group_at(&p->in->groups, first);
    return osh_min64(end, osh_group_first(&p->in->groups, group + 1));
}

static osh_status batches_count_tokens(osh_ctx *cx, osh_schedule *p)
{
    osh_status rc = OSH_OK;
    const osh_dataset *d = &p->in->data;
    /* own [V]: 1 + index of the last batch that has the token; 0: no batch so far */
    int64_t *batch = NULL, V = p->in->graph ? p->in->graph->n_vocab : 0;
    OSH_NEW(cx, batch, V);
    for (int64_t b = 0; b < p->n_batches; b++)
        for (int64_t i = d->offsets[p->batch_at[b]]; i < d->offsets[p->batch_at[b + 1]]; i++) {
            if (d->ids[i] < 0 || d->ids[i] >= V || batch[d->ids[i]] == b + 1) continue;
            batch[d->ids[i]] = b + 1, p->looked_up++;
        }
done:
    osh_free(cx, batch);
    return rc;
}

/* Returns the number of samples of a batch. This is --batch-size if the user gave it. Otherwise it
 * is a few samples for each thread, so that all threads are busy for about the same time. Returns 1
 * in these cases:
 *
 *   - The run uses a GPU, or has only one thread.
 *   - Experts are calibrated on their own tokens.
 *   - A batch with one sample for each thread is larger than the limit, which is BATCH_BYTES, or
 *     THREAD_BYTES for each thread if this is more.
 *   - The data set has fewer samples than there are threads. */
int64_t osh_plan_batch_size(osh_ctx *cx, const osh_schedule *p)
{
    const osh_dataset *d = &p->in->data;
    const osh_graph *g = p->in->graph;
    int64_t longest = 1, row = 1, n = osh_threads(cx), most = BATCH_LANES * n;
    if (p->in->opt->batch_size > 0) return p->in->opt->batch_size;
    if (p->in->on_device || p->in->by_route || n == 1) return 1;
    for (int64_t i = 0; i < d->n; i++)
        if (d->offsets[i + 1] - d->offsets[i] > longest)
            longest = d->offsets[i + 1] - d->offsets[i];
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].producer < g->head && (int64_t)osh_value_bytes(g, v) > row)
            row = (int64_t)osh_value_bytes(g, v);
    int64_t fit =
        (n * THREAD_BYTES > BATCH_BYTES ? n * THREAD_BYTES : BATCH_BYTES) / (longest * row);
    if (fit < most) most = fit;
    if (d->n < most) most = d->n;
    return most >= n ? most / n * n : 1;
}

bool osh_plan_by_sample(const osh_schedule *p, int n_threads)
{
    bool any = false;
    for (int64_t b = 0; b < p->n_batches && !p->in->on_device && !any; b++)
        any = osh_exec_by_sample(p->batch_at[b + 1] - p->batch_at[b], n_threads);
    return any;
}

osh_status osh_plan_batches(osh_ctx *cx, osh_schedule *p, int64_t size)
{
    osh_status rc = OSH_OK;
    const osh_dataset *d = &p->in->data;
    osh_free(cx, p->batch_at), p->batch_at = NULL;
    p->batch_size = size, p->n_batches = p->batch_tokens = p->looked_up = 0;
    OSH_NEW(cx, p->batch_at, d->n + 1);
    for (int64_t first = 0; first < d->n; p->n_batches++) {
        int64_t end = batch_end(p, first), n = d->offsets[end] - d->offsets[first];
        if (n > p->batch_tokens) p->batch_tokens = n;
        p->batch_at[p->n_batches + 1] = first = end;
    }
    OSH_TRY(batches_count_tokens(cx, p));
done:
    return rc;
}
