/* rotate.cu - computes rotate, y = x M or y = x M^T, in f32. The rows of x are cut into vectors of
 * n elements, and M is [n, n].
 *
 *   factors     M = diag(sign) (H x F) / sqrt(n) (tensor/rotation.h). A block computes a tile of
 *               whole vectors in shared memory: signs, butterflies for H, and products with F
 *               while it writes y. If a vector is too long for shared memory, each block has its
 *               own piece of scratch instead.
 *   T [n, n]    M = T / sqrt(n): a matrix product. If T has another dtype than x, both are
 *               converted to f32, in panels of at most 2^23 elements.
 *
 * With factors, y may be the same tensor as x. The sums of ops/rotate.c are f64, so the results
 * differ in last bits. */
#include "ops/cuda/cast.cuh"
#include "ops/cuda/pack.cuh"
#include "ops/cuda/sizes.h"

#include <math.h>

enum { THREADS = 512 };

typedef struct rotate_shape {
    int64_t total;      // number of elements of x
    int64_t n_tiles;
    uint32_t tile;      // number of elements of a tile, a multiple of n
    uint32_t n, factor; // M is [n, n]; F is [factor, factor]
    float root;         // sqrt(n)
    bool transposed;
    /* The factors of M, in GPU memory. had [factor, factor]: F; NULL: F is `cas`, or 1. cas
     * [factor]: F[b][c] = cas[b c % factor]. sign [n]: NULL: all signs are 1. */
    const int8_t *had;
    const double *cas, *sign;
} rotate_shape;

/* Multiplies the vectors in v by H x I. `d` is the distance of the elements of a pair. */
static __device__ void rotate_butterflies(float *v, uint32_t len, const rotate_shape &p)
{
    for (uint32_t d = p.factor; d < p.n; d *= 2) {
        for (uint32_t j = threadIdx.x; j < len / 2; j += THREADS) {
            uint32_t at = j + j / d * d;
            float a = v[at], b = v[at + d];
            v[at] = a + b, v[at + d] = a - b;
        }
        __syncthreads();
    }
}

/* Returns element i of v (I x F), or of v (I x F^T). */
static __device__ float rotate_by_factor(const float *v, uint32_t i, const rotate_shape &p)
{
    uint32_t K = p.factor, c = i % K, k = 0;
    const float *x = v + (i - c);
    const int8_t *f = p.had + (p.transposed ? c * K : c);
    float sum = 0;
    if (K == 1) return v[i];
    for (uint32_t b = 0; b < K && p.had; b++) sum += x[b] * (float)f[p.transposed ? b : b * K];
    for (uint32_t b = 0; b < K && !p.had; b++) {
        sum += x[b] * (float)p.cas[k];
        if ((k += c) >= K) k -= K;
    }
    return sum;
}

/* Rotates all tiles. slabs: scratch, p.tile elements for each block; NULL: the tile is in shared
 * memory. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    rotate_kernel(T *y, const T *x, float *slabs, rotate_shape p)
{
    OSH_DYNAMIC_SHARED(float, shared);
    float *v = slabs ? slabs + (int64_t)blockIdx.x * p.tile : shared;

    for (int64_t tile = blockIdx.x; tile < p.n_tiles; tile += gridDim.x) {
        int64_t first = tile * p.tile, left = p.total - first;
        uint32_t len = left < p.tile ? (uint32_t)left : p.tile;
        for (uint32_t i = threadIdx.x; i < len; i += THREADS) {
            v[i] = osh_cu_load(x[first + i]);
            if (p.sign && !p.transposed && p.sign[i % p.n] < 0) v[i] = -v[i];
        }
        __syncthreads();
        rotate_butterflies(v, len, p);
        for (uint32_t i = threadIdx.x; i < len; i += THREADS) {
            float out = rotate_by_factor(v, i, p) / p.root;
            if (p.sign && p.transposed && p.sign[i % p.n] < 0) out = -out;
            osh_cu_store(&y[first + i], out);
        }
        __syncthreads();
    }
}

template <class T>
static osh_status rotate_launch(osh_ctx *cx, const osh_op_args *a, float *slabs, int64_t n_slabs,
                                const rotate_shape &p)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->out[0];
    size_t shared = slabs ? 0 : p.tile * sizeof(float);
    unsigned blocks = (unsigned)(slabs ? n_slabs : osh_cu_grid(y->device, p.n_tiles, 1));

    OSH_CUDA(cx, cudaFuncSetAttribute(rotate_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      OSH_ROTATE_SHARED));
    OSH_LAUNCH(rotate_kernel<T>, blocks, THREADS, shared, osh_cuda_stream(y->device),
               static_cast<T *>(y->data), static_cast<const T *>(x->data), slabs, p);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Copies the factors of r to `room`, which has osh_rotate_table_bytes(r) bytes. Sets the pointers
 * of *p to the copies. */
