/* gated_streams.c - computes gated residuals: S residual streams h_0 ... h_{S-1} in one value h [N,
 * S*D].
 *
 *   grouped_norm   in[0] x [N, G*D]  in[1] w [G*D]                       out y [N, G*D]
 *   stream_gate    in[0] u [N, S*D]  in[1] n [N, S*D]                    out x [N, D]
 *   stream_inject  in[0] l [N, S]    in[1] h [N, S*D]  in[2] y [N, D]    out h' [N, S*D]
 *
 * grouped_norm is an RMSNorm of each group of D elements, with a weight for each element of the
 * row. stream_gate makes the input of a part of a layer from the normalized streams n.
 * stream_inject adds the output y of this part to each stream:
 *
 *   grouped_norm    y    = (x / sqrt(mean(x^2) + eps)) (w + offset)
 *   stream_gate     x    = (sum over s of sigmoid(u_s) n_s) / S
 *   stream_inject   h'_s = h_s + 2 sigmoid(l_s / S) y
 *
 * The ops compute transformers' Qwen4ExpTextRMSNorm and Qwen4ExpTextGatedResidual. grouped_norm
 * rounds once. The other ops round each sigmoid, product and sum to the dtype of h. Sums are
 * double. Shapes: N tokens of the batch, D elements per token and stream. */
#include <math.h>

#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

/* STREAMS: largest number of streams (S).
 * PIECE: number of elements that are converted to f32 at a time.
 * ROWS: number of rows in a chunk of parallel work. */
enum { STREAMS = 8, PIECE = 512, ROWS = 4 };

static const osh_field norm_attrs[] = {
    {"eps", OSH_F_FLOAT, offsetof(osh_grouped_norm_attr, eps), "1e-6", 0, 1,
     "added to the mean of squares", NULL, NULL},
    {"offset", OSH_F_FLOAT, offsetof(osh_grouped_norm_attr, offset), "0", -1e6, 1e6,
     "added to the weight", NULL, NULL},
    {"width", OSH_F_INT, offsetof(osh_grouped_norm_attr, width), NULL, 1, 1e9, "D", NULL, NULL},
    {0},
};
static const osh_field stream_attrs[] = {
    {"streams", OSH_F_INT, offsetof(osh_stream_read_attr, streams), NULL, 1, STREAMS, "S", NULL,
     NULL},
    {0},
};

static osh_status grouped_norm_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                     int *w_ndim, const int64_t *in_width, const void *attr)
{
    int64_t D = ((const osh_grouped_norm_attr *)attr)->width;
    if (in_width[0] % D)
        return osh_fail(cx, OSH_E_FORMAT, "grouped_norm: width %lld, want a multiple of %lld",
                        (long long)in_width[0], (long long)D);
    w_ndim[0] = 1, w_shape[0][0] = in_width[0];
    out_width[0] = in_width[0];
    return OSH_OK;
}

/* Normalizes the group whose first element is element `first` of x. */
static void group_norm(const osh_op_args *a, int64_t first)
{
    const osh_grouped_norm_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    float v[PIECE], w[PIECE];
    double sum = 0;
    for (int64_t from = 0, n; from < at->width; from += n) {
        n = osh_min64(PIECE, at->width - from);
        osh_to_f32(v, osh_elem(x, first + from), x->dtype, n);
        for (int64_t i = 0; i < n; i++) sum += (double)v[i] * v[i];
    }
    double by = 1 / sqrt(sum / (double)at->width + at->eps);
    for (int64_t from = 0, n; from < at->width; from += n) {
        n = osh_min64(PIECE, at->width - from);
        osh_to_f32(v, osh_elem(x, first + from), x->dtype, n);
        osh_load_weight(w, a->in[1], first % osh_width(x) + from, n, x->dtype);
        for (int64_t i = 0; i < n; i++) v[i] = (float)(v[i] * by * (w[i] + at->offset));
        osh_from_f32(osh_elem(a->out[0], first + from), x->dtype, v, n);
    }
}

static osh_status grouped_norm_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t W = osh_width(a->in[0]), D = ((const osh_grouped_norm_attr *)a->attr)->width;
    int64_t end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS) * W;
    (void)cx, (void)worker;
    for (int64_t at = chunk * ROWS * W; at < end; at += D) group_norm(a, at);
    return OSH_OK;
}

static osh_status grouped_norm_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, grouped_norm_chunk);
}

static osh_status stream_gate_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                    int *w_ndim, const int64_t *in_width, const void *attr)
{
    int64_t S = ((const osh_stream_read_attr *)attr)->streams;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] != in_width[1] || in_width[0] % S)
        return osh_fail(cx, OSH_E_FORMAT,
                        "stream_gate: widths %lld and %lld, want the same, a multiple of %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)S);
    out_width[0] = in_width[0] / S;
    return OSH_OK;
}

