/* triangle.cu - computes X = L^-1 in place, in the lower triangle of A. L is the Cholesky factor
 * of A, so A = L L^T. cuSOLVER's potrf computes L. Matrix products compute X from L:
 *
 *   1. A kernel inverts all diagonal blocks of SIDE rows.
 *   2. Each pair of neighbours D_1, D_2 becomes one block of twice as many rows, until the blocks
 *      have s rows (at most OSH_TRIANGLE_BLOCK). One batch of products computes many pairs:
 *
 *        | D_1                  |
 *        | - D_2 L_21 D_1   D_2 |
 *
 *   3. The rest is computed row by row, from blocks of s rows:
 *
 *        X_ij = -D_i (L_ij D_j + sum of L_ik X_kj)   (j < k < i)
 *
 * The scratch memory of a call is called the room. Its size depends only on n, so a plan can
 * compute it without cuSOLVER. potrf factors all of A at once if the room is enough for what
 * cuSOLVER wants. Otherwise potrf factors diagonal blocks of s rows, and matrix products compute
 * the rest of L. s is the largest number for which the room is enough, at least 64:
 *
 *   for block column j:   A_jj -= sum of L_jk L_jk^T   (k < j)    potrf: L_jj
 *                         D_j = L_jj^-1, instead of L_jj
 *                         L_ij = (A_ij - sum of L_ik L_jk^T) D_j^T   (i > j)
 *
 * So s depends on n and on the version of cuSOLVER, and s decides the last bits of the result. For
 * 14,336 columns the room is 68 MB; a copy of the whole matrix would be 822 MB.
 *
 * The room contains three blocks [s, s] (`first`, `second`, `sum`), then cuSOLVER's scratch.
 * `first` and `second` are copies of a D_j with zeros above the diagonal, because A may contain
 * other data there. `sum` is the sum of matrix products for one block. Step 2 uses the blocks for
 * copies of D_1 and D_2, and for their products. */
#include "gpu/kernel.cuh"

enum { THREADS = 256, SIDE = OSH_TRIANGLE_LEAST };
enum how { // how block_move assigns elements
    WHOLE,       // all elements: to = from
    MINUS_LOWER  // only the lower triangle: to -= from
};

typedef struct matrix { // a matrix in row-major order; `at` is a view
    float *at;
    int64_t ld;
} matrix;

template <int H> static __global__ void move_block(matrix to, matrix from, int64_t n_cols)
{
    int64_t i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j >= n_cols || (j > i && H == MINUS_LOWER)) return;
    float *t = to.at + i * to.ld + j, v = from.at[i * from.ld + j];
    *t = H == MINUS_LOWER ? __fsub_rn(*t, v) : v;
}

/* Inverts consecutive diagonal blocks of SIDE rows in place. Works only on their lower triangles.
 * The blocks are in the first `rows` rows and columns of `a`. A thread computes one column. */
static __global__ void __launch_bounds__(SIDE) invert_small(matrix a, int64_t rows)
{
    __shared__ float l[SIDE][SIDE + 1], x[SIDE][SIDE];
    int64_t first = (int64_t)blockIdx.x * SIDE;
    int w = rows - first < SIDE ? (int)(rows - first) : SIDE, c = threadIdx.x;
    float *at = a.at + first * (a.ld + 1);

    for (int i = 0; i < w; i++) l[i][c] = c <= i ? at[i * a.ld + c] : 0;
    __syncthreads();
    for (int i = 0; i < w; i++) {
        float sum = i == c ? -1 : 0;
        for (int k = 0; k < i; k++) sum = __fmaf_rn(l[i][k], x[k][c], sum);
        x[i][c] = c <= i ? __fdiv_rn(-sum, l[i][i]) : 0;
    }
    for (int i = c; i < w; i++) at[i * a.ld + c] = x[i][c];
}

/* Matrices in row-major order. Each matrix begins `stride` elements after the previous one. `at` is
 * a view. */
typedef struct stack {
    float *at;
    int64_t ld, stride;
} stack;

/* Copies lower triangles [w, w] of a stack of matrices. Elements above the diagonal become 0. */
static __global__ void copy_lower(stack to, stack from, int64_t w)
{
    int64_t i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x, k = blockIdx.z;
    if (j < w)
        to.at[k * to.stride + i * to.ld + j] =
            j <= i ? from.at[k * from.stride + i * from.ld + j] : 0;
}

