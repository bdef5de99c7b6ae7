/* elementwise.c - computes glu, add, scale and act. PIECE elements at a time are converted to f32
 * on the stack, computed, rounded and stored. */
#include "ops/cpu/cpu.h"
#include "math/span.h"
#include "math/span512.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <stdatomic.h>
#include <string.h>

/* PIECE: number of elements that are computed together; they fit in the L1 cache.
 * PIECES: a chunk of parallel work has PIECES * PIECE elements. */
enum { PIECE = 2048, PIECES = 16 };

typedef struct elementwise_job elementwise_job;
struct elementwise_job {
    /* Computes x = op(x, y) in place for n elements, a multiple of 8. */
    void (*piece)(float *x, float *y, int64_t n, const elementwise_job *j);
    /* Like `piece`, but for BF16 tensors, with AVX-512 and without conversion to f32. Returns true
     * if all results are finite. `whole` is NULL if the op has no such function. */
    bool (*whole)(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                  const elementwise_job *j);
    const osh_tensor *x, *y; // y is NULL if the op has only one input
    osh_tensor *out;
    int64_t n;
    osh_act_kind act;
    float by, limit, plus;
    bool square;
    _Atomic bool bad; // true if the function `whole` has found a result that is not finite
};

static void add_piece(float *x, float *y, int64_t n, const elementwise_job *j)
{
    (void)j;
    osh_span_add(x, y, n);
}

static void glu_piece(float *x, float *y, int64_t n, const elementwise_job *j)
{
    osh_span_glu(x, y, n, j->act, j->x->dtype);
}

static bool add_whole(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                      const elementwise_job *j)
{
    (void)j;
    return osh_span512_add_bf16(to, x, y, n);
}

static bool glu_whole(uint16_t *to, const uint16_t *x, const uint16_t *y, int64_t n,
                      const elementwise_job *j)
{
    return osh_span512_glu_bf16(to, x, y, n, j->act);
}

/* Replaces x by g sigmoid(a g) (u + p), computed as silu(a g) (u + p) / a.
 * g: x, at most the limit.
 * u: y, clamped to [-limit, limit].
 * a: j->by.
 * p: j->plus. */
static void clamped_piece(float *x, float *y, int64_t n, const elementwise_job *j)
{
    float l = j->limit, a = j->by;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (x[i] > l ? l : x[i]) * a;
        y[i] = ((y[i] > l ? l : y[i] < -l ? -l : y[i]) + j->plus) / a;
    }
    osh_span_glu(x, y, n, OSH_ACT_SILU, OSH_F32);
}

static void scale_piece(float *x, float *y, int64_t n, const elementwise_job *j)
{
    (void)y;
    for (int64_t i = 0; i < n; i++) x[i] *= j->by;
}

/* Computes act(x) as the glu act(gate) * up, with gate = x and up = 1. */
static void act_piece(float *x, float *y, int64_t n, const elementwise_job *j)
{
    for (int64_t i = 0; i < n; i++) y[i] = 1;
    osh_span_glu(x, y, n, j->act, j->x->dtype);
}

static void relu_piece(float *x, float *y, int64_t n, const elementwise_job *j)
{
    (void)y;
    for (int64_t i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i];
    for (int64_t i = 0; j->square && i < n; i++) x[i] *= x[i];
}

static void elementwise_piece(const elementwise_job *j, int64_t first, int64_t n)
{
    float x[PIECE], y[PIECE];
    int64_t padded = osh_pad8(n);

    memset(x + n, 0, (size_t)(padded - n) * sizeof *x);
    osh_to_f32(x, osh_elem(j->x, first), j->x->dtype, n);
    if (j->y) {
        memset(y + n, 0, (size_t)(padded - n) * sizeof *y);
        osh_to_f32(y, osh_elem(j->y, first), j->y->dtype, n);
    }
    j->piece(x, y, padded, j);
    osh_from_f32(osh_elem(j->out, first), j->out->dtype, x, n);
}

static osh_status elementwise_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    elementwise_job *j = user;
    int64_t first = chunk * PIECE * PIECES, end = osh_min64(j->n, first + PIECE * PIECES);

    (void)cx, (void)worker;
    if (j->whole) {
        if (!j->whole(osh_elem(j->out, first), osh_elem(j->x, first), osh_elem(j->y, first),
                      end - first, j))
            atomic_store(&j->bad, true);
        return OSH_OK;
    }
    for (; first < end; first += PIECE)
        elementwise_piece(j, first, osh_min64(PIECE, end - first));
    return OSH_OK;
}

static osh_status elementwise_run(osh_ctx *cx, elementwise_job *j, const osh_op_args *a)
{
    j->x = a->in[0], j->y = a->in[1], j->out = a->out[0];
    j->n = osh_tensor_numel(a->in[0]);
    bool bf16 = osh_span512_takes(j->x->dtype) && j->out->dtype == OSH_BF16 && j->y &&
                j->y->dtype == OSH_BF16;
    if (!bf16 || j->act == OSH_ACT_GELU) j->whole = NULL;
    osh_status rc = osh_parallel_for(cx, osh_div_up(j->n, PIECE * PIECES), elementwise_chunk, j);
    if (j->whole && a->finite) *a->finite = !j->bad;
    return rc;
}

static osh_act_kind act_kind(const char *act)
{
    if (!strcmp(act, "gelu")) return OSH_ACT_GELU;
    return osh_act_is_tanh(act) ? OSH_ACT_GELU_TANH : OSH_ACT_SILU;
}

osh_status osh_add_cpu(osh_ctx *cx, const osh_op_args *a)
{
    elementwise_job j = {.piece = add_piece, .whole = add_whole};
    return elementwise_run(cx, &j, a);
}

osh_status osh_glu_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const osh_glu_attr *at = a->attr;
    elementwise_job j = {.piece = glu_piece, .whole = glu_whole, .act = act_kind(at->act)};
    if (at->limit > 0)
        j.piece = clamped_piece, j.whole = NULL, j.limit = (float)at->limit,
        j.by = (float)at->alpha, j.plus = (float)at->plus;
    return elementwise_run(cx, &j, a);
}

osh_status osh_scale_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const osh_scale_attr *at = a->attr;
    elementwise_job j = {.piece = scale_piece};
    j.by = osh_round_to((float)at->by, at->rounded ? a->in[0]->dtype : OSH_F32);
    return elementwise_run(cx, &j, a);
}

osh_status osh_act_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const char *act = ((const osh_act_attr *)a->attr)->act;
    bool relu = !strncmp(act, "relu", strlen("relu"));
    elementwise_job j = {.piece = relu ? relu_piece : act_piece, .act = act_kind(act),
                         .square = !strcmp(act, "relu2")};
    return elementwise_run(cx, &j, a);
}

size_t osh_elementwise_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_tokens, (void)n_threads;
    return 0;
}
