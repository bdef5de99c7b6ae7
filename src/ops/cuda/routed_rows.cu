/* routed_rows.cu - copies the rows (tokens) that are routed to an expert.
 *
 *   rows of x               x0 x1 x2 x3 x4 x5     (rows 1 and 4 are routed to the expert)
 *   result of routed_rows    0 x1  0  0 x4  0
 *   result of gather        x1 x4  0  0
 *
 * A row is copied in words of 16 bytes if all rows begin at multiples of 16 bytes, else element by
 * element. */
#include "ops/cuda/pack.cuh"
#include "ops/cuda/sizes.h"

typedef struct alignas(16) routed_word { uint32_t v[4]; } routed_word;

typedef struct routed_copy {
    const int32_t *rows; // view [n]: rows of x that are copied; NULL: rows 0 to n - 1
    /* W: number of words of a row.
     * n: number of rows that are copied.
     * all: number of rows that are written. The rows after the first n are filled with zeros. */
    int64_t n, all, W;
    /* True: out has only the copied rows. False: a row has the same index in out as in x. */
    bool together;
} routed_copy;

template <class P> static __global__ void routed_copy_rows(P *out, const P *x, routed_copy c)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < c.all * c.W;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t row = i / c.W, at = i % c.W, from = row >= c.n ? 0 : c.rows ? c.rows[row] : row;
        out[(c.together ? row : from) * c.W + at] = row < c.n ? x[from * c.W + at] : P{};
    }
}

/* N: number of tokens.
 * W: number of words of a row.
 * E: number of experts.
 * expert: index of the expert. */
typedef struct clear_sizes {
    int64_t N, W, E, expert;
} clear_sizes;

/* Copies to `out` the rows of x that are routed to the expert. All other rows of `out` become 0.
 * `out` and x: [N, W] words. */
template <class P, class T>
static __global__ void routed_clear_rows(P *out, const P *x, const T *route, clear_sizes z)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < z.N * z.W;
         i += (int64_t)gridDim.x * blockDim.x)
        out[i] = osh_cu_load(route[i / z.W * z.E + z.expert]) != 0 ? x[i] : P{};
}

template <class P>
static osh_status routed_copy_run(osh_ctx *cx, const osh_tensor *out, const osh_tensor *x,
                                  routed_copy c)
{
    osh_status rc = OSH_OK;
    c.W = osh_width(x) * (int64_t)osh_dtype_bytes(x->dtype) / (int64_t)sizeof(P);
    if (!c.all) return OSH_OK;
    OSH_LAUNCH(routed_copy_rows<P>, osh_cu_grid(x->device, c.all * c.W, 256), 256, 0,
               osh_cuda_stream(x->device), static_cast<P *>(out->data),
               static_cast<const P *>(x->data), c);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

static osh_status routed_copy_by_word(osh_ctx *cx, const osh_tensor *out, const osh_tensor *x,
                                      const routed_copy &c)
{
    int64_t D = osh_width(x);
    if (osh_cu_packed(x, D) && osh_cu_packed(out, D))
        return routed_copy_run<routed_word>(cx, out, x, c);
    if (osh_dtype_bytes(x->dtype) == 4) return routed_copy_run<uint32_t>(cx, out, x, c);
    return routed_copy_run<uint16_t>(cx, out, x, c);
}

osh_status osh_cuda_gather(osh_ctx *cx, const osh_tensor *out, const osh_tensor *x,
                           const osh_op_rows *rows)
{
    return routed_copy_by_word(cx, out, x, {rows->at, rows->n, osh_rows(out), 0, true});
}

template <class P, class T> static void routed_clear(const osh_op_args *a)
{
    const osh_tensor *x = a->in[0], *route = a->in[1];
    int64_t N = osh_rows(x),
            W = osh_width(x) * (int64_t)osh_dtype_bytes(x->dtype) / (int64_t)sizeof(P);
    OSH_LAUNCH((routed_clear_rows<P, T>), osh_cu_grid(x->device, N * W, 256), 256, 0,
               osh_cuda_stream(x->device), static_cast<P *>(a->out[0]->data),
               static_cast<const P *>(x->data), static_cast<const T *>(route->data),
               (clear_sizes{N, W, osh_width(route),
                            static_cast<const osh_moe_combine_attr *>(a->attr)->expert}));
}

osh_status osh_routed_rows_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *out = a->out[0];
    int64_t D = osh_width(x);

    if (a->rows)
        return routed_copy_by_word(cx, out, x, {a->rows->at, a->rows->n, a->rows->n, 0, false});
    if (!osh_rows(x)) return OSH_OK;
    OSH_CU_BY_DTYPE(a->in[1]->dtype, T,
        if (osh_cu_packed(x, D) && osh_cu_packed(out, D)) routed_clear<routed_word, T>(a);
        else if (osh_dtype_bytes(x->dtype) == 4) routed_clear<uint32_t, T>(a);
        else routed_clear<uint16_t, T>(a));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
