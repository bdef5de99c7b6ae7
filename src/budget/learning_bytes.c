/* learning_bytes.c - predicts the memory of two steps that optimize codes by gradients.
 *
 * Learning a block needs memory for the learner (learn/block.h), and for the results of all Linears
 * of the block until the block is finished.
 *
 * Tuning needs the memory that learn/tune.h counts. */
#include "budget/learning_bytes.h"
#include "budget/simulate_solve.h"
#include "learn/tune.h"
#include "quant/observer.h"
#include "schedule/blocks.h"

static osh_linear_job block_job(const osh_linear *l, osh_tensor *w)
{
    *w = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
    return (osh_linear_job){.name = l->name, .scheme = l->scheme, .w = w};
}

osh_status osh_block_peak(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p, const osh_range *r)
{
    osh_status rc = OSH_OK;
    osh_block_of o; // own
    size_t learn = 0, kept = 0, most = 0;
    OSH_TRY(osh_block_init(cx, &o, p->schedule, r));
    OSH_TRY(osh_block_bytes(cx, &learn, &o.b));
    for (int k = 0; k < o.b.n_learns; k++) {
        const osh_linear *l = &p->match->linears[o.linears[k]];
        osh_tensor w;
        osh_linear_job j = block_job(l, &w);
        size_t scales = osh_job_params_bytes(&j) + osh_job_search_bytes(&j);
        if (osh_observer_weighs(&l->scheme->weights))
            scales += osh_mem_gross((size_t)l->I * sizeof(float)); // importance of each channel
        size_t one =
            osh_job_finish_bytes(&j, osh_threads(cx)) + (size_t)osh_memory_pack_bytes(p, l);
        kept += osh_job_result_bytes(&j) + osh_tensor_gross(osh_tensor_bytes(&w)) +
                2 * osh_mem_gross((size_t)l->O * (size_t)l->I /
                                      (size_t)osh_q_scale_cols(&l->scheme->weights, l->I) *
                                      sizeof(float) +
                                  (size_t)l->O * sizeof(float));
        if (l->out.bias >= 0) kept += osh_mem_gross((size_t)l->O * osh_dtype_bytes(l->dtype));
        if (scales > most) most = scales;
        if (one > most) most = one;
    }
    size_t points = (size_t)osh_ada_points(o.b.rule.steps, o.b.rule.period) * sizeof(double);
    *n_bytes = (int64_t)(kept + (learn > most ? learn : most) + osh_mem_gross(points) +
                         osh_mem_gross((size_t)o.b.n_learns * sizeof(osh_linear_job)) +
                         2 * osh_mem_gross((size_t)o.b.n_learns * sizeof(osh_block_weight)) +
                         2 * osh_mem_gross((size_t)p->in->graph->n_values * sizeof(int)) +
                         osh_mem_gross((size_t)r->n_nodes) +
                         osh_mem_gross((size_t)p->in->graph->n_values * sizeof(bool)));
done:
    osh_block_deinit(cx, &o);
    return rc;
}

osh_status osh_tuning_bytes(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p)
{
    osh_status rc = OSH_OK;
    int64_t *n_scales = NULL; // own
    osh_tune_memory m;
    size_t most = 0;
    *n_bytes = 0;
    if (!p->schedule->tune.steps) goto done;
    OSH_NEW(cx, n_scales, p->in->graph->n_weights);
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        osh_q_shape shape;
        OSH_TRY(osh_q_scale_shape(cx, &shape, &l->scheme->weights, l->O, l->I, l->name));
        n_scales[l->weight] = shape.dim[0] * shape.dim[1];
        size_t one = osh_mem_gross((size_t)(l->O * l->I)) + (size_t)osh_memory_pack_bytes(p, l) +
                     osh_mem_gross((size_t)n_scales[l->weight] * 8) +
                     osh_mem_gross((size_t)(l->O * l->I) * osh_dtype_bytes(l->dtype));
        // `one`: bytes of the codes, packed tensors, scales and source weight of one Linear
        if (one > most) most = one;
    }
    OSH_TRY(osh_tune_bytes(cx, &m, p->schedule->tune_graph, p->in->ck, &p->in->data, n_scales));
    *n_bytes = (int64_t)(m.kept + (m.row > most ? m.row : most) + (size_t)p->manifest->n_out * 32);
done:
    osh_free(cx, n_scales);
    return rc;
}
