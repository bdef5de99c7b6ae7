/* factors.cu - computes the factors U (gptq_factor.c) of many small Hessians together. All of them
 * have the same width.
 *
 *   A   H in solving order, with rows and columns reversed
 *   L   Cholesky factor of A: A = L L^T
 *   X   L^-1
 *   U   X with rows and columns reversed
 *
 * A, L and X are in scratch: one [n, n] for each Hessian, with zeros above the diagonal. The
 * kernels work on blocks of SIDE columns. First they compute each block column j of L and the
 * inverse D_j of its diagonal block, then X row by row:
 *
 *   | D0          |   A_ij -= sum of L_ik L_jk^T  (i >= j, k < j)   by a matrix product
 *   | L10 D1      |   D_j   = L_jj^-1                               by one thread block per matrix
 *   | L20 L21 D2  |   L_ij  = A_ij D_j^T                            by one thread block per 64 rows
 *                     X_i   = - D_i (L_i X)                         by two matrix products
 *
 * Each launch and each matrix product computes all matrices. A matrix product uses the algorithm
 * for a single matrix, and no sum is split, so U depends only on H and the GPU. For 768 columns
 * there are 59 launches, for any number of matrices. The kernels do n^3 floating-point operations;
 * 2/3 n^3 operations would be enough, but the matrix products also compute the zero half of X.
 *
 * U overwrites H only if all elements of X are finite. If H is not positive definite, H is
 * unchanged. */
#include "ops/cuda/op.cuh"
#include "ops/cuda/sizes.h"

enum { SIDE = OSH_FACTORS_SIDE, THREADS = 256, STEP = THREADS / SIDE, PART = SIDE / 16 };

typedef struct matrices { // arguments of a kernel: all matrices of a launch, in GPU memory
    float *a;            // scratch [matrices, n, ld]: first A, then L, then X, in place
    float *left; // scratch [matrices, SIDE, ld]: matrix product L X for the current block row
    float *const *h;     // pointers to the Hessians [n, n], [matrices]
    /* Column at each position of the solving order, [matrices, n]; NULL: position j is column j. */
    const int32_t *perm;
    /* Diagonals of the Hessians in solving order, [matrices, n]; NULL: read from h. */
    const float *diag;
    int *failed;         // 1 if the matrix is not positive definite, else 0; [matrices]
    int64_t n, ld;
} matrices;

/* Sets x.a to A: H in solving order, with rows and columns reversed. */
static __global__ void gather_lower(matrices x)
{
    int64_t b = blockIdx.z, i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x,
            n = x.n;
    if (j >= x.ld) return;
    float v = 0;
    if (j <= i) {
        int64_t row = n - 1 - j, col = n - 1 - i; // row and column of the element in solving order
        const int32_t *perm = x.perm ? x.perm + b * n : NULL;
        int64_t p = perm ? perm[row] : row, q = perm ? perm[col] : col;
        v = i == j && x.diag ? x.diag[b * n + row] : x.h[b][p > q ? p * n + q : q * n + p];
    }
    x.a[(b * n + i) * x.ld + j] = v;
}

/* Replaces the diagonal block at `at` by D, the inverse of the Cholesky factor of the block. Step k
 * computes column k of L, updates the columns after k, and updates the rows of X. X is the
 * identity at first, and overwrites the columns before k. After the last step, X is D. */
static __global__ void __launch_bounds__(THREADS) invert_corner(matrices x, int64_t at)
{
    // row: elements 0 to k are those of row k of X; the others are those of column k of L
    __shared__ float m[SIDE][SIDE + 1], row[SIDE];
    int64_t b = blockIdx.x;
    int w = x.n - at < SIDE ? (int)(x.n - at) : SIDE, c = threadIdx.x % SIDE,
        first = threadIdx.x / SIDE;
    float *a = x.a + (b * x.n + at) * x.ld + at;

    // all threads of the block return here, or none does
    if (x.failed[b]) return;
    for (int i = first; i < w; i += STEP)
        if (c < w) m[i][c] = c <= i ? a[i * x.ld + c] : 0;
    __syncthreads();
    for (int k = 0; k < w; k++) {
        float pivot = m[k][k];
        // all threads of the block take this branch, or none does
        if (!(pivot > 0) || !isfinite(pivot)) {
            if (!threadIdx.x) x.failed[b] = 1;
            return;
        }
        float d = __fsqrt_rn(pivot);
        if (!first && c < w)
            row[c] = c == k ? __fdiv_rn(1, d) : __fdiv_rn(c < k ? m[k][c] : m[c][k], d);
        __syncthreads();
        for (int i = k + first; i < w; i += STEP) {
            if (c > i) continue;
            if (i == k) m[i][c] = row[c];
            else m[i][c] = __fmaf_rn(-row[i], row[c], c == k ? 0 : m[i][c]);
        }
        __syncthreads();
    }
    for (int i = first; i < w; i += STEP)
        if (c < w) a[i * x.ld + c] = m[i][c];
}

