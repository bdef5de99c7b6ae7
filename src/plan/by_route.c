/* by_route.c - experts that are calibrated on the tokens that the router sends to them: refuses
 * what by_route excludes, and counts its memory. */
#include <string.h>

#include "plan/plan.h"

/* Checks each module of an expert. The input of a module that is calibrated by route has zeros in
 * the rows of other tokens. */
osh_status osh_plan_by_route(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    if (!p->by_route) goto done;
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        const char *name = strstr(l->name, ".experts.");
        if (!l->wants || !name) continue;
        if (l->wants & OSH_STAT_SHIFT)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: target 'original' compares all tokens: want it without "
                     "--moe-calibrate-all-experts false",
                     l->name);
        if (!osh_is_by_route(p->graph, l->input))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: its expert has biases, so what it makes of other tokens is not zero: "
                     "want --moe-calibrate-all-experts true",
                     l->name);
    }
    for (size_t m = 0; m < p->recipe->n; m++)
        if (osh_modifier_is_transform(&p->recipe->modifiers[m]))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s sees all tokens: want --moe-calibrate-all-experts true",
                     p->recipe->modifiers[m].type->name);
done:
    return rc;
}

int64_t osh_by_route_bytes(const osh_plan *p)
{
    size_t row = 0;
    int64_t samples = 0;
    for (int v = 0; p->by_route && v < p->graph->n_values; v++)
        if (osh_is_by_route(p->graph, v) && osh_value_bytes(p->graph, v) > row)
            row = osh_value_bytes(p->graph, v);
    if (!row) return 0;
    for (int64_t k = 0; k < p->n_batches; k++)
        if (p->batch_at[k + 1] - p->batch_at[k] > samples)
            samples = p->batch_at[k + 1] - p->batch_at[k];
    return (int64_t)(osh_tensor_gross((size_t)p->batch_tokens * row) +
                     osh_mem_gross((size_t)(samples + 1) * sizeof(int64_t)));
}
