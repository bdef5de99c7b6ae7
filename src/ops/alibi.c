/* alibi.c - appends two channels to each head of q or of k. In the product q k, these channels add
 * a bias to each attention score. The bias is linear in the position of the key (ALiBi).
 *
 *   in[0] x [N, H*Dh]     out y [N, H*(Dh + 2)]
 *
 *   q    y = x, 256 b m_h, b m_h         m_h: slope of head h; b: factor (attribute `by`)
 *   k    y = x, j / 256, j % 256         j: position of the token in its sample
 *
 * In the product q k, the two channels add b m_h j. ALiBi's bias for query i is b m_h (j - i). The
 * difference, b m_h i, is the same for all keys of a query, so softmax does not change. Both
 * channels of k are exact in BF16 for positions below 65536. Slopes:
 *
 *   Bloom    2^(-8 (h + 1) / n) for h < n, then 2^(-4 (2 (h - n) + 1) / n)
 *            n: largest power of 2 that is at most H
 *   MPT      2^(-most (k + 1) / n)
 *            n: smallest power of 2 that is at least H; most: attribute
 *            k: h if n = H; else 1, 3, 5, ... below n for the first heads, then 0, 2, 4, ...
 *
 * The slopes are those of transformers' build_alibi_tensor and build_mpt_alibi_tensor. N: tokens of
 * the batch, H: heads, Dh: channels of a head. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

#include <string.h>

/* ROWS: number of tokens in a chunk of parallel work. MOST: largest Dh (channels of a head). */
enum { ROWS = 64, MOST = 1024 };

static const osh_field attrs[] = {
    {"head_dim", OSH_F_INT, offsetof(osh_alibi_attr, head_dim), NULL, 1, MOST, "Dh", NULL, NULL},
    {"keys", OSH_F_BOOL, offsetof(osh_alibi_attr, keys), "false", 0, 0, "x is k; else it is q",
     NULL, NULL},
    {"by", OSH_F_FLOAT, offsetof(osh_alibi_attr, by), "1", 0, 1e6, "factor of the slopes", NULL,
     NULL},
    {"most", OSH_F_FLOAT, offsetof(osh_alibi_attr, most), "0", 0, 1e6,
     "MPT's alibi_bias_max; 0: the slopes of Bloom", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    int64_t Dh = ((const osh_alibi_attr *)attr)->head_dim;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] % Dh)
        return osh_fail(cx, OSH_E_FORMAT, "alibi: width %lld is not a multiple of head_dim %lld",
                        (long long)in_width[0], (long long)Dh);
    out_width[0] = in_width[0] / Dh * (Dh + 2);
    return OSH_OK;
}

/* Returns the slope of head h of H heads. */
static double alibi_slope(const osh_alibi_attr *at, int64_t h, int64_t H)
{
    int64_t n = 1;
    if (at->most > 0) {
        while (n < H) n *= 2;
        int64_t k = n == H ? h : h < n / 2 ? 2 * h + 1 : 2 * (h - n / 2);
        return osh_math_pow(2, -at->most * (double)(k + 1) / (double)n);
    }
    while (2 * n <= H) n *= 2;
    if (h < n) return osh_math_pow(2, -8 * (double)(h + 1) / (double)n);
    return osh_math_pow(2, -4 * (double)(2 * (h - n) + 1) / (double)n);
}

typedef struct alibi_job {
    const osh_op_args *a;
    const osh_tile *tiles;
} alibi_job;

static osh_status alibi_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const alibi_job *j = user;
    const osh_alibi_attr *at = j->a->attr;
    const osh_tile *t = &j->tiles[chunk];
    const osh_tensor *x = j->a->in[0], *y = j->a->out[0];
    int64_t Dh = at->head_dim, H = osh_width(x) / Dh;

    (void)cx, (void)worker;
    for (int64_t h = 0; h < H; h++) {
        double slope = at->keys ? 0 : alibi_slope(at, h, H) * at->by;
        float more[2] = {(float)(256 * slope), (float)slope};
        for (int64_t r = 0; r < t->n; r++) {
            int64_t row = t->row + r, pos = t->pos + r;
            void *to = osh_elem(y, (row * H + h) * (Dh + 2));
            memcpy(to, osh_elem(x, (row * H + h) * Dh), (size_t)Dh * osh_dtype_bytes(x->dtype));
            if (at->keys) more[0] = (float)(pos / 256), more[1] = (float)(pos % 256);
            osh_from_f32(osh_elem(y, (row * H + h) * (Dh + 2) + Dh), y->dtype, more, 2);
        }
    }
    return OSH_OK;
}

static osh_status alibi_ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0;
    osh_tile *tiles = NULL; // own
    alibi_job j = {.a = a};

    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), ROWS));
    osh_tiles_move(tiles, n_tiles, a->past);
    j.tiles = tiles;
    OSH_TRY(osh_parallel_for(cx, n_tiles, alibi_chunk, &j));
done:
    osh_free(cx, tiles);
    return rc;
}

/* Computes dx: the gradient dy without the two added channels. */
static osh_status alibi_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    int64_t Dh = ((const osh_alibi_attr *)a->attr)->head_dim;
    const float *dy = a->dout[0]->data;

    (void)cx;
    for (int64_t i = 0; i < osh_tensor_numel(a->in[0]); i++)
        osh_grad_add(a->din[0], i, dy[i / Dh * (Dh + 2) + i % Dh]);
    return OSH_OK;
}

static size_t alibi_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_threads;
    return (size_t)n_tokens * sizeof(osh_tile);
}

const osh_op osh_op_alibi = {
    .name = "alibi", .n_in = 1, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_alibi_attr), .infer = infer,
    .run = {[OSH_REF] = alibi_ref}, .tol = 0, .scratch = alibi_scratch, .next = alibi_ref,
    .grad.run = {[OSH_REF] = alibi_grad_ref}, .traits = OSH_OP_HOST_ONLY,
};
