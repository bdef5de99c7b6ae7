/* embedding.c - computes y = W[id]: copies rows of a table.
 *
 *   in[0] ids I32 [N]
 *   in[1] w [V, D]
 *   out y [N, D]
 *
 * The op computes torch.nn.Embedding. If w has the dtype of y, a row is copied bit for bit.
 * Otherwise the row is rounded to the dtype of y. An id outside [0, V) is an error, because the
 * tokenizer then does not fit the model. Shapes: N tokens of the batch, V vocabulary size, D
 * elements per token. */
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <string.h>

static const osh_field attrs[] = {
    {"hidden_size", OSH_F_INT, offsetof(osh_embedding_attr, hidden_size), NULL, 1, 1e7,
     "D, elements of a row", NULL, NULL},
    {"vocab_size", OSH_F_INT, offsetof(osh_embedding_attr, vocab_size), NULL, 1, 2147483647,
     "V, rows", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_embedding_attr *at = attr;

    (void)cx, (void)in_width;
    out_width[0] = at->hidden_size;
    w_shape[0][0] = at->vocab_size;
    w_shape[0][1] = at->hidden_size;
    w_ndim[0] = 2;
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const int32_t *ids = a->in[0]->data;        // token ids, [N]
    const osh_tensor *w = a->in[1], *y = a->out[0];
    int64_t N = osh_rows(a->in[0]), V = w->shape[0], D = w->shape[1];
    float *row = NULL; // own [D]: one row of the table

    OSH_NEW(cx, row, D);
    for (int64_t n = 0; n < N; n++) {
        if (ids[n] < 0 || ids[n] >= V)
            OSH_FAIL(cx, OSH_E_FORMAT, "token id %d at position %lld, want an id in [0, %lld)",
                     (int)ids[n], (long long)n, (long long)V);
        if (w->dtype == y->dtype) {
            memcpy(osh_elem(y, n * D), osh_elem(w, ids[n] * D),
                   (size_t)D * osh_dtype_bytes(w->dtype));
        } else {
            osh_to_f32(row, osh_elem(w, ids[n] * D), w->dtype, D);
            osh_from_f32(osh_elem(y, n * D), y->dtype, row, D);
        }
    }
done:
    osh_free(cx, row);
    return rc;
}

static size_t scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)n_tokens, (void)n_threads;
    return (size_t)out_width * sizeof(float);
}

const osh_op osh_op_embedding = {
    .name = "embedding", .n_in = 1, .n_weights = 1, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_embedding_attr), .infer = infer,
    /* The CPU runs the reference kernel, which only copies. */
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_embedding_cuda)},
    .tol = 0, .scratch = scratch,
    .arena_bytes = osh_embedding_cuda_scratch,
    .traits = OSH_OP_LOOKUP,
};
