/* shift_accum.cu - computes D += (X0 - X)^T X. The difference is rounded to the dtype of x. The
 * matrix products use the same chunks of tokens as those of hessian_accum.cu. D is not symmetric,
 * so both triangles are computed. */
#include "ops/cuda/op.cuh"
#include "ops/cuda/sizes.h"

enum { SIDE = 2048, TOKENS = OSH_HESSIAN_TOKENS, THREADS = 256, GRAIN = OSH_HESSIAN_GRAIN };

template <class T> static __global__ void subtract_kernel(T *to, const T *x0, const T *x, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) osh_cu_store(&to[i], __fsub_rn(osh_cu_load(x0[i]), osh_cu_load(x[i])));
}

typedef struct difference { // views of GPU memory; `left` = x0 - x
    void *left;
    const void *x0, *x;
    osh_dtype dt;
} difference;

/* Computes `left` = x0 - x for n elements. */
static osh_status shift_subtract(osh_ctx *cx, osh_device *d, const difference &y, int64_t n)
{
    osh_status rc = OSH_OK;
    OSH_CU_BY_DTYPE(y.dt, T,
        OSH_LAUNCH(subtract_kernel<T>, (unsigned)osh_div_up(n, THREADS), THREADS, 0,
                   osh_cuda_stream(d), static_cast<T *>(y.left), static_cast<const T *>(y.x0),
                   static_cast<const T *>(y.x), n));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Computes D += left^T x, with `left` and x [n, I]. */
static osh_status shift_add_rows(osh_ctx *cx, osh_tensor *to, void *left, void *x, osh_dtype dt,
                                 int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t I = to->shape[0];
    for (int64_t row = 0; row < I; row += SIDE) {
        char *first = static_cast<char *>(left) + (size_t)row * osh_dtype_bytes(dt);
        osh_cuda_mat panel = {first, I, 0, dt, true}, all = {x, I, 0, dt, false};
        osh_cuda_mat c = {osh_elem(to, row * I), I, 0, OSH_F32, false};
        OSH_TRY(osh_cuda_gemm(cx, to->device, {&c, &panel, &all, osh_min64(SIDE, I - row), I, n, 1,
                                               1, 1}));
    }
done:
    return rc;
}

/* Adds (X0 - X)^T X to D for rows [token, token + n) of the batch. Scratch: `left` [n rounded up to
 * GRAIN, I] and `grain` [GRAIN, I]. */
static osh_status shift_add_chunk(osh_ctx *cx, const osh_op_args *a, int64_t token, int64_t n,
                                  char *left, char *grain)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *x0 = a->in[1];
    osh_device *d = a->out[0]->device;
    int64_t I = osh_width(x), whole = n / GRAIN * GRAIN, rest = n - whole;
    size_t row = (size_t)I * osh_dtype_bytes(x->dtype), used = (size_t)rest * row,
           gap = (size_t)GRAIN * row - used;

    if (whole) {
        void *here = osh_elem(x, token * I);
        OSH_TRY(shift_subtract(cx, d, {left, osh_elem(x0, token * I), here, x->dtype}, whole * I));
        OSH_TRY(shift_add_rows(cx, a->out[0], left, here, x->dtype, whole));
    }
    if (!rest) goto done;
    OSH_TRY(d->type->copy(cx, d, grain, osh_elem(x, (token + whole) * I), used));
    OSH_TRY(d->type->fill(cx, d, grain + used, 0, gap));
    OSH_TRY(shift_subtract(cx, d, {left, osh_elem(x0, (token + whole) * I), grain, x->dtype},
                           rest * I));
    OSH_TRY(d->type->fill(cx, d, left + used, 0, gap));
    OSH_TRY(shift_add_rows(cx, a->out[0], left, grain, x->dtype, GRAIN));
done:
    return rc;
}

static int64_t shift_grains(int64_t n_tokens)
{
    return osh_div_up(osh_min64(n_tokens, TOKENS), GRAIN) * GRAIN;
}

osh_status osh_shift_accum_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    osh_device *d = a->out[0]->device;
    int64_t N = osh_rows(x);
    size_t row = (size_t)osh_width(x) * osh_dtype_bytes(x->dtype);
    char *left = NULL, *grain = NULL; // own: scratch

    if (!N) goto done;
    left = static_cast<char *>(osh_device_alloc(cx, d, (size_t)shift_grains(N) * row,
                                                OSH_LIFE_SHORT));
    if (left)
        grain = static_cast<char *>(osh_device_alloc(cx, d, (size_t)GRAIN * row, OSH_LIFE_SHORT));
    if (!grain) OSH_TRY(OSH_E_NOMEM);
    for (int64_t token = 0; token < N; token += TOKENS)
        OSH_TRY(shift_add_chunk(cx, a, token, osh_min64(TOKENS, N - token), left, grain));
done:
    osh_device_free(d, grain);
    osh_device_free(d, left);
    return rc;
}