typedef struct blocks {
    osh_device *d;
    /* a: the matrix A [n, n].
     * first, second, sum: scratch blocks [s, s].
     * spare: scratch for step 2, n_spare floats. */
    float *a, *first, *second, *sum, *spare; // views
    int64_t n_spare;
    int64_t n, s; // n: number of rows of the matrix. s: number of rows of a block.
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

/* Computes c = alpha x y for each of n_batch matrices. `mnk`: {m, n, k}. */
static osh_status stack_product(osh_ctx *cx, const blocks *b, const stack (&cxy)[3],
                                const int64_t mnk[3], int64_t n_batch, float alpha)
{
    osh_cuda_mat m[3];
    for (int i = 0; i < 3; i++) m[i] = {cxy[i].at, cxy[i].ld, cxy[i].stride, OSH_F32, false};
    return osh_cuda_gemm(cx, b->d,
                         {&m[0], &m[1], &m[2], mnk[0], mnk[1], mnk[2], n_batch, alpha, 0});
}

static osh_status stack_copy_lower(osh_ctx *cx, const blocks *b, stack to, stack from, int64_t w,
                                   int64_t n_batch)
{
    OSH_LAUNCH(copy_lower, dim3((unsigned)osh_div_up(w, THREADS), (unsigned)w, (unsigned)n_batch),
               THREADS, 0, osh_cuda_stream(b->d), to, from, w);
    return osh_cuda_check(cx, cudaGetLastError(), "copy_lower");
}

/* Copies the lower triangle of a diagonal block to `to` [w, w]. j: first row of the block. Elements
 * above the diagonal of `to` become 0. */
static osh_status block_copy_lower(osh_ctx *cx, const blocks *b, float *to, int64_t j, int64_t w)
{
    return stack_copy_lower(cx, b, {to, w, 0}, {block_view(b, j, j).at, b->n, 0}, w, 1);
}

/* Merges n_pairs pairs of inverted blocks. The first block of a pair has w rows, the second has h
 * rows, and the result is one inverted block of w + h rows. Pair k begins at row `row + 2 * w *
 * k`. */
static osh_status triangle_join(osh_ctx *cx, const blocks *b, int64_t row, int64_t w, int64_t h,
                                int64_t n_pairs)
{
    osh_status rc = OSH_OK;
    int64_t step = 2 * w * (b->n + 1), left[3] = {h, w, w}, all[3] = {h, w, h};
    float *corner = b->a + row * (b->n + 1);
    stack d1 = {b->spare, w, w * w}, d2 = {d1.at + n_pairs * w * w, h, h * h},
          product = {d2.at + n_pairs * h * h, w, h * w}, x = {corner + w * b->n, b->n, step};

    OSH_TRY(stack_copy_lower(cx, b, d1, {corner, b->n, step}, w, n_pairs));
    OSH_TRY(stack_copy_lower(cx, b, d2, {corner + w * (b->n + 1), b->n, step}, h, n_pairs));
    OSH_TRY(stack_product(cx, b, {product, x, d1}, left, n_pairs, 1));
    OSH_TRY(stack_product(cx, b, {x, d2, product}, all, n_pairs, -1));
done:
    return rc;
}

/* Inverts the diagonal blocks in rows [row, end). Each block has b->s rows. Works only on the lower
 * triangles. */
static osh_status triangle_invert_blocks(osh_ctx *cx, const blocks *b, int64_t row, int64_t end)
{
    osh_status rc = OSH_OK;
    OSH_LAUNCH(invert_small, (unsigned)osh_div_up(end - row, SIDE), SIDE, 0, osh_cuda_stream(b->d),
               block_view(b, row, row), end - row);
    OSH_CUDA(cx, cudaGetLastError());
    for (int64_t w = SIDE; w < b->s; w *= 2)
        for (int64_t at = row, n_pairs; at + w < end; at += 2 * w * n_pairs) {
            int64_t whole = (end - at) / (2 * w), most = b->n_spare / (3 * w * w);
            n_pairs = whole ? osh_min64(whole, most) : 1;
            OSH_TRY(triangle_join(cx, b, at, w, whole ? w : end - at - w, n_pairs));
        }
done:
    return rc;
}

/* Computes block column j of L. Replaces the diagonal block by the inverse D_j of its Cholesky
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
    if (!*ok) goto done;
    OSH_TRY(triangle_invert_blocks(cx, b, j, j + w));
    if (!below) goto done;
    OSH_TRY(block_copy_lower(cx, b, b->first, j, w));
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

/* Computes block row i of X. Reads the blocks of row i of L up to the diagonal, and the block rows
 * of X above row i. */
static osh_status triangle_invert_row(osh_ctx *cx, blocks *b, int64_t i)
{
    osh_status rc = OSH_OK;
    int64_t h = block_width(b, i);
    OSH_TRY(block_copy_lower(cx, b, b->second, i, h));
    for (int64_t j = 0; j < i; j += b->s) {
        int64_t w = b->s, k = j + w, mine[3] = {h, w, w}, others[3] = {h, w, i - k},
                last[3] = {h, w, h};
        OSH_TRY(block_copy_lower(cx, b, b->first, j, w));
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

/* Computes L from A, either at once or block column by block column. Then computes the inverses of
 * the diagonal blocks of s rows. */
static osh_status triangle_factor(osh_ctx *cx, blocks *b, bool whole_potrf, bool *ok)
{
    osh_status rc = OSH_OK;
    *ok = true;
    if (whole_potrf) {
        OSH_TRY(osh_cuda_potrf(cx, b->d, &b->lib, ok));
        if (*ok) OSH_TRY(triangle_invert_blocks(cx, b, 0, b->n));
    } else {
        for (int64_t j = 0; j < b->n && *ok; j += b->s)
            OSH_TRY(triangle_factor_column(cx, b, j, ok));
    }
done:
    return rc;
}

static osh_status triangle_wish(osh_ctx *cx, osh_device *d, size_t *wish, float *a, int64_t n,
                                int64_t ld)
{
    // `upper` is true, because a lower triangle in row-major order is an upper triangle in
    // column-major order
    osh_cuda_triangle t = {a, n, ld, true, NULL, 0, NULL};
    return osh_cuda_potrf_bytes(cx, d, wish, &t);
}

/* The room (scratch) has three blocks [s, s], and then the scratch of cuSOLVER. Returns the number
 * of bytes that remain for cuSOLVER. */
static size_t triangle_left_bytes(int64_t n, int64_t s)
{
    return osh_triangle_room(n) - 3 * (size_t)(s * s) * sizeof(float);
}

/* Sets *s to the number of rows of a block, or to n if all of A is one block. Sets *whole_potrf to
 * true if potrf factors all of A at once. */
static osh_status triangle_block_rows(osh_ctx *cx, osh_device *d, int64_t *s, float *a, int64_t n,
                                      bool *whole_potrf)
{
    osh_status rc = OSH_OK;
    size_t wish;
    OSH_TRY(triangle_wish(cx, d, &wish, a, n, n));
    *s = n, *whole_potrf = wish <= osh_triangle_room(n);
    if (n <= OSH_TRIANGLE_BLOCK && *whole_potrf) goto done;
    for (*s = OSH_TRIANGLE_BLOCK; *s > OSH_TRIANGLE_LEAST; *s /= 2) {
        if (2 * *s > n) continue;
        if (*whole_potrf) break;
        OSH_TRY(triangle_wish(cx, d, &wish, a, *s, n));
        if (wish <= triangle_left_bytes(n, *s)) break;
    }
done:
    return rc;
}

/* Divides the scratch `room` among the scratch blocks of b and cuSOLVER. If potrf factors all of A,
 * potrf ends before step 2 begins, and step 2 ends before step 3 begins. So each of them can use
 * all of `room`. */
static void triangle_divide_room(blocks *b, float *room, bool whole_potrf)
{
    int64_t square = b->s * b->s;
    b->first = room, b->second = room + square, b->sum = b->second + square;
    b->lib.room = whole_potrf ? room : b->sum + square;
    b->lib.room_bytes =
        whole_potrf ? osh_triangle_room(b->n) : triangle_left_bytes(b->n, b->s);
    b->spare = whole_potrf ? room : b->second;
    b->n_spare = whole_potrf ? (int64_t)(osh_triangle_room(b->n) / sizeof(float)) : 2 * square;
}

osh_status osh_cuda_factor_inverse(osh_ctx *cx, osh_device *d, float *a, int64_t n, bool *ok)
{
    osh_status rc = OSH_OK;
    bool whole_potrf = false;
    blocks b = {};
    char *room = NULL; // scratch in the arena; own

    b.d = d, b.a = a, b.n = n;
    OSH_TRY(triangle_block_rows(cx, d, &b.s, a, n, &whole_potrf));
    room = static_cast<char *>(osh_device_alloc(cx, d, osh_triangle_room(n), OSH_LIFE_SHORT));
    if (!room) OSH_TRY(OSH_E_NOMEM);
    b.lib.verdict = static_cast<int *>(osh_device_alloc(cx, d, sizeof(int), OSH_LIFE_SHORT));
    if (!b.lib.verdict) OSH_TRY(OSH_E_NOMEM);
    b.lib.upper = true, b.lib.a = a, b.lib.n = b.lib.ld = n;
    triangle_divide_room(&b, reinterpret_cast<float *>(room), whole_potrf);
    OSH_TRY(triangle_factor(cx, &b, whole_potrf, ok));
    for (int64_t i = b.s; i < n && *ok; i += b.s) OSH_TRY(triangle_invert_row(cx, &b, i));
done:
    osh_device_free(d, b.lib.verdict);
    osh_device_free(d, room);
    return rc;
}

osh_status osh_cuda_factor_probe(osh_ctx *cx, osh_device *d)
{
    osh_status rc = OSH_OK;
    size_t wish;
    // an arbitrary valid GPU address: the call only asks for a size and does not access the memory
    float *any = reinterpret_cast<float *>(d->base);
    OSH_TRY(triangle_wish(cx, d, &wish, any, OSH_TRIANGLE_LEAST, OSH_TRIANGLE_LEAST));
    if (wish > OSH_TRIANGLE_SPARE / 2)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "cuSOLVER wants %zu bytes for a triangle of %d rows, at most %d are given", wish,
                 OSH_TRIANGLE_LEAST, OSH_TRIANGLE_SPARE / 2);
done:
    return rc;
}
