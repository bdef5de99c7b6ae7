/* dnnl_hessian.c - H += X^T X and D += (X0 - X)^T X on oneDNN, by blocks of 192 x 192, to each of which every tile of
 * 512 tokens adds its f32 sums.
 *
 *   X^T   a worker turns the lines of its block by itself: threads meet once a batch, and nothing is as wide as X
 *   H     of a block on the diagonal the two squares of 96 that the diagonal goes through are made whole and added in
 *         part, what is between them as it is */
#include "ops/cpu/dnnl.h"
#include "ops/cpu/gemm.h"
#include "ops/kernel.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { SIDE = 192, HALF = SIDE / 2, TOKENS = 512 };
enum { LINE = TOKENS + 32, STEP = 8 }; // elements between lines of X^T, no power of two; rows that are turned at a time

typedef struct hessian_job {
    float *h;                 // [n_cols, n_cols]
    const osh_tensor *x, *x0; // x0 NULL: h is H, of which the lower triangle is all; else D
    const osh_tile *tiles;    // of tokens
    int64_t n_tiles, n_cols;
    char *room;               // [threads, room_bytes]
} hessian_job;

typedef struct block { // of H: rows [row, row + m), columns [col, col + n)
    int64_t row, m, col, n;
} block;

/* A worker's lines of X^T, or of (X0 - X)^T, of one tile of tokens; and a square that the diagonal goes through. */
static size_t room_bytes(osh_dtype dtype)
{
    return (size_t)SIDE * LINE * osh_dtype_bytes(dtype) + (size_t)HALF * HALF * sizeof(float);
}

/* ---- turning ---- */

#if defined(__x86_64__)
static __m128i load(const uint16_t *x) { return _mm_loadu_si128((const __m128i *)(const void *)x); }
static void store(uint16_t *to, __m128i v) { _mm_storeu_si128((__m128i *)(void *)to, v); }

/* 8 rows of 8 values become columns of 8 lines. */
static void turn(uint16_t *to, const uint16_t *x, int64_t ld)
{
    __m128i r[8], t[8];
    for (int i = 0; i < 8; i++) r[i] = load(x + i * ld);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm_unpacklo_epi16(r[i], r[i + 1]);
        t[i + 1] = _mm_unpackhi_epi16(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] = _mm_unpacklo_epi32(t[i + h], t[i + 2 + h]);
            r[i + 2 * h + 1] = _mm_unpackhi_epi32(t[i + h], t[i + 2 + h]);
        }
    for (int i = 0; i < 4; i++) {
        store(to + 2 * i * LINE, _mm_unpacklo_epi64(r[i], r[i + 4]));
        store(to + (2 * i + 1) * LINE, _mm_unpackhi_epi64(r[i], r[i + 4]));
    }
}
#else
static void turn(uint16_t *to, const uint16_t *x, int64_t ld)
{
    for (int i = 0; i < 8; i++)
        for (int c = 0; c < 8; c++) to[c * LINE + i] = x[i * ld + c];
}
#endif

static uint16_t difference(uint16_t x0, uint16_t x)
{
    return osh_bf16_of_f32(osh_f32_of_bf16(x0) - osh_f32_of_bf16(x));
}

/* m <= STEP rows of n columns become m columns of n lines. x0: what x is taken from; NULL: x itself. */
static void turn_bf16(uint16_t *to, const uint16_t *x, const uint16_t *x0, int64_t ld, int64_t m, int64_t n)
{
    uint16_t rows[STEP * SIDE];
    for (int64_t r = 0; x0 && r < m; r++)
        for (int64_t c = 0; c < n; c++) rows[r * SIDE + c] = difference(x0[r * ld + c], x[r * ld + c]);
    if (x0) x = rows, ld = SIDE;
    int64_t even = m == STEP ? n / STEP * STEP : 0;
    for (int64_t c = 0; c < even; c += STEP) turn(to + c * LINE, x + c, ld);
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = even; c < n; c++) to[c * LINE + r] = x[r * ld + c];
}

static void turn_f32(float *to, const float *x, const float *x0, int64_t ld, int64_t m, int64_t n)
{
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++) to[c * LINE + r] = x0 ? x0[r * ld + c] - x[r * ld + c] : x[r * ld + c];
}

/* Columns [col, col + n) of a tile of tokens. */
static void turn_tile(void *lines, const hessian_job *j, const osh_tile *t, int64_t col, int64_t n)
{
    for (int64_t r = 0; r < t->n; r += STEP) {
        int64_t m = osh_min64(STEP, t->n - r), at = (t->row + r) * j->n_cols + col;
        const void *x = osh_elem(j->x, at), *x0 = j->x0 ? osh_elem(j->x0, at) : NULL;
        if (j->x->dtype == OSH_BF16) turn_bf16((uint16_t *)lines + r, x, x0, j->n_cols, m, n);
        else turn_f32((float *)lines + r, x, x0, j->n_cols, m, n);
    }
}

/* ---- products ---- */

