/* altup.c - implements the ops of AltUp that read or write several streams (altup.h).
 *
 *   stream_mix      out_i = x_i + sum over j of x_j c[i S + j]
 *   stream_correct  out_i = x_i + (y - x_active) (c_i + 1)
 *   stream_add      out_i = x_i + y for i >= first, else x_i
 *
 * x_i and out_i are stream i of the input x and of the output. altup.h has the shapes, and the
 * attributes `active` and `first`. Each sum, difference and product is rounded to the dtype of x,
 * as in transformers' Gemma3nTextAltUp; the sum over j is rounded once. Shapes: N tokens of the
 * batch, S streams, D channels. */
#include "ops/altup.h"

#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

/* PIECE: number of channels that are computed together. MOST: largest number of streams */
enum { PIECE = 512, MOST = 16 };

static const osh_field stream_mix_attrs[] = {
    {"streams", OSH_F_INT, offsetof(osh_stream_mix_attr, streams), NULL, 1, MOST,
     "S, number of streams", NULL, NULL},
    {0},
};
static const osh_field stream_correct_attrs[] = {
    {"active", OSH_F_INT, offsetof(osh_stream_correct_attr, active), "0", 0, MOST - 1,
     "number of the stream that the layer read", NULL, NULL},
    {0},
};
static const osh_field stream_add_attrs[] = {
    {"first", OSH_F_INT, offsetof(osh_stream_add_attr, first), "0", 0, MOST,
     "first stream to which y is added", NULL, NULL},
    {0},
};

static osh_status stream_mix_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                   int *w_ndim, const int64_t *in_width, const void *attr)
{
    int64_t S = ((const osh_stream_mix_attr *)attr)->streams;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] % S || in_width[1] != S * S)
        return osh_fail(cx, OSH_E_FORMAT,
                        "stream_mix: widths %lld and %lld, want a multiple of %lld and %lld",
                        (long long)in_width[0], (long long)in_width[1], (long long)S,
                        (long long)(S * S));
    out_width[0] = in_width[0];
    return OSH_OK;
}

static osh_status stream_correct_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                       int *w_ndim, const int64_t *in_width, const void *attr)
{
    int64_t S = in_width[2], active = ((const osh_stream_correct_attr *)attr)->active;
    (void)w_shape, (void)w_ndim;
    if (S > MOST || active >= S || in_width[0] != S * in_width[1])
        return osh_fail(cx, OSH_E_FORMAT,
                        "stream_correct: widths %lld and %lld, stream %lld of %lld: want that "
                        "many streams, at most %d",
                        (long long)in_width[0], (long long)in_width[1], (long long)active,
                        (long long)S, MOST);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static osh_status stream_add_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                   int *w_ndim, const int64_t *in_width, const void *attr)
{
    (void)w_shape, (void)w_ndim, (void)attr;
    if (in_width[0] % in_width[1])
        return osh_fail(cx, OSH_E_FORMAT,
                        "stream_add: widths %lld and %lld, want a multiple and its part",
                        (long long)in_width[0], (long long)in_width[1]);
    out_width[0] = in_width[0];
    return OSH_OK;
}

/* Reads n elements of row `row` of t, from column c on, as f32. */
static void stream_read(float *to, const osh_tensor *t, int64_t row, int64_t c, int64_t n)
{
    osh_to_f32(to, osh_elem(t, row * osh_width(t) + c), t->dtype, n);
}

static void stream_write(const osh_tensor *t, int64_t row, int64_t c, const float *x, int64_t n)
{
    osh_from_f32(osh_elem(t, row * osh_width(t) + c), t->dtype, x, n);
}

