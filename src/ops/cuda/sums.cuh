/* sums.cuh - computes to[i] += sum over rows of f(row, i), for the gradients of weights. Rows are
 * summed in chunks of OSH_SUM_ROWS, then the sums of the chunks are added in order. So the order of
 * additions depends only on the number of rows. */
#ifndef OSH_SUMS_CUH
#define OSH_SUMS_CUH
#include "ops/cuda/sizes.h"
#include "ops/cuda/widen.cuh"

/* Writes the sum of each chunk to partial [chunks, D]. A block sums 32 columns of a chunk, 8 rows
 * at a time. */
template <class F>
static __global__ void osh_cu_sums_kernel(float *partial, int64_t rows, int64_t D, F f)
{
    __shared__ float shared[8][33];
    int64_t tiles = (D + 31) / 32, chunk = blockIdx.x / tiles, lane = threadIdx.x % 32,
            team = threadIdx.x / 32;
    int64_t i = blockIdx.x % tiles * 32 + lane, end = (chunk + 1) * OSH_SUM_ROWS;
    float sum = 0;

    if (end > rows) end = rows;
    for (int64_t r = chunk * OSH_SUM_ROWS + team; i < D && r < end; r += 8) sum += f(r, i);
    shared[team][lane] = sum;
    __syncthreads();
    if (team || i >= D) return;
    for (int k = 1; k < 8; k++) sum += shared[k][lane];
    partial[chunk * D + i] = sum;
}

static __global__ void osh_cu_sums_end(float *to, const float *partial, int64_t chunks, int64_t D)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < D;
         i += (int64_t)gridDim.x * 256) {
        float sum = 0;
        for (int64_t c = 0; c < chunks; c++) sum += partial[c * D + i];
        to[i] += sum;
    }
}

/* Arguments of osh_cu_sums: sizes of the table of values f(row, i), and scratch. */
typedef struct osh_cu_table {
    int64_t rows, D;
    float *room; // scratch of osh_sums_bytes(rows, D) bytes in GPU memory
} osh_cu_table;

template <class F>
static osh_status osh_cu_sums(osh_ctx *cx, osh_device *d, float *to, osh_cu_table t, F f)
{
    osh_status rc = OSH_OK;
    int64_t rows = t.rows, D = t.D, chunks = osh_div_up(rows, OSH_SUM_ROWS);
    float *room = t.room;

    OSH_LAUNCH(osh_cu_sums_kernel<F>, (unsigned)(chunks * osh_div_up(D, 32)), 256, 0,
               osh_cuda_stream(d), room, rows, D, f);
    OSH_CUDA(cx, cudaGetLastError());
    OSH_LAUNCH(osh_cu_sums_end, osh_cu_grid(d, D, 256), 256, 0, osh_cuda_stream(d), to, room,
               chunks, D);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
#endif
