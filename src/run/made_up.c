/* made_up.c - fills the activation store with random numbers of a counter-based random
 * generator. */
#include "run/made_up.h"

#include "base/rng.h"
#include "budget/budget.h"

/* Stores random rows of a value for the samples [first, first + n). */
static osh_status made_up_rows(osh_ctx *cx, osh_acts *a, const osh_budget *p, int value,
                               int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t width = p->in->graph->values[value].width,
            rows = p->in->data.offsets[first + n] - p->in->data.offsets[first];
    osh_tensor *t = NULL; // own
    float *row = NULL;    // own
    OSH_TRY(osh_tensor_new(cx, &t, p->in->graph->values[value].dtype, 2, (int64_t[]){rows, width}));
    OSH_NEW(cx, row, width);
    for (int64_t k = 0; k < rows; k++) {
        uint64_t at = (uint64_t)(p->in->data.offsets[first] + k);
        for (int64_t i = 0; i < width; i++) row[i] = osh_rng_sym((uint64_t)value, at, (uint64_t)i);
        osh_from_f32((char *)t->data + (size_t)(k * width) * osh_dtype_bytes(t->dtype), t->dtype,
                     row, width);
    }
    OSH_TRY(osh_acts_put(cx, a, value, first, n, &t));
done:
    osh_free(cx, row);
    osh_tensor_free(cx, t);
    return rc;
}

osh_status osh_made_up(osh_ctx *cx, osh_acts *a, const osh_budget *p, const osh_range *r)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    const int64_t *at = p->schedule->batch_at;
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(p->in));
    for (int v = 0; v < g->n_values; v++) {
        if (v == g->input_ids || g->values[v].producer >= r->first ||
            g->values[v].last_use < r->first)
            continue;
        for (int64_t b = 0; b < p->schedule->n_batches; b++)
            OSH_TRY(made_up_rows(cx, a, p, v, at[b], at[b + 1] - at[b]));
    }
done:
    osh_mem_use(cx, old);
    return rc;
}
