/* gated_norm.c - computes an RMSNorm of each head, multiplied by a gate silu(z).
 *
 *   in[0] x [N, H*D], may be F32
 *   in[1] z [N, H*D]
 *   in[2] w [D], or [H*D] with the attribute `whole` (Zamba2RMSNormGated)
 *   out y [N, H*D]
 *
 *   y = (w x / sqrt(mean(x^2) + eps)) silu(z)     D = head_dim
 *
 * The normalized value and the product with w are rounded to the dtype of x, as in transformers'
 * Qwen3NextRMSNormGated. The gate is f32, and y is rounded to the dtype of y. With the attribute
 * `before` (transformers' MambaRMSNormGated), y is the norm of x silu(z), in f32, rounded once.
 * With `sigmoid`, the gate is sigmoid(z) (KimiLinearRMSNormGated). This file sums in double.
 * Shapes: N tokens of the batch, H heads. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <math.h>
#include <string.h>

/* ROWS: number of rows in a chunk of parallel work. MOST: largest D (elements of a head). */
enum { ROWS = 16, MOST = 16384 };

static const osh_field attrs[] = {
    {"eps", OSH_F_FLOAT, offsetof(osh_gated_norm_attr, eps), "1e-6", 0, 1,
     "added to the mean of squares", NULL, NULL},
    {"head_dim", OSH_F_INT, offsetof(osh_gated_norm_attr, head_dim), NULL, 1, MOST, "D",
     NULL, NULL},
    {"before", OSH_F_BOOL, offsetof(osh_gated_norm_attr, before), "false", 0, 0,
     "the gate comes before the norm", NULL, NULL},
    {"whole", OSH_F_BOOL, offsetof(osh_gated_norm_attr, whole), "false", 0, 0,
     "w has an element for each element of the row", NULL, NULL},
    {"sigmoid", OSH_F_BOOL, offsetof(osh_gated_norm_attr, sigmoid), "false", 0, 0,
     "the gate is sigmoid(z)", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_gated_norm_attr *at = attr;
    int64_t D = at->head_dim;
    if (in_width[0] % D || in_width[1] != in_width[0])
        return osh_fail(cx, OSH_E_FORMAT,
                        "gated_norm: widths %lld and %lld, want the same, a multiple of %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)D);
    w_ndim[0] = 1, w_shape[0][0] = at->whole ? in_width[0] : D;
    out_width[0] = in_width[0];
    return OSH_OK;
}

/* Loads the weights of the head whose first element is element `first` of x. */
static void gated_norm_weight(float *w, const osh_tensor *const *in, int64_t first,
                              const osh_gated_norm_attr *at)
{
    osh_load_weight(w, in[2], at->whole ? first % osh_width(in[0]) : 0, at->head_dim, in[1]->dtype);
}

static void gated_norm_head(const osh_op_args *a, int64_t first, int64_t D)
{
    const osh_gated_norm_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    float x[MOST], z[MOST], w[MOST];
    double sum = 0;
    gated_norm_weight(w, a->in, first, at);
    osh_to_f32(x, osh_elem(a->in[0], first), dt, D);
    osh_to_f32(z, osh_elem(a->in[1], first), a->in[1]->dtype, D);
    for (int64_t i = 0; i < D; i++)
        z[i] = (float)((at->sigmoid ? 1 : z[i]) / (1 + osh_math_exp(-(double)z[i])));
    for (int64_t i = 0; i < D && at->before; i++) x[i] *= z[i];
    for (int64_t i = 0; i < D; i++) sum += (double)x[i] * x[i];
    double r = 1 / sqrt(sum / (double)D + at->eps);
    for (int64_t i = 0; i < D; i++) {
        x[i] = at->before ? w[i] * (float)(x[i] * r)
                          : osh_round_to(w[i] * osh_round_to((float)(x[i] * r), dt), dt) * z[i];
    }
    osh_from_f32(osh_elem(a->out[0], first), a->out[0]->dtype, x, D);
}

static osh_status gated_norm_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t width = osh_width(a->in[0]), D = ((const osh_gated_norm_attr *)a->attr)->head_dim;
    int64_t end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS) * width;
    (void)cx, (void)worker;
    for (int64_t at = chunk * ROWS * width; at < end; at += D) gated_norm_head(a, at, D);
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, gated_norm_chunk);
}

