/* elementwise_grad.c - computes the gradients of add, of glu with silu, and of rms_norm. These ops
 * have fast kernels because their reference kernels would take longer than the matrix products of a
 * layer. The reference kernels are used for other activations of glu. They are also used for
 * rms_norm if the caller requests the gradient of its weight. */
#include "ops/cpu/cpu.h"
#include "math/vec.h"
#include "math/isa.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

/* PIECE: number of elements in a chunk of parallel work.
 * ROWS: number of rows in a chunk of parallel work of rms_norm. */
enum { PIECE = 2048, ROWS = 32 };

typedef struct grad_job {
    const osh_grad_args *a;
    int64_t n, D;    // n: number of elements of the tensor. D: number of elements of a row.
    const float *f;  // view [D]: factor of each channel (weight plus offset of the norm)
    float *rows;     // scratch: [threads, D]
    double eps;
} grad_job;

static float *piece_of(const osh_tensor *din, int64_t first)
{
    return din ? (float *)din->data + first : NULL;
}

/* Computes the gradients of `op` with its reference kernel. First sets fresh gradients to zero. */
static osh_status grad_by_reference(osh_ctx *cx, const osh_op *op, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_grad_args b = *a;
    osh_tensor *dout = NULL; // own: copy of dout[0] if it shares memory with din[0], else NULL
    if (a->din[0] == a->dout[0]) {
        OSH_TRY(osh_tensor_new(cx, &dout, OSH_F32, 2, a->dout[0]->shape));
        memcpy(dout->data, a->dout[0]->data, osh_tensor_bytes(dout));
        b.dout[0] = dout;
    }
    OSH_TRY(osh_grad_zero(cx, &b));
    OSH_TRY(op->grad.run[OSH_REF](cx, &b));
done:
    osh_tensor_free(cx, dout);
    return rc;
}

/* ---- add ---- */

OSH_VEC_FN void grad_add_body(float *to, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + OSH_LANES <= n; i += OSH_LANES) {
        osh_v8f a, b;
        v8_load(&a, to + i), v8_load(&b, x + i);
        a = a + b;
        v8_store(to + i, &a);
    }
    for (; i < n; i++) to[i] += x[i];
}
OSH_AVX2 static void grad_add_avx2(float *to, const float *x, int64_t n)
{
    grad_add_body(to, x, n);
}

/* Writes x [n] to elements [first, first + n) of the gradient of in[k]. Adds x instead if the
 * gradient already has values (is not fresh). */
static void grad_give(const osh_grad_args *a, int k, int64_t first, const float *x, int64_t n)
{
    float *to = piece_of(a->din[k], first);
    if (to == x) return; // the caller has already written x to the gradient
    if (to && a->fresh >> k & 1) memcpy(to, x, (size_t)n * sizeof *to);
    else if (to && osh_isa_used() >= OSH_ISA_AVX2) grad_add_avx2(to, x, n);
    else if (to) grad_add_body(to, x, n);
}

static osh_status add_grad_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const grad_job *j = user;
    int64_t first = chunk * PIECE, n = osh_min64(PIECE, j->n - first);
    const float *dy = (const float *)j->a->dout[0]->data + first;
    (void)cx, (void)worker;
    for (int k = 0; k < 2; k++) grad_give(j->a, k, first, dy, n);
    return OSH_OK;
}

osh_status osh_add_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    grad_job j = {.a = a, .n = osh_tensor_numel(a->dout[0])};
    return osh_parallel_for(cx, osh_div_up(j.n, PIECE), add_grad_chunk, &j);
}

/* ---- glu with silu ---- */

/* Overwrites `up` with the gradient of gate, and `gate` with the gradient of up. For an element g
 * of `gate`, and s = 1 / (1 + e^-g):
 *
 *   dgate = dy up s (1 + g (1 - s))
 *   dup   = dy g s */
OSH_VEC_FN void silu_grad_body(float *gate, float *up, const float *dy, int64_t n)
{
    for (int64_t i = 0; i < n; i += OSH_LANES) {
        osh_v8f g, u, d, s;
        v8_load(&g, gate + i), v8_load(&u, up + i), v8_load(&d, dy + i);
        s = -g;
        v8_exp(&s);
        s = 1.0f / (1.0f + s);
        u = d * u * s * (1.0f + g * (1.0f - s));
        g = d * g * s;
        v8_store(up + i, &u), v8_store(gate + i, &g);
    }
}
OSH_AVX2 static void silu_grad_avx2(float *gate, float *up, const float *dy, int64_t n)
{
    silu_grad_body(gate, up, dy, n);
}

