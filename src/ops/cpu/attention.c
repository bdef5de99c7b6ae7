/* attention.c - computes attention for one tile of queries at a time: first the scores of the tile,
 * then the softmax of each row of scores, then the sum over v.
 *
 *   rows of a tile   head 0: queries [pos, pos + n)
 *                    head 1: queries [pos, pos + n)
 *                    ...
 *
 * The heads of a tile read the same kv head, so the tile loads this kv head only once.
 * A tile of n queries uses the keys of the sample up to the tile's last query. So only scores of
 * the last n keys can be masked. Small tiles compute fewer masked scores. Large tiles spend less
 * time on the setup of matrix products.
 *
 * With AVX2 (math/tile.h), keys and values are packed once for all tiles. The scores are computed
 * for groups of 24 rows (GROUP), and a group computes only the scores that its rows need. With
 * AVX-512 BF16 (math/pairs.h), keys and values are packed, too. Queries are read in place, 32
 * queries of a head at a time. Shape letters: op.h. */
#include "base/isa.h"
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "math/pairs.h"
#include "ops/cpu/pairs_ops.h"
#include "math/span.h"
#include "math/span512.h"
#include "math/tile.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

enum { ROWS = 96, MIN_QUERIES = 16, GROUP = 24, PAIRS_QUERIES = 128, BAND = OSH_PAIRS_BAND };
typedef enum { BLAS, TILES, PAIRS } way;

typedef struct attention_worker {
    float *q, *y;     // queries and outputs of a tile, [heads of one kv head, queries, Dh]
    /* Keys and values of the first n_keys tokens for one kv head, [tokens of the longest sample,
     * Dh]. The AVX2 kernel (TILES) packs them in panels: k [Dh, 16 keys], v [longest sample, 16
     * channels]. */
    float *k, *v;
    float *s;         // scores, [rows of a tile, tokens of the longest sample, padded to 16]
    /* Only for the AVX2 kernel (TILES): 16 keys in f32, [16, Dh], for the next panel of k. */
    float *strip;
    /* Only for the BF16 kernel (PAIRS).
     * kp: keys, in panels of 16 keys.
     * vp: values of n_keys tokens, in panels of 16 channels.
     * qp: packed queries of a band (BAND queries of one head). */
    uint32_t *kp, *vp, *qp;
    /* k and v (or kp and vp) have the first n_keys keys and values for kv head kv_head of one
     * sample. sample: first row of this sample; -1: these arrays are empty. */
    int64_t sample, kv_head, n_keys;
    bool bad; // only for the BF16 kernel (PAIRS): true if an output is not finite
} attention_worker;

typedef struct attention_job {
    const osh_attention_attr *at;
    const osh_op_args *a;
    way way;
    const osh_tile *tiles;
    int64_t n_tiles, longest; // n_tiles: length of `tiles`; longest: tokens of the longest sample
    /* Number of keys that the state of the sample already has (osh_op_past). 0: the sample runs as
     * a whole. */
    int64_t past;
    const float *sinks;       // scores of the sinks, [H]; NULL: the op has no sinks
    attention_worker *workers;
} attention_job;

static int64_t heads_per_kv_head(const osh_attention_attr *at)
{
    return at->n_heads / at->n_kv_heads;
}

static int64_t tile_queries(const osh_attention_attr *at, way how)
{
    int64_t n = ROWS / heads_per_kv_head(at) / 8 * 8;
    return how == PAIRS ? PAIRS_QUERIES : n < MIN_QUERIES ? MIN_QUERIES : n;
}

static void load_head(float *to, const osh_tensor *x, int64_t row, int64_t n, int64_t head,
                      int64_t Dh)
{
    for (int64_t r = 0; r < n; r++)
        osh_to_f32(to + r * Dh, osh_elem(x, (row + r) * osh_width(x) + head * Dh), x->dtype, Dh);
}

/* Converts the first n keys and values of the sample to f32, for one kv head. Skips keys and values
 * that the worker has already converted. sample: first row of the sample. */
