/* pairs_attention_grad.c - computes the gradients of attention with BF16 tensors, by math/pairs.h.
 * (attention_grad.c has the formulas.) dy, the probabilities p and the gradients ds are rounded to
 * BF16. A chunk of parallel work is one kv head of one sample. It computes the heads that read the
 * kv head one after the other, in tiles of QUERIES queries:
 *
 *   for each band of 32 queries:   s  = q k^T
 *                                  dp = dy v^T
 *                                  p and ds of the rows, in BF16
 *                                  dq = ds k
 *   for the tile:                  dv^T += dy^T p
 *                                  dk^T += q^T ds
 *
 * The sum over each tile starts at 0, and the sums of the tiles are added in order. So the bytes
 * do not depend on threads or on other samples. */
#include "math/pairs.h"
#include "math/vec.h"
#include "ops/cpu/attention_grad.h"
#include "tensor/device.h"

#include <string.h>

enum { QUERIES = 128, BAND = OSH_PAIRS_BAND, SIDE = OSH_PAIRS_SIDE };

/* Arrays of one thread.
 * L: tokens of the longest sample, padded to a multiple of 32.
 * D: head_dim, padded to a multiple of 16.
 * All pointers are views of the scratch. For a packed matrix `b` (math/pairs.h), the comment gives
 * its shape. */
typedef struct grad_head {
    uint32_t *keys, *values; // k and v, transposed and packed as b [Dh, L]
    uint32_t *key_columns;   // k, packed as b [L, D]
    float *dk, *dv;          // transposed gradients of the keys and values of the kv head, [D, L]
    float *s, *dp;           // for a band: the products q k^T and dy v^T, [BAND, L]
    float *slope;            // derivatives of the scores of one row, [L]
    float *dq;               // [BAND, D]
    uint16_t *p, *ds, *dy;   // for a tile: p and ds [QUERIES, L], dy [QUERIES, Dh]
    uint32_t *panels;        // `p` or `ds` of a tile, packed as operand `b` [QUERIES, L]
    uint32_t *turned;        // packed q or dy [QUERIES, D] of a tile, before it is transposed
    uint32_t *q_t, *dy_t;    // transposed q and dy of a tile in blocks of 16 rows, [D, QUERIES]
    uint32_t *band;          // packed rows of q or dy, if these cannot be read in place
    osh_score_rule rule;
    double to_sink;          // gradient of the sink of the head
    int64_t L, D;
} grad_head;

typedef struct pairs_attention_job {
    const osh_grad_args *a;
    const osh_tile *seq; // view: for each sample, the range of its rows
    int64_t longest;     // number of tokens of the longest sample
    uint32_t *room;      // own: scratch, `words` 32-bit words for each thread
    int64_t words;       // number of 32-bit words of the scratch of a thread
} pairs_attention_job;

static int64_t pad_side(int64_t n) { return osh_div_up(n, SIDE) * SIDE; }

/* Returns the address of the next n words of a thread's scratch, and adds n to *words. room:
 * beginning of the scratch. If `room` is NULL, the function only counts, and returns NULL. */
static void *grad_head_take(uint32_t *room, int64_t *words, int64_t n)
{
    void *p = room ? room + *words : NULL;
    *words += n;
    return p;
}

/* Sets the arrays of a thread to parts of `room`, or to NULL if `room` is NULL. Returns the number
 * of 32-bit words that the arrays need. */
