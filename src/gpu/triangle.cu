/* triangle.cu - computes the inverse X = L^-1 of the Cholesky factor L of A = L L^T in place, in
 * the lower triangle of A.
 *
 *   n <= OSH_TRIANGLE_BLOCK   cuSOLVER's potrf and trtri, if osh_triangle_room(n) is enough
 *   else                      cuSOLVER works on blocks of s rows; matrix products compute the rest:
 *
 *   | D0          |   for block column j:   A_jj -= sum of L_jk L_jk^T    (k < j)    potrf: L_jj
 *   | L10 D1      |                         D_j = L_jj^-1, instead of L_jj           trtri, copied
 *   | L20 L21 D2  |                         L_ij = (A_ij - sum of L_ik L_jk^T) D_j^T (i > j)
 *                     then row by row       X_ij = -D_i (L_ij D_j + sum of L_ik X_kj)  (j < k < i)
 *
 * The scratch memory of a call is called the room. Its size depends only on n, so a plan can
 * compute it without cuSOLVER. cuSOLVER tells before a call how many bytes of scratch it needs for
 * s rows; s is the largest number >= 64 for which these bytes fit into the room. So s depends on n
 * and on the version of cuSOLVER, and s decides the last bits of the result. For 14,336 columns the
 * room is 68 MB; a copy of the whole matrix would be 822 MB. If the room is large enough for n
 * rows, potrf factors all of A at once.
 *
 * The room contains cuSOLVER's scratch, or three blocks [s, s] followed by cuSOLVER's scratch:
 * `first` and `second` are copies of a D_j with zeros above the diagonal, because A may contain
 * other data there; `sum` is the sum of matrix products for one block. */
#include "gpu/kernel.cuh"

enum { THREADS = 256 };
enum how { // the assignment of block_move, and the elements that get a value
    WHOLE,       // `to = from` for all elements
    LOWER,       // `to = from` in the lower triangle only
    LOWER_ZEROS, // `to = from` in the lower triangle, `to = 0` above the diagonal
    MINUS_LOWER  // `to -= from` in the lower triangle only
};

typedef struct matrix { // a matrix in row-major order; `at` is a view
    float *at;
    int64_t ld;
} matrix;

template <int H> static __global__ void move_block(matrix to, matrix from, int64_t n_cols)
{
    int64_t i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j >= n_cols || (j > i && (H == LOWER || H == MINUS_LOWER))) return;
    float *t = to.at + i * to.ld + j, v = H == LOWER_ZEROS && j > i ? 0 : from.at[i * from.ld + j];
    *t = H == MINUS_LOWER ? __fsub_rn(*t, v) : v;
}

typedef struct blocks {
    osh_device *d;
    /* A is the matrix [n, n]; first, second and sum are scratch blocks [s, s]. */
    float *a, *first, *second, *sum; // views
    int64_t n, s;                    // n: rows of the matrix; s: rows of a block
    /* Arguments for cuSOLVER, with its scratch (`room`) and its result code (`verdict`). */
    osh_cuda_triangle lib;
} blocks;

template <int H>
static osh_status block_move(osh_ctx *cx, const blocks *b, matrix to, matrix from, int64_t rows,
                             int64_t cols)
{
    OSH_LAUNCH(move_block<H>, dim3((unsigned)osh_div_up(cols, THREADS), (unsigned)rows), THREADS, 0,
               osh_cuda_stream(b->d), to, from, cols);
    return osh_cuda_check(cx, cudaGetLastError(), "move_block");
}

static matrix block_view(const blocks *b, int64_t row, int64_t col)
{
    return {b->a + row * b->n + col, b->n};
}
static int64_t block_width(const blocks *b, int64_t first) { return osh_min64(b->s, b->n - first); }

/* Operands of a matrix product: x [m, k] times y [k, n], or times the transpose of y [n, k] if
 * `turned` is true. */
typedef struct factors {
    matrix x, y;
    bool turned;
    float alpha, beta;
} factors;

/* Computes c [m, n] = alpha x y + beta c. `mnk`: {m, n, k}. */
static osh_status block_product(osh_ctx *cx, const blocks *b, matrix c, const int64_t mnk[3],
                                const factors &f)
{
    osh_cuda_mat mc = {c.at, c.ld, 0, OSH_F32, false}, mx = {f.x.at, f.x.ld, 0, OSH_F32, false};
    osh_cuda_mat my = {f.y.at, f.y.ld, 0, OSH_F32, f.turned};
    return osh_cuda_gemm(cx, b->d, {&mc, &mx, &my, mnk[0], mnk[1], mnk[2], 1, f.alpha, f.beta});
}

