/* triangle.cu - the inverse of a Cholesky factor, A = L L^T, X = L^-1, in place in the lower triangle of A.
 *
 *   n <= BLOCK   cuSOLVER's potrf and trtri, if they want no more room than osh_triangle_room(n) has
 *   else         blocks of s rows; of cuSOLVER what it does with s rows, all else is products of F32:
 *
 *     | D0          |   for each block column j:  A_jj -= sum of L_jk L_jk^T    (k < j)        potrf: L_jj
 *     | L10 D1      |                             D_j   = L_jj^-1, instead of L_jj             trtri, of a copy
 *     | L20 L21 D2  |                             L_ij  = (A_ij - sum of L_ik L_jk^T) D_j^T    (i > j)
 *                       then row by row           X_ij  = - D_i (L_ij D_j + sum of L_ik X_kj)  (j < k < i)
 *
 * The room that a call takes follows from n alone: a plan promises it without asking the library, which is asked
 * before each call and gets triangles that it has room for, down to 64 rows. Which ones decides bytes, and follows from
 * n and the library. For 14,336 columns it is 68 MB and not the square's 822. potrf gets all of A where its wish fits.
 *
 * In the room: work of cuSOLVER; or [s, s] each: `first` and `second`, copies of D with zeros above the diagonal (above
 * the diagonal of A something else may lie), `sum`, a block's product; and behind them what cuSOLVER works in. */
#include "gpu/kernel.cuh"

enum { THREADS = 256 };
enum how { WHOLE, LOWER, LOWER_ZEROS, MINUS_LOWER }; // to = from; of the lower triangle; and zeros; to -= from of it

typedef struct place { // a matrix in row-major order
    float *at;
    int64_t ld;
} place;

template <int H> static __global__ void move_block(place to, place from, int64_t n_cols)
{
    int64_t i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j >= n_cols || (j > i && (H == LOWER || H == MINUS_LOWER))) return;
    float *t = to.at + i * to.ld + j, v = H == LOWER_ZEROS && j > i ? 0 : from.at[i * from.ld + j];
    *t = H == MINUS_LOWER ? __fsub_rn(*t, v) : v;
}

typedef struct blocks {
    osh_device *d;
    float *a, *first, *second, *sum; // a: [n, n]
    int64_t n, s;
    osh_cuda_triangle lib; // room and verdict for cuSOLVER
} blocks;

template <int H> static osh_status move(osh_ctx *cx, const blocks *b, place to, place from, int64_t rows, int64_t cols)
{
    OSH_LAUNCH(move_block<H>, dim3((unsigned)osh_div_up(cols, THREADS), (unsigned)rows), THREADS, 0,
               osh_cuda_stream(b->d), to, from, cols);
    return osh_cuda_check(cx, cudaGetLastError(), "move_block");
}

static place at(const blocks *b, int64_t row, int64_t col) { return {b->a + row * b->n + col, b->n}; }
static int64_t width(const blocks *b, int64_t first) { return osh_min64(b->s, b->n - first); }

typedef struct factors { // x y, y [k, n] or, turned, [n, k]
    place x, y;
    bool turned;
    float alpha, beta;
} factors;

/* c [m, n] = alpha x y + beta c. */
static osh_status product(osh_ctx *cx, const blocks *b, place c, const int64_t mnk[3], const factors &f)
{
    osh_cuda_mat mc = {c.at, c.ld, 0, OSH_F32, false}, mx = {f.x.at, f.x.ld, 0, OSH_F32, false};
    osh_cuda_mat my = {f.y.at, f.y.ld, 0, OSH_F32, f.turned};
    return osh_cuda_gemm(cx, b->d, {&mc, &mx, &my, mnk[0], mnk[1], mnk[2], 1, f.alpha, f.beta});
}

