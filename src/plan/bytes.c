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

int64_t osh_stats_hessian_bytes(int64_t I)
{
    return (int64_t)(osh_mem_gross((size_t)(I * I) * sizeof(float)) + osh_mem_gross(sizeof(osh_tensor)));
}

int64_t osh_stats_device_bytes(const osh_plan *p, int value, bool hessian, bool range)
{
    size_t I = (size_t)p->graph->values[value].width;
    return (int64_t)((hessian ? osh_arena_gross(I * I * sizeof(float)) : 0) +
                     (range ? osh_arena_gross((size_t)p->data.n * 2 * sizeof(float)) : 0));
}
