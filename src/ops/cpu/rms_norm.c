/* rms_norm.c - computes rms_norm in chunks of slices. A slice is a row, or a head if head_dim is
 * set. The sum of squares is eight partial sums in f32. */
#include "ops/cpu/cpu.h"
#include "math/span.h"
#include "math/span512.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <stdatomic.h>
#include <string.h>

enum { SLICES = 64 }; // number of slices in a chunk of parallel work

typedef struct rms_norm_job {
    const osh_tensor *x;
    osh_tensor *y;
    const float *w; // view [padded]: weight plus offset
    float *rows;    // view: scratch, a row of `padded` floats for each thread
    int64_t n_slices, D, padded;
    float eps;
    osh_dtype rounded; // dtype to which the normalized value is rounded
    _Atomic bool bad;  // true if rms_norm_bf16_chunk has found a non-finite value
} rms_norm_job;

static osh_status rms_norm_bf16_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    rms_norm_job *j = user;
    int64_t s = chunk * SLICES, at = s * j->D;
    osh_norm512 t = {j->w, j->D, j->eps};

    (void)cx, (void)worker;
    if (!osh_span512_rms_norm_bf16(osh_elem(j->y, at), osh_elem(j->x, at),
                                   osh_min64(j->n_slices - s, SLICES), &t))
        atomic_store(&j->bad, true);
    return OSH_OK;
}

static osh_status rms_norm_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const rms_norm_job *j = user;
    float *row = j->rows + worker * j->padded;
    int64_t end = osh_min64(j->n_slices, (chunk + 1) * SLICES);

    (void)cx;
    for (int64_t s = chunk * SLICES; s < end; s++) {
        osh_to_f32(row, osh_elem(j->x, s * j->D), j->x->dtype, j->D);
        memset(row + j->D, 0, (size_t)(j->padded - j->D) * sizeof *row);
        osh_span_rms_norm(row, j->w, j->padded, j->D, j->eps, j->rounded);
        osh_from_f32(osh_elem(j->y, s * j->D), j->y->dtype, row, j->D);
    }
    return OSH_OK;
}

osh_status osh_rms_norm_cpu(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rms_norm_attr *at = a->attr;
    int64_t width = osh_width(a->in[0]), D = at->head_dim ? at->head_dim : width,
            padded = osh_pad8(D);
    // w: own [padded], weight plus offset. rows: own [threads, padded], scratch.
    float *w = NULL, *rows = NULL;

    OSH_NEW(cx, w, padded);
    OSH_NEW(cx, rows, osh_rows_floats(D, osh_threads(cx)));
    if (a->in[1]) osh_load_weight(w, a->in[1], 0, D, a->out[0]->dtype);
    for (int64_t i = 0; i < D; i++) w[i] = a->in[1] ? w[i] + (float)at->offset : 1;
    rms_norm_job j = {.x = a->in[0], .y = a->out[0], .w = w, .rows = rows, .D = D, .padded = padded,
                      .n_slices = osh_rows(a->in[0]) * (width / D), .eps = (float)at->eps,
                      .rounded = at->late ? OSH_F32 : a->out[0]->dtype};
    bool bf16 = osh_span512_takes(j.x->dtype) && j.y->dtype == OSH_BF16 && !at->late;
    OSH_TRY(osh_parallel_for(cx, osh_div_up(j.n_slices, SLICES),
                             bf16 ? rms_norm_bf16_chunk : rms_norm_chunk, &j));
    if (bf16 && a->finite) *a->finite = !j.bad;
done:
    osh_free(cx, rows);
    osh_free(cx, w);
    return rc;
}

size_t osh_rms_norm_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                            int64_t n_tokens, int n_threads)
{
    (void)attr, (void)out_width, (void)n_tokens;
    return (size_t)(osh_pad8(in_width[0]) + osh_rows_floats(in_width[0], n_threads)) *
           sizeof(float);
}
