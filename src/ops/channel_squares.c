/* channel_squares.c - sum of the squares of each channel, over all tokens.
 *
 *   in[0] x [N, D]     out s F64 [D], in place: s += x^2
 *
 * What an input channel weighs in the observer imatrix_mse (llmcompressor observers/imatrix.py). A square is exact in
 * double; tokens are added one after the other, so that batches and threads do not show. */
#include "ops/kernel.h"

#include <assert.h>

enum { COLUMNS = 256 }; // of a chunk

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]);
    float *x = NULL; // own: [N, D]
    double *s = a->out[0]->data;

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t i = 0; i < N * D; i++) s[i % D] += (double)x[i] * x[i];
done:
    osh_free(cx, x);
    return rc;
}

static osh_status columns(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), c = chunk * COLUMNS, n = osh_min64(COLUMNS, D - c);
    float x[COLUMNS];
    double *s = (double *)a->out[0]->data + c;
    (void)cx, (void)worker;
    for (int64_t r = 0; r < N; r++) {
        osh_to_f32(x, osh_elem(a->in[0], r * D + c), a->in[0]->dtype, n);
        for (int64_t i = 0; i < n; i++) s[i] += (double)x[i] * x[i];
    }
    return OSH_OK;
}

static osh_status fast(osh_ctx *cx, const osh_op_args *a)
{
    int64_t D = osh_width(a->in[0]);
    assert(a->out[0]->dtype == OSH_F64 && a->out[0]->shape[0] == D);
    return osh_parallel_for(cx, osh_div_up(D, COLUMNS), columns, (void *)a);
}

const osh_op osh_op_channel_squares = {
    .name = "channel_squares", .n_in = 1, .n_weights = 0, .n_out = 1, .run = {[OSH_REF] = ref, [OSH_CPU] = fast},
};
