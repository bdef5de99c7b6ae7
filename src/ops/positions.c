/* positions.c - adds learned position embeddings: y = x + w[position + offset].
 *
 *   in[0] x [N, D]
 *   in[1] w [P, D]
 *   out y [N, D], may overwrite x
 *   position: index of the token in its sample
 *
 * The row of w and the sum are rounded to the dtype of x, as in transformers'
 * OPTLearnedPositionalEmbedding (offset 2). Shapes: N tokens of the batch, P positions, D elements
 * per token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

/* ROWS: number of tokens in a chunk of parallel work.
 * PIECE: number of elements that are converted to f32 at a time. */
enum { ROWS = 64, PIECE = 1024 };

static const osh_field attrs[] = {
    {"rows", OSH_F_INT, offsetof(osh_positions_attr, rows), NULL, 1, 1e9,
     "P, positions and the offset", NULL, NULL},
    {"offset", OSH_F_INT, offsetof(osh_positions_attr, offset), "0", 0, 1e6,
     "row of the first position", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)cx;
    out_width[0] = w_shape[0][1] = in_width[0];
    w_shape[0][0] = ((const osh_positions_attr *)attr)->rows;
    w_ndim[0] = 2;
    return OSH_OK;
}

typedef struct positions_job {
    const osh_op_args *a;
    const osh_tile *tiles;
} positions_job;

static osh_status positions_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const positions_job *j = user;
    const osh_tile *t = &j->tiles[chunk];
    const osh_tensor *x = j->a->in[0], *w = j->a->in[1];
    int64_t D = osh_width(x), offset = ((const osh_positions_attr *)j->a->attr)->offset;
    float a[PIECE], b[PIECE];

    (void)cx, (void)worker;
    for (int64_t r = 0; r < t->n; r++)
        for (int64_t at = 0, n; at < D; at += n) {
            n = osh_min64(PIECE, D - at);
            osh_to_f32(a, osh_elem(x, (t->row + r) * D + at), x->dtype, n);
            osh_load_weight(b, w, (t->pos + r + offset) * D + at, n, x->dtype);
            for (int64_t i = 0; i < n; i++) a[i] += b[i];
            osh_from_f32(osh_elem(j->a->out[0], (t->row + r) * D + at), x->dtype, a, n);
        }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_positions_attr *at = a->attr;
    int64_t n_tiles = 0;
    osh_tile *tiles = NULL; // own
    positions_job j = {.a = a};

    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), ROWS));
    osh_tiles_move(tiles, n_tiles, a->past);
    for (int64_t t = 0; t < n_tiles; t++)
        if (tiles[t].len + at->offset > at->rows)
            OSH_FAIL(cx, OSH_E_FORMAT, "a sample has %lld tokens, and the model has %lld positions",
                     (long long)tiles[t].len, (long long)(at->rows - at->offset));
    j.tiles = tiles;
    OSH_TRY(osh_parallel_for(cx, n_tiles, positions_chunk, &j));
done:
    osh_free(cx, tiles);
    return rc;
}

/* Computes dx = dy and dw[position + offset] += dy. dw is summed sample by sample. */
static osh_status positions_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t D = osh_width(a->in[0]), offset = ((const osh_positions_attr *)a->attr)->offset,
            n_tiles = 0;
    const float *dy = a->dout[0]->data;
    osh_tile *tiles = NULL; // own

    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), ROWS));
    for (int64_t t = 0; t < n_tiles; t++)
        for (int64_t i = 0; i < tiles[t].n * D; i++) {
            osh_grad_add(a->din[0], tiles[t].row * D + i, dy[tiles[t].row * D + i]);
            osh_grad_add(a->din[1], (tiles[t].pos + offset) * D + i, dy[tiles[t].row * D + i]);
        }
done:
    osh_free(cx, tiles);
    return rc;
}

static size_t scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_threads;
    return (size_t)n_tokens * sizeof(osh_tile);
}

const osh_op osh_op_positions = {
    .name = "positions", .n_in = 1, .n_weights = 1, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_positions_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_positions_cuda)},
    .tol = 0, .scratch = scratch, .next = ref,
    .grad.run = {[OSH_REF] = positions_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_positions_grad_cuda)},
};
