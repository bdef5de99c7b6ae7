/* bytes.c - sizes of statistics, and the table of sums. */
#include "budget/bytes.h"

#include "match/lookup.h"

int64_t osh_stats_bytes(const osh_budget *p, int subgraph)
{
    int64_t bytes = 0;
    osh_span own = osh_linears_of(p->schedule, subgraph, 1);
    for (int i = own.first; i < own.end; i++) {
        const osh_linear *l = &p->match->linears[i];
        bool first = l->subgraph == subgraph && (l->wants & OSH_STAT_HESSIAN);
        for (int k = i - 1; first && k >= 0 && p->match->linears[k].subgraph == subgraph; k--)
            first = p->match->linears[k].input != l->input || !(p->match->linears[k].wants & OSH_STAT_HESSIAN);
        if (first) bytes += l->I * l->I * 4 * (1 + l->shift);
    }
    return bytes;
}

const osh_sum_type osh_sums[OSH_N_SUMS] = {
    [OSH_SUM_HESSIAN] = {.op = "hessian_accum", .stat = OSH_STAT_HESSIAN, .dtype = OSH_F32,
                         .ndim = 2, .mixed = true, .on_card = true, .layout = OSH_LAYOUT_HESSIAN},
    [OSH_SUM_SHIFT] = {.op = "shift_accum", .stat = OSH_STAT_SHIFT, .dtype = OSH_F32, .ndim = 2,
                       .original = true, .mixed = true, .on_card = true,
                       .layout = OSH_LAYOUT_SHIFT},
    [OSH_SUM_SQUARES] = {.op = "channel_squares", .stat = OSH_STAT_SQUARES, .dtype = OSH_F64,
                         .ndim = 1, .solving = sizeof(float)}, // weights of the channels
    [OSH_SUM_PEAKS] = {.op = "token_peaks", .stat = OSH_STAT_PEAKS, .dtype = OSH_F64},
};

bool osh_sum_wanted(osh_sum sum, const osh_linear *l)
{
    /* Shift is false if nothing before the input was solved. */
    return sum == OSH_SUM_SHIFT ? l->shift : (l->wants & osh_sums[sum].stat) != 0;
}

osh_tensor osh_sum_shape(osh_sum sum, int64_t I)
{
    const osh_sum_type *t = &osh_sums[sum];
    return osh_tensor_view(t->dtype, t->ndim ? t->ndim : 1,
                           t->ndim ? (int64_t[]){I, I} : (int64_t[]){1, 1}, NULL);
}

int64_t osh_sum_bytes(osh_sum sum, int64_t I)
{
    osh_tensor t = osh_sum_shape(sum, I);
    return (int64_t)osh_tensor_gross(osh_tensor_bytes(&t));
}

int64_t osh_stats_device_bytes(const osh_budget *p, int value, bool hessian, bool range)
{
    osh_tensor h = osh_sum_shape(OSH_SUM_HESSIAN, p->in->graph->values[value].width);
    return (int64_t)((hessian ? osh_arena_gross(osh_tensor_bytes(&h)) : 0) +
                     (range ? osh_arena_gross((size_t)p->in->data.n * 2 * sizeof(float)) : 0));
}
