/* compress.c - compresses each window of m tokens to one entry, which is a weighted mean of the
 * window's rows.
 *
 *   in[0] kv [N, C*D]     in[1] gate [N, C*D]     in[2] bias [m, C*D]     out y [N, D]
 *
 * C is 1, or 2 if windows overlap. Window w has the tokens [w m, w m + m) of the sample. Its entry
 * is row w m + m - 1 of y, the row of its last token. All other rows of y are 0. Tokens after the
 * last full window are not used.
 *
 *   C = 1   y[d] = sum over r of p_r[d] kv_r[d]     r: rows of window w
 *           p[d] = softmax over r of (gate_r[d] + bias_{r mod m}[d])
 *   C = 2   the sum and the softmax are over the rows of window w - 1 (none if w is 0) and w;
 *           rows of window w - 1 use columns [0, D), rows of window w use columns [D, 2D)
 *
 * This is transformers' DeepseekV4HCACompressor (C = 1), or DeepseekV4CSACompressor and
 * DeepseekV4Indexer (C = 2), without norm and rope. gate + bias and p are rounded to the dtype of
 * kv. Sums are double. Shapes: N tokens of the batch, D head_dim. */
#include <assert.h>
#include <string.h>

#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

enum { PIECE = 64 }; // number of columns that are computed together

static const osh_field attrs[] = {
    {"window", OSH_F_INT, offsetof(osh_compress_attr, window), NULL, 1, 1e6, "m", NULL, NULL},
    {"overlaps", OSH_F_BOOL, offsetof(osh_compress_attr, overlaps), "false", 0, 0,
     "a window also has the rows of the window before it", NULL, NULL},
    {0},
};

static int64_t compress_parts(const osh_compress_attr *at) { return at->overlaps ? 2 : 1; }

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_compress_attr *at = attr;
    if (in_width[0] != in_width[1] || in_width[0] % compress_parts(at))
        return osh_fail(cx, OSH_E_FORMAT, "compress: widths %lld and %lld, want equal and %s",
                        (long long)in_width[0], (long long)in_width[1],
                        at->overlaps ? "even" : "any");
    w_ndim[0] = 2, w_shape[0][0] = at->window, w_shape[0][1] = in_width[0];
    out_width[0] = in_width[0] / compress_parts(at);
    return OSH_OK;
}

typedef struct compress_job {
    const osh_op_args *a;
    /* Tiles, each with rows of one sample; chunk i of the parallel work computes tile i. */
    const osh_tile *seqs;
    int64_t kept; // number of rows of earlier tokens in the state (osh_op_past); 0: no state
} compress_job;

/* Returns a pointer to column c of row `row` of in[k]. If `row` < 0, it is the row of an earlier
 * token of the sample, and is in the state. */
static const void *compress_at(const compress_job *j, int k, int64_t row, int64_t c)
{
    const osh_tensor *x = j->a->in[k];
    int64_t W = osh_width(x);
    if (row >= 0) return osh_elem(x, row * W + c);
    size_t at = (size_t)(((k + 1) * j->kept + row) * W + c);
    return (const char *)j->a->past->state + at * osh_dtype_bytes(x->dtype);
}

typedef struct window_part { // columns [c, c + n) of one window
    int64_t last;            // row number of the window's last token
    /* Number of the first row that the entry uses. If it is 0, the entry uses only the rows of its
     * window. If it is -m, the entry also uses the previous window, which is rows -m to -1. */
    int64_t first;
    int64_t c, n;
} window_part;

/* Reads row r of a window: writes kv to `x`, and gate + bias to `g`. */
static void compress_load(float *x, float *g, const compress_job *j, const window_part *of,
                          int64_t r)
{
    const osh_compress_attr *at = j->a->attr;
    osh_dtype dt = j->a->in[0]->dtype;
    int64_t m = at->window, W = osh_width(j->a->in[0]), n = of->n, row = of->last - m + 1 + r,
            from = of->c + (at->overlaps && r >= 0 ? W / 2 : 0);
    float bias[PIECE];

    osh_to_f32(x, compress_at(j, 0, row, from), dt, n);
    osh_to_f32(g, compress_at(j, 1, row, from), dt, n);
    osh_load_weight(bias, j->a->in[2], (r < 0 ? r + m : r) * W + from, n, OSH_F32);
    for (int64_t i = 0; i < n; i++) g[i] = osh_round_to(g[i] + bias[i], dt);
}