static void load_keys(attention_worker *me, const attention_job *j, int64_t sample, int64_t kv_head,
                      int64_t n)
{
    int64_t Dh = j->at->head_dim, have = me->n_keys;

    if (me->sample != sample || me->kv_head != kv_head) have = 0;
    if (have < n) {
        load_head(me->k + have * Dh, j->a->in[1], sample + have, n - have, kv_head, Dh);
        load_head(me->v + have * Dh, j->a->in[2], sample + have, n - have, kv_head, Dh);
        have = n;
    }
    me->sample = sample, me->kv_head = kv_head, me->n_keys = have;
}

static int64_t pad_cols(int64_t n) { return osh_div_up(n, OSH_TILE_COLS) * OSH_TILE_COLS; }

/* For the AVX2 kernel: packs the first n keys and values of the sample, for one kv head. Does
 * nothing if the worker has packed them already. sample: first row of the sample. */
static void pack_keys(attention_worker *me, const attention_job *j, int64_t sample, int64_t kv_head,
                      int64_t n)
{
    int64_t Dh = j->at->head_dim;
    const osh_tensor *v = j->a->in[2];

    if (me->sample == sample && me->kv_head == kv_head && me->n_keys >= n) return;
    for (int64_t i = 0; i < n; i += OSH_TILE_COLS) {
        int64_t keys = osh_min64(OSH_TILE_COLS, n - i);
        load_head(me->strip, j->a->in[1], sample + i, keys, kv_head, Dh);
        osh_tile_pack_rows(me->k + i * Dh, me->strip, Dh, keys, Dh);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < Dh; d += OSH_TILE_COLS)
            osh_to_f32(me->v + d * j->longest + i * OSH_TILE_COLS,
                       osh_elem(v, (sample + i) * osh_width(v) + kv_head * Dh + d), v->dtype,
                       osh_min64(OSH_TILE_COLS, Dh - d));
    me->sample = sample, me->kv_head = kv_head, me->n_keys = n;
}

/* The rows of a tile. Each row is one query of one head.
 * t: the tile, with the positions of its queries.
 * rows: number of rows, which is queries times heads. */
typedef struct rows_of {
    const osh_tile *t;
    int64_t rows;
    const osh_attention_attr *at;
    /* scale: factor of the scores.
     * softcap: limit of the scores; 0: no limit. */
    float scale, softcap;
    osh_dtype dt;
    const float *sinks; // scores of the sinks of these heads; NULL: the op has no sinks
} rows_of;

/* On entry, s[from] ... s[to - 1] are the products of a query with the keys that it sees. Replaces
 * them by probabilities. The softmax includes the score of the sink. First computes the softmax p
 * without the sink, in f32. m is the largest score:
 *
 *   p_m = 1 / sum e^(s - m)
 *   probabilities with the sink = p / (1 + e^(sink - m) p_m) */
static void softmax_sink(float *s, int64_t from, int64_t to, float scale, float sink, osh_dtype dt)
{
    int64_t top = from;
    for (int64_t i = from; i < to; i++)
        if (s[i] > s[top]) top = i;
    float m = s[top] * scale;
    osh_span_softmax(s + from, to - from, scale, OSH_F32);
    float share = 1 / (1 + expf(sink - m) * s[top]);
    for (int64_t i = from; i < to; i++) s[i] = osh_round_to(s[i] * share, dt);
}

static void hide_scores(float *s, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) s[i] = -INFINITY;
}

/* On entry, s [n_keys] has the products of one query of head `head` with the keys. Replaces them by
 * probabilities. The query sees the keys [lo, hi). The other probabilities become 0. */
static void softmax_row(float *s, int64_t n_keys, int64_t lo, int64_t hi, const rows_of *o,
                        int64_t head)
{
    int64_t from = lo & ~(int64_t)7, to = osh_pad8(hi);

    if (o->softcap > 0) osh_span_softcap(s + from, to - from, o->scale, o->softcap, OSH_F32);
    hide_scores(s, from, lo), hide_scores(s, hi, to);
    float scale = o->softcap > 0 ? 1 : o->scale;
    if (o->sinks) softmax_sink(s, from, to, scale, o->sinks[head], o->dt);
    else osh_span_softmax(s + from, to - from, scale, o->dt);
    memset(s, 0, (size_t)from * sizeof *s);
    if (to < n_keys) memset(s + to, 0, (size_t)(n_keys - to) * sizeof *s);
}

/* Row r belongs to a query. Returns the position of this query in the sample. */
static int64_t row_query(const rows_of *o, int64_t r) { return o->t->pos + r % o->t->n; }

