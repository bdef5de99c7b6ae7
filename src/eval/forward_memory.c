/* forward_memory.c - predicts the memory of a pass through a model. The budget counts the steps of
 * the schedule; this file adds the batches and the head. */
#include "budget/memory.h"
#include "eval/forward.h"
#include "tensor/scalar.h"

/* Returns the number of tokens of batch b of this process. The pass has the first n samples of d,
 * in batches of `size`. */
static int64_t batch_tokens_at(const osh_forward *f, const osh_dataset *d, int64_t n, int64_t size,
                               int64_t b)
{
    int64_t first = osh_deal_item(f->ranks, b) * size, end = osh_min64(first + size, n);
    return d->offsets[end] - d->offsets[first];
}

int64_t osh_forward_values_bytes(const osh_forward *f, const osh_dataset *d, int64_t n,
                                 int64_t size, int v)
{
    const osh_graph *g = f->graph;
    int64_t sum = 0, n_batches = osh_forward_n_batches(f, n, size),
            each = (int64_t)(osh_mem_gross(sizeof(osh_batch)) + osh_batch_lists(g, size + 1));
    size_t row = v < 0 ? sizeof(int32_t) : osh_value_bytes(g, v);
    for (int64_t b = 0; b < n_batches; b++) {
        size_t tokens = (size_t)batch_tokens_at(f, d, n, size, b);
        sum += (int64_t)osh_tensor_gross(tokens * row) + (v < 0 ? each : 0);
    }
    return sum;
}

int64_t osh_forward_weight_bytes(const osh_forward_part *p)
{
    int64_t sum = 0;
    osh_weight_set s = osh_forward_weights(p);
    const osh_checkpoint *ck = osh_source_checkpoint(p->f->source);
    for (int i = s.first; i < s.end; i++)
        if (s.want[i]) sum += (int64_t)osh_weight_bytes(p->f->graph, ck, i);
    return sum;
}

int64_t osh_forward_head_bytes(const osh_forward *f)
{
    const osh_graph *g = f->graph;
    const osh_checkpoint *ck = osh_source_checkpoint(f->source);
    const osh_weight *w = osh_graph_head(g), *bias = osh_graph_head_bias(g);
    return (int64_t)(osh_weight_bytes(g, ck, (int)(w - g->weights)) +
                     (bias ? osh_weight_bytes(g, ck, (int)(bias - g->weights)) : 0));
}

/* Sets the batches of the schedule. Each batch counts as one sample, because a pass runs a batch as
 * a whole. */
static osh_status plain_set_batches(osh_ctx *cx, osh_plain *p, const osh_forward *f,
                                    const osh_dataset *d, int64_t n, int64_t size)
{
    osh_status rc = OSH_OK;
    osh_schedule *s = &p->schedule;
    p->in.data.n = s->n_batches = osh_forward_n_batches(f, n, size);
    s->batch_size = 1, s->batch_tokens = 0;
    OSH_NEW(cx, p->in.data.offsets, s->n_batches + 1);
    OSH_NEW(cx, s->batch_at, s->n_batches + 1);
    for (int64_t b = 0; b < s->n_batches; b++) {
        int64_t tokens = batch_tokens_at(f, d, n, size, b);
        max_into(&s->batch_tokens, tokens);
        p->in.data.offsets[b + 1] = p->in.data.offsets[b] + tokens;
        s->batch_at[b + 1] = b + 1;
    }
done:
    return rc;
}

static void plain_drop_batches(osh_ctx *cx, osh_plain *p)
{
    osh_free(cx, p->in.data.offsets), p->in.data.offsets = NULL;
    osh_free(cx, p->schedule.batch_at), p->schedule.batch_at = NULL;
}

osh_status osh_forward_bytes(osh_ctx *cx, osh_forward_memory *m, const osh_forward *f,
                             const osh_dataset *d, int64_t n, int64_t batch_size)
{
    osh_status rc = OSH_OK;
    /* plain_set_batches adds batches to *p; osh_forward_bytes frees these batches at its end. */
    osh_plain *p = f->plain;
    const osh_manifest none = {0};
    osh_budget b = {&p->in, &p->match, &p->rewrites, &none, &p->schedule,
                    {.reading = (int64_t)osh_source_scratch(f->source)}};
    int64_t size = batch_size > 0 ? batch_size : 1,
            base = osh_forward_values_bytes(f, d, n, size, -1);
    OSH_TRY(plain_set_batches(cx, p, f, d, n, size));
    base += (int64_t)osh_mem_gross((size_t)p->in.data.n * sizeof(void *));
    OSH_TRY(osh_memory_of_passes(cx, &m->peak, &b));
    m->left = base + osh_forward_head_bytes(f);
    const osh_subgraph *last = &f->parts->parts[f->parts->n - 1];
    for (int i = 0; i < last->n_live_out; i++)
        if (last->live_out[i] != f->graph->input_ids)
            m->left += osh_forward_values_bytes(f, d, n, size, last->live_out[i]);
    m->peak = osh_max64(base + m->peak, m->left + b.memory.reading);
done:
    plain_drop_batches(cx, p);
    return rc;
}