/* Sets x [n] to the sigmoid of x, rounded to dt. */
static void sigmoid_piece(float *x, int64_t n, osh_dtype dt)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = osh_round_to((float)(1 / (1 + osh_math_exp(-(double)x[i]))), dt);
}

/* Computes the elements [from, from + k) of row n of stream_gate's output. */
static void gate_piece(const osh_op_args *a, int64_t n, int64_t from, int64_t k)
{
    const osh_tensor *u = a->in[0], *x = a->in[1], *out = a->out[0];
    int64_t S = ((const osh_stream_read_attr *)a->attr)->streams, D = osh_width(out);
    double sum[PIECE] = {0};
    float gate[PIECE], v[PIECE];
    for (int64_t s = 0; s < S; s++) {
        osh_to_f32(gate, osh_elem(u, (n * S + s) * D + from), u->dtype, k);
        osh_to_f32(v, osh_elem(x, (n * S + s) * D + from), x->dtype, k);
        sigmoid_piece(gate, k, out->dtype);
        for (int64_t i = 0; i < k; i++) sum[i] += osh_round_to(gate[i] * v[i], out->dtype);
    }
    for (int64_t i = 0; i < k; i++) v[i] = (float)(sum[i] / (double)S);
    osh_from_f32(osh_elem(out, n * D + from), out->dtype, v, k);
}

static osh_status stream_gate_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t D = osh_width(a->out[0]), end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS);
    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++)
        for (int64_t from = 0; from < D; from += PIECE)
            gate_piece(a, n, from, osh_min64(PIECE, D - from));
    return OSH_OK;
}

static osh_status stream_gate_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, stream_gate_chunk);
}

static osh_status stream_inject_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                      int *w_ndim, const int64_t *in_width, const void *attr)
{
    int64_t S = ((const osh_stream_read_attr *)attr)->streams;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] != S || in_width[1] != S * in_width[2])
        return osh_fail(cx, OSH_E_FORMAT,
                        "stream_inject: widths %lld, %lld, %lld, want %lld streams",
                        (long long)in_width[0], (long long)in_width[1], (long long)in_width[2],
                        (long long)S);
    out_width[0] = in_width[1];
    return OSH_OK;
}

/* Computes row n of stream_inject's output. */
static void row_inject(const osh_op_args *a, int64_t n)
{
    const osh_tensor *h = a->in[1], *y = a->in[2];
    int64_t S = osh_width(a->in[0]), D = osh_width(y);
    osh_dtype dt = a->out[0]->dtype;
    float w[STREAMS], to[PIECE], add[PIECE];
    osh_to_f32(w, osh_elem(a->in[0], n * S), a->in[0]->dtype, S);
    for (int64_t s = 0; s < S; s++) w[s] = osh_round_to(w[s] / (float)S, dt);
    sigmoid_piece(w, S, dt);
    for (int64_t from = 0, k; from < D; from += k) {
        k = osh_min64(PIECE, D - from);
        osh_to_f32(add, osh_elem(y, n * D + from), y->dtype, k);
        for (int64_t s = 0; s < S; s++) {
            int64_t at = (n * S + s) * D + from;
            osh_to_f32(to, osh_elem(h, at), h->dtype, k);
            for (int64_t i = 0; i < k; i++) to[i] += osh_round_to(2 * w[s] * add[i], dt);
            osh_from_f32(osh_elem(a->out[0], at), dt, to, k);
        }
    }
}

static osh_status stream_inject_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t end = osh_min64(osh_rows(a->in[1]), (chunk + 1) * ROWS);
    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++) row_inject(a, n);
    return OSH_OK;
}

static osh_status stream_inject_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[1]), ROWS, stream_inject_chunk);
}

const osh_op osh_op_grouped_norm = {
    .name = "grouped_norm", .n_in = 1, .n_weights = 1, .n_out = 1, .each_token = true,
    .attrs = norm_attrs, .attr_bytes = sizeof(osh_grouped_norm_attr), .infer = grouped_norm_infer,
    .run = {[OSH_REF] = grouped_norm_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
const osh_op osh_op_stream_gate = {
    .name = "stream_gate", .n_in = 2, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = stream_attrs, .attr_bytes = sizeof(osh_stream_read_attr), .infer = stream_gate_infer,
    .run = {[OSH_REF] = stream_gate_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
const osh_op osh_op_stream_inject = {
    .name = "stream_inject", .n_in = 3, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = stream_attrs, .attr_bytes = sizeof(osh_stream_read_attr),
    .infer = stream_inject_infer, .run = {[OSH_REF] = stream_inject_ref}, .tol = 0,
    .scratch = osh_elementwise_scratch, .traits = OSH_OP_HOST_ONLY,
};