/* Inverts the triangle of the diagonal block whose first row is j. Writes the inverse D_j to
 * `first`, with zeros above the diagonal, and to A. */
static osh_status triangle_invert_diagonal(osh_ctx *cx, blocks *b, int64_t j, bool *ok)
{
    osh_status rc = OSH_OK;
    int64_t w = block_width(b, j);
    osh_cuda_triangle t = b->lib;
    t.a = b->first, t.n = t.ld = w;
    OSH_TRY(block_move<LOWER_ZEROS>(cx, b, {b->first, w}, block_view(b, j, j), w, w));
    OSH_TRY(osh_cuda_trtri(cx, b->d, &t, ok));
    if (*ok) OSH_TRY(block_move<LOWER>(cx, b, block_view(b, j, j), {b->first, w}, w, w));
done:
    return rc;
}

/* Computes block column j of L. The diagonal block becomes the inverse D_j of its Cholesky
 * factor. */
static osh_status triangle_factor_column(osh_ctx *cx, blocks *b, int64_t j, bool *ok)
{
    osh_status rc = OSH_OK;
    int64_t w = block_width(b, j), below = b->n - j - w, square[3] = {w, w, j},
            rest[3] = {below, w, j};
    osh_cuda_triangle t = b->lib;

    t.a = block_view(b, j, j).at, t.n = w, t.ld = b->n;
    if (j)
        OSH_TRY(block_product(cx, b, {b->sum, w}, square,
                              {block_view(b, j, 0), block_view(b, j, 0), true, 1, 0}));
    if (j) OSH_TRY(block_move<MINUS_LOWER>(cx, b, block_view(b, j, j), {b->sum, w}, w, w));
    OSH_TRY(osh_cuda_potrf(cx, b->d, &t, ok));
    if (*ok) OSH_TRY(triangle_invert_diagonal(cx, b, j, ok));
    if (!*ok || !below) goto done;
    if (j)
        OSH_TRY(block_product(cx, b, block_view(b, j + w, j), rest,
                              {block_view(b, j + w, 0), block_view(b, j, 0), true, -1, 1}));
    for (int64_t i = j + w; i < b->n; i += b->s) {
        int64_t one[3] = {block_width(b, i), w, w};
        OSH_TRY(block_product(cx, b, {b->sum, w}, one,
                              {block_view(b, i, j), {b->first, w}, true, 1, 0}));
        OSH_TRY(block_move<WHOLE>(cx, b, block_view(b, i, j), {b->sum, w}, one[0], w));
    }
done:
    return rc;
}

/* Computes block row i of X from the blocks of L to the left and the blocks of X above. */
static osh_status triangle_invert_row(osh_ctx *cx, blocks *b, int64_t i)
{
    osh_status rc = OSH_OK;
    int64_t h = block_width(b, i);
    OSH_TRY(block_move<LOWER_ZEROS>(cx, b, {b->second, h}, block_view(b, i, i), h, h));
    for (int64_t j = 0; j < i; j += b->s) {
        int64_t w = b->s, k = j + w, mine[3] = {h, w, w}, others[3] = {h, w, i - k},
                last[3] = {h, w, h};
        OSH_TRY(block_move<LOWER_ZEROS>(cx, b, {b->first, w}, block_view(b, j, j), w, w));
        OSH_TRY(block_product(cx, b, {b->sum, w}, mine,
                              {block_view(b, i, j), {b->first, w}, false, 1, 0}));
        if (k < i)
            OSH_TRY(block_product(cx, b, {b->sum, w}, others,
                                  {block_view(b, i, k), block_view(b, k, j), false, 1, 1}));
        OSH_TRY(block_product(cx, b, block_view(b, i, j), last,
                              {{b->second, h}, {b->sum, w}, false, -1, 0}));
    }
done:
    return rc;
}

