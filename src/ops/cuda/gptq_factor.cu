/* gptq_factor.cu - computes U in place of H (ops/gptq_factor.c) in three steps: reverses the rows
 * and columns of H, computes the inverse of its Cholesky factor (gpu/triangle.cu), and reverses the
 * rows and columns of this inverse. factors.cu computes U for Hessians of at most OSH_FACTORS_MOST
 * columns.
 *
 * A failure must not change the elements above the diagonal. So they are written only after all
 * elements of the inverse are known to be finite. */
#include "ops/cuda/op.cuh"

enum { TILE = 32, STEP = 8 }; // a block of TILE x STEP threads moves TILE x TILE elements

/* flip_lower swaps pairs of elements. Returns true if (i, j) is the first element of a pair: the
 * element that is nearer to the upper left corner. */
__device__ static bool flip_is_first(int64_t i, int64_t j, int64_t n)
{
    return j <= i && i + j < n - 1;
}

/* Replaces the lower triangle of H by the lower triangle of J H J (J reverses rows): swaps element
 * (i, j) with (n-1-j, n-1-i). Each block swaps the pairs whose upper left element is in tile
 * (blockIdx.y, blockIdx.x). All reads and writes are along rows. */
static __global__ void flip_lower(float *a, int64_t n)
{
    __shared__ float here[TILE][TILE + 1], there[TILE][TILE + 1];
    int64_t i0 = (int64_t)blockIdx.y * TILE, j0 = (int64_t)blockIdx.x * TILE, tx = threadIdx.x;

    // all threads of the block return here, or none does
    if (j0 > i0 || i0 + j0 >= n - 1) return;
    for (int64_t y = threadIdx.y; y < TILE; y += STEP) {
        if (flip_is_first(i0 + y, j0 + tx, n)) here[y][tx] = a[(i0 + y) * n + j0 + tx];
        if (flip_is_first(i0 + tx, j0 + y, n))
            there[y][tx] = a[(n - 1 - j0 - y) * n + n - 1 - i0 - tx];
    }
    __syncthreads();
    for (int64_t y = threadIdx.y; y < TILE; y += STEP) {
        if (flip_is_first(i0 + y, j0 + tx, n)) a[(i0 + y) * n + j0 + tx] = there[tx][y];
        if (flip_is_first(i0 + tx, j0 + y, n))
            a[(n - 1 - j0 - y) * n + n - 1 - i0 - tx] = here[tx][y];
    }
}

/* Reverses rows and columns: moves the lower triangle to the upper triangle, and sets the lower
 * triangle to 0. Diagonal elements i and n - 1 - i are swapped. */
static __global__ void turn_to_upper(float *a, int64_t n)
{
    int64_t i = blockIdx.x, j = (int64_t)blockIdx.y * TILE * STEP + threadIdx.x, m = n - 1 - i;

    // diagonal elements i and m are swapped once, by the thread of the smaller index
    if (j > i || (j == i && i >= m)) return;
    float v = a[i * n + j];
    if (j < i) {
        a[m * n + n - 1 - j] = v;
        a[i * n + j] = 0;
    } else {
        a[i * n + i] = a[m * n + m];
        a[m * n + m] = v;
    }
}

static __global__ void factor_find_nonfinite(int *found, const float *a, int64_t n)
{
    int64_t i = blockIdx.x, j = (int64_t)blockIdx.y * TILE * STEP + threadIdx.x;
    if (j <= i && !isfinite(a[i * n + j])) atomicExch(found, 1);
}

static osh_status factor_is_finite(osh_ctx *cx, osh_device *d, bool *finite, const float *h,
                                   int64_t n, dim3 grid)
{
    osh_status rc = OSH_OK;
    int found = 0;
    int *flag = static_cast<int *>(osh_device_alloc(cx, d, sizeof found, OSH_LIFE_SHORT)); // own

    if (!flag) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(d->type->fill(cx, d, flag, 0, sizeof found));
    OSH_LAUNCH(factor_find_nonfinite, grid, TILE * STEP, 0, osh_cuda_stream(d), flag, h, n);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(d->type->get(cx, d, &found, flag, sizeof found));
    *finite = !found;
done:
    osh_device_free(d, flag);
    return rc;
}

osh_status osh_gptq_factor_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->out[0]->device;
    float *h = static_cast<float *>(a->out[0]->data);
    int64_t n = a->out[0]->shape[0];
    unsigned side = (unsigned)osh_div_up(n, TILE);
    dim3 rows((unsigned)n, (unsigned)osh_div_up(n, TILE * STEP));
    bool ok = false;

    if (n <= OSH_FACTORS_MOST) {
        int failed = 0;
        osh_gptq_hessians one = {&h, NULL, NULL, n, 1};
        OSH_TRY(osh_gptq_factors_cuda(cx, d, &failed, &one));
        return failed ? OSH_E_NUMERIC : OSH_OK;
    }
    OSH_LAUNCH(flip_lower, dim3(side, side), dim3(TILE, STEP), 0, osh_cuda_stream(d), h, n);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(osh_cuda_factor_inverse(cx, d, h, n, &ok));
    if (!ok) OSH_TRY(OSH_E_NUMERIC);
    OSH_TRY(factor_is_finite(cx, d, &ok, h, n, rows));
    if (!ok) OSH_TRY(OSH_E_NUMERIC);
    OSH_LAUNCH(turn_to_upper, rows, TILE * STEP, 0, osh_cuda_stream(d), h, n);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
