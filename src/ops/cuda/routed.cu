/* routed.cu - lists or counts the rows of a batch that are routed to each expert, and computes the
 * op `linear` for some rows.
 *
 * route [N, E] has the weight of each expert for each token. The lists are n [E], followed by
 * rows [E, N]: expert 5 has n[5] rows, in ascending order.
 *
 * A thread block lists the tokens of one expert. It tests 256 tokens at a time. A ballot of each
 * warp gives the position of each row in the list. N: tokens of the batch. E: experts. */
#include "ops/cuda/pack.cuh"
#include "ops/cuda/routed.cuh"
#include "ops/cuda/sizes.h"

/* Number of threads of a block, and number of tokens that a block tests at a time. */
enum { ROUTES = 256 };

template <class T>
static __global__ void routed_find_rows(int32_t *n, int32_t *rows, const T *route, int64_t N)
{
    __shared__ int of_warp[ROUTES / 32];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, all = 0;
    int64_t expert = blockIdx.x, E = gridDim.x;

    for (int64_t first = 0; first < N; first += ROUTES) {
        int64_t token = first + threadIdx.x;
        bool goes = token < N && osh_cu_load(route[token * E + expert]) != 0;
        uint32_t those = __ballot_sync(0xffffffffu, goes);
        if (!lane) of_warp[warp] = __popc(those);
        __syncthreads();
        int at = all + __popc(those & ((1u << lane) - 1));
        for (int w = 0; w < ROUTES / 32; w++) at += w < warp ? of_warp[w] : 0, all += of_warp[w];
        if (goes) rows[expert * N + at] = (int32_t)token;
        // after this barrier no thread reads of_warp, which the next iteration overwrites
        __syncthreads();
    }
    if (!threadIdx.x) n[expert] = all;
}

osh_status osh_cuda_routes(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route)
{
    osh_status rc = OSH_OK;
    osh_device *d = route->device;
    int64_t N = osh_rows(route), E = osh_width(route);

    OSH_CU_BY_DTYPE(route->dtype, T,
        OSH_LAUNCH(routed_find_rows<T>, (unsigned)E, ROUTES, 0, osh_cuda_stream(d), lists,
                   lists + E, static_cast<const T *>(route->data), N));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(d->type->get(cx, d, n, lists, (size_t)E * sizeof *n));
done:
    return rc;
}

/* Counts the rows that route [N, E] sends to each expert, and adds these numbers to n [E]. A block
 * counts a tile of 32 columns: each lane counts one column, and the rows are distributed over the
 * warps of all blocks. */
template <class T>
static __global__ void routed_count(int32_t *n, const T *route, int64_t N, int64_t E)
{
    __shared__ int32_t sums[32];
    int lane = (int)threadIdx.x % 32;
    int64_t column = (int64_t)blockIdx.y * 32 + lane, step = (int64_t)gridDim.x * (ROUTES / 32);
    int32_t mine = 0;
    if (threadIdx.x < 32) sums[lane] = 0;
    __syncthreads();
    for (int64_t row = (int64_t)blockIdx.x * (ROUTES / 32) + threadIdx.x / 32;
         row < N && column < E; row += step)
        mine += osh_cu_load(route[row * E + column]) != 0;
    if (mine) atomicAdd(&sums[lane], mine);
    __syncthreads();
    if (threadIdx.x < 32 && sums[lane]) atomicAdd(&n[column], sums[lane]);
}

osh_status osh_cuda_count_routes(osh_ctx *cx, int32_t *n, const osh_tensor *route)
{
    osh_status rc = OSH_OK;
    osh_device *d = route->device;
    int64_t N = osh_rows(route), E = osh_width(route);
    int32_t *sums = static_cast<int32_t *>(osh_cuda_scratch(d));
    dim3 grid((unsigned)osh_min64(osh_div_up(N ? N : 1, ROUTES), 256), (unsigned)osh_div_up(E, 32));

    OSH_TRY(d->type->fill(cx, d, sums, 0, (size_t)E * sizeof *sums));
    OSH_CU_BY_DTYPE(route->dtype, T,
        OSH_LAUNCH(routed_count<T>, grid, ROUTES, 0, osh_cuda_stream(d), sums,
                   static_cast<const T *>(route->data), N, E));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_TRY(d->type->get(cx, d, n, sums, (size_t)E * sizeof *n));
done:
    return rc;
}

bool osh_cuda_linear_takes_rows(const osh_op_args *a)
{
    const osh_tensor *x = a->in[0], *w = a->in[1];
    return a->rows && !a->in[2] && x->dtype != OSH_F32 && w->dtype == x->dtype &&
           osh_width(x) % 8 == 0 && osh_width(a->out[0]) % 8 == 0 && osh_cu_aligned(x->data) &&
           osh_cu_aligned(w->data) && osh_cu_aligned(a->out[0]->data);
}

osh_status osh_cuda_linear_rows(osh_ctx *cx, const osh_op_args *a)
{
    const osh_tensor *x = a->in[0], *y = a->out[0];
    routed_launch l = {y->data, x->data, NULL, NULL, {}, {osh_width(x), osh_width(y), true, true},
                       osh_div_up(a->rows->n, ROUTED_TILE)};
    l.one.w[0] = a->in[1]->data, l.one.rows = a->rows->at, l.one.n = (int32_t)a->rows->n;
    if (x->dtype == OSH_BF16) return routed_run<osh_bf16_t>(cx, y->device, l, routed_plain());
    return routed_run<osh_f16_t>(cx, y->device, l, routed_plain());
}

/* Computes *first = min(*first, index of the first NaN or infinity of x [N, D] in the n rows that
 * `rows` lists). */
template <class T>
static __global__ void finite_rows(long long *first, const T *x, const int32_t *rows, int64_t n,
                                   int64_t D)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * D;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t at = rows[i / D] * D + i % D;
        if (!osh_cu_is_finite(osh_cu_load(x[at]))) atomicMin(first, (long long)at);
    }
}

osh_status osh_cuda_finite_rows(osh_ctx *cx, int64_t *first, const osh_tensor *x,
                                const osh_op_rows *rows)
{
    osh_status rc = OSH_OK;
    int64_t D = osh_width(x);

    if (!rows->n) return OSH_OK;
    OSH_CU_BY_DTYPE(x->dtype, T,
        OSH_LAUNCH(finite_rows<T>, osh_cu_grid(x->device, rows->n * D, 256), 256, 0,
                   osh_cuda_stream(x->device), reinterpret_cast<long long *>(first),
                   static_cast<const T *>(x->data), rows->at, rows->n, D));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
