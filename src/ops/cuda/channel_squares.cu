/* channel_squares.cu - adds the squares of each channel to F64 sums (channel_squares.c). Rows are
 * summed in chunks of OSH_SQUARES_ROWS, then the sums of the chunks are added in order. So the
 * order of additions depends only on the number of rows. */
#include "ops/cuda/pack.cuh"
#include "ops/cuda/sizes.h"

enum { COLUMNS = 32, TEAMS = 8, THREADS = COLUMNS * TEAMS };

/* Writes the sums of each chunk to partial [chunks, D]. A block sums COLUMNS columns of chunk
 * blockIdx.y, TEAMS rows at a time. */
template <class T>
static __global__ void squares_kernel(double *partial, const T *x, int64_t rows, int64_t D)
{
    __shared__ double shared[TEAMS][COLUMNS];
    int64_t lane = threadIdx.x % COLUMNS, team = threadIdx.x / COLUMNS,
            i = (int64_t)blockIdx.x * COLUMNS + lane,
            end = ((int64_t)blockIdx.y + 1) * OSH_SQUARES_ROWS;
    double sum = 0;

    if (end > rows) end = rows;
    for (int64_t r = (int64_t)blockIdx.y * OSH_SQUARES_ROWS + team; i < D && r < end; r += TEAMS) {
        double v = osh_cu_load(x[r * D + i]); // the square of an f32 number is exact in f64
        sum += v * v;
    }
    shared[team][lane] = sum;
    __syncthreads();
    if (team || i >= D) return;
    for (int k = 1; k < TEAMS; k++) sum += shared[k][lane];
    partial[blockIdx.y * D + i] = sum;
}

static __global__ void squares_end(double *to, const double *partial, int64_t chunks, int64_t D)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum = 0;
    if (i >= D) return;
    for (int64_t c = 0; c < chunks; c++) sum += partial[c * D + i];
    to[i] += sum;
}

osh_status osh_channel_squares_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    osh_device *d = a->out[0]->device;
    int64_t rows = osh_rows(x), D = osh_width(x), chunks = osh_div_up(rows, OSH_SQUARES_ROWS);
    dim3 grid((unsigned)osh_div_up(D, COLUMNS), (unsigned)chunks);
    double *partial = NULL; // own [chunks, D]

    if (!rows) goto done;
    partial = static_cast<double *>(
        osh_device_alloc(cx, d, (size_t)(chunks * D) * sizeof *partial, OSH_LIFE_SHORT));
    if (!partial) OSH_TRY(OSH_E_NOMEM);
    OSH_CU_BY_DTYPE(x->dtype, T,
        OSH_LAUNCH(squares_kernel<T>, grid, THREADS, 0, osh_cuda_stream(d), partial,
                   static_cast<const T *>(x->data), rows, D));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_LAUNCH(squares_end, (unsigned)osh_div_up(D, THREADS), THREADS, 0, osh_cuda_stream(d),
               static_cast<double *>(a->out[0]->data), partial, chunks, D);
    OSH_CUDA(cx, cudaGetLastError());
done:
    osh_device_free(d, partial);
    return rc;
}