static osh_status rotate_put_factors(osh_ctx *cx, rotate_shape *p, osh_device *d,
                                     const osh_rotation *r, char *room)
{
    osh_status rc = OSH_OK;
    size_t K = (size_t)r->factor, signs = r->sign ? (size_t)r->n * sizeof(double) : 0;
    char *factor = room + signs;

    if (r->sign) {
        OSH_TRY(d->type->put(cx, d, room, r->sign, signs));
        p->sign = reinterpret_cast<const double *>(room);
    }
    if (r->had) {
        OSH_TRY(d->type->put(cx, d, factor, r->had, K * K));
        p->had = reinterpret_cast<const int8_t *>(factor);
    }
    if (r->cas) {
        OSH_TRY(d->type->put(cx, d, factor, r->cas, K * sizeof(double)));
        p->cas = reinterpret_cast<const double *>(factor);
    }
done:
    return rc;
}

static osh_status rotate_by_factors(osh_ctx *cx, const osh_op_args *a, const osh_rotate_attr *at)
{
    osh_status rc = OSH_OK;
    const osh_rotation *r = at->r;
    osh_device *d = a->out[0]->device;
    int64_t tile = osh_rotate_tile(r->n), total = osh_tensor_numel(a->in[0]),
            n_slabs = osh_rotate_slabs(r->n, osh_rows(a->in[0]) * (osh_width(a->in[0]) / r->n));
    size_t tables = osh_rotate_table_bytes(r);
    rotate_shape p = {total,
                      osh_div_up(total, tile),
                      (uint32_t)tile,
                      (uint32_t)r->n,
                      (uint32_t)r->factor,
                      (float)sqrt((double)r->n),
                      at->transposed,
                      NULL,
                      NULL,
                      NULL};
    char *room = NULL;   // own: factors
    float *slabs = NULL; // own: [n_slabs, tile]

    if (tables) {
        room = static_cast<char *>(osh_device_alloc(cx, d, tables, OSH_LIFE_SHORT));
        if (!room) OSH_TRY(OSH_E_NOMEM);
        OSH_TRY(rotate_put_factors(cx, &p, d, r, room));
    }
    if (n_slabs) {
        size_t bytes = (size_t)(n_slabs * tile) * sizeof(float);
        slabs = static_cast<float *>(osh_device_alloc(cx, d, bytes, OSH_LIFE_SHORT));
        if (!slabs) OSH_TRY(OSH_E_NOMEM);
    }
    OSH_CU_BY_DTYPE(a->in[0]->dtype, T, OSH_TRY(rotate_launch<T>(cx, a, slabs, n_slabs, p)));
done:
    osh_device_free(d, slabs);
    osh_device_free(d, room);
    return rc;
}

/* A product with panels in f32. x, y and T: [rows, n] each; the arrays are in one block of
 * scratch. */