static void attend_by_blas(attention_worker *me, const rows_of *o, int64_t Dh)
{
    int64_t first = osh_first_key(o->at, o->t->pos), n_keys = o->t->pos + o->t->n - first,
            ld = osh_pad8(n_keys);

    osh_gemm_nt((osh_into){me->s, ld, false}, (osh_mat){me->q, Dh},
                (osh_mat){me->k + first * Dh, Dh}, (osh_mnk){o->rows, n_keys, Dh});
    for (int64_t r = 0; r < o->rows; r++) {
        int64_t i = row_query(o, r), lo = osh_first_key(o->at, i);
        softmax_row(me->s + r * ld, n_keys, lo > first ? lo - first : 0, i + 1 - first, o,
                    r / o->t->n);
    }
    osh_gemm_nn((osh_into){me->y, Dh, false}, (osh_mat){me->s, ld},
                (osh_mat){me->v + first * Dh, Dh}, (osh_mnk){o->rows, Dh, n_keys});
}

/* Computes attention for GROUP rows at a time. A group uses all keys that at least one of its rows
 * sees. */
static void attend_by_tiles(attention_worker *me, const rows_of *o, int64_t Dh, int64_t longest)
{
    for (int64_t r = 0; r < o->rows; r += GROUP) {
        int64_t m = osh_min64(GROUP, o->rows - r), lo = INT64_MAX, hi = 0;
        for (int64_t k = r; k < r + m; k++) {
            int64_t i = row_query(o, k);
            lo = osh_min64(lo, osh_first_key(o->at, i)), hi = i + 1 > hi ? i + 1 : hi;
        }
        lo -= lo % OSH_TILE_COLS;
        int64_t n = pad_cols(hi - lo);
        osh_tile_a q = {.p = me->q + r * Dh, .row = Dh, .col = 1},
                   s = {.p = me->s, .row = n, .col = 1};
        osh_tile_product((osh_into){me->s, n, false}, q,
                         (osh_tile_b){me->k + lo * Dh, OSH_TILE_COLS * Dh, OSH_TILE_COLS},
                         (osh_mnk){m, n, Dh});
        for (int64_t k = 0; k < m; k++) {
            int64_t i = row_query(o, r + k);
            softmax_row(me->s + k * n, n, osh_first_key(o->at, i) - lo, i + 1 - lo, o,
                        (r + k) / o->t->n);
        }
        osh_tile_product(
            (osh_into){me->y + r * Dh, Dh, false}, s,
            (osh_tile_b){me->v + lo * OSH_TILE_COLS, longest * OSH_TILE_COLS, OSH_TILE_COLS},
            (osh_mnk){m, Dh, hi - lo});
    }
}

/* Rounds n f32 values to dt, a type of 16 bits, in place. The rounded values occupy the first half
 * of the memory. Does nothing if dt is F32. */
static void narrow_row(float *s, int64_t n, osh_dtype dt)
{
    uint16_t part[256];
    if (dt == OSH_F32) return;
    for (int64_t i = 0; i < n; i += 256) {
        int64_t k = osh_min64(256, n - i);
        osh_from_f32(part, dt, s + i, k);
        memcpy((uint16_t *)s + i, part, (size_t)k * sizeof *part);
    }
}

/* The keys that a query sees: [lo, hi). [from, to): the same range, extended to multiples of 8. */
typedef struct visible {
    int64_t lo, hi, from, to;
} visible;

static visible visible_keys(const rows_of *o, int64_t pos, int64_t first)
{
    int64_t lo = osh_max64(osh_first_key(o->at, pos) - first, 0), hi = pos + 1 - first;
    return (visible){lo, hi, lo & ~(int64_t)7, osh_pad8(hi)};
}

/* Turns the scores s [n_keys] of one query into probabilities, as softmax_row does. Then rounds the
 * probabilities to o->dt (BF16), and writes them to the first half of the memory of s. */
static void narrow_softmax(float *s, int64_t n_keys, const visible *v, const rows_of *o,
                           int64_t head)
{
    softmax_row(s, n_keys, v->lo, v->hi, o, head);
    narrow_row(s, n_keys, o->dt);
}

/* Like narrow_softmax, for `rows` rows of scores [n_keys], without softcap and without sinks. v
 * [rows]: the keys that each row sees. All rows must have the same `from` and the same `to`. */
