/* gain.c - computes y = x w, where w is one number for all elements (Gemma 4's layer_scalar).
 *
 *   in[0] x [N, D]     in[1] w [1]     out y [N, D]     y may overwrite x
 *
 * w and the product are rounded to the dtype of x. Shapes: N tokens of the batch, D elements per
 * token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

enum { PIECE = 4096 }; // number of elements in a chunk of parallel work

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)cx, (void)attr;
    w_ndim[0] = 1, w_shape[0][0] = 1;
    out_width[0] = in_width[0];
    return OSH_OK;
}

static osh_status gain_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *x = a->in[0];
    int64_t first = chunk * PIECE, n = osh_min64(PIECE, osh_tensor_numel(x) - first);
    float y[PIECE], w;
    (void)cx, (void)worker;
    osh_load_weight(&w, a->in[1], 0, 1, x->dtype);
    osh_to_f32(y, osh_elem(x, first), x->dtype, n);
    for (int64_t i = 0; i < n; i++) y[i] *= w;
    osh_from_f32(osh_elem(a->out[0], first), x->dtype, y, n);
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_tensor_numel(a->in[0]), PIECE, gain_chunk);
}

/* Computes dx = dy w and dw = sum of dy x. dw is summed sample by sample. */
static osh_status gain_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), n_seqs = 0;
    const float *dy = a->dout[0]->data;
    float *x = NULL, w;   // own [N, D]: x in f32
    osh_tile *seq = NULL; // own: for each sample, the range of its rows

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    osh_load_weight(&w, a->in[1], 0, 1, a->in[0]->dtype);
    for (int64_t s = 0; s < n_seqs; s++) {
        double sum = 0;
        for (int64_t i = seq[s].row * D; i < (seq[s].row + seq[s].n) * D; i++) {
            osh_grad_add(a->din[0], i, (double)dy[i] * w);
            sum += (double)dy[i] * x[i];
        }
        osh_grad_add(a->din[1], 0, sum);
    }
done:
    osh_free(cx, seq);
    osh_free(cx, x);
    return rc;
}

const osh_op osh_op_gain = {
    .name = "gain", .n_in = 1, .n_weights = 1, .n_out = 1, .infer = infer, .each_token = true,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_gain_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = gain_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_gain_grad_cuda)},
    .grad.arena_bytes = osh_gain_grad_cuda_scratch,
};
