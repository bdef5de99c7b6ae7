/* rope.c - computes rope. Consecutive samples with equal frequencies share one table of cosines and
 * sines. Shape letters: op.h. */
#include "ops/rope.h"
#include "ops/cpu/cpu.h"
#include "math/span.h"
#include "math/span512.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <stdatomic.h>
#include <string.h>

enum { ROWS = 32 }; // number of tokens in a chunk of parallel work

typedef struct rope_job {
    const osh_rope_attr *at;
    const osh_tensor *x;
    osh_tensor *y;
    const osh_tile *tiles;
    const float *inv_freq; // view [half]: inverse frequencies
    /* [n_pos, half]: cosines and sines for the positions `from`, `from` + 1, ..., rounded to
     * `dtype`. */
    float *cos, *sin;      // views
    osh_dtype dtype;       // dtype to which products are rounded
    int64_t from, n_pos, half;
    float *rows;           // view: scratch, a row of `width` floats for each thread
    float way;             // factor of the angles: 1, or -1 for gradients
    _Atomic bool unknown;  // false if all values of y are known to be finite
} rope_job;

static osh_status rope_table_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const rope_job *j = user;
    float scaling = (float)j->at->attention_scaling;
    int64_t half = j->half, end = osh_min64(j->n_pos, (chunk + 1) * ROWS), padded = osh_pad8(half);
    double angle[OSH_ROPE_MAX_FREQS] = {0};
    float s[OSH_ROPE_MAX_FREQS], c[OSH_ROPE_MAX_FREQS];

    (void)cx, (void)worker;
    for (int64_t pos = chunk * ROWS; pos < end; pos++) {
        for (int64_t i = 0; i < half; i++)
            /* The product is rounded to f32, as in transformers. */
            angle[i] = j->inv_freq[i] * (float)(j->from + pos - j->at->back);
        osh_span_sincos(s, c, angle, padded);
        for (int64_t i = 0; i < padded; i++) c[i] *= scaling, s[i] = s[i] * scaling * j->way;
        osh_span_round(c, padded, j->dtype), osh_span_round(s, padded, j->dtype);
        memcpy(j->cos + pos * half, c, (size_t)half * sizeof *c);
        memcpy(j->sin + pos * half, s, (size_t)half * sizeof *s);
    }
    return OSH_OK;
}

/* Rotates one head. If at->interleaved is true, first moves the pairs into two halves, and at the
 * end interleaves the halves again. */
static void rope_turn_head(float *head, const float *c, const float *s, const osh_rope_attr *at,
                           osh_dtype dt)
{
    int64_t half = at->rotary_dim / 2;
    float lo[OSH_ROPE_MAX_FREQS], hi[OSH_ROPE_MAX_FREQS];

    if (!at->interleaved) {
        osh_span_rotate(head, head + half, c, s, half, dt);
        return;
    }
    for (int64_t i = 0; i < half; i++) lo[i] = head[2 * i], hi[i] = head[2 * i + 1];
    osh_span_rotate(lo, hi, c, s, half, dt);
    for (int64_t i = 0; i < half; i++) head[2 * i] = lo[i], head[2 * i + 1] = hi[i];
}

/* Rotates one row in f32. */
static void rope_turn_f32(const rope_job *j, float *row, int64_t at, const osh_turn512 *t,
                          float factor)
{
    int64_t width = osh_width(j->x);
    osh_dtype dt = j->x->dtype;

    osh_to_f32(row, osh_elem(j->x, at), dt, width);
    for (int64_t h = 0; h < width; h += t->head_dim)
        rope_turn_head(row + h, t->c, t->s, j->at, j->dtype);
    for (int64_t i = 0; factor != 1 && i < width; i++) row[i] = osh_round_to(row[i], dt) * factor;
    osh_from_f32(osh_elem(j->y, at), dt, row, width);
}

static osh_status rope_turn_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    rope_job *j = user;
    const osh_tile *t = &j->tiles[chunk];
    int64_t width = osh_width(j->x);
    bool bf16 = osh_span512_takes(j->dtype) && !j->at->interleaved, known = true;

    (void)cx;
    for (int64_t r = 0; r < t->n; r++) {
        float factor = osh_round_to(osh_rope_position_factor(j->at, t->pos + r), j->x->dtype);
        int64_t at_table = (t->pos + r - j->from) * j->half, at = (t->row + r) * width;
        osh_turn512 turn = {j->cos + at_table, j->sin + at_table, j->half, j->at->head_dim};
        if (bf16 && factor == 1) {
            known &=
                osh_span512_rotate_bf16(osh_elem(j->y, at), osh_elem(j->x, at), width, &turn);
            continue;
        }
        rope_turn_f32(j, j->rows + worker * width, at, &turn, factor);
        known = false;
    }
    if (!known) atomic_store(&j->unknown, true);
    return OSH_OK;
}

