/* gptq_target.cu - computes gptq_shift and gptq_target. Both ops process slabs of ROWS rows, and
 * multiply each slab by one or two F32 matrices. */
#include "ops/cuda/cast.cuh"
#include "ops/cuda/op.cuh"
#include "ops/cuda/sizes.h"

enum { ROWS = OSH_TARGET_ROWS, THREADS = 256 };

/* Copies rows of d to `room` [rows, I], with columns in solving order (gptq_shift.c). If `back` is
 * true, copies rows of `room` to d, with columns in the order of the weight. A block copies THREADS
 * columns of a row. */
static __global__ void shift_order_columns(float *room, float *d, const int32_t *perm, int64_t I,
                                           bool back)
{
    int64_t row = (int64_t)blockIdx.x * I, i = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    if (i >= I) return;
    if (back) d[row + perm[i]] = room[row + i];
    else room[row + i] = d[row + perm[i]];
}

static float *target_room_new(osh_ctx *cx, osh_device *d, int64_t rows, int64_t I)
{
    size_t n = (size_t)(osh_min64(ROWS, rows) * I) * sizeof(float);
    return static_cast<float *>(osh_device_alloc(cx, d, n, OSH_LIFE_SHORT));
}

osh_status osh_gptq_shift_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->out[0]->device;
    int64_t I = a->out[0]->shape[0];
    const int32_t *perm = static_cast<const int32_t *>(a->in[1]->data);
    /* Scratch; each has at most [ROWS, I] elements; own. */
    float *from = target_room_new(cx, d, I, I), *half = from ? target_room_new(cx, d, I, I) : NULL;

    if (!half) OSH_TRY(OSH_E_NOMEM);
    for (int64_t row = 0; row < I; row += ROWS) {
        int64_t n = osh_min64(ROWS, I - row);
        float *slab = static_cast<float *>(osh_elem(a->out[0], row * I));
        dim3 grid((unsigned)n, (unsigned)osh_div_up(I, THREADS));
        osh_cuda_mat x = {from, I, 0, OSH_F32, false}, y = {half, I, 0, OSH_F32, false};
        osh_cuda_mat u = {a->in[0]->data, I, 0, OSH_F32, false},
                     ut = {a->in[0]->data, I, 0, OSH_F32, true};
        OSH_LAUNCH(shift_order_columns, grid, THREADS, 0, osh_cuda_stream(d), from, slab, perm, I,
                   false);
        OSH_TRY(osh_cuda_gemm(cx, d, {&y, &x, &ut, n, I, I, 1, 1, 0}));
        OSH_TRY(osh_cuda_gemm(cx, d, {&x, &y, &u, n, I, I, 1, 1, 0}));
        OSH_LAUNCH(shift_order_columns, grid, THREADS, 0, osh_cuda_stream(d), from, slab, perm, I,
                   true);
        OSH_CUDA(cx, cudaGetLastError());
    }
done:
    osh_device_free(d, half);
    osh_device_free(d, from);
    return rc;
}

osh_status osh_gptq_target_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->out[0]->device;
    const osh_tensor *w = a->in[0];
    int64_t O = osh_rows(w), I = osh_width(w);
    float *from = target_room_new(cx, d, O, I); // rows of w in f32, [ROWS, I] or smaller; own

    if (!from) OSH_TRY(OSH_E_NOMEM);
    for (int64_t row = 0; row < O; row += ROWS) {
        int64_t n = osh_min64(ROWS, O - row);
        osh_cuda_mat x = {from, I, 0, OSH_F32, false}, s = {a->in[1]->data, I, 0, OSH_F32, false};
        osh_cuda_mat t = {osh_elem(a->out[0], row * I), I, 0, OSH_F32, false};
        OSH_TRY(osh_cuda_cast(cx, d, {from, OSH_F32}, {osh_elem(w, row * I), w->dtype}, n * I));
        OSH_TRY(osh_cuda_cast(cx, d, {t.data, OSH_F32}, {osh_elem(w, row * I), w->dtype}, n * I));
        OSH_TRY(osh_cuda_gemm(cx, d, {&t, &x, &s, n, I, I, 1, 1, 1}));
    }
done:
    osh_device_free(d, from);
    return rc;
}
