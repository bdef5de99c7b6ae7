/* elementwise.c - glu and add: pieces of the flat tensor, widened on the stack, computed, rounded, stored. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/span.h"
#include "ops/cpu/vec.h"
#include "ops/kernel.h"

#include <string.h>

enum { PIECE = 2048, PIECES = 16 }; // elements in L1 at a time; pieces of one chunk

typedef struct elementwise_job {
    const osh_tensor *x, *y;
    osh_tensor *out;
    int64_t n;
    bool glu;
    osh_act_kind act;
} elementwise_job;

static void run_piece(const elementwise_job *j, int64_t first, int64_t n)
{
    float x[PIECE], y[PIECE];
    int64_t padded = osh_pad8(n);

    memset(x + n, 0, (size_t)(padded - n) * sizeof *x);
    memset(y + n, 0, (size_t)(padded - n) * sizeof *y);
    osh_to_f32(x, osh_elem(j->x, first), j->x->dtype, n);
    osh_to_f32(y, osh_elem(j->y, first), j->y->dtype, n);
    if (j->glu) osh_span_glu(x, y, padded, j->act, j->x->dtype);
    else osh_span_add(x, y, padded);
    osh_from_f32(osh_elem(j->out, first), j->out->dtype, x, n);
}

static osh_status run_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const elementwise_job *j = user;
    int64_t first = chunk * PIECE * PIECES, end = osh_min64(j->n, first + PIECE * PIECES);

    (void)cx, (void)worker;
    for (; first < end; first += PIECE) run_piece(j, first, osh_min64(PIECE, end - first));
    return OSH_OK;
}

static osh_status run_job(osh_ctx *cx, elementwise_job *j, const osh_op_args *a)
{
    j->x = a->in[0], j->y = a->in[1], j->out = a->out[0];
    j->n = osh_tensor_numel(a->in[0]);
    return osh_parallel_for(cx, osh_div_up(j->n, PIECE * PIECES), run_chunk, j);
}

osh_status osh_add_cpu(osh_ctx *cx, const osh_op_args *a)
{
    elementwise_job j = {.glu = false};
    return run_job(cx, &j, a);
}

osh_status osh_glu_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const char *act = ((const osh_glu_attr *)a->attr)->act;
    elementwise_job j = {.glu = true, .act = OSH_ACT_SILU};

    if (!strcmp(act, "gelu")) j.act = OSH_ACT_GELU;
    if (!strcmp(act, "gelu_pytorch_tanh")) j.act = OSH_ACT_GELU_TANH;
    return run_job(cx, &j, a);
}

size_t osh_elementwise_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                               int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_tokens, (void)n_threads;
    return 0;
}
