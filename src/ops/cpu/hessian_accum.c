/* hessian_accum.c - H += X^T X over output tiles of 256 x 256, each adding tiles of up to 512
 * tokens in the batch's order.
 *
 * A token tile never crosses samples, so H does not depend on how samples were batched. Tiles on
 * the diagonal are ssyrk. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/kernel.h"

enum { TILE = 256, TOKENS = 512 };

typedef struct hessian_job {
    float *h;              // [I, I]
    const float *x;        // [rows of the panel, I]
    const osh_tile *tiles; // of this panel
    int64_t n_tiles, first_row, n_cols;
} hessian_job;

/* Chunk c of the lower triangle is tile (i, j), row by row: c = i (i + 1) / 2 + j. */
static osh_status hessian_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const hessian_job *job = user;
    int64_t i = 0, n = job->n_cols;

    (void)cx, (void)worker;
    while ((i + 1) * (i + 2) / 2 <= chunk) i++;
    int64_t j = chunk - i * (i + 1) / 2, rows = osh_min64(TILE, n - i * TILE), cols = osh_min64(TILE, n - j * TILE);
    float *h = job->h + i * TILE * n + j * TILE;
    for (int64_t t = 0; t < job->n_tiles; t++) {
        const float *x = job->x + (job->tiles[t].row - job->first_row) * n;
        int64_t k = job->tiles[t].n;
        if (i == j) osh_syrk_lower_t(h, n, (osh_mat){x + i * TILE, n}, rows, k);
        else osh_gemm_tn(h, n, (osh_mat){x + i * TILE, n}, (osh_mat){x + j * TILE, n}, rows, cols, k, 1);
    }
    return OSH_OK;
}

osh_status osh_hessian_accum_cpu(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    int64_t N = osh_rows(x), n = osh_width(x), n_tiles = 0, end = 0, side = osh_div_up(n, TILE);
    osh_tile *tiles = NULL; // own
    float *xf = NULL;       // own: [panel, I] where x is not F32

    osh_blas_init();
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, N, TOKENS));
    if (x->dtype != OSH_F32) {
        xf = osh_alloc(cx, (size_t)(osh_min64(N, OSH_GEMM_PANEL) * n) * sizeof *xf);
        if (!xf) OSH_TRY(OSH_E_NOMEM);
    }
    for (int64_t first = 0; first < n_tiles; first = end) {
        end = osh_tiles_panel(tiles, n_tiles, first, OSH_GEMM_PANEL);
        int64_t row = tiles[first].row, n_rows = tiles[end - 1].row + tiles[end - 1].n - row;
        if (xf) OSH_TRY(osh_widen_rows(cx, xf, x, row, n_rows));
        hessian_job j = {.h = a->out[0]->data, .x = xf ? xf : (float *)x->data + row * n, .tiles = tiles + first,
                         .n_tiles = end - first, .first_row = row, .n_cols = n};
        OSH_TRY(osh_parallel_for(cx, side * (side + 1) / 2, hessian_chunk, &j));
    }
done:
    osh_free(cx, xf);
    osh_free(cx, tiles);
    return rc;
}

size_t osh_hessian_accum_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                 int n_threads)
{
    (void)attr, (void)out_width, (void)n_threads;
    return (size_t)(osh_min64(n_tokens, OSH_GEMM_PANEL) * in_width[0]) * sizeof(float) +
           (size_t)n_tokens * sizeof(osh_tile);
}