static int64_t grad_head_place(grad_head *me, uint32_t *room, int64_t Dh, int64_t longest)
{
    int64_t L = osh_pairs_pad(longest), D = pad_side(Dh), n = 0;
    int64_t head = osh_pairs_panel(Dh), tile = osh_pairs_panel(QUERIES);
    *me = (grad_head){.L = L, .D = D};
    me->keys = grad_head_take(room, &n, L / SIDE * head);
    me->values = grad_head_take(room, &n, L / SIDE * head);
    me->key_columns = grad_head_take(room, &n, D / SIDE * osh_pairs_panel(L));
    me->dk = grad_head_take(room, &n, D * L), me->dv = grad_head_take(room, &n, D * L);
    me->s = grad_head_take(room, &n, BAND * L), me->dp = grad_head_take(room, &n, BAND * L);
    me->slope = grad_head_take(room, &n, L);
    me->dq = grad_head_take(room, &n, BAND * D);
    me->p = grad_head_take(room, &n, QUERIES * L / 2);
    me->ds = grad_head_take(room, &n, QUERIES * L / 2);
    me->dy = grad_head_take(room, &n, QUERIES * D / 2);
    me->panels = grad_head_take(room, &n, L / SIDE * tile);
    me->turned = grad_head_take(room, &n, D / SIDE * tile);
    me->q_t = grad_head_take(room, &n, D / SIDE * tile);
    me->dy_t = grad_head_take(room, &n, D / SIDE * tile);
    me->band = grad_head_take(room, &n, 2 * head);
    return n;
}

static int64_t grad_head_words(int64_t Dh, int64_t longest)
{
    grad_head any;
    return grad_head_place(&any, NULL, Dh, longest);
}

/* ---- packing ---- */

/* Writes the transpose of x [n, Dh] to `to`, in packed blocks of 16 rows. */
static void pack_head_turned(uint32_t *to, uint32_t *panels, const uint16_t *x, int64_t ld,
                             int64_t n, int64_t Dh)
{
    int64_t each = osh_pairs_panel(n);
    osh_pairs_pack_columns(panels, x, ld, Dh, n);
    for (int64_t i = 0; i < osh_div_up(Dh, SIDE); i++)
        osh_pairs_turn(to + i * each, panels + i * each, n);
}

/* ---- one tile ---- */

typedef struct grad_tile { // n queries of one head; pos: position of the first query in the sample
    const osh_attention_attr *at;
    int64_t pos, n;
    /* The tile uses the keys [first, first + wide); both numbers are multiples of 32. */
    int64_t first, wide;
    const uint16_t *q;     // view [n, Dh]; rows are `ld` elements apart
    int64_t ld;
} grad_tile;

/* Returns the sum of p dp over n keys. */
OSH_AVX2 static float row_sum_of_products(const float *dp, const float *p, int64_t n)
{
    int64_t i = 0;
    osh_v8f d, q, sum;
    v8_set(&sum, 0);
    for (; i + OSH_LANES <= n; i += OSH_LANES) {
        v8_load(&d, dp + i), v8_load(&q, p + i);
        sum = sum + d * q;
    }
    float mean = v8_sum(&sum);
    for (; i < n; i++) mean += dp[i] * p[i];
    return mean;
}

/* Computes p and ds of query r of the tile from its products s and dp with n_keys keys. Writes them
 * as BF16 to row r of me->p and of me->ds. Keys after the query get zeros. */
static void grad_row(grad_head *me, const grad_tile *t, int64_t r, float *s, float *dp,
                     int64_t n_keys)
{
    int64_t i = t->pos + r - t->first, lo = osh_first_key(t->at, t->pos + r) - t->first;
    uint16_t *p = me->p + r * t->wide, *ds = me->ds + r * t->wide;

    float share = osh_attention_grad_row(&me->rule, s, me->slope, i, n_keys, lo);
    float mean = row_sum_of_products(dp + lo, s + lo, i + 1 - lo);
    osh_attention_grad_slopes(dp + lo, s + lo, me->slope + lo, mean, i + 1 - lo);
    me->to_sink -= (double)share * mean;
    memset(dp, 0, (size_t)lo * sizeof *dp);
    memset(dp + i + 1, 0, (size_t)(n_keys - i - 1) * sizeof *dp);
    osh_from_f32(p, OSH_BF16, s, n_keys), osh_from_f32(ds, OSH_BF16, dp, n_keys);
    memset(p + n_keys, 0, (size_t)(t->wide - n_keys) * sizeof *p);
    memset(ds + n_keys, 0, (size_t)(t->wide - n_keys) * sizeof *ds);
}

