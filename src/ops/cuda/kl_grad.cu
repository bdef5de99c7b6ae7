/* kl_grad.cu - computes the gradient of kl with respect to x. The blocks of the vocabulary are
 * processed twice, one after the other.
 *
 *   first pass    max and sum over v of e^(l_v - max), for the logits l of both models
 *   second pass   p_v = e^(l_v - max) / sum; r_v: the same for the reference model
 *                 dz_v = g (p_v - r_v) rule'(z_v)
 *                 dx  += dz W      for the block's rows of W
 *
 * z = x W^T + bias, l = rule(z), and g is the element of dout[0] for the row. Logits are F32 and
 * are not rounded, because p - r is a small difference. If the caller sets a->rough and the tensors
 * are BF16, dz is rounded to BF16, and tensor cores multiply. Otherwise dz W is an F32 product. */
#include "ops/cuda/vocab.cuh"
#include "ops/cuda/widen.cuh"

typedef struct kl_back_row { osh_vocab_sum x, r; } kl_back_row; // state of one row (one token)
static_assert(sizeof(kl_back_row) == OSH_KL_BACK_ROW, "the plan counts the states");

typedef struct kl_back_side { // F32 logits of one model for a block
    float *z;          // [rows, OSH_VOCAB_COLS]; the kernels replace z by rule(z + bias)
    const float *bias; // [OSH_VOCAB_COLS]; NULL: none
    float divide, cap; // 0: the rule does not divide, or has no cap
} kl_back_side;

/* Replaces the logits z of a row by rule(z + bias). A thread changes only the elements that it
 * reads later. */
static __device__ inline void kl_back_rule(const kl_back_side &s, float *row, int cols)
{
    for (int v = (int)threadIdx.x; v < cols; v += 256) {
        float z = s.bias ? __fadd_rn(row[v], s.bias[v]) : row[v];
        if (s.divide > 0) z = __fdiv_rn(z, s.divide);
        row[v] = s.cap > 0 ? __fmul_rn(s.cap, tanhf(__fdiv_rn(z, s.cap))) : z;
    }
}

static __device__ inline void kl_back_join(osh_vocab_sum *s, const float *row, int cols,
                                           float *shared)
{
    double was, is;
    float max = osh_vocab_max(row, cols, shared), sum = osh_vocab_sum_exp(row, cols, max, shared);
    osh_vocab_join(s, max, sum, 0, &was, &is);
}

/* Updates the states of the rows for one block of logits. */
static __global__ void kl_back_sums(kl_back_row *state, kl_back_side x, kl_back_side r,
                                    osh_vocab_block b)
{
    __shared__ float shared[8];
    int64_t row = blockIdx.x, at = row * OSH_VOCAB_COLS;
    int cols = (int)b.cols;
    kl_back_row st = state[row];

    kl_back_rule(x, x.z + at, cols), kl_back_rule(r, r.z + at, cols);
    if (!b.first) st.x = st.r = {0, -INFINITY, 0};
    kl_back_join(&st.x, x.z + at, cols, shared);
    kl_back_join(&st.r, r.z + at, cols, shared);
    __syncthreads(); // all threads have read the state
    if (!threadIdx.x) state[row] = st;
}

/* Writes the gradients of the logits z of one block to slope [rows, OSH_VOCAB_COLS], which may be
 * x.z. g [rows]. */
template <class T>
static __global__ void kl_back_slopes(T *slope, const kl_back_row *state, const float *g,
                                      kl_back_side x, kl_back_side r, osh_vocab_block b)
{
    int64_t row = blockIdx.x, at = row * OSH_VOCAB_COLS;
    int cols = (int)b.cols;
    kl_back_row st = state[row];
    float by = g[row], x_part = (float)(1 / st.x.sum), r_part = (float)(1 / st.r.sum);

    kl_back_rule(x, x.z + at, cols), kl_back_rule(r, r.z + at, cols);
    for (int v = (int)threadIdx.x; v < cols; v += 256) {
        float l = x.z[at + v], p = expf(l - st.x.max) * x_part,
              q = expf(r.z[at + v] - st.r.max) * r_part, t = x.cap > 0 ? l / x.cap : 0;
        float dz = by == 0 ? 0 : by * (p - q) * (1 - t * t);
        osh_cu_store(&slope[at + v], x.divide > 0 ? dz / x.divide : dz);
    }
}

typedef struct kl_back {
    const osh_grad_args *a;
    osh_device *d;
    bool rough;         // true if the second product is BF16
    bool last;          // true during the second pass
    char *room;         // own: all parts of OSH_KL_BACK_*
    size_t at[OSH_KL_BACK_N_PARTS];
} kl_back;

static void *kl_back_part(const kl_back *j, int part) { return j->room + j->at[part]; }