static osh_status glu_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const grad_job *j = user;
    const osh_grad_args *a = j->a;
    int64_t first = chunk * PIECE, n = osh_min64(PIECE, j->n - first);
    float gate[PIECE], up[PIECE], dy[PIECE];
    (void)cx, (void)worker;
    for (int64_t i = n; i < osh_pad8(n); i++) gate[i] = up[i] = dy[i] = 0;
    osh_to_f32(gate, osh_elem(a->in[0], first), a->in[0]->dtype, n);
    osh_to_f32(up, osh_elem(a->in[1], first), a->in[1]->dtype, n);
    memcpy(dy, (const float *)a->dout[0]->data + first, (size_t)n * sizeof *dy);
    if (osh_isa_used() >= OSH_ISA_AVX2) silu_grad_avx2(gate, up, dy, osh_pad8(n));
    else silu_grad_body(gate, up, dy, osh_pad8(n));
    grad_give(a, 0, first, up, n);
    grad_give(a, 1, first, gate, n);
    return OSH_OK;
}

osh_status osh_glu_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    const osh_glu_attr *at = a->attr;
    grad_job j = {.a = a, .n = osh_tensor_numel(a->in[0])};
    if (at->limit > 0 || strcmp(at->act, "silu")) return grad_by_reference(cx, &osh_op_glu, a);
    return osh_parallel_for(cx, osh_div_up(j.n, PIECE), glu_chunk, &j);
}

/* ---- rms_norm ---- */

/* Computes dx. f is the factor of a channel:
 *
 *   r  = 1 / sqrt(mean(x^2) + eps)
 *   n  = x r
 *   g  = dy f
 *   dx = (g - n mean(g n)) r
 *
 * If the gradient of x is fresh (osh_grad_args.fresh), writes dx to it, else adds dx. A sum over a
 * row is eight partial sums, which are added in order. */
OSH_VEC_FN void norm_grad_body(float *dx, const float *x, const float *dy, const grad_job *j)
{
    double squares[OSH_LANES] = {0}, dots[OSH_LANES] = {0}, sum = 0, dot = 0;
    if (j->a->fresh & 1) memset(dx, 0, (size_t)j->D * sizeof *dx);
    for (int64_t i = 0; i < j->D; i++) {
        squares[i % OSH_LANES] += (double)x[i] * x[i];
        dots[i % OSH_LANES] += (double)dy[i] * j->f[i] * x[i];
    }
    for (int k = 0; k < OSH_LANES; k++) sum += squares[k], dot += dots[k];
    double r = 1 / sqrt(sum / (double)j->D + j->eps);
    float by = (float)r, less = (float)(r * r * r * dot / (double)j->D);
    int64_t i = 0;
    for (; i + OSH_LANES <= j->D; i += OSH_LANES) {
        osh_v8f to, v, d, f;
        v8_load(&to, dx + i), v8_load(&v, x + i), v8_load(&d, dy + i), v8_load(&f, j->f + i);
        to = to + (d * f * by - v * less);
        v8_store(dx + i, &to);
    }
    for (; i < j->D; i++) dx[i] += dy[i] * j->f[i] * by - x[i] * less;
}

OSH_AVX2 static void norm_grad_avx2(float *dx, const float *x, const float *dy, const grad_job *j)
{
    norm_grad_body(dx, x, dy, j);
}

static osh_status norm_grad_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const grad_job *j = user;
    const osh_tensor *x = j->a->in[0];
    int64_t end = osh_min64(j->n, (chunk + 1) * ROWS * j->D);
    float *row = j->rows + worker * j->D;
    (void)cx;
    for (int64_t at = chunk * ROWS * j->D; at < end; at += j->D) {
        osh_to_f32(row, osh_elem(x, at), x->dtype, j->D);
        float *dx = (float *)j->a->din[0]->data + at;
        const float *dy = (const float *)j->a->dout[0]->data + at;
        if (osh_isa_used() >= OSH_ISA_AVX2) norm_grad_avx2(dx, row, dy, j);
        else norm_grad_body(dx, row, dy, j);
    }
    return OSH_OK;
}

osh_status osh_rms_norm_grad_cpu(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rms_norm_attr *at = a->attr;
    int64_t width = osh_width(a->in[0]);
    grad_job j = {.a = a, .n = osh_tensor_numel(a->in[0]), .D = at->head_dim ? at->head_dim : width,
                  .eps = at->eps};
    float *f = NULL; // own: the factors f [D], then a scratch row [D] for each thread
    if (a->din[1] || !a->din[0]) return grad_by_reference(cx, &osh_op_rms_norm, a);
    OSH_NEW(cx, f, j.D * (1 + osh_threads(cx)));
    if (a->in[1]) osh_load_weight(f, a->in[1], 0, j.D, a->in[0]->dtype);
    for (int64_t i = 0; i < j.D; i++) f[i] = a->in[1] ? f[i] + (float)at->offset : 1;
    j.f = f, j.rows = f + j.D;
    OSH_TRY(osh_parallel_for(cx, osh_div_up(j.n, ROWS * j.D), norm_grad_chunk, &j));
done:
    osh_free(cx, f);
    return rc;
}