/* lines: of the block's rows. */
static osh_status add_product(osh_ctx *cx, const hessian_job *j, char *lines, const osh_tile *t, block b)
{
    osh_dtype dt = j->x->dtype;
    osh_dnnl_mat x = {osh_elem(j->x, t->row * j->n_cols + b.col), dt, j->n_cols, 1};
    osh_dnnl_mat h = {j->h + b.row * j->n_cols + b.col, OSH_F32, j->n_cols, 1};
    return osh_dnnl_add(cx, h, (osh_dnnl_mat){lines, dt, LINE, 1}, x, (const int64_t[]){b.m, b.n, t->n});
}

/* A worker's room for a chunk. */
typedef struct lines {
    char *x;       // [SIDE, LINE] of x's dtype
    float *square; // [HALF, HALF]
} lines;

/* At most HALF rows and columns, of which those above the diagonal are left out. */
static osh_status add_square(osh_ctx *cx, const hessian_job *j, const lines *room, const osh_tile *t, block b)
{
    osh_dtype dt = j->x->dtype;
    osh_dnnl_mat x = {osh_elem(j->x, t->row * j->n_cols + b.col), dt, j->n_cols, 1};
    osh_dnnl_mat c = {room->square, OSH_F32, HALF, 1};
    osh_status rc = osh_dnnl_gemm(cx, c, (osh_dnnl_mat){room->x, dt, LINE, 1}, x, b.m, b.n, t->n);
    float *h = j->h + b.row * j->n_cols + b.col;

    for (int64_t r = 0; !rc && r < b.m; r++)
        for (int64_t k = 0; k <= r; k++) h[r * j->n_cols + k] += room->square[r * HALF + k];
    return rc;
}

static osh_status add_diagonal(osh_ctx *cx, const hessian_job *j, const lines *room, const osh_tile *t, block b)
{
    osh_status rc = OSH_OK;
    int64_t first = osh_min64(HALF, b.n), rest = b.n - first, at = b.row + first;
    lines lower = {room->x + (size_t)(first * LINE) * osh_dtype_bytes(j->x->dtype), room->square};
    OSH_TRY(add_square(cx, j, room, t, (block){b.row, first, b.col, first}));
    if (!rest) goto done;
    OSH_TRY(add_product(cx, j, lower.x, t, (block){at, rest, b.col, first}));
    OSH_TRY(add_square(cx, j, &lower, t, (block){at, rest, at, rest}));
done:
    return rc;
}

static osh_status hessian_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const hessian_job *job = user;
    int64_t i, j, n = job->n_cols, side = osh_div_up(n, SIDE);
    lines room = {.x = job->room + (size_t)worker * room_bytes(job->x->dtype)};
    room.square = (float *)(void *)(room.x + (size_t)SIDE * LINE * osh_dtype_bytes(job->x->dtype));

    if (job->x0) osh_square_tile(&i, &j, chunk, side);
    else osh_triangle_tile(&i, &j, chunk);
    block b = {i * SIDE, osh_min64(SIDE, n - i * SIDE), j * SIDE, osh_min64(SIDE, n - j * SIDE)};
    for (int64_t t = 0; t < job->n_tiles; t++) {
        turn_tile(room.x, job, &job->tiles[t], b.row, b.m);
        if (i == j && !job->x0) OSH_TRY(add_diagonal(cx, job, &room, &job->tiles[t], b));
        else OSH_TRY(add_product(cx, job, room.x, &job->tiles[t], b));
    }
done:
    return rc;
}

size_t osh_dnnl_hessian_scratch(int64_t n_tokens, osh_dtype dtype, int n_threads)
{
    return (size_t)n_threads * room_bytes(dtype) + (size_t)n_tokens * sizeof(osh_tile);
}

static osh_status accumulate(osh_ctx *cx, osh_tensor *h, const osh_tensor *x, const osh_tensor *x0,
                             const osh_seqs *seqs)
{
    osh_status rc = OSH_OK;
    int64_t side = osh_div_up(osh_width(x), SIDE);
    hessian_job j = {.h = h->data, .x = x, .x0 = x0, .n_cols = osh_width(x)};
    osh_tile *tiles = NULL; // own

    OSH_TRY(osh_dnnl_open(cx));
    OSH_TRY(osh_tiles_new(cx, &tiles, &j.n_tiles, seqs, osh_rows(x), TOKENS));
    j.tiles = tiles;
    if (!(j.room = osh_alloc(cx, (size_t)osh_threads(cx) * room_bytes(x->dtype)))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_parallel_for(cx, x0 ? side * side : side * (side + 1) / 2, hessian_chunk, &j));
done:
    osh_free(cx, j.room);
    osh_free(cx, tiles);
    return rc;
}

osh_status osh_dnnl_hessian(osh_ctx *cx, osh_tensor *h, const osh_tensor *x, const osh_seqs *seqs)
{
    return accumulate(cx, h, x, NULL, seqs);
}

osh_status osh_dnnl_shift(osh_ctx *cx, osh_tensor *d, const osh_tensor *x, const osh_tensor *x0, const osh_seqs *seqs)
{
    return accumulate(cx, d, x, x0, seqs);
}