/* Computes some columns of the entry of one window. */
static void window_compress(const compress_job *j, const window_part *of)
{
    const osh_tensor *out = j->a->out[0];
    int64_t m = ((const osh_compress_attr *)j->a->attr)->window, first = of->first, n = of->n;
    float x[PIECE], g[PIECE], max[PIECE], y[PIECE];
    double sum[PIECE] = {0}, all[PIECE] = {0};

    for (int64_t r = first; r < m; r++) {
        compress_load(x, g, j, of, r);
        for (int64_t i = 0; i < n; i++) max[i] = r == first || g[i] > max[i] ? g[i] : max[i];
    }
    for (int64_t r = first; r < m; r++) {
        compress_load(x, g, j, of, r);
        for (int64_t i = 0; i < n; i++) all[i] += osh_math_exp((double)g[i] - max[i]);
    }
    for (int64_t r = first; r < m; r++) {
        compress_load(x, g, j, of, r);
        for (int64_t i = 0; i < n; i++) {
            double p = osh_math_exp((double)g[i] - max[i]) / all[i];
            sum[i] += (double)osh_round_to((float)p, out->dtype) * x[i];
        }
    }
    for (int64_t i = 0; i < n; i++) y[i] = (float)sum[i];
    osh_from_f32(osh_elem(out, of->last * osh_width(out) + of->c), out->dtype, y, n);
}

static osh_status compress_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const compress_job *j = user;
    const osh_compress_attr *at = j->a->attr;
    const osh_tile *t = &j->seqs[chunk];
    const osh_tensor *out = j->a->out[0];
    int64_t D = osh_width(out), m = at->window;

    (void)cx, (void)worker;
    memset(osh_elem(out, t->row * D), 0, (size_t)(t->n * D) * osh_dtype_bytes(out->dtype));
    for (int64_t r = 0; r < t->n; r++) {
        int64_t pos = t->pos + r;
        if ((pos + 1) % m) continue;
        window_part of = {.last = t->row + r, .first = at->overlaps && pos >= m ? -m : 0};
        for (of.c = 0; of.c < D; of.c += PIECE) {
            of.n = osh_min64(PIECE, D - of.c);
            window_compress(j, &of);
        }
    }
    return OSH_OK;
}

/* Returns the largest number of earlier rows that the windows of the next tokens need. */
static int64_t compress_kept(const osh_compress_attr *at)
{
    return compress_parts(at) * at->window - 1;
}

/* Copies the last rows of kv and gate to the state, for the next tokens of the sample. */
static void compress_keep(const osh_op_args *a, int64_t kept)
{
    for (int k = 0; k < 2; k++) {
        const osh_tensor *x = a->in[k];
        size_t row = (size_t)osh_width(x) * osh_dtype_bytes(x->dtype);
        int64_t N = osh_rows(x), old = osh_max64(0, kept - N), fresh = kept - old;
        char *state = (char *)a->past->state + (size_t)(k * kept) * row;
        memmove(state, state + (size_t)fresh * row, (size_t)old * row);
        memcpy(state + (size_t)old * row, (const char *)x->data + (size_t)(N - fresh) * row,
               (size_t)fresh * row);
    }
}

static osh_status compress_ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0, m = ((const osh_compress_attr *)a->attr)->window;
    // own: tiles, each with rows of one sample; chunk i of the parallel work computes tile i
    osh_tile *tiles = NULL;
    compress_job j = {.a = a, .kept = a->past ? compress_kept(a->attr) : 0};

    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), osh_max64(m, 16)));
    osh_tiles_move(tiles, n_tiles, a->past);
    j.seqs = tiles;
    OSH_TRY(osh_parallel_for(cx, n_tiles, compress_chunk, &j));
    if (a->past && j.kept) compress_keep(a, j.kept);
done:
    osh_free(cx, tiles);
    return rc;
}

static size_t compress_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_threads;
    return (size_t)(n_tokens + 2) * sizeof(osh_tile);
}

static size_t compress_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                             osh_dtype dt)
{
    (void)n_tokens;
    return (size_t)(2 * compress_kept(attr) * in_width[0]) * osh_dtype_bytes(dt);
}

const osh_op osh_op_compress = {
    .name = "compress", .n_in = 2, .n_weights = 1, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_compress_attr), .infer = infer,
    .run = {[OSH_REF] = compress_ref}, .tol = 0, .scratch = compress_scratch,
    .next = compress_ref, .state = compress_state, .traits = OSH_OP_HOST_ONLY,
};