/* Computes p, ds and dq of the queries [r, r + m) of the tile. */
static void grad_band(grad_head *me, const grad_tile *t, int64_t r, int64_t m)
{
    int64_t Dh = t->at->head_dim, each = osh_pairs_panel(Dh), skip = t->first / SIDE * each;
    int64_t n = osh_pairs_pad(t->pos + r + m - t->first);
    osh_pairs_b keys = {me->keys + skip, n / SIDE, Dh, each};
    osh_pairs_b values = {me->values + skip, n / SIDE, Dh, each};
    osh_pairs_b columns = {me->key_columns + t->first / 2 * SIDE, me->D / SIDE, n,
                           osh_pairs_panel(me->L)};

    osh_pairs_product(me->s, n, osh_pairs_rows(me->band, t->q + r * t->ld, t->ld, m, Dh), m, keys);
    osh_pairs_product(me->dp, n, osh_pairs_rows(me->band, me->dy + r * Dh, Dh, m, Dh), m, values);
    for (int64_t i = 0; i < m; i++) grad_row(me, t, r + i, me->s + i * n, me->dp + i * n, n);
    osh_pairs_a ds = {me->ds + r * t->wide, t->wide, OSH_PAIRS_STEP, t->wide * SIDE};
    osh_pairs_product(me->dq, me->D, ds, m, columns);
}

/* Adds the product of `a` [Dh, n] and `x` [n, wide] to the columns [first, first + wide) of `to`
 * [D, L].
 * a: packed blocks.
 * x: me->p or me->ds. */
static void grad_tile_add(grad_head *me, const grad_tile *t, float *to, const uint32_t *a,
                          const uint16_t *x)
{
    int64_t Dh = t->at->head_dim, each = osh_pairs_panel(t->n);
    osh_pairs_b b = {me->panels, t->wide / SIDE, t->n, each, true};

    osh_pairs_pack_columns(me->panels, x, t->wide, t->wide, t->n);
    for (int64_t d = 0; d < Dh; d += BAND) {
        int64_t m = osh_min64(BAND, Dh - d);
        osh_pairs_product(me->s, t->wide, osh_pairs_packed(a + d / SIDE * each, t->n), m, b);
        for (int64_t i = 0; i < m; i++)
            osh_pairs_add(to + (d + i) * me->L + t->first, me->s + i * t->wide, t->wide);
    }
}

/* ---- one head ---- */

/* Computes dq of head h for the queries of sample s. Adds the terms of these queries to me->dk,
 * me->dv and me->to_sink. */
static void grad_of_head(grad_head *me, const osh_grad_args *a, const osh_tile *s, int64_t h)
{
    const osh_attention_attr *at = a->attr;
    int64_t Dh = at->head_dim, wide = osh_width(a->in[0]);
    grad_tile t = {.at = at, .ld = wide};

    for (t.pos = 0; t.pos < s->n; t.pos += QUERIES) {
        int64_t row = s->row + t.pos, first = osh_first_key(at, t.pos);
        t.n = osh_min64(QUERIES, s->n - t.pos);
        t.first = first - first % OSH_PAIRS_STEP;
        t.wide = osh_pairs_pad(t.pos + t.n - t.first);
        t.q = osh_elem(a->in[0], row * wide + h * Dh);
        for (int64_t r = 0; r < t.n; r++)
            osh_from_f32(me->dy + r * Dh, OSH_BF16,
                         (const float *)a->dout[0]->data + (row + r) * wide + h * Dh, Dh);
        pack_head_turned(me->q_t, me->turned, t.q, wide, t.n, Dh);
        pack_head_turned(me->dy_t, me->turned, me->dy, Dh, t.n, Dh);
        for (int64_t r = 0; r < t.n; r += BAND) {
            int64_t m = osh_min64(BAND, t.n - r);
            grad_band(me, &t, r, m);
            for (int64_t i = 0; i < m; i++)
                osh_attention_grad_give(a, 0, me->dq + i * me->D, row + r + i, 1, h * Dh);
        }
        grad_tile_add(me, &t, me->dv, me->dy_t, me->p);
        grad_tile_add(me, &t, me->dk, me->q_t, me->ds);
    }
}