/* D of the block at j: first, and in its place. */
static osh_status invert_diagonal(osh_ctx *cx, blocks *b, int64_t j, bool *ok)
{
    osh_status rc = OSH_OK;
    int64_t w = width(b, j);
    osh_cuda_triangle t = b->lib;
    t.a = b->first, t.n = t.ld = w;
    OSH_TRY(move<LOWER_ZEROS>(cx, b, {b->first, w}, at(b, j, j), w, w));
    OSH_TRY(osh_cuda_trtri(cx, b->d, &t, ok));
    if (*ok) OSH_TRY(move<LOWER>(cx, b, at(b, j, j), {b->first, w}, w, w));
done:
    return rc;
}

/* One block column of L, with D on the diagonal. */
static osh_status factor_column(osh_ctx *cx, blocks *b, int64_t j, bool *ok)
{
    osh_status rc = OSH_OK;
    int64_t w = width(b, j), below = b->n - j - w, square[3] = {w, w, j}, rest[3] = {below, w, j};
    osh_cuda_triangle t = b->lib;

    t.a = at(b, j, j).at, t.n = w, t.ld = b->n;
    if (j) OSH_TRY(product(cx, b, {b->sum, w}, square, {at(b, j, 0), at(b, j, 0), true, 1, 0}));
    if (j) OSH_TRY(move<MINUS_LOWER>(cx, b, at(b, j, j), {b->sum, w}, w, w));
    OSH_TRY(osh_cuda_potrf(cx, b->d, &t, ok));
    if (*ok) OSH_TRY(invert_diagonal(cx, b, j, ok));
    if (!*ok || !below) goto done;
    if (j) OSH_TRY(product(cx, b, at(b, j + w, j), rest, {at(b, j + w, 0), at(b, j, 0), true, -1, 1}));
    for (int64_t i = j + w; i < b->n; i += b->s) {
        int64_t one[3] = {width(b, i), w, w};
        OSH_TRY(product(cx, b, {b->sum, w}, one, {at(b, i, j), {b->first, w}, true, 1, 0}));
        OSH_TRY(move<WHOLE>(cx, b, at(b, i, j), {b->sum, w}, one[0], w));
    }
done:
    return rc;
}

/* One block row of X: what it is made of is on its left, and above. */
static osh_status invert_row(osh_ctx *cx, blocks *b, int64_t i)
{
    osh_status rc = OSH_OK;
    int64_t h = width(b, i);
    OSH_TRY(move<LOWER_ZEROS>(cx, b, {b->second, h}, at(b, i, i), h, h));
    for (int64_t j = 0; j < i; j += b->s) {
        int64_t w = b->s, k = j + w, mine[3] = {h, w, w}, others[3] = {h, w, i - k}, last[3] = {h, w, h};
        OSH_TRY(move<LOWER_ZEROS>(cx, b, {b->first, w}, at(b, j, j), w, w));
        OSH_TRY(product(cx, b, {b->sum, w}, mine, {at(b, i, j), {b->first, w}, false, 1, 0}));
        if (k < i) OSH_TRY(product(cx, b, {b->sum, w}, others, {at(b, i, k), at(b, k, j), false, 1, 1}));
        OSH_TRY(product(cx, b, at(b, i, j), last, {{b->second, h}, {b->sum, w}, false, -1, 0}));
    }
done:
    return rc;
}

static osh_status by_blocks(osh_ctx *cx, blocks *b, bool whole_potrf, bool *ok)
{
    osh_status rc = OSH_OK;
    *ok = true;
    if (whole_potrf) {
        osh_cuda_triangle t = b->lib;
        t.a = b->a, t.n = t.ld = b->n, t.room = b->first, t.room_bytes = osh_triangle_room(b->n);
        OSH_TRY(osh_cuda_potrf(cx, b->d, &t, ok));
    }
    for (int64_t j = 0; j < b->n && *ok; j += b->s)
        OSH_TRY(whole_potrf ? invert_diagonal(cx, b, j, ok) : factor_column(cx, b, j, ok));
    for (int64_t i = b->s; i < b->n && *ok; i += b->s) OSH_TRY(invert_row(cx, b, i));
done:
    return rc;
}

