/* gptq_permute.cu - changes a Hessian in place: makes it symmetric, and permutes its rows and
 * columns into solving order. Also reads its diagonal.
 *
 *   lower triangle given     upper one in the new order     mirrored
 *   | a . . |                | a b c |                      | a b c |
 *   | b d . |       ->       | . d e |              ->      | b d e |
 *   | c e f |                | . . f |                      | c e f |
 *
 * The upper triangle becomes H'[i][j] = H[perm i][perm j]. The kernel for this reads only elements
 * below the diagonal and writes only elements above it. The diagonal is permuted through a scratch
 * vector. */
#include "ops/cuda/op.cuh"
#include "solver/cuda/solver.h"

enum { TILE = 32, STEP = 8, THREADS = TILE * STEP };

/* Sets diag[i] to the diagonal element H[perm[i]][perm[i]]. */
static __global__ void permute_gather_diag(float *diag, const float *h, const int32_t *perm,
                                           int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) diag[i] = h[(perm ? perm[i] : i) * (n + 1)];
}

/* Copies the diagonals of several n x n matrices h to diag [matrices, n]. */
static __global__ void permute_gather_diags(float *diag, float *const *h, int64_t n)
{
    int64_t b = blockIdx.y, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) diag[b * n + i] = h[b][i * (n + 1)];
}

static __global__ void permute_scatter_diag(float *h, const float *diag, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) h[i * (n + 1)] = diag[i];
}

/* Permutes the triangle below the diagonal by `perm`, and writes the result above the diagonal. A
 * thread block writes THREADS elements of row i. */
static __global__ void permute_order_upper(float *h, const int32_t *perm, int64_t n)
{
    int64_t i = blockIdx.x, j = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    if (j <= i || j >= n) return;
    int64_t p = perm[i], q = perm[j];
    h[i * n + j] = p > q ? h[p * n + q] : h[q * n + p];
}

/* Makes h symmetric, tile by tile. If `down` is true, copies the upper triangle to the lower
 * triangle. Otherwise, copies the lower triangle to the upper triangle. */
static __global__ void permute_mirror(float *h, int64_t n, bool down)
{
    __shared__ float tile[TILE][TILE + 1];
    int64_t low = (int64_t)blockIdx.y * TILE, high = (int64_t)blockIdx.x * TILE, tx = threadIdx.x;
    int64_t from_row = down ? high : low, from_col = down ? low : high;

    if (high > low) return; // all threads of the block take the same branch
    for (int64_t y = threadIdx.y; y < TILE; y += STEP)
        if (from_row + y < n && from_col + tx < n)
            tile[y][tx] = h[(from_row + y) * n + from_col + tx];
    __syncthreads();
    for (int64_t y = threadIdx.y; y < TILE; y += STEP) {
        int64_t r = from_col + y, c = from_row + tx;
        if (r < n && c < n && (down ? c < r : c > r)) h[r * n + c] = tile[tx][y];
    }
}

static unsigned permute_blocks(int64_t n) { return (unsigned)osh_div_up(n, THREADS); }

