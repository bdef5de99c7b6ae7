/* logits_grad.c - computes the gradients of kl and nll with respect to x. A chunk of parallel work
 * is a tile of up to 32 tokens of one sample. Its scratch has all logits of the tile. The products
 * run over blocks of rows of the vocabulary, in order:
 *
 *   logit [n, V] = x W^T    dx [n, D] = sum over the blocks of (dlogit [n, COLS] W [COLS, D])
 *
 * Either OpenBLAS multiplies in F32, or math/pairs.h multiplies in BF16. BF16 is used if the caller
 * sets osh_grad_args.rough, the tensors are BF16, and the CPU has BF16 instructions. In BF16,
 * dlogit is rounded, and W is the left operand of the first product, because the left operand needs
 * no packing. So the blocks of logits are transposed afterwards. */
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "math/pairs.h"
#include "ops/cpu/gemm_linear.h"
#include "math/span.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

enum { TOKENS = OSH_PAIRS_BAND, COLS = OSH_GEMM_COLS, SIDE = OSH_PAIRS_SIDE };
/* Number of vocabulary entries in one BF16 product. dx is the sum of such products over the whole
 * vocabulary. */
enum { DEPTH = 256 };

typedef struct logits_grad_job {
    const osh_grad_args *a;
    const osh_tile *tiles;
    bool kl, pairs;       // pairs: true if math/pairs.h multiplies
    /* V: vocabulary size.
     * D: hidden_size of the model. D2: hidden_size of the reference model.
     * ld: V, padded by osh_pairs_pad. */
    int64_t V, D, D2, ld;
    float *room;          // own: scratch, logits_grad_floats floats for each thread
} logits_grad_job;

/* Scratch of BF16 products. F32 products use the same memory as their scratch. */
typedef struct pairs_room { // views
    /* x: packed rows of x, [TOKENS, D].
     * rows: packed rows of W, [TOKENS, D]; not used if W can be read in place.
     * w: packed rows of W, [DEPTH, D]. */
    uint32_t *x, *rows, *w;
    uint16_t *g; // gradients of logits, rounded, [TOKENS, DEPTH]
    float *sums; // a product, [TOKENS, D padded by osh_pairs_pad]
} pairs_room;

/* Sets the arrays of *m to parts of `at`, unless `at` is NULL. Returns the number of floats that
 * the arrays need. */
static int64_t pairs_room_at(pairs_room *m, float *at, int64_t D)
{
    int64_t wide = osh_pairs_pad(D), band = TOKENS / SIDE * osh_pairs_panel(D);
    int64_t block = wide / SIDE * osh_pairs_panel(DEPTH), g = TOKENS * DEPTH / 2;
    if (at) {
        m->sums = at, m->x = (uint32_t *)(void *)(at + TOKENS * wide);
        m->rows = m->x + band, m->w = m->rows + band;
        m->g = (uint16_t *)(void *)(m->w + block);
    }
    return TOKENS * wide + 2 * band + block + g;
}

static int64_t logits_grad_floats(int64_t V, int64_t D, int64_t D2)
{
    int64_t wide = D > D2 ? D : D2;
    int64_t plain = (TOKENS + COLS) * wide, pairs = pairs_room_at(NULL, NULL, wide);
    int64_t room = osh_pairs_used() && pairs > plain ? pairs : plain;
    return (2 * TOKENS + 1) * osh_pairs_pad(V) + room;
}

/* Computes the logits x W^T of one model for the tokens of tile t, and stores them in `logit` [n,
 * ld]. room: scratch. side: 0 for the model, 1 for the reference model. */
static void tile_product(const logits_grad_job *j, float *logit, const osh_tile *t, float *room,
                         int side)
{
    const osh_tensor *in = j->a->in[2 * side], *w = j->a->in[2 * side + 1];
    int64_t D = side ? j->D2 : j->D;
    float *x = room, *block = room + TOKENS * D;
    osh_to_f32(x, osh_elem(in, t->row * D), in->dtype, t->n * D);
    for (int64_t v = 0; v < j->V; v += COLS) {
        int64_t m = osh_min64(COLS, j->V - v);
        osh_load_weight(block, w, v * D, m * D, in->dtype);
        osh_gemm_nt((osh_into){logit + v, j->ld, false}, (osh_mat){x, D}, (osh_mat){block, D},
                    (osh_mnk){t->n, m, D});
    }
}