/* Adds the gradients of one head. Adds the gradient of w to dw [D], unless dw is NULL. s is silu(z)
 * or sigmoid(z), and r = 1 / sqrt(mean(u^2) + eps). The first row of the table is for a gate after
 * the norm, the second row for a gate before the norm:
 *
 *             u      n      g         du                     dw
 *   after     x      x r    dy w s    (g - n mean(g n)) r    dy n s
 *   before    x s    u r    dy w      (g - n mean(g n)) r    dy n */
static void gated_norm_head_back(const osh_grad_args *a, int64_t first, double *dw)
{
    const osh_gated_norm_attr *at = a->attr;
    const float *dy = (const float *)a->dout[0]->data + first;
    int64_t D = at->head_dim;
    float x[MOST], z[MOST], s[MOST], slope[MOST], w[MOST];
    double sum = 0, dot = 0;

    gated_norm_weight(w, a->in, first, at);
    osh_to_f32(x, osh_elem(a->in[0], first), a->in[0]->dtype, D);
    osh_to_f32(z, osh_elem(a->in[1], first), a->in[1]->dtype, D);
    for (int64_t i = 0; i < D; i++) {
        double half = 1 / (1 + osh_math_exp(-(double)z[i])), u;
        s[i] = (float)(z[i] * half), slope[i] = (float)(half * (1 + z[i] * (1 - half)));
        if (at->sigmoid) s[i] = (float)half, slope[i] = (float)(half * (1 - half));
        u = at->before ? (double)x[i] * s[i] : x[i];
        sum += u * u;
        // in both rows of the table above, this is the product g u
        dot += (double)dy[i] * w[i] * s[i] * x[i];
    }
    double r = 1 / sqrt(sum / (double)D + at->eps);
    for (int64_t i = 0; i < D; i++) {
        double n = x[i] * r * (at->before ? s[i] : 1),
               g = (double)dy[i] * w[i] * (at->before ? 1 : s[i]);
        double du = (g - n * r * dot / (double)D) * r;
        osh_grad_add(a->din[0], first + i, at->before ? du * s[i] : du);
        osh_grad_add(a->din[1], first + i,
                     (at->before ? du * x[i] : (double)dy[i] * w[i] * n) * slope[i]);
        if (dw) dw[i] += dy[i] * n * (at->before ? 1 : s[i]);
    }
}

static osh_status gated_norm_back_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_grad_args *a = user;
    int64_t width = osh_width(a->in[0]), D = ((const osh_gated_norm_attr *)a->attr)->head_dim;
    int64_t end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS) * width;
    (void)cx, (void)worker;
    for (int64_t at = chunk * ROWS * width; at < end; at += D) gated_norm_head_back(a, at, NULL);
    return OSH_OK;
}

/* Computes the gradients of x, z and w. Uses all threads, or only one if the caller requests the
 * gradient of w, because dw must be summed row by row. */
static osh_status gated_norm_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), width = osh_width(a->in[0]), n_seqs = 0;
    int64_t D = ((const osh_gated_norm_attr *)a->attr)->head_dim;
    int64_t n_w = osh_tensor_numel(a->in[2]);
    double *dw = NULL;    // own [D] or [H*D]: gradient of w for one sample
    osh_tile *seq = NULL; // own [samples]: for each sample, the range of its rows

    if (!a->din[2])
        return osh_by_part(cx, a, N, ROWS, gated_norm_back_chunk);
    OSH_NEW(cx, dw, n_w);
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++) {
        memset(dw, 0, (size_t)n_w * sizeof *dw);
        for (int64_t at = seq[s].row * width; at < (seq[s].row + seq[s].n) * width; at += D)
            gated_norm_head_back(a, at, dw + at % width % n_w);
        for (int64_t i = 0; i < n_w; i++) osh_grad_add(a->din[2], i, dw[i]);
    }
done:
    osh_free(cx, seq);
    osh_free(cx, dw);
    return rc;
}

static size_t gated_norm_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, int n_threads)
{
    const osh_gated_norm_attr *at = attr;
    (void)in_width, (void)n_threads;
    return (size_t)(at->whole ? out_width : at->head_dim) * sizeof(double) +
           (size_t)(n_tokens + 1) * sizeof(osh_tile);
}

const osh_op osh_op_gated_norm = {
    .name = "gated_norm", .n_in = 2, .n_weights = 1, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_gated_norm_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_gated_norm_cuda)},
    .tol = 1e-12, .f32_in = 1, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = gated_norm_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_gated_norm_grad_cuda)},
    .grad.arena_bytes = osh_gated_norm_grad_cuda_scratch,
    .grad.scratch = gated_norm_grad_scratch,
};