static osh_status stream_mix_row(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const osh_op_args *a = user;
    int64_t S = ((const osh_stream_mix_attr *)a->attr)->streams, D = osh_width(a->in[0]) / S;
    osh_dtype dt = a->in[0]->dtype;
    float x[MOST][PIECE], c[MOST * MOST], y[PIECE];
    (void)cx, (void)worker;
    stream_read(c, a->in[1], row, 0, S * S);
    for (int64_t first = 0; first < D; first += PIECE) {
        int64_t n = osh_min64(PIECE, D - first);
        for (int64_t i = 0; i < S; i++) stream_read(x[i], a->in[0], row, i * D + first, n);
        for (int64_t i = 0; i < S; i++) {
            for (int64_t k = 0; k < n; k++) {
                double sum = 0;
                for (int64_t j = 0; j < S; j++) sum += (double)x[j][k] * c[i * S + j];
                y[k] = osh_round_to((float)sum, dt) + x[i][k];
            }
            stream_write(a->out[0], row, i * D + first, y, n);
        }
    }
    return OSH_OK;
}

static osh_status stream_correct_row(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const osh_op_args *a = user;
    int64_t S = osh_width(a->in[2]), D = osh_width(a->in[1]),
            active = ((const osh_stream_correct_attr *)a->attr)->active;
    osh_dtype dt = a->in[0]->dtype;
    float x[MOST][PIECE], c[MOST], y[PIECE], more[PIECE];
    (void)cx, (void)worker;
    stream_read(c, a->in[2], row, 0, S);
    for (int64_t i = 0; i < S; i++) c[i] = osh_round_to(c[i] + 1, dt);
    for (int64_t first = 0; first < D; first += PIECE) {
        int64_t n = osh_min64(PIECE, D - first);
        for (int64_t i = 0; i < S; i++) stream_read(x[i], a->in[0], row, i * D + first, n);
        stream_read(more, a->in[1], row, first, n);
        for (int64_t k = 0; k < n; k++) more[k] = osh_round_to(more[k] - x[active][k], dt);
        for (int64_t i = 0; i < S; i++) {
            for (int64_t k = 0; k < n; k++) y[k] = osh_round_to(more[k] * c[i], dt) + x[i][k];
            stream_write(a->out[0], row, i * D + first, y, n);
        }
    }
    return OSH_OK;
}

static osh_status stream_add_row(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const osh_op_args *a = user;
    int64_t D = osh_width(a->in[1]), S = osh_width(a->in[0]) / D,
            from = ((const osh_stream_add_attr *)a->attr)->first;
    float x[PIECE], y[PIECE];
    (void)cx, (void)worker;
    for (int64_t first = 0; first < D; first += PIECE) {
        int64_t n = osh_min64(PIECE, D - first);
        stream_read(y, a->in[1], row, first, n);
        for (int64_t i = 0; i < S; i++) {
            stream_read(x, a->in[0], row, i * D + first, n);
            for (int64_t k = 0; k < n && i >= from; k++) x[k] += y[k];
            stream_write(a->out[0], row, i * D + first, x, n);
        }
    }
    return OSH_OK;
}

static osh_status stream_mix_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), 1, stream_mix_row);
}
static osh_status stream_correct_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), 1, stream_correct_row);
}
static osh_status stream_add_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), 1, stream_add_row);
}

const osh_op osh_op_stream_mix = {
    .name = "stream_mix", .n_in = 2, .n_out = 1, .each_token = true,
    .attrs = stream_mix_attrs, .attr_bytes = sizeof(osh_stream_mix_attr), .infer = stream_mix_infer,
    .run = {[OSH_REF] = stream_mix_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
const osh_op osh_op_stream_correct = {
    .name = "stream_correct", .n_in = 3, .n_out = 1, .each_token = true,
    .attrs = stream_correct_attrs, .attr_bytes = sizeof(osh_stream_correct_attr),
    .infer = stream_correct_infer,
    .run = {[OSH_REF] = stream_correct_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
const osh_op osh_op_stream_add = {
    .name = "stream_add", .n_in = 2, .n_out = 1, .each_token = true,
    .attrs = stream_add_attrs, .attr_bytes = sizeof(osh_stream_add_attr), .infer = stream_add_infer,
    .run = {[OSH_REF] = stream_add_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