/* Does the work of tile_product with BF16 products. */
static void tile_product_pairs(const logits_grad_job *j, float *logit, const osh_tile *t,
                               float *room, int side)
{
    const osh_tensor *in = j->a->in[2 * side], *w = j->a->in[2 * side + 1];
    int64_t D = side ? j->D2 : j->D;
    float c[TOKENS * TOKENS];
    pairs_room m;
    pairs_room_at(&m, room, D);
    osh_pairs_pack_all_rows(m.x, osh_elem(in, t->row * D), D, t->n, D);
    osh_pairs_b x = {m.x, TOKENS / SIDE, D, osh_pairs_panel(D), false};
    osh_pairs_begin();
    for (int64_t v = 0; v < j->V; v += TOKENS) {
        int64_t n = osh_min64(TOKENS, j->V - v);
        osh_pairs_a rows = osh_pairs_rows(m.rows, osh_elem(w, v * D), D, n, D);
        osh_pairs_product(c, TOKENS, rows, n, x);
        for (int64_t k = 0; k < n; k += SIDE)
            for (int64_t r = 0; r < t->n; r += SIDE)
                osh_pairs_turn_sums(logit + r * j->ld + v + k, j->ld, c + k * TOKENS + r, TOKENS);
    }
    osh_pairs_end();
}

/* Adds the bias to the logits [n, ld] of one model, and divides and caps them (osh_logits_rule).
 * Elements from V on become -inf, so that their probability is 0. */
static void tile_finish(const logits_grad_job *j, float *logit, int64_t n, int side)
{
    const osh_vocab_attr *at = j->a->attr;
    float divide = at ? (float)at->rule[side].divide : 0, cap = at ? (float)at->rule[side].cap : 0,
          bias[COLS];
    for (int64_t v = 0; at && at->bias[side] && v < j->V; v += COLS) {
        int64_t m = osh_min64(COLS, j->V - v);
        osh_load_weight(bias, at->bias[side], v, m, j->a->in[2 * side]->dtype);
        for (int64_t r = 0; r < n; r++)
            for (int64_t k = 0; k < m; k++) logit[r * j->ld + v + k] += bias[k];
    }
    for (int64_t r = 0; r < n; r++) {
        float *row = logit + r * j->ld;
        for (int64_t v = j->V; v < j->ld; v++) row[v] = 0;
        for (int64_t v = 0; divide > 0 && v < j->V; v++) row[v] /= divide;
        if (cap > 0) osh_span_softcap(row, j->ld, 1, cap, OSH_F32);
        for (int64_t v = j->V; v < j->ld; v++) row[v] = -INFINITY;
    }
}

/* On entry `row` has the logits of token n. Overwrites them with the gradients of the elements of
 * x W^T. other: the reference model's logits of the token, only for kl. keep: scratch [ld]. */
static void logits_row_grad(const logits_grad_job *j, float *row, float *other, float *keep,
                            int64_t n)
{
    const osh_grad_args *a = j->a;
    const osh_vocab_attr *at = a->attr;
    float divide = at && at->rule[0].divide > 0 ? (float)at->rule[0].divide : 1,
          cap = at ? (float)at->rule[0].cap : 0;
    float g = ((const float *)a->dout[0]->data)[n];
    int32_t target = j->kl ? -1 : ((const int32_t *)a->in[2]->data)[n];

    if (!j->kl && target < 0) g = 0;
    memcpy(keep, row, (size_t)j->ld * sizeof *keep);
    osh_span_softmax(row, j->ld, 1, OSH_F32);
    if (j->kl) osh_span_softmax(other, j->ld, 1, OSH_F32);
    for (int64_t v = 0; v < j->V; v++) {
        float t = cap > 0 ? keep[v] / cap : 0;
        row[v] = g * (row[v] - (j->kl ? other[v] : v == target)) * (1 - t * t) / divide;
    }
}

/* Adds dlogit W to dx [n, D] for the n tokens of a tile. dlogit [n, ld]. room: scratch. */
static void tile_dx(const logits_grad_job *j, float *dx, const float *dlogit, int64_t n,
                    float *room)
{
    for (int64_t v = 0; v < j->V; v += COLS) {
        int64_t m = osh_min64(COLS, j->V - v);
        osh_load_weight(room, j->a->in[1], v * j->D, m * j->D, j->a->in[0]->dtype);
        osh_gemm_nn((osh_into){dx, j->D, true}, (osh_mat){dlogit + v, j->ld},
                    (osh_mat){room, j->D}, (osh_mnk){n, j->D, m});
    }
}

