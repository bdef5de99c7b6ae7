/* vocab.cu - computes blocks of logits: allocates their memory, computes the matrix products, and
 * loops over panels of rows and blocks of the vocabulary. */
#include "ops/cuda/cast.cuh"
#include "ops/cuda/vocab.cuh"

/* Applies the logits rule to x [rows, cols]: divides by `divide` if `divide` is not 0, then caps by
 * `cap` if `cap` is not 0. Rows begin OSH_VOCAB_COLS elements apart. */
template <class T>
static __global__ void rule_kernel(T *x, int64_t rows, int64_t cols, float divide, float cap)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * cols;
         i += (int64_t)gridDim.x * blockDim.x) {
        T *at = x + i / cols * OSH_VOCAB_COLS + i % cols;
        if (divide > 0) osh_cu_store(at, __fdiv_rn(osh_cu_load(*at), divide));
        if (cap > 0) osh_cu_softcap(at, cap);
    }
}

/* Computes y = sums + bias, rounded once. y and sums [rows, cols] have rows that begin
 * OSH_VOCAB_COLS elements apart; bias [cols]. */
template <class S, class T>
static __global__ void bias_kernel(T *y, const float *sums, const S *bias, int64_t rows,
                                   int64_t cols)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * cols;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t at = i / cols * OSH_VOCAB_COLS + i % cols;
        osh_cu_store(&y[at], __fadd_rn(sums[at], osh_cu_round<T>(osh_cu_load(bias[i % cols]))));
    }
}

static void *vocab_alloc(osh_ctx *cx, osh_device *d, int64_t n, osh_dtype dt)
{
    return osh_device_alloc(cx, d, (size_t)n * osh_dtype_bytes(dt), OSH_LIFE_SHORT);
}

osh_status osh_vocab_open(osh_ctx *cx, osh_vocab_side *s, const osh_op_args *a, int side)
{
    const osh_vocab_attr *at = static_cast<const osh_vocab_attr *>(a->attr);
    const osh_tensor *x = a->in[2 * side], *w = a->in[2 * side + 1];
    int64_t block = osh_min64(osh_rows(x), OSH_VOCAB_ROWS) * OSH_VOCAB_COLS;

    s->x = x, s->w = w;
    if (at) s->rule = at->rule[side], s->bias = at->bias[side];
    if (!(s->logits = vocab_alloc(cx, x->device, block, x->dtype))) return OSH_E_NOMEM;
    if (s->bias) {
        s->sums = static_cast<float *>(vocab_alloc(cx, x->device, block, OSH_F32));
        if (!s->sums) return OSH_E_NOMEM;
    }
    if (w->dtype == x->dtype) return OSH_OK;
    s->copy = vocab_alloc(cx, x->device, OSH_VOCAB_COLS * osh_width(x), x->dtype);
    return s->copy ? OSH_OK : OSH_E_NOMEM;
}

void osh_vocab_close(osh_vocab_side *s)
{
    if (!s->x) return;
    osh_device_free(s->x->device, s->copy);
    osh_device_free(s->x->device, s->sums);
    osh_device_free(s->x->device, s->logits);
}

osh_status osh_vocab_logits(osh_ctx *cx, const osh_vocab_side *s, const osh_vocab_block *b)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = s->x;
    int64_t D = osh_width(x), n = b->n, n_rows = n * b->n_panels;
    osh_cuda_mat c = {s->sums ? s->sums : s->logits, OSH_VOCAB_COLS, n * OSH_VOCAB_COLS,
                      s->sums ? OSH_F32 : x->dtype, false};
    osh_cuda_mat rows = {osh_elem(x, b->row * D), D, n * D, x->dtype, false};
    osh_cuda_mat w = {osh_elem(s->w, b->first * D), D, 0, x->dtype, true};

    if (s->copy) {
        OSH_TRY(osh_cuda_cast(cx, x->device, {s->copy, x->dtype}, {w.data, s->w->dtype},
                              b->cols * D));
        w.data = s->copy;
    }
    OSH_TRY(osh_cuda_gemm(cx, x->device, {&c, &rows, &w, n, b->cols, D, b->n_panels, 1, 0, 1}));
    if (s->bias) {
        OSH_CU_BY_STORED(s->bias->dtype, S, OSH_CU_BY_DTYPE(x->dtype, T,
            OSH_LAUNCH((bias_kernel<S, T>), osh_cu_grid(x->device, n_rows * b->cols, 256), 256, 0,
                       osh_cuda_stream(x->device), static_cast<T *>(s->logits), s->sums,
                       static_cast<const S *>(osh_elem(s->bias, b->first)), n_rows, b->cols)));
        OSH_CUDA(cx, cudaGetLastError());
    }
    if (s->rule.divide > 0 || s->rule.cap > 0) {
        OSH_CU_BY_DTYPE(x->dtype, T,
                        OSH_LAUNCH(rule_kernel<T>, osh_cu_grid(x->device, n_rows * b->cols, 256),
                                   256, 0, osh_cuda_stream(x->device), static_cast<T *>(s->logits),
                                   n_rows, b->cols, (float)s->rule.divide, (float)s->rule.cap));
        OSH_CUDA(cx, cudaGetLastError());
    }
done:
    return rc;
}

osh_status osh_vocab_walk(osh_ctx *cx, const osh_op_args *a, osh_vocab_fn fn, void *user)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0, end = 0, V = a->in[1]->shape[0];
    osh_tile *t = NULL; // panels of rows; own

    OSH_TRY(osh_tiles_new(cx, &t, &n_tiles, a->seqs, osh_rows(a->in[0]), OSH_VOCAB_ROWS));
    for (int64_t i = 0; i < n_tiles; i = end) {
        for (end = i + 1;
             end < n_tiles && t[end].n == t[i].n && (end + 1 - i) * t[i].n <= OSH_VOCAB_ROWS;)
            end++;
        for (int64_t v = 0; v < V; v += OSH_VOCAB_COLS) {
            osh_vocab_block b = {t[i].row, end - i, t[i].n, v, osh_min64(OSH_VOCAB_COLS, V - v),
                                 false};
            b.last = v + b.cols == V;
            OSH_TRY(fn(cx, user, &b));
        }
    }
done:
    osh_free(cx, t);
    return rc;
}
