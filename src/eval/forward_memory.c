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

/* Sets *peak to the host bytes of a pass of the first n samples of d. Sets the peaks of the visits
 * of f->plain->schedule. */
static osh_status forward_simulate(osh_ctx *cx, int64_t *peak, const osh_forward *f,
                                   const osh_dataset *d, int64_t n, int64_t size)
{
    osh_status rc = OSH_OK;
    osh_plain *p = f->plain; // its batches exist only during the simulation
    const osh_manifest none = {0};
    osh_budget b = {&p->in, &p->match, &p->rewrites, &none, &p->schedule,
                    {.reading = (int64_t)osh_source_scratch(f->source)}};
    OSH_TRY(plain_set_batches(cx, p, f, d, n, size));
    OSH_TRY(osh_memory_of_passes(cx, peak, &b));
done:
    plain_drop_batches(cx, p);
    return rc;
}

osh_status osh_forward_bytes(osh_ctx *cx, osh_forward_memory *m, const osh_forward *f,
                             const osh_dataset *d, int64_t n, int64_t batch_size)
{
    osh_status rc = OSH_OK;
    int64_t size = batch_size > 0 ? batch_size : 1,
            base = osh_forward_values_bytes(f, d, n, size, -1);
    base += (int64_t)osh_mem_gross((size_t)osh_forward_n_batches(f, n, size) * sizeof(void *));
    OSH_TRY(forward_simulate(cx, &m->peak, f, d, n, size));
    m->left = base + osh_forward_head_bytes(f);
    const osh_subgraph *last = &f->parts->parts[f->parts->n - 1];
    for (int i = 0; i < last->n_live_out; i++)
        if (last->live_out[i] != f->graph->input_ids)
            m->left += osh_forward_values_bytes(f, d, n, size, last->live_out[i]);
    m->peak = osh_max64(base + m->peak, m->left + (int64_t)osh_source_scratch(f->source));
done:
    return rc;
}

osh_status osh_forward_count_piece(osh_ctx *cx, const osh_forward *f, int64_t n_tokens,
                                   int64_t past)
{
    int64_t peak, offsets[2] = {0, n_tokens};
    f->plain->schedule.past = past;
    osh_status rc =
        forward_simulate(cx, &peak, f, &(osh_dataset){.n = 1, .offsets = offsets}, 1, 1);
    f->plain->schedule.past = 0;
    return rc;
}