/* Computes the products x W^T of one model for a block. Sets *s to the logits and their rule. */
static osh_status kl_back_logits(osh_ctx *cx, kl_back_side *s, const kl_back *j, int side,
                                 const osh_vocab_block *b)
{
    osh_status rc = OSH_OK;
    const osh_vocab_attr *at = static_cast<const osh_vocab_attr *>(j->a->attr);
    const osh_tensor *x = j->a->in[2 * side], *w = j->a->in[2 * side + 1];
    int64_t D = osh_width(x);
    s->z = static_cast<float *>(kl_back_part(j, side ? OSH_KL_BACK_R : OSH_KL_BACK_X));
    osh_cuda_mat c = {s->z, OSH_VOCAB_COLS, b->n * OSH_VOCAB_COLS, OSH_F32, false};
    osh_cuda_mat rows = {osh_elem(x, b->row * D), D, b->n * D, x->dtype, false};
    osh_cuda_mat weight = {osh_elem(w, b->first * D), D, 0, x->dtype, true};

    s->divide = at ? (float)at->rule[side].divide : 0, s->cap = at ? (float)at->rule[side].cap : 0;
    s->bias = NULL;
    if (w->dtype != x->dtype) {
        void *copy = kl_back_part(j, OSH_KL_BACK_W);
        OSH_TRY(osh_cuda_cast(cx, j->d, {copy, x->dtype}, {weight.data, w->dtype}, b->cols * D));
        weight.data = copy;
    }
    OSH_TRY(
        osh_cuda_gemm(cx, j->d, {&c, &rows, &weight, b->n, b->cols, D, b->n_panels, 1, 0, 1}));
    if (at && at->bias[side]) {
        const osh_tensor *bias = at->bias[side];
        float *copy = static_cast<float *>(kl_back_part(j, OSH_KL_BACK_BIAS)) +
                      (side ? OSH_VOCAB_COLS : 0);
        OSH_TRY(osh_cu_widen(cx, j->d, copy, {osh_elem(bias, b->first), bias->dtype}, b->cols,
                             x->dtype));
        s->bias = copy;
    }
done:
    return rc;
}

/* Adds the product of a block's gradients [rows, cols] and its rows of W [cols, D] to dx. */
static osh_status kl_back_product(osh_ctx *cx, const kl_back *j, void *slope,
                                  const osh_vocab_block *b)
{
    osh_status rc = OSH_OK;
    const osh_tensor *w = j->a->in[1], *dx = j->a->din[0];
    int64_t D = osh_width(j->a->in[0]), first = b->first * D;
    osh_dtype dt = j->rough ? OSH_BF16 : OSH_F32;
    osh_cuda_mat c = {osh_elem(dx, b->row * D), D, b->n * D, OSH_F32, false};
    osh_cuda_mat dz = {slope, OSH_VOCAB_COLS, b->n * OSH_VOCAB_COLS, dt, false};
    osh_cuda_mat rows = {osh_elem(w, first), D, 0, dt, false};

    if (!j->rough && (w->dtype != OSH_F32 || j->a->in[0]->dtype != OSH_F32)) {
        float *copy = static_cast<float *>(kl_back_part(j, OSH_KL_BACK_W));
        OSH_TRY(osh_cu_widen(cx, j->d, copy, {rows.data, w->dtype}, b->cols * D,
                             j->a->in[0]->dtype));
        rows.data = copy;
    }
    OSH_TRY(osh_cuda_gemm(cx, j->d, {&c, &dz, &rows, b->n, D, b->cols, b->n_panels, 1, 1, 1}));
done:
    return rc;
}

static osh_status kl_back_block(osh_ctx *cx, void *user, const osh_vocab_block *b)
{
    osh_status rc = OSH_OK;
    const kl_back *j = static_cast<kl_back *>(user);
    kl_back_side x, r;
    unsigned n = (unsigned)(b->n_panels * b->n);
    cudaStream_t stream = osh_cuda_stream(j->d);
    kl_back_row *state = static_cast<kl_back_row *>(kl_back_part(j, OSH_KL_BACK_STATE)) + b->row;
    const float *g = static_cast<const float *>(j->a->dout[0]->data) + b->row;
    void *rounded = kl_back_part(j, OSH_KL_BACK_SLOPE);

    OSH_TRY(kl_back_logits(cx, &r, j, 1, b));
    OSH_TRY(kl_back_logits(cx, &x, j, 0, b));
    if (!j->last) OSH_LAUNCH(kl_back_sums, n, 256, 0, stream, state, x, r, *b);
    else if (j->rough)
        OSH_LAUNCH(kl_back_slopes<osh_bf16_t>, n, 256, 0, stream,
                   static_cast<osh_bf16_t *>(rounded), state, g, x, r, *b);
    else OSH_LAUNCH(kl_back_slopes<float>, n, 256, 0, stream, x.z, state, g, x, r, *b);
    OSH_CUDA(cx, cudaGetLastError());
    if (j->last) OSH_TRY(kl_back_product(cx, j, j->rough ? rounded : x.z, b));
done:
    return rc;
}

osh_status osh_kl_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *const *in = a->in;
    osh_op_args with = {};
    kl_back j = {a, a->dout[0]->device, false, false, NULL, {0}};
    int64_t N = osh_rows(in[0]), D[2] = {osh_width(in[0]), osh_width(in[2])};

    if (!N) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, in[1]->dtype));
    OSH_TRY(osh_cu_readable(cx, in[3]->dtype));
    j.rough = a->rough && in[0]->dtype == OSH_BF16 && in[1]->dtype == OSH_BF16;
    j.room = static_cast<char *>(
        osh_device_alloc(cx, j.d, osh_kl_back_offsets(j.at, N, D[0] > D[1] ? D[0] : D[1]),
                         OSH_LIFE_SHORT));
    if (!j.room) OSH_TRY(OSH_E_NOMEM);
    with.in[0] = in[0], with.in[1] = in[1], with.seqs = a->seqs;
    OSH_TRY(osh_vocab_walk(cx, &with, kl_back_block, &j));
    j.last = true;
    OSH_TRY(osh_vocab_walk(cx, &with, kl_back_block, &j));
done:
    osh_device_free(j.d, j.room);
    return rc;
}