static void narrow_rows(float *s, int64_t n_keys, const visible *v, int rows, float scale)
{
    osh_scores q = {s + v->from, (uint16_t *)(void *)s + v->from, n_keys, v->to - v->from, rows,
                    scale};
    for (int r = 0; r < rows; r++) {
        hide_scores(s + r * n_keys, v[r].from, v[r].lo);
        hide_scores(s + r * n_keys, v[r].hi, v[r].to);
    }
    osh_span512_probabilities(&q);
    for (int r = 0; r < rows; r++) {
        uint16_t *p = (uint16_t *)(void *)(s + r * n_keys);
        memset(p, 0, (size_t)v->from * sizeof *p);
        memset(p + v->to, 0, (size_t)(n_keys - v->to) * sizeof *p);
    }
}

/* The scores s [m, n] of m queries and n keys. pos: position of the first query in the sample.
 * first: position of the first key. */
typedef struct band_scores {
    float *s; // view
    int64_t n, m, pos, first;
} band_scores;

/* Turns the scores of some queries of head `head` into probabilities in BF16. */
static void narrow_band(const band_scores *b, const rows_of *o, int64_t head)
{
    bool wide = osh_span512_takes(o->dt) && !(o->softcap > 0) && !o->sinks;
    int rows;
    for (int64_t r = 0; r < b->m; r += rows) {
        visible v[OSH_SOFTMAX_ROWS];
        bool same = wide && r + OSH_SOFTMAX_ROWS <= b->m;
        for (int k = 0; k < OSH_SOFTMAX_ROWS && (!k || same); k++) {
            v[k] = visible_keys(o, b->pos + r + k, b->first);
            same &= v[k].from == v->from && v[k].to == v->to;
        }
        rows = same ? OSH_SOFTMAX_ROWS : 1;
        if (wide) narrow_rows(b->s + r * b->n, b->n, v, rows, o->scale);
        else narrow_softmax(b->s + r * b->n, b->n, v, o, head);
    }
}

/* For the BF16 kernel: packs the first n keys and values of the sample, for one kv head. Does
 * nothing if the worker has packed them already. sample: first row of the sample. */
static void pack_pairs(attention_worker *me, const attention_job *j, int64_t sample,
                       int64_t kv_head, int64_t n)
{
    int64_t Dh = j->at->head_dim, ld = osh_width(j->a->in[1]), from = sample * ld + kv_head * Dh;
    const uint16_t *k = osh_elem(j->a->in[1], from), *v = osh_elem(j->a->in[2], from);

    if (me->sample == sample && me->kv_head == kv_head && me->n_keys >= n) return;
    osh_pairs_pack_all_rows(me->kp, k, ld, n, Dh);
    osh_pairs_pack_columns(me->vp, v, ld, Dh, n);
    me->sample = sample, me->kv_head = kv_head, me->n_keys = n;
}

/* Computes attention for m queries of one head. The first query is row `row` of the tile. One
 * matrix product computes the scores of all m queries with all keys up to the last query. Keys
 * after a query get probability 0. */
static void attend_band(attention_worker *me, const attention_job *j, const rows_of *o,
                        int64_t head, int64_t row, int64_t m)
{
    const osh_tensor *q = j->a->in[0];
    int64_t Dh = o->at->head_dim, wide = osh_width(q), at = (o->t->row + row) * wide + head * Dh,
            cols = pad_cols(Dh);
    int64_t pos = o->t->pos + row, first = osh_first_key(o->at, pos),
            group = heads_per_kv_head(o->at);

    first -= first % OSH_PAIRS_STEP;
    int64_t n = osh_pairs_pad(pos + m - first), skip = first / OSH_PAIRS_SIDE,
            each = osh_pairs_panel(Dh);
    osh_pairs_b keys = {me->kp + skip * each, n / OSH_PAIRS_SIDE, Dh, each};
    osh_pairs_b values = {me->vp + first / 2 * OSH_PAIRS_SIDE, cols / OSH_PAIRS_SIDE, n,
                          osh_pairs_panel(me->n_keys)};
    osh_pairs_product(me->s, n, osh_pairs_rows(me->qp, osh_elem(q, at), wide, m, Dh), m, keys);
    narrow_band(&(band_scores){me->s, n, m, pos, first}, o, head % group);
    osh_pairs_a p = {(const uint16_t *)(const void *)me->s, 2 * n, OSH_PAIRS_STEP,
                     2 * n * OSH_PAIRS_SIDE};
    // the product writes whole blocks of 16 rows to me->y; rows from row m on are not used
    osh_pairs_product(me->y, cols, p, m, values);
    osh_pairs_y y = {osh_elem(j->a->out[0], at), wide, Dh, NULL};
    me->bad |= !osh_pairs_narrow(&y, me->y, cols, m);
}