/* Writes the gradient of the keys or values of one sample to the gradient of in[k], in the columns
 * from `at` on. x [D, L]: the transpose of the sample's gradient. */
static void give_turned(grad_head *me, const osh_grad_args *a, int k, const float *x,
                        const osh_tile *s, int64_t at)
{
    int64_t Dh = ((const osh_attention_attr *)a->attr)->head_dim;
    for (int64_t r = 0; a->din[k] && r < s->n; r++) {
        for (int64_t d = 0; d < Dh; d++) me->dq[d] = x[d * me->L + r];
        osh_attention_grad_give(a, k, me->dq, s->row + r, 1, at);
    }
}

static osh_status pairs_attention_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const pairs_attention_job *j = user;
    const osh_grad_args *a = j->a;
    const osh_attention_attr *at = a->attr;
    const osh_tile *s = &j->seq[chunk / at->n_kv_heads];
    int64_t Dh = at->head_dim, kv = chunk % at->n_kv_heads, group = at->n_heads / at->n_kv_heads;
    int64_t ld = osh_width(a->in[1]), from = s->row * ld + kv * Dh;
    const uint16_t *k = osh_elem(a->in[1], from), *v = osh_elem(a->in[2], from);
    grad_head me;

    (void)cx;
    grad_head_place(&me, j->room + worker * j->words, Dh, j->longest);
    me.rule = osh_score_rule_of(at);
    osh_pairs_pack_all_rows(me.keys, k, ld, s->n, Dh);
    osh_pairs_pack_all_rows(me.values, v, ld, s->n, Dh);
    osh_pairs_pack_apart(me.key_columns, osh_pairs_panel(me.L), k, ld, Dh, s->n);
    memset(me.dk, 0, (size_t)(me.D * me.L) * sizeof *me.dk);
    memset(me.dv, 0, (size_t)(me.D * me.L) * sizeof *me.dv);
    osh_pairs_begin();
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        me.to_sink = 0;
        if (a->in[3]) osh_load_weight(&me.rule.sink, a->in[3], h, 1, a->in[0]->dtype);
        grad_of_head(&me, a, s, h);
        osh_grad_add(a->din[3], h, me.to_sink);
    }
    osh_pairs_end();
    give_turned(&me, a, 1, me.dk, s, kv * Dh);
    give_turned(&me, a, 2, me.dv, s, kv * Dh);
    return OSH_OK;
}

osh_status osh_pairs_attention_grad(osh_ctx *cx, const osh_grad_args *a, const osh_tile *seq,
                                    int64_t n_seqs, int64_t longest)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = a->attr;
    int64_t together = a->din[3] ? 1 : n_seqs;
    pairs_attention_job j = {.a = a, .longest = longest};
    size_t bytes = osh_pairs_attention_grad_scratch(at->head_dim, longest, osh_threads(cx));

    j.words = grad_head_words(at->head_dim, longest);
    if (!(j.room = osh_alloc(cx, bytes))) OSH_TRY(OSH_E_NOMEM);
    for (int64_t s = 0; s < n_seqs; s += together) {
        j.seq = seq + s;
        OSH_TRY(osh_parallel_for(cx, together * at->n_kv_heads, pairs_attention_chunk, &j));
    }
done:
    osh_free(cx, j.room);
    return rc;
}

size_t osh_pairs_attention_grad_scratch(int64_t Dh, int64_t longest, int n_threads)
{
    return (size_t)(n_threads * grad_head_words(Dh, longest)) * sizeof(uint32_t);
}