/* Finds the longest sequence of tiles that begins at `first` and in which all samples have equal
 * frequencies. Returns the index after its last tile. Sets *max_len to the number of tokens of the
 * longest of these samples. */
static int64_t rope_same_freqs(const osh_rope_attr *at, const osh_tile *tiles, int64_t n_tiles,
                          int64_t first, int64_t *max_len)
{
    int64_t end = first, key = osh_rope_key(at, tiles[first].len);

    *max_len = 0;
    for (; end < n_tiles; end++) {
        if (osh_rope_key(at, tiles[end].len) != key) break;
        if (tiles[end].len > *max_len) *max_len = tiles[end].len;
    }
    return end;
}

static int64_t rope_table_floats(const osh_rope_attr *at, int64_t longest)
{
    return 2 * longest * (at->rotary_dim / 2);
}
static int64_t rope_rows_floats(int64_t width, int n_threads) { return width * n_threads; }

/* Rotates in[0] and writes the result to out[0]. way: factor of the angles; 1 rotates, and -1
 * computes gradients. */
static osh_status rope_turn(osh_ctx *cx, const osh_op_args *a, float way)
{
    osh_status rc = OSH_OK;
    const osh_rope_attr *at = a->attr;
    int64_t N = osh_rows(a->in[0]), width = osh_width(a->in[0]), half = at->rotary_dim / 2;
    int64_t n_tiles = 0, end = 0, longest = 0, from = a->past ? a->past->n : 0;
    float inv_freq[OSH_ROPE_MAX_FREQS];
    bool unknown = false;              // false if all values of out[0] are known to be finite
    osh_tile *tiles = NULL;            // own
    /* table: own [2, tokens of the longest sample, half], cosines and sines.
     * rows: own [threads, width], scratch. */
    float *table = NULL, *rows = NULL;

    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, N, ROWS));
    osh_tiles_move(tiles, n_tiles, a->past);
    for (int64_t t = 0; t < n_tiles; t++)
        if (tiles[t].len - from > longest) longest = tiles[t].len - from;
    OSH_NEW(cx, table, rope_table_floats(at, longest));
    OSH_NEW(cx, rows, rope_rows_floats(width, osh_threads(cx)));
    for (int64_t first = 0; first < n_tiles; first = end) {
        rope_job j = {.at = at, .x = a->in[0], .y = a->out[0], .tiles = tiles + first,
                      .inv_freq = inv_freq, .cos = table, .sin = table + longest * half,
                      .from = from, .half = half, .rows = rows, .way = way,
                      .dtype = at->f32 ? OSH_F32 : a->in[0]->dtype};
        end = rope_same_freqs(at, tiles, n_tiles, first, &j.n_pos);
        j.n_pos -= from;
        osh_rope_freqs(inv_freq, at, tiles[first].len);
        OSH_TRY(osh_parallel_for(cx, osh_div_up(j.n_pos, ROWS), rope_table_chunk, &j));
        OSH_TRY(osh_parallel_for(cx, end - first, rope_turn_chunk, &j));
        unknown |= j.unknown;
    }
    if (a->finite) *a->finite = !unknown;
done:
    osh_free(cx, rows);
    osh_free(cx, table);
    osh_free(cx, tiles);
    return rc;
}

osh_status osh_rope_cpu(osh_ctx *cx, const osh_op_args *a) { return rope_turn(cx, a, 1); }

/* Rotates dy by the negative angles, in f32, and adds the result to din[0]. */
osh_status osh_rope_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own [N, H*Dh]: the rotated dy
    if (!a->din[0]) return rc;
    if (a->fresh & 1)
        return rope_turn(cx, &(osh_op_args){.in = {a->dout[0]}, .out = {a->din[0]},
                                            .attr = a->attr, .seqs = a->seqs}, -1);
    OSH_TRY(osh_tensor_new(cx, &t, OSH_F32, 2, a->dout[0]->shape));
    OSH_TRY(rope_turn(cx, &(osh_op_args){.in = {a->dout[0]}, .out = {t},
                                         .attr = a->attr, .seqs = a->seqs}, -1));
    osh_grad_args back = {.dout = {t}, .din = {a->din[0]}};
    OSH_TRY(osh_add_grad_cpu(cx, &back));
done:
    osh_tensor_free(cx, t);
    return rc;
}

size_t osh_rope_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                        int64_t n_tokens, int n_threads)
{
    (void)out_width;
    return (size_t)(rope_table_floats(attr, n_tokens) + rope_rows_floats(in_width[0], n_threads) +
                    8) *
               sizeof(float) +
           (size_t)n_tokens * sizeof(osh_tile);
}
