/* batch.c - makes and frees ragged batches (samples of different lengths without padding). Also
 * makes osh_lanes: one batch for each thread, for nodes that run sample by sample. */
#include "graph/batch.h"

osh_status osh_batch_new(osh_ctx *cx, osh_batch **out, const osh_graph *g, const int32_t *ids,
                         const int64_t *offsets, int64_t n_samples)
{
    return osh_batch_new_on(cx, out, NULL, g, &(osh_batch_rows){ids, offsets, n_samples});
}

static osh_status fill_batch(osh_ctx *cx, osh_batch *b, const osh_graph *g,
                             const osh_batch_rows *rows)
{
    osh_status rc = OSH_OK;
    const int64_t *offsets = rows->offsets, n_tokens = offsets[rows->n] - offsets[0];
    const int32_t *ids = rows->ids + offsets[0];
    OSH_NEW(cx, b->offsets, rows->n + 1);
    b->n_tokens = n_tokens;
    for (int64_t i = 0; i <= rows->n; i++) b->offsets[i] = offsets[i] - offsets[0];
    b->seqs = (osh_seqs){rows->n, b->offsets};
    b->ids = ids;
    OSH_TRY(osh_tensor_new_on(cx, &b->values[g->input_ids], (osh_where){b->device, OSH_LIFE_SHORT},
                              OSH_I32, 1, &n_tokens));
    OSH_TRY(osh_tensor_put(cx, b->values[g->input_ids], 0, ids, (size_t)n_tokens * sizeof *ids));
done:
    return rc;
}

osh_status osh_batch_new_on(osh_ctx *cx, osh_batch **out, osh_device *d, const osh_graph *g,
                            const osh_batch_rows *rows)
{
    osh_status rc = OSH_OK;
    osh_batch *b = NULL; // own
    OSH_NEW(cx, b, 1);
    OSH_NEW(cx, b->values, g->n_values);
    b->n_values = g->n_values;
    b->device = d;
    OSH_TRY(fill_batch(cx, b, g, rows));
    *out = b, b = NULL; // give
done:
    osh_batch_free(cx, b);
    return rc;
}

void osh_batch_clear(osh_ctx *cx, osh_batch *b, const osh_graph *g, osh_exec_values of)
{
    if (!b) return;
    for (int v = of.v0; v < of.v1; v++) osh_tensor_free(cx, b->values[v]), b->values[v] = NULL;
    osh_tensor_free(cx, b->values[g->input_ids]), b->values[g->input_ids] = NULL;
    osh_free(cx, b->offsets), b->offsets = NULL;
}

osh_status osh_batch_again(osh_ctx *cx, osh_batch *b, const osh_graph *g,
                           const osh_batch_rows *rows, osh_exec_values of)
{
    osh_batch_clear(cx, b, g, of);
    return fill_batch(cx, b, g, rows);
}

void osh_batch_free(osh_ctx *cx, osh_batch *b)
{
    if (!b) return;
    for (int i = 0; i < b->n_values; i++) osh_tensor_free(cx, b->values[i]);
    osh_free(cx, b->values);
    osh_free(cx, b->offsets);
    osh_free(cx, b);
}

osh_status osh_lanes_new(osh_ctx *cx, osh_lanes **out, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    osh_lanes *l = NULL; // own
    OSH_NEW(cx, l, 1);
    OSH_NEW(cx, l->outer, g->n_values);
    OSH_NEW(cx, l->batch, osh_threads(cx));
    for (int i = 0; i < osh_threads(cx); i++) {
        osh_batch *b = &l->batch[l->n_made++];
        OSH_NEW(cx, b->values, g->n_values);
        OSH_NEW(cx, b->into, g->n_values);
        OSH_NEW(cx, b->offsets, 2);
    }
    *out = l, l = NULL; // give
done:
    osh_lanes_free(cx, l);
    return rc;
}

void osh_lanes_free(osh_ctx *cx, osh_lanes *l)
{
    if (!l) return;
    for (int i = 0; l->batch && i < l->n_made; i++) {
        osh_free(cx, l->batch[i].values);
        osh_free(cx, l->batch[i].into);
        osh_free(cx, l->batch[i].offsets);
    }
    osh_free(cx, l->batch);
    osh_free(cx, l->outer);
    osh_free(cx, l);
}

size_t osh_lanes_bytes(const osh_graph *g, int n_threads)
{
    size_t into = osh_mem_gross((size_t)g->n_values * sizeof(void *));
    return osh_mem_gross(sizeof(osh_lanes)) + osh_mem_gross((size_t)g->n_values * sizeof(bool)) +
           osh_mem_gross((size_t)n_threads * sizeof(osh_batch)) +
           (size_t)n_threads * (osh_batch_lists(g, 2) + into);
}
