/* count_routes.c - counts the tokens that a router sends to each expert. For each expert e,
 * count[e] is increased by the number of rows n for which route[n][e] is not 0.
 *
 *   in[0] route [N, E]
 *   out count I64 [E], in place
 *
 * Counts are exact, so the result does not depend on batches or threads. Shapes: N tokens of the
 * batch, E experts. */
#include "ops/kernel.h"

#include <assert.h>

static osh_status count_routes_ref(osh_ctx *cx, const osh_op_args *a)
{
    const osh_tensor *x = a->in[0];
    int64_t N = osh_rows(x), E = osh_width(x), *count = a->out[0]->data;
    float row[OSH_MOE_MAX_EXPERTS];
    (void)cx;
    assert(a->out[0]->dtype == OSH_I64 && a->out[0]->shape[0] == E && E <= OSH_MOE_MAX_EXPERTS);
    for (int64_t t = 0; t < N; t++) {
        osh_to_f32(row, osh_elem(x, t * E), x->dtype, E);
        for (int64_t e = 0; e < E; e++) count[e] += row[e] != 0;
    }
    return OSH_OK;
}

const osh_op osh_op_count_routes = {
    .name = "count_routes", .n_in = 1, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = count_routes_ref},
};