static osh_status permute_run_mirror(osh_ctx *cx, osh_tensor *h, bool down)
{
    osh_status rc = OSH_OK;
    int64_t n = h->shape[0];
    unsigned side = (unsigned)osh_div_up(n, TILE);

    OSH_LAUNCH(permute_mirror, dim3(side, side), dim3(TILE, STEP), 0, osh_cuda_stream(h->device),
               static_cast<float *>(h->data), n, down);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Allocates n floats or n int32 on the device. If `from` is not NULL, copies the n elements from
 * `from` in host memory. Otherwise leaves the memory uninitialized. */
static osh_status permute_row_new(osh_ctx *cx, osh_device *d, void **out, const void *from,
                                  int64_t n)
{
    osh_status rc = OSH_OK;
    *out = osh_device_alloc(cx, d, (size_t)n * sizeof(float), OSH_LIFE_SHORT);
    if (!*out) OSH_TRY(OSH_E_NOMEM);
    if (from) OSH_TRY(d->type->put(cx, d, *out, from, (size_t)n * sizeof(float)));
done:
    return rc;
}

osh_status osh_gptq_permute_cuda(osh_ctx *cx, osh_tensor *h, const int32_t *perm)
{
    osh_status rc = OSH_OK;
    osh_device *d = h->device;
    cudaStream_t s = osh_cuda_stream(d);
    int64_t n = h->shape[0];
    float *p = static_cast<float *>(h->data);
    /* order: perm on the device, int32 [n]; diag: the diagonal, f32 [n]; both own. */
    void *order = NULL, *diag = NULL;

    if (!perm) return permute_run_mirror(cx, h, false);
    OSH_TRY(permute_row_new(cx, d, &order, perm, n));
    OSH_TRY(permute_row_new(cx, d, &diag, NULL, n));
    OSH_LAUNCH(permute_gather_diag, permute_blocks(n), THREADS, 0, s, static_cast<float *>(diag), p,
               static_cast<int32_t *>(order), n);
    OSH_LAUNCH(permute_order_upper, dim3((unsigned)n, permute_blocks(n)), THREADS, 0, s, p,
               static_cast<int32_t *>(order), n);
    OSH_LAUNCH(permute_scatter_diag, permute_blocks(n), THREADS, 0, s, p,
               static_cast<float *>(diag), n);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(permute_run_mirror(cx, h, true));
done:
    osh_device_free(d, diag);
    osh_device_free(d, order);
    return rc;
}

osh_status osh_gptq_diag_cuda(osh_ctx *cx, float *diag, const osh_tensor *h)
{
    osh_status rc = OSH_OK;
    osh_device *d = h->device;
    int64_t n = h->shape[0];
    const int32_t *none = NULL;
    void *row = NULL; // diagonal in f32, [n]; own

    OSH_TRY(permute_row_new(cx, d, &row, NULL, n));
    OSH_LAUNCH(permute_gather_diag, permute_blocks(n), THREADS, 0, osh_cuda_stream(d),
               static_cast<float *>(row), static_cast<const float *>(h->data), none, n);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(d->type->get(cx, d, diag, row, (size_t)n * sizeof *diag));
done:
    osh_device_free(d, row);
    return rc;
}

osh_status osh_gptq_diags_cuda(osh_ctx *cx, osh_device *d, float *diag, const osh_gptq_hessians *x)
{
    osh_status rc = OSH_OK;
    size_t n = (size_t)x->n, lists = osh_arena_gross(n * sizeof *x->h),
           rows = n * (size_t)x->I * sizeof *diag;
    char *base = static_cast<char *>(osh_device_alloc(cx, d, lists + rows, OSH_LIFE_SHORT)); // own
    if (!base) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(d->type->put(cx, d, base, x->h, n * sizeof *x->h));
    OSH_LAUNCH(permute_gather_diags, dim3(permute_blocks(x->I), (unsigned)x->n), THREADS, 0,
               osh_cuda_stream(d), reinterpret_cast<float *>(base + lists),
               reinterpret_cast<float **>(base), x->I);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(d->type->get(cx, d, diag, base + lists, rows));
done:
    osh_device_free(d, base);
    return rc;
}

osh_status osh_gptq_set_diag_cuda(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    osh_status rc = OSH_OK;
    osh_device *d = h->device;
    int64_t n = h->shape[0];
    void *row = NULL; // diagonal in f32, [n]; own

    OSH_TRY(permute_row_new(cx, d, &row, diag, n));
    OSH_LAUNCH(permute_scatter_diag, permute_blocks(n), THREADS, 0, osh_cuda_stream(d),
               static_cast<float *>(h->data), static_cast<const float *>(row), n);
    OSH_CUDA(cx, cudaGetLastError());
done:
    osh_device_free(d, row);
    return rc;
}

osh_status osh_gptq_restore_cuda(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    osh_status rc = OSH_OK;
    OSH_TRY(permute_run_mirror(cx, h, true));
    OSH_TRY(osh_gptq_set_diag_cuda(cx, h, diag));
done:
    return rc;
}