static osh_status triangle_by_blocks(osh_ctx *cx, blocks *b, bool whole_potrf, bool *ok)
{
    osh_status rc = OSH_OK;
    *ok = true;
    if (whole_potrf) {
        osh_cuda_triangle t = b->lib;
        t.a = b->a, t.n = t.ld = b->n, t.room = b->first, t.room_bytes = osh_triangle_room(b->n);
        OSH_TRY(osh_cuda_potrf(cx, b->d, &t, ok));
    }
    for (int64_t j = 0; j < b->n && *ok; j += b->s)
        OSH_TRY(whole_potrf ? triangle_invert_diagonal(cx, b, j, ok)
                            : triangle_factor_column(cx, b, j, ok));
    for (int64_t i = b->s; i < b->n && *ok; i += b->s) OSH_TRY(triangle_invert_row(cx, b, i));
done:
    return rc;
}

static osh_status triangle_wish(osh_ctx *cx, osh_device *d, osh_cuda_wish *w, float *a, int64_t n,
                                int64_t ld)
{
    // `upper` is true, because a lower triangle in row-major order is an upper triangle in
    // column-major order
    osh_cuda_triangle t = {a, n, ld, true, NULL, 0, NULL};
    return osh_cuda_solver_wish(cx, d, w, &t);
}

static bool wish_fits(const osh_cuda_wish *w, size_t room)
{
    return w->potrf <= room && w->trtri <= room;
}

/* Returns the number of scratch bytes (of the room) that remain for cuSOLVER after three blocks [s,
 * s]. */
static size_t triangle_left_bytes(int64_t n, int64_t s)
{
    return osh_triangle_room(n) - 3 * (size_t)(s * s) * sizeof(float);
}

/* Sets *s to the number of rows of a block, or to n if cuSOLVER works on the whole triangle. Sets
 * *whole_potrf to true if potrf factors all of A at once. */
static osh_status triangle_block_rows(osh_ctx *cx, osh_device *d, int64_t *s, float *a, int64_t n,
                                      bool *whole_potrf)
{
    osh_status rc = OSH_OK;
    osh_cuda_wish w;
    OSH_TRY(triangle_wish(cx, d, &w, a, n, n));
    *s = n, *whole_potrf = w.potrf <= osh_triangle_room(n);
    if (n <= OSH_TRIANGLE_BLOCK && wish_fits(&w, osh_triangle_room(n))) goto done;
    for (*s = OSH_TRIANGLE_BLOCK; *s > OSH_TRIANGLE_LEAST; *s /= 2) {
        if (2 * *s > n) continue;
        OSH_TRY(triangle_wish(cx, d, &w, a, *s, n));
        if (wish_fits(&w, triangle_left_bytes(n, *s))) break;
    }
done:
    return rc;
}

osh_status osh_cuda_factor_inverse(osh_ctx *cx, osh_device *d, float *a, int64_t n, bool *ok)
{
    osh_status rc = OSH_OK;
    bool whole_potrf = false;
    blocks b = {d, a, NULL, NULL, NULL, n, n, {}};
    char *room = NULL; // scratch in the arena; own

    OSH_TRY(triangle_block_rows(cx, d, &b.s, a, n, &whole_potrf));
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
    b.first = reinterpret_cast<float *>(room), b.second = b.first + b.s * b.s,
    b.sum = b.second + b.s * b.s;
    b.lib.room = b.sum + b.s * b.s, b.lib.room_bytes = triangle_left_bytes(n, b.s);
    OSH_TRY(triangle_by_blocks(cx, &b, whole_potrf, ok));
done:
    osh_device_free(d, b.lib.verdict);
    osh_device_free(d, room);
    return rc;
}

osh_status osh_cuda_factor_probe(osh_ctx *cx, osh_device *d)
{
    osh_status rc = OSH_OK;
    osh_cuda_wish w;
    // an arbitrary valid GPU address; it is only passed for size queries and is not accessed
    float *any = reinterpret_cast<float *>(d->base);
    OSH_TRY(triangle_wish(cx, d, &w, any, OSH_TRIANGLE_LEAST, OSH_TRIANGLE_LEAST));
    if (!wish_fits(&w, OSH_TRIANGLE_SPARE / 2))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "cuSOLVER wants %zu bytes for a triangle of %d rows, at most %d are given",
                 w.potrf > w.trtri ? w.potrf : w.trtri, OSH_TRIANGLE_LEAST, OSH_TRIANGLE_SPARE / 2);
done:
    return rc;
}
