/* bytes.c - see bytes.h. */
#include "plan/bytes.h"

#include "plan/lookup.h"

int64_t osh_stats_bytes(const osh_plan *p, int subgraph)
{
    int64_t bytes = 0;
    osh_span own = osh_linears_of(p, subgraph, 1);
    for (int i = own.first; i < own.end; i++) {
        const osh_linear *l = &p->linears[i];
        bool first = l->subgraph == subgraph && (l->wants & OSH_STAT_HESSIAN);
        for (int k = i - 1; first && k >= 0 && p->linears[k].subgraph == subgraph; k--)
            first = p->linears[k].input != l->input || !(p->linears[k].wants & OSH_STAT_HESSIAN);
        if (first) bytes += l->I * l->I * 4 * (1 + l->shift);
    }
    return bytes;
}

osh_tensor osh_sum_shape(osh_sum sum, int64_t I)
{
    bool square = sum != OSH_SUM_SQUARES;
    return osh_tensor_view(square ? OSH_F32 : OSH_F64, square ? 2 : 1, (int64_t[]){I, I}, NULL);
}

int64_t osh_sum_bytes(osh_sum sum, int64_t I)
{
    osh_tensor t = osh_sum_shape(sum, I);
    return (int64_t)(osh_mem_gross(osh_tensor_bytes(&t)) + osh_mem_gross(sizeof t));
}

int64_t osh_stats_device_bytes(const osh_plan *p, int value, bool hessian, bool range)
{
    osh_tensor h = osh_sum_shape(OSH_SUM_HESSIAN, p->graph->values[value].width);
    return (int64_t)((hessian ? osh_arena_gross(osh_tensor_bytes(&h)) : 0) +
                     (range ? osh_arena_gross((size_t)p->data.n * 2 * sizeof(float)) : 0));
}
