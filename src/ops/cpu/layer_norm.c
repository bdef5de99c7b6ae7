/* layer_norm.c - computes layer_norm in chunks of slices. A slice is a row, or a head if head_dim
 * is set. The sums for mean and variance are eight partial sums in f32. */
#include "ops/cpu/cpu.h"
#include "math/span.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <string.h>

enum { SLICES = 64 }; // number of slices in a chunk of parallel work

typedef struct layer_norm_job {
    const osh_op_args *a;
    /* Views [padded]: weight plus offset, and bias; the elements from D on are 0. */
    const float *w, *b;
    float *rows;        // view: scratch, a row of `padded` floats for each thread
    int64_t n_slices, D, padded;
    float eps;
} layer_norm_job;

static osh_status layer_norm_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const layer_norm_job *j = user;
    const osh_tensor *x = j->a->in[0];
    float *row = j->rows + worker * j->padded;
    int64_t end = osh_min64(j->n_slices, (chunk + 1) * SLICES);

    (void)cx;
    for (int64_t n = chunk * SLICES; n < end; n++) {
        osh_to_f32(row, osh_elem(x, n * j->D), x->dtype, j->D);
        memset(row + j->D, 0, (size_t)(j->padded - j->D) * sizeof *row);
        osh_span_layer_norm(row, j->w, j->b, j->padded, j->D, j->eps);
        osh_from_f32(osh_elem(j->a->out[0], n * j->D), x->dtype, row, j->D);
    }
    return OSH_OK;
}

static int64_t layer_norm_floats(int64_t D) { return 2 * osh_pad8(D); }

osh_status osh_layer_norm_cpu(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_layer_norm_attr *at = a->attr;
    osh_dtype dt = a->in[0]->dtype;
    int64_t width = osh_width(a->in[0]), D = at->head_dim ? at->head_dim : width,
            padded = osh_pad8(D);
    // w: own [2, padded], weight plus offset, then bias. rows: own [threads, padded], scratch.
    float *w = NULL, *rows = NULL;

    OSH_NEW(cx, w, layer_norm_floats(D));
    OSH_NEW(cx, rows, osh_rows_floats(D, osh_threads(cx)));
    if (a->in[1]) osh_load_weight(w, a->in[1], 0, D, dt);
    for (int64_t i = 0; i < D; i++)
        w[i] = a->in[1] ? osh_round_to(w[i] + (float)at->offset, dt) : 1;
    if (a->in[2]) osh_load_weight(w + padded, a->in[2], 0, D, dt);
    layer_norm_job j = {.a = a, .w = w, .b = w + padded, .rows = rows, .D = D, .padded = padded,
                        .n_slices = osh_rows(a->in[0]) * (width / D), .eps = (float)at->eps};
    OSH_TRY(osh_parallel_for(cx, osh_div_up(j.n_slices, SLICES), layer_norm_chunk, &j));
done:
    osh_free(cx, rows);
    osh_free(cx, w);
    return rc;
}

size_t osh_layer_norm_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads)
{
    (void)attr, (void)out_width, (void)n_tokens;
    return (size_t)(layer_norm_floats(in_width[0]) + osh_rows_floats(in_width[0], n_threads)) *
           sizeof(float);
}