/* Does the work of tile_dx with BF16 products. */
static void tile_dx_pairs(const logits_grad_job *j, float *dx, const float *dlogit, int64_t n,
                          float *room)
{
    int64_t wide = osh_pairs_pad(j->D);
    pairs_room m;
    pairs_room_at(&m, room, j->D);
    memset(m.g, 0, TOKENS * DEPTH * sizeof *m.g);
    osh_pairs_a g = {m.g, DEPTH, OSH_PAIRS_STEP, SIDE * DEPTH};
    osh_pairs_begin();
    for (int64_t v = 0; v < j->V; v += DEPTH) {
        int64_t k = osh_min64(DEPTH, j->V - v);
        // the elements from V on are 0, because their probability is 0
        for (int64_t r = 0; r < n; r++)
            osh_from_f32(m.g + r * DEPTH, OSH_BF16, dlogit + r * j->ld + v,
                         osh_min64(DEPTH, j->ld - v));
        osh_pairs_pack_columns(m.w, osh_elem(j->a->in[1], v * j->D), j->D, j->D, k);
        osh_pairs_b w = {m.w, osh_div_up(j->D, SIDE), k, osh_pairs_panel(k), true};
        osh_pairs_product(m.sums, wide, g, TOKENS, w);
        for (int64_t r = 0; r < n; r++) osh_pairs_add(dx + r * j->D, m.sums + r * wide, j->D);
    }
    osh_pairs_end();
}

static osh_status logits_grad_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const logits_grad_job *j = user;
    const osh_tile *t = &j->tiles[chunk];
    float *logit = j->room + worker * logits_grad_floats(j->V, j->D, j->D2),
          *other = logit + TOKENS * j->ld, *keep = other + TOKENS * j->ld, *room = keep + j->ld;
    float *dx = (float *)j->a->din[0]->data + t->row * j->D;

    (void)cx;
    for (int side = j->kl; side >= 0; side--) {
        float *to = side ? other : logit;
        if (j->pairs) tile_product_pairs(j, to, t, room, side);
        else tile_product(j, to, t, room, side);
        tile_finish(j, to, t->n, side);
    }
    for (int64_t r = 0; r < t->n; r++)
        logits_row_grad(j, logit + r * j->ld, other + r * j->ld, keep, t->row + r);
    if (j->pairs) tile_dx_pairs(j, dx, logit, t->n, room);
    else tile_dx(j, dx, logit, t->n, room);
    return OSH_OK;
}

static bool logits_take_pairs(const osh_grad_args *a, bool kl)
{
    bool takes = a->rough;
    for (int k = 0; k < (kl ? 4 : 2); k++) takes = takes && osh_pairs_take(a->in[k]);
    return takes;
}

static osh_status logits_grad(osh_ctx *cx, const osh_grad_args *a, bool kl)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0, V = a->in[1]->shape[0];
    osh_tile *tiles = NULL; // own
    logits_grad_job j = {.a = a, .kl = kl, .pairs = logits_take_pairs(a, kl), .V = V,
                         .D = osh_width(a->in[0]), .D2 = kl ? osh_width(a->in[2]) : 0,
                         .ld = osh_pairs_pad(V)};

    OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), TOKENS));
    j.tiles = tiles;
    OSH_NEW(cx, j.room, osh_threads(cx) * logits_grad_floats(V, j.D, j.D2));
    OSH_TRY(osh_parallel_for(cx, n_tiles, logits_grad_chunk, &j));
done:
    osh_free(cx, j.room);
    osh_free(cx, tiles);
    return rc;
}

osh_status osh_kl_grad_cpu(osh_ctx *cx, const osh_grad_args *a) { return logits_grad(cx, a, true); }
osh_status osh_nll_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    return logits_grad(cx, a, false);
}

static size_t logits_grad_bytes(int64_t V, int64_t D, int64_t D2, int64_t n_tokens, int n_threads)
{
    return (size_t)(n_threads * logits_grad_floats(V, D, D2)) * sizeof(float) +
           (size_t)(n_tokens + 1) * sizeof(osh_tile);
}

size_t osh_kl_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                           int64_t n_tokens, int n_threads)
{
    (void)attr;
    return logits_grad_bytes(out_width, in_width[0], in_width[2], n_tokens, n_threads);
}

size_t osh_nll_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads)
{
    (void)attr;
    return logits_grad_bytes(out_width, in_width[0], 0, n_tokens, n_threads);
}
