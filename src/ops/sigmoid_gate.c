/* sigmoid_gate.c - computes y = sigmoid(gate) x, with one gate for each row, each head or each
 * element.
 *
 *   in[0] gate [N, G]     in[1] x [N, D]     out y [N, D]     y may overwrite x
 *   gate g applies to elements [g D / G, (g + 1) D / G)
 *
 * The sigmoid and the product are rounded to the dtype of x, as in transformers'
 * Qwen2MoeSparseMoeBlock (shared expert, G = 1). With the attribute `softplus`, y = log(1 +
 * e^gate) x, rounded in the same way (LagunaAttention). Shapes: N tokens of the batch, D
 * elements per token, G gates per token. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

/* ROWS: number of rows in a chunk of parallel work.
 * PIECE: number of elements that are converted to f32 at a time. */
enum { ROWS = 16, PIECE = 1024 };

static const osh_field attrs[] = {
    {"softplus", OSH_F_BOOL, offsetof(osh_sigmoid_gate_attr, softplus), "false", 0, 0,
     "softplus instead of the sigmoid", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)attr, (void)w_shape, (void)w_ndim;
    if (in_width[0] < 1 || in_width[1] % in_width[0])
        return osh_fail(cx, OSH_E_FORMAT,
                        "sigmoid_gate: the gate has width %lld, want a divisor of %lld",
                        (long long)in_width[0], (long long)in_width[1]);
    out_width[0] = in_width[1];
    return OSH_OK;
}

static double gate_value(float gate, bool softplus)
{
    if (!softplus) return 1 / (1 + osh_math_exp(-(double)gate));
    // softplus(gate); like torch, this returns `gate` itself if `gate` is above 20
    return gate > 20 ? gate : osh_math_log(1 + osh_math_exp(gate));
}

static void gates_load(float *by, const osh_op_args *a, int64_t at, int64_t n)
{
    const osh_tensor *gate = a->in[0];
    bool softplus = ((const osh_sigmoid_gate_attr *)a->attr)->softplus;
    osh_to_f32(by, osh_elem(gate, at), gate->dtype, n);
    for (int64_t i = 0; i < n; i++)
        by[i] = osh_round_to((float)gate_value(by[i], softplus), gate->dtype);
}

static osh_status sigmoid_gate_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *x = a->in[1];
    int64_t D = osh_width(x), end = osh_min64(osh_rows(x), (chunk + 1) * ROWS);
    int64_t share = D / osh_width(a->in[0]); // number of elements of x for each gate
    float by[PIECE], y[PIECE];

    (void)cx, (void)worker;
    for (int64_t row = chunk * ROWS; row < end; row++) {
        for (int64_t at = row * D, n; at < (row + 1) * D; at += n) {
            n = osh_min64(PIECE, (row + 1) * D - at);
            int64_t first = at / share;
            gates_load(by, a, first, (at + n - 1) / share - first + 1);
            osh_to_f32(y, osh_elem(x, at), x->dtype, n);
            for (int64_t i = 0; i < n; i++) y[i] *= by[(at + i) / share - first];
            osh_from_f32(osh_elem(a->out[0], at), x->dtype, y, n);
        }
    }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[1]), ROWS, sigmoid_gate_chunk);
}

/* Computes two gradients. The sum is over the elements to which the gate applies.
 *
 *   dx    = dy sigmoid(gate)
 *   dgate = s (1 - s) * sum of dy x     s = sigmoid(gate)
 *
 * With softplus:
 *
 *   dx    = dy softplus(gate)
 *   dgate = s * sum of dy x */
static osh_status sigmoid_gate_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n_gates = osh_tensor_numel(a->in[0]), D = osh_width(a->in[1]) / osh_width(a->in[0]);
    const float *dy = a->dout[0]->data;
    bool softplus = ((const osh_sigmoid_gate_attr *)a->attr)->softplus;
    float *gate = NULL, *x = NULL; // own, in f32: the inputs gate [N, G] and x

    OSH_TRY(osh_f32_copy(cx, &gate, a->in[0]));
    OSH_TRY(osh_f32_copy(cx, &x, a->in[1]));
    for (int64_t n = 0; n < n_gates; n++) {
        double s = gate_value(gate[n], false), by = gate_value(gate[n], softplus), sum = 0;
        for (int64_t i = n * D; i < (n + 1) * D; i++) {
            sum += (double)dy[i] * x[i];
            osh_grad_add(a->din[1], i, dy[i] * by);
        }
        osh_grad_add(a->din[0], n, (softplus ? s : s * (1 - s)) * sum);
    }
done:
    osh_free(cx, x);
    osh_free(cx, gate);
    return rc;
}

const osh_op osh_op_sigmoid_gate = {
    .name = "sigmoid_gate", .n_in = 2, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_sigmoid_gate_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_sigmoid_gate_cuda)},
    .tol = 1e-12, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = sigmoid_gate_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_sigmoid_gate_grad_cuda)},
    .traits = OSH_OP_GATES,
};