typedef struct rotate_dense {
    osh_device *d;
    const osh_tensor *x, *y, *T;
    int64_t n, rows;      // rows: number of rows of a panel
    float *xs, *ys, *ts;  // view: panels of x, of y and of T
    float scale;          // 1 / sqrt(n)
    bool transposed;
} rotate_dense;

/* Computes m vectors of y, from vector `first` on. A panel of rows of T gives columns of y if T is
 * transposed. Otherwise the panel gives a part of the sum of each element of y. */
static osh_status rotate_panel(osh_ctx *cx, const rotate_dense *j, int64_t first, int64_t m)
{
    osh_status rc = OSH_OK;
    int64_t n = j->n;

    OSH_TRY(osh_cuda_cast(cx, j->d, {j->xs, OSH_F32}, {osh_elem(j->x, first * n), j->x->dtype},
                          m * n));
    for (int64_t k = 0, rows; k < n; k += rows) {
        rows = osh_min64(j->rows, n - k);
        OSH_TRY(osh_cuda_cast(cx, j->d, {j->ts, OSH_F32}, {osh_elem(j->T, k * n), j->T->dtype},
                              rows * n));
        osh_cuda_mat c = {j->transposed ? j->ys + k : j->ys, n, 0, OSH_F32, false};
        osh_cuda_mat x = {j->transposed ? j->xs : j->xs + k, n, 0, OSH_F32, false};
        osh_cuda_mat t = {j->ts, n, 0, OSH_F32, j->transposed};
        OSH_TRY(osh_cuda_gemm(cx, j->d,
                              {&c, &x, &t, m, j->transposed ? rows : n, j->transposed ? n : rows, 1,
                               j->scale, j->transposed || !k ? 0.0f : 1.0f}));
    }
    OSH_TRY(osh_cuda_cast(cx, j->d, {osh_elem(j->y, first * n), j->y->dtype}, {j->ys, OSH_F32},
                          m * n));
done:
    return rc;
}

static osh_status rotate_by_matrix(osh_ctx *cx, const osh_op_args *a, const osh_rotate_attr *at)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->out[0], *T = a->in[1];
    int64_t n = at->n, n_vectors = osh_tensor_numel(x) / n, rows = osh_linear_panel_rows(n, n);
    int64_t step = osh_linear_panel_rows(n_vectors, n);
    rotate_dense j = {y->device, x, y, T, n, rows, NULL, NULL, NULL,
                      (float)(1 / sqrt((double)n)), at->transposed};
    float *room = NULL; // own: the panels

    if (T->dtype == x->dtype) {
        osh_cuda_mat c = {y->data, n, 0, y->dtype, false}, from = {x->data, n, 0, x->dtype, false};
        osh_cuda_mat t = {T->data, n, 0, T->dtype, j.transposed};
        OSH_TRY(osh_cuda_gemm(cx, j.d, {&c, &from, &t, n_vectors, n, n, 1, j.scale, 0}));
        goto done;
    }
    OSH_TRY(osh_cu_readable(cx, T->dtype));
    room = static_cast<float *>(
        osh_device_alloc(cx, j.d, osh_rotate_panel_bytes(n_vectors, n), OSH_LIFE_SHORT));
    if (!room) OSH_TRY(OSH_E_NOMEM);
    j.xs = room, j.ys = room + step * n, j.ts = j.ys + step * n;
    for (int64_t first = 0; first < n_vectors; first += step)
        OSH_TRY(rotate_panel(cx, &j, first, osh_min64(step, n_vectors - first)));
done:
    osh_device_free(y->device, room);
    return rc;
}

osh_status osh_rotate_cuda(osh_ctx *cx, const osh_op_args *a)
{
    const osh_rotate_attr *at = static_cast<const osh_rotate_attr *>(a->attr);
    if (!osh_tensor_numel(a->in[0])) return OSH_OK;
    return at->r ? rotate_by_factors(cx, a, at) : rotate_by_matrix(cx, a, at);
}