/* Computes L_ij = A_ij D_j^T for SIDE rows of the block column at `at`. A thread computes PART x
 * PART elements, which are 16 rows or columns apart. */
static __global__ void __launch_bounds__(THREADS) divide_column(matrices x, int64_t at)
{
    __shared__ float d[SIDE][SIDE + 1], rows[SIDE][SIDE + 1];
    int64_t b = blockIdx.y, i0 = at + SIDE * (1 + (int64_t)blockIdx.x);
    int n = x.n - i0 < SIDE ? (int)(x.n - i0) : SIDE, c = threadIdx.x % SIDE,
        first = threadIdx.x / SIDE;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const float *corner = x.a + (b * x.n + at) * x.ld + at;
    float *a = x.a + (b * x.n + i0) * x.ld + at, sum[PART][PART] = {};

    if (x.failed[b]) return; // all threads of the block return here, or none does
    for (int i = first; i < SIDE; i += STEP) {
        d[i][c] = corner[i * x.ld + c];
        rows[i][c] = i < n ? a[i * x.ld + c] : 0;
    }
    __syncthreads();
    for (int k = 0; k < SIDE; k++)
#pragma unroll
        for (int i = 0; i < PART; i++)
#pragma unroll
            for (int j = 0; j < PART; j++)
                sum[i][j] = __fmaf_rn(rows[ty + 16 * i][k], d[tx + 16 * j][k], sum[i][j]);
#pragma unroll
    for (int i = 0; i < PART; i++)
#pragma unroll
        for (int j = 0; j < PART; j++)
            if (ty + 16 * i < n) a[(ty + 16 * i) * x.ld + tx + 16 * j] = sum[i][j];
}

static __global__ void factors_find_nonfinite(matrices x)
{
    int64_t b = blockIdx.z, i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (j <= i && !isfinite(x.a[(b * x.n + i) * x.ld + j])) atomicExch(&x.failed[b], 1);
}

/* Overwrites H by U, with zeros below the diagonal. */
static __global__ void store_upper(matrices x)
{
    int64_t b = blockIdx.z, i = blockIdx.y, j = (int64_t)blockIdx.x * THREADS + threadIdx.x,
            last = x.n - 1;
    if (j < x.n && !x.failed[b])
        x.h[b][i * x.n + j] = j >= i ? x.a[(b * x.n + last - i) * x.ld + last - j] : 0;
}

/* ---- host ---- */
typedef struct corner { // one submatrix of each matrix of a launch
    float *at;          // first element of the submatrix in the first matrix; view
    /* Number of elements from row to row (ld) and from matrix to matrix (stride). */
    int64_t ld, stride;
} corner;

/* Arguments of a product c [m, n] = alpha a b + beta c for each matrix. If `turned` is true, b is
 * transposed. */
typedef struct product {
    corner c, a, b;
    int64_t m, n, k;
    bool turned;
    float alpha, beta;
} product;

static osh_status factors_multiply(osh_ctx *cx, osh_device *d, const product &p, int64_t n_matrices)
{
    osh_cuda_mat c = {p.c.at, p.c.ld, p.c.stride, OSH_F32, false},
                 a = {p.a.at, p.a.ld, p.a.stride, OSH_F32, false};
    osh_cuda_mat b = {p.b.at, p.b.ld, p.b.stride, OSH_F32, p.turned};
    return osh_cuda_gemm(cx, d, {&c, &a, &b, p.m, p.n, p.k, n_matrices, p.alpha, p.beta, 1});
}

static corner corner_at(const matrices &x, int64_t row, int64_t col)
{
    return {x.a + row * x.ld + col, x.ld, x.n * x.ld};
}