/* Computes attention for all heads that read one kv head, one head after the other. */
static void attend_by_pairs(attention_worker *me, const attention_job *j, const rows_of *o,
                            int64_t kv_head)
{
    int64_t heads = heads_per_kv_head(o->at);

    pack_pairs(me, j, j->past + o->t->row - o->t->pos, kv_head, o->t->pos + o->t->n);
    for (int64_t h = kv_head * heads; h < (kv_head + 1) * heads; h++)
        for (int64_t r = 0; r < o->t->n; r += BAND)
            attend_band(me, j, o, h, r, osh_min64(BAND, o->t->n - r));
}

/* A chunk of parallel work: computes one tile of queries for one kv head. Consecutive chunks have
 * the same kv head, so a worker often has the keys of its next chunk already. The chunks go from
 * the last tile of the batch to the first. Later tiles of a sample have more keys and take longer.
 * So the last chunks are short, and the workers finish at about the same time. */
static osh_status attend_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const attention_job *j = user;
    const osh_attention_attr *at = j->at;
    attention_worker *me = &j->workers[worker];
    const osh_tile *t = &j->tiles[j->n_tiles - 1 - chunk % j->n_tiles];
    int64_t kv_head = chunk / j->n_tiles, heads = heads_per_kv_head(at), Dh = at->head_dim,
            sample = j->past + t->row - t->pos;
    rows_of o = {t, heads * t->n, at, (float)(at->scale > 0 ? at->scale : 1 / sqrt((double)Dh)),
                 (float)at->softcap, j->a->in[0]->dtype,
                 j->sinks ? j->sinks + kv_head * heads : NULL};
    osh_tensor *out = j->a->out[0];

    (void)cx;
    if (j->way == PAIRS) {
        osh_pairs_begin();
        attend_by_pairs(me, j, &o, kv_head);
        osh_pairs_end();
        return OSH_OK;
    }
    if (j->way == TILES) pack_keys(me, j, sample, kv_head, t->pos + t->n);
    else load_keys(me, j, sample, kv_head, t->pos + t->n);
    for (int64_t h = 0; h < heads; h++)
        load_head(me->q + h * t->n * Dh, j->a->in[0], t->row, t->n, kv_head * heads + h, Dh);
    if (j->way == TILES) attend_by_tiles(me, &o, Dh, j->longest);
    else attend_by_blas(me, &o, Dh);
    for (int64_t r = 0; r < o.rows; r++) {
        int64_t row = t->row + r % t->n, head = kv_head * heads + r / t->n;
        osh_from_f32(osh_elem(out, row * osh_width(out) + head * Dh), o.dt, me->y + r * Dh, Dh);
    }
    return OSH_OK;
}

/* Sizes of the parts of a worker's scratch in 4-byte words: scores (s), keys (k), values (v) and
 * packed queries (q). all: the total, which includes the outputs (y). */
typedef struct pairs_words { int64_t s, k, v, q, all; } pairs_words;

static pairs_words pairs_room(const osh_attention_attr *at, int64_t longest)
{
    int64_t Dh = at->head_dim, keys = osh_pairs_pad(longest);
    pairs_words w = {.s = BAND * keys, .k = keys / OSH_PAIRS_SIDE * osh_pairs_panel(Dh),
                     .v = pad_cols(Dh) / OSH_PAIRS_SIDE * osh_pairs_panel(longest),
                     .q = 2 * osh_pairs_panel(Dh)};
    w.all = w.s + w.k + w.v + w.q + BAND * pad_cols(Dh);
    return w;
}