static osh_status wish_of(osh_ctx *cx, osh_device *d, osh_cuda_wish *w, float *a, int64_t n, int64_t ld)
{
    osh_cuda_triangle t = {a, n, ld, true, NULL, 0, NULL}; // cuSOLVER is column-major: our lower one is its upper one
    return osh_cuda_solver_wish(cx, d, w, &t);
}

static bool has_room(const osh_cuda_wish *w, size_t room) { return w->potrf <= room && w->trtri <= room; }

static size_t left_of(int64_t n, int64_t s) // of the room, behind three blocks
{
    return osh_triangle_room(n) - 3 * (size_t)(s * s) * sizeof(float);
}

/* Rows of a block: n, where cuSOLVER does it alone. */
static osh_status block_rows(osh_ctx *cx, osh_device *d, int64_t *s, float *a, int64_t n, bool *whole_potrf)
{
    osh_status rc = OSH_OK;
    osh_cuda_wish w;
    OSH_TRY(wish_of(cx, d, &w, a, n, n));
    *s = n, *whole_potrf = w.potrf <= osh_triangle_room(n);
    if (n <= OSH_TRIANGLE_BLOCK && has_room(&w, osh_triangle_room(n))) goto done;
    for (*s = OSH_TRIANGLE_BLOCK; *s > OSH_TRIANGLE_LEAST; *s /= 2) {
        if (2 * *s > n) continue;
        OSH_TRY(wish_of(cx, d, &w, a, *s, n));
        if (has_room(&w, left_of(n, *s))) break;
    }
done:
    return rc;
}

osh_status osh_cuda_factor_inverse(osh_ctx *cx, osh_device *d, float *a, int64_t n, bool *ok)
{
    osh_status rc = OSH_OK;
    bool whole_potrf = false;
    blocks b = {d, a, NULL, NULL, NULL, n, n, {}};
    char *room = NULL; // own: of the arena

    OSH_TRY(block_rows(cx, d, &b.s, a, n, &whole_potrf));
    room = static_cast<char *>(osh_device_alloc(cx, d, osh_triangle_room(n), OSH_LIFE_SHORT));
    if (!room) OSH_TRY(OSH_E_NOMEM);
    b.lib.verdict = static_cast<int *>(osh_device_alloc(cx, d, sizeof(int), OSH_LIFE_SHORT));
    if (!b.lib.verdict) OSH_TRY(OSH_E_NOMEM);
    b.lib.upper = true, b.lib.a = a, b.lib.n = b.lib.ld = n, b.lib.room = room;
    b.lib.room_bytes = osh_triangle_room(n);
    if (b.s >= n) {
        OSH_TRY(osh_cuda_potrf(cx, d, &b.lib, ok));
        if (*ok) OSH_TRY(osh_cuda_trtri(cx, d, &b.lib, ok));
        goto done;
    }
    b.first = reinterpret_cast<float *>(room), b.second = b.first + b.s * b.s, b.sum = b.second + b.s * b.s;
    b.lib.room = b.sum + b.s * b.s, b.lib.room_bytes = left_of(n, b.s);
    OSH_TRY(by_blocks(cx, &b, whole_potrf, ok));
done:
    osh_device_free(d, b.lib.verdict);
    osh_device_free(d, room);
    return rc;
}

osh_status osh_cuda_factor_probe(osh_ctx *cx, osh_device *d)
{
    osh_status rc = OSH_OK;
    osh_cuda_wish w;
    float *any = reinterpret_cast<float *>(d->base); // it is asked, not run
    OSH_TRY(wish_of(cx, d, &w, any, OSH_TRIANGLE_LEAST, OSH_TRIANGLE_LEAST));
    if (!has_room(&w, OSH_TRIANGLE_SPARE / 2))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "cuSOLVER wants %zu bytes for a triangle of %d rows, at most %d are given",
                 w.potrf > w.trtri ? w.potrf : w.trtri, OSH_TRIANGLE_LEAST, OSH_TRIANGLE_SPARE / 2);
done:
    return rc;
}