static osh_status factors_column(osh_ctx *cx, osh_device *d, const matrices &x, int64_t j,
                                 int64_t n_matrices)
{
    osh_status rc = OSH_OK;
    int64_t below = x.n - j - SIDE;
    if (j)
        OSH_TRY(factors_multiply(cx, d, {corner_at(x, j, j), corner_at(x, j, 0), corner_at(x, j, 0),
                                         x.n - j, osh_min64(SIDE, x.n - j), j, true, -1, 1},
                                 n_matrices));
    OSH_LAUNCH(invert_corner, (unsigned)n_matrices, THREADS, 0, osh_cuda_stream(d), x, j);
    if (below > 0)
        OSH_LAUNCH(divide_column, dim3((unsigned)osh_div_up(below, SIDE), (unsigned)n_matrices),
                   THREADS, 0, osh_cuda_stream(d), x, j);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

static osh_status factors_invert_row(osh_ctx *cx, osh_device *d, const matrices &x, int64_t i,
                                     int64_t n_matrices)
{
    osh_status rc = OSH_OK;
    int64_t rows = osh_min64(SIDE, x.n - i);
    corner left = {x.left, x.ld, SIDE * x.ld};
    OSH_TRY(factors_multiply(cx, d, {left, corner_at(x, i, 0), corner_at(x, 0, 0), rows, i, i,
                                     false, 1, 0}, n_matrices));
    OSH_TRY(factors_multiply(cx, d, {corner_at(x, i, 0), corner_at(x, i, i), left, rows, i, rows,
                                     false, -1, 0}, n_matrices));
done:
    return rc;
}

static osh_status factors_all(osh_ctx *cx, osh_device *d, const matrices &x, int64_t n_matrices)
{
    osh_status rc = OSH_OK;
    dim3 square((unsigned)osh_div_up(x.ld, THREADS), (unsigned)x.n, (unsigned)n_matrices);

    OSH_LAUNCH(gather_lower, square, THREADS, 0, osh_cuda_stream(d), x);
    OSH_CUDA(cx, cudaGetLastError());
    for (int64_t j = 0; j < x.n; j += SIDE) OSH_TRY(factors_column(cx, d, x, j, n_matrices));
    for (int64_t i = SIDE; i < x.n; i += SIDE) OSH_TRY(factors_invert_row(cx, d, x, i, n_matrices));
    OSH_LAUNCH(factors_find_nonfinite, square, THREADS, 0, osh_cuda_stream(d), x);
    OSH_LAUNCH(store_upper, square, THREADS, 0, osh_cuda_stream(d), x);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Copies the lists of x (pointers, orders, diagonals) to the arrays in the block of GPU memory at
 * `base`. Sets the array `failed` to 0. */
static osh_status factors_put_lists(osh_ctx *cx, osh_device *d, char *base, const size_t *at,
                                    const osh_gptq_hessians *x)
{
    osh_status rc = OSH_OK;
    size_t n = (size_t)x->n;
    OSH_TRY(d->type->put(cx, d, base + at[OSH_FACTORS_H], x->h, n * sizeof *x->h));
    OSH_TRY(d->type->fill(cx, d, base + at[OSH_FACTORS_FAILED], 0, n * sizeof(int)));
    n *= (size_t)x->I;
    if (x->perm)
        OSH_TRY(d->type->put(cx, d, base + at[OSH_FACTORS_PERM], x->perm, n * sizeof *x->perm));
    if (x->diag)
        OSH_TRY(d->type->put(cx, d, base + at[OSH_FACTORS_DIAG], x->diag, n * sizeof *x->diag));
done:
    return rc;
}

osh_status osh_gptq_factors_cuda(osh_ctx *cx, osh_device *d, int *failed,
                                 const osh_gptq_hessians *x)
{
    osh_status rc = OSH_OK;
    size_t at[OSH_FACTORS_N_ARRAYS];
    int most = osh_factors_at_once(x->I, x->n, osh_arena_room(d->arena));
    char *base =
        static_cast<char *>(osh_device_alloc(cx, d, osh_factors_offsets(at, x->I, x->n, most),
                                             OSH_LIFE_SHORT)); // own
    if (!base) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(factors_put_lists(cx, d, base, at, x));
    for (int first = 0; first < x->n; first += most) {
        int64_t list = first * x->I;
        const int32_t *perm = reinterpret_cast<int32_t *>(base + at[OSH_FACTORS_PERM]) + list;
        const float *diag = reinterpret_cast<float *>(base + at[OSH_FACTORS_DIAG]) + list;
        matrices m = {reinterpret_cast<float *>(base + at[OSH_FACTORS_A]),
                      reinterpret_cast<float *>(base + at[OSH_FACTORS_LEFT]),
                      reinterpret_cast<float **>(base + at[OSH_FACTORS_H]) + first,
                      x->perm ? perm : NULL, x->diag ? diag : NULL,
                      reinterpret_cast<int *>(base + at[OSH_FACTORS_FAILED]) + first, x->I,
                      osh_factors_ld(x->I)};
        OSH_TRY(factors_all(cx, d, m, osh_min64(most, x->n - first)));
    }
    OSH_TRY(d->type->get(cx, d, failed, base + at[OSH_FACTORS_FAILED],
                         (size_t)x->n * sizeof *failed));
done:
    osh_device_free(d, base);
    return rc;
}