static int64_t attention_floats(const osh_attention_attr *at, way how, int64_t longest)
{
    int64_t rows = heads_per_kv_head(at) * tile_queries(at, how), Dh = at->head_dim,
            keys = pad_cols(longest);
    if (how == PAIRS) return pairs_room(at, longest).all;
    return (2 * rows + OSH_TILE_COLS) * Dh + keys * (Dh + pad_cols(Dh)) + rows * keys;
}

static osh_status attend(osh_ctx *cx, const osh_op_args *a, way how)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = a->attr;
    int64_t Dh = at->head_dim, rows = heads_per_kv_head(at) * tile_queries(at, how);
    int n_workers = osh_threads(cx);
    osh_tile *tiles = NULL;           // own
    attention_worker *workers = NULL; // own
    float *room = NULL;               // own: scratch of all workers
    float *sinks = NULL; // own: scores of the sinks in f32, [H]; NULL: no sinks
    attention_job j = {.at = at, .a = a, .way = how};

    if (a->in[3]) OSH_TRY(osh_f32_weight(cx, &sinks, a->in[3], a->in[0]->dtype));
    j.sinks = sinks;
    if (how == BLAS) OSH_TRY(osh_blas_open(cx));
    OSH_TRY(
        osh_tiles_new(cx, &tiles, &j.n_tiles, a->seqs, osh_rows(a->in[0]), tile_queries(at, how)));
    osh_tiles_move(tiles, j.n_tiles, a->past);
    j.past = a->past ? a->past->n : 0;
    for (int64_t t = 0; t < j.n_tiles; t++)
        if (tiles[t].len > j.longest) j.longest = tiles[t].len;
    int64_t each = attention_floats(at, how, j.longest), keys = pad_cols(j.longest);
    OSH_NEW(cx, workers, n_workers);
    room = osh_alloc(cx, (size_t)(n_workers * each) * sizeof *room);
    if (!room) OSH_TRY(OSH_E_NOMEM);
    for (int i = 0; i < n_workers; i++) {
        float *p = room + i * each;
        workers[i] = (attention_worker){.s = p, .sample = -1};
        if (how == PAIRS) {
            pairs_words w = pairs_room(at, j.longest);
            workers[i].y = p + w.s;
            workers[i].kp = (uint32_t *)(void *)(p + w.all - w.k - w.v - w.q);
            workers[i].vp = workers[i].kp + w.k;
            workers[i].qp = workers[i].vp + w.v;
            continue;
        }
        workers[i].q = p + rows * keys;
        workers[i].y = workers[i].q + rows * Dh;
        workers[i].k = workers[i].y + rows * Dh;
        workers[i].v = workers[i].k + keys * Dh;
        workers[i].strip = workers[i].v + keys * pad_cols(Dh);
    }
    j.tiles = tiles, j.workers = workers;
    OSH_TRY(osh_parallel_for(cx, j.n_tiles * at->n_kv_heads, attend_chunk, &j));
    bool bad = how != PAIRS; // false if all outputs are known to be finite
    for (int i = 0; i < n_workers; i++) bad |= workers[i].bad;
    if (a->finite) *a->finite = !bad;
done:
    osh_free(cx, sinks);
    osh_free(cx, room);
    osh_free(cx, workers);
    osh_free(cx, tiles);
    return rc;
}

osh_status osh_pairs_attention(osh_ctx *cx, const osh_op_args *a) { return attend(cx, a, PAIRS); }

osh_status osh_attention_cpu(osh_ctx *cx, const osh_op_args *a)
{
    return attend(cx, a, osh_pairs_take(a->in[0]) ? PAIRS : osh_tile_used() ? TILES : BLAS);
}

size_t osh_attention_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                             int64_t n_tokens, int n_threads)
{
    /* in_width and out_width are not used, because the size does not depend on them. The size is an
     * upper bound: the longest sample has at most n_tokens tokens. */
    (void)in_width, (void)out_width;
    int64_t floats = attention_floats(attr, BLAS, n_tokens),
            pairs = attention_floats(attr, PAIRS, n_tokens);
    if (osh_isa_used() >= OSH_ISA_AVX512_BF16 && pairs > floats) floats = pairs;
    return (size_t)(n_threads * floats + ((const osh_attention_attr *)attr)->n_heads) *
               sizeof(float) +
           (size_t)n_tokens * sizeof(osh_tile) + (size_t)n_threads * sizeof(attention_worker);
}
