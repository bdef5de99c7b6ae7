/* linear_grad.cu - computes the gradients of linear by matrix products of cuBLASLt over all rows of
 * the batch.
 *
 *   dx += dy W
 *   dw += dy^T x
 *   db += sum over rows of dy
 *
 * W and x are converted to f32, one panel of rows at a time. A panel has at most 2^23 elements,
 * independent of the free bytes of the arena. Panels are added in order. If the caller sets
 * a->rough and the tensors are BF16, W and x are not converted. Then dy is rounded to BF16, and
 * tensor cores multiply. N: tokens of the batch. I: in_features. O: out_features. */
#include "ops/cuda/cast.cuh"
#include "ops/cuda/sums.cuh"

typedef struct linear_back {
    const osh_grad_args *a;
    osh_device *d;
    int64_t N, I, O;
    osh_dtype compute; // dtype to which the stored weight is rounded before it is used
    void *room; // scratch for a panel of W or x in f32, for the rounded dy, or for sums; own
} linear_back;

static float *grad_at(const osh_tensor *t, int64_t i) { return static_cast<float *>(t->data) + i; }

/* Adds a part of the product dy [N, O] W [O, I] to dx: columns [first, first + n) of dy times the
 * same rows of W. w has only these rows, in dtype dt. */
static osh_status linear_back_x(osh_ctx *cx, const linear_back *j, int64_t first, int64_t n,
                                void *w, osh_dtype dt)
{
    osh_cuda_mat c = {j->a->din[0]->data, j->I, 0, OSH_F32, false}, b = {w, j->I, 0, dt, false};
    osh_cuda_mat dy = {grad_at(j->a->dout[0], first), j->O, 0, OSH_F32, false};
    if (dt != OSH_F32) dy = {j->room, j->O, 0, dt, false};
    return osh_cuda_gemm(cx, j->d, {&c, &dy, &b, j->N, j->I, n, 1, 1, 1});
}

/* Adds a part of dy^T x to dw: the sum over rows [first, first + n). x [n, I] contains only these
 * rows, in dtype dt. */
static osh_status linear_back_w(osh_ctx *cx, const linear_back *j, int64_t first, int64_t n,
                                void *x, osh_dtype dt)
{
    osh_cuda_mat c = {j->a->din[1]->data, j->I, 0, OSH_F32, false}, b = {x, j->I, 0, dt, false};
    osh_cuda_mat dy = {grad_at(j->a->dout[0], first * j->O), j->O, 0, OSH_F32, true};
    if (dt != OSH_F32) dy = {j->room, j->O, 0, dt, true};
    return osh_cuda_gemm(cx, j->d, {&c, &dy, &b, j->O, j->I, n, 1, 1, 1});
}

static osh_status linear_back_exact(osh_ctx *cx, const linear_back *j)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = j->a->in[0], *w = j->a->in[1];
    int64_t w_rows = osh_linear_panel_rows(j->O, j->I), x_rows = osh_linear_panel_rows(j->N, j->I);
    float *room = static_cast<float *>(j->room);

    for (int64_t first = 0; j->a->din[0] && first < j->O; first += w_rows) {
        int64_t n = osh_min64(w_rows, j->O - first);
        bool as_it_is = w->dtype == OSH_F32 && j->compute == OSH_F32;
        if (!as_it_is)
            OSH_TRY(osh_cu_widen(cx, j->d, room, {osh_elem(w, first * j->I), w->dtype}, n * j->I,
                                 j->compute));
        OSH_TRY(linear_back_x(cx, j, first, n, as_it_is ? osh_elem(w, first * j->I) : room,
                              OSH_F32));
    }
    for (int64_t first = 0; j->a->din[1] && first < j->N; first += x_rows) {
        int64_t n = osh_min64(x_rows, j->N - first);
        bool as_it_is = x->dtype == OSH_F32;
        if (!as_it_is)
            OSH_TRY(osh_cu_widen(cx, j->d, room, {osh_elem(x, first * j->I), x->dtype}, n * j->I,
                                 x->dtype));
        OSH_TRY(linear_back_w(cx, j, first, n, as_it_is ? osh_elem(x, first * j->I) : room,
                              OSH_F32));
    }
done:
    return rc;
}

static osh_status linear_back_rough(osh_ctx *cx, const linear_back *j)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_cuda_cast(cx, j->d, {j->room, OSH_BF16}, {j->a->dout[0]->data, OSH_F32},
                          j->N * j->O));
    if (j->a->din[0]) OSH_TRY(linear_back_x(cx, j, 0, j->O, j->a->in[1]->data, OSH_BF16));
    if (j->a->din[1]) OSH_TRY(linear_back_w(cx, j, 0, j->N, j->a->in[0]->data, OSH_BF16));
done:
    return rc;
}

struct linear_bias_back {
    const float *dy;
    int64_t O;
    __device__ float operator()(int64_t row, int64_t o) const { return dy[row * O + o]; }
};

osh_status osh_cuda_linear_back(osh_ctx *cx, const osh_grad_args *a, osh_dtype compute)
{
    osh_status rc = OSH_OK;
    linear_back j = {a,       a->dout[0]->device, osh_rows(a->in[0]), osh_width(a->in[0]),
                     a->in[1]->shape[0], compute,            NULL};
    int64_t in_width[1] = {j.I};

    if (!j.N) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, a->in[1]->dtype));
    j.room = osh_device_alloc(
        cx, j.d, osh_linear_grad_cuda_scratch(a->attr, in_width, j.O, j.N, a->in[0]->dtype),
        OSH_LIFE_SHORT);
    if (!j.room) OSH_TRY(OSH_E_NOMEM);
    if (a->rough && a->in[0]->dtype == OSH_BF16 && a->in[1]->dtype == OSH_BF16)
        OSH_TRY(linear_back_rough(cx, &j));
    else OSH_TRY(linear_back_exact(cx, &j));
    if (a->din[2])
        OSH_TRY(osh_cu_sums(cx, j.d, grad_at(a->din[2], 0),
                            {j.N, j.O, static_cast<float *>(j.room)},
                            linear_bias_back{grad_at(a->dout[0], 0), j.O}));
done:
    osh_device_free(j.d, j.room);
    return rc;
}

osh_status osh_linear_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    return osh_cuda_linear_back(cx, a, a->in[0]->dtype);
}
