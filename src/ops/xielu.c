/* xielu.c - computes the activation xIELU, whose slopes are weights.
 *
 *   in[0] x [N, F]     in[1] alpha_p     in[2] alpha_n     in[3] beta     in[4] eps, each [1]
 *   out y [N, F]       y may overwrite x
 *
 *   x > 0    y = p x^2 + beta x
 *   else     y = n (e^min(x, eps) - 1 - x) + beta x
 *
 *   p = log(1 + e^alpha_p)
 *   n = beta + log(1 + e^alpha_n)
 *
 * The formulas are those of transformers' XIELUActivation without its CUDA library. The result is
 * computed in double and rounded once. Shapes: N tokens of the batch, F intermediate_size. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

enum { PIECE = 4096 }; // number of elements in a chunk of parallel work

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)cx, (void)attr;
    for (int k = 0; k < 4; k++) w_ndim[k] = 1, w_shape[k][0] = 1;
    out_width[0] = in_width[0];
    return OSH_OK;
}

static double xielu_softplus(double x) { return x > 40 ? x : osh_math_log(1 + osh_math_exp(x)); }

typedef struct xielu_slopes {
    double p, n;             // p and n of the formulas: slopes for x > 0 and for x <= 0
    double p_slope, n_slope; // derivatives of p and n with respect to alpha_p and alpha_n
    double beta, eps;
} xielu_slopes;

/* Reads the weights and computes the slopes. */
static xielu_slopes slopes_read(const osh_tensor *const *in)
{
    float w[4];
    for (int k = 0; k < 4; k++) osh_load_weight(&w[k], in[1 + k], 0, 1, in[0]->dtype);
    return (xielu_slopes){.p = xielu_softplus(w[0]), .n = w[2] + xielu_softplus(w[1]), .beta = w[2],
                          .eps = w[3], .p_slope = 1 / (1 + osh_math_exp(-w[0])),
                          .n_slope = 1 / (1 + osh_math_exp(-w[1]))};
}

/* Returns e^min(x, eps) - 1 - x. */
static double xielu_below(const xielu_slopes *s, double x)
{
    return osh_math_exp(x < s->eps ? x : s->eps) - 1 - x;
}

static osh_status xielu_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *x = a->in[0];
    int64_t first = chunk * PIECE, n = osh_min64(PIECE, osh_tensor_numel(x) - first);
    xielu_slopes s = slopes_read(a->in);
    float y[PIECE];
    (void)cx, (void)worker;
    osh_to_f32(y, osh_elem(x, first), x->dtype, n);
    for (int64_t i = 0; i < n; i++) {
        double v = y[i];
        y[i] = (float)((v > 0 ? s.p * v * v : xielu_below(&s, v) * s.n) + s.beta * v);
    }
    osh_from_f32(osh_elem(a->out[0], first), x->dtype, y, n);
    return OSH_OK;
}

static osh_status xielu_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_tensor_numel(a->in[0]), PIECE, xielu_chunk);
}

/* Computes dx, and the gradients of alpha_p, alpha_n and beta. The gradients of these weights are
 * summed sample by sample. eps has no gradient. */
static osh_status xielu_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), F = osh_width(a->in[0]), n_seqs = 0;
    const float *dy = a->dout[0]->data;
    xielu_slopes s = slopes_read(a->in);
    float *x = NULL;      // own [N, F]: x in f32
    osh_tile *seq = NULL; // own: for each sample, the range of its rows

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t k = 0; k < n_seqs; k++) {
        double dp = 0, dn = 0, dbeta = 0;
        for (int64_t i = seq[k].row * F; i < (seq[k].row + seq[k].n) * F; i++) {
            double v = x[i], below = xielu_below(&s, v), inner = v < s.eps ? osh_math_exp(v) : 0;
            osh_grad_add(a->din[0], i,
                         dy[i] * (s.beta + (v > 0 ? 2 * s.p * v : (inner - 1) * s.n)));
            dbeta += dy[i] * (v > 0 ? v : v + below);
            if (v > 0) dp += dy[i] * v * v * s.p_slope;
            else dn += dy[i] * below * s.n_slope;
        }
        osh_grad_add(a->din[1], 0, dp), osh_grad_add(a->din[2], 0, dn);
        osh_grad_add(a->din[3], 0, dbeta);
    }
done:
    osh_free(cx, seq);
    osh_free(cx, x);
    return rc;
}

const osh_op osh_op_xielu = {
    .name = "xielu", .n_in = 1, .n_weights = 4, .n_out = 1, .infer = infer, .each_token = true,
    .run = {[OSH_REF] = xielu_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = xielu_grad_ref}, .traits = OSH_OP_ACTIVATES | OSH_OP_HOST_ONLY,
};
