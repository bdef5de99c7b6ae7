/* gptq_target.c - computes the ops gptq_shift and gptq_target in chunks of rows. The rows of the
 * result do not depend on each other, and the chunks do not depend on the number of threads. */
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/kernel.h"

#include <string.h>

enum { ROWS = 64 }; // number of rows in a chunk of parallel work

typedef struct target_job {
    float *out;           // the output D or T, [n_rows, I]; view
    const osh_tensor *w;  // view [n_rows, I]: the weight; NULL for gptq_shift
    const float *factor;  // view [I, I]: U for gptq_shift, S for gptq_target
    const int32_t *perm;
    int64_t n_rows, I;
    int64_t rows;         // number of rows of the largest chunk
    float *room;          // scratch, [threads, rows, I]; own
} target_job;

static osh_status shift_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const target_job *j = user;
    int64_t row = chunk * ROWS, n = osh_min64(ROWS, j->n_rows - row), I = j->I;
    float *room = j->room + worker * j->rows * I, *d = j->out + row * I;

    (void)cx;
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < I; i++) room[r * I + i] = d[r * I + j->perm[i]];
    for (int k = 0; k < 2; k++)
        osh_blas()->strmm(CblasRowMajor, CblasRight, CblasUpper, k ? CblasNoTrans : CblasTrans,
                          CblasNonUnit, (blasint)n, (blasint)I, 1, j->factor, (blasint)I, room,
                          (blasint)I);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < I; i++) d[r * I + j->perm[i]] = room[r * I + i];
    return OSH_OK;
}

static osh_status target_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const target_job *j = user;
    int64_t row = chunk * ROWS, n = osh_min64(ROWS, j->n_rows - row), I = j->I;
    float *w = j->room + worker * j->rows * I, *t = j->out + row * I;

    (void)cx;
    osh_to_f32(w, osh_elem(j->w, row * I), j->w->dtype, n * I);
    memcpy(t, w, (size_t)(n * I) * sizeof *t);
    osh_gemm_nn((osh_into){t, I, true}, (osh_mat){w, I}, (osh_mat){j->factor, I},
                (osh_mnk){n, I, I});
    return OSH_OK;
}

static int64_t target_room_floats(int64_t rows, int64_t I, int n_threads)
{
    return n_threads * osh_min64(ROWS, rows) * I;
}

static osh_status target_run(osh_ctx *cx, target_job *j, osh_chunk_fn chunk)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_blas_open(cx));
    j->rows = osh_min64(ROWS, j->n_rows);
    j->room = osh_alloc(cx, (size_t)target_room_floats(j->n_rows, j->I, osh_threads(cx)) *
                                sizeof *j->room);
    if (!j->room) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_parallel_for(cx, osh_div_up(j->n_rows, ROWS), chunk, j));
done:
    osh_free(cx, j->room);
    return rc;
}

osh_status osh_gptq_shift_cpu(osh_ctx *cx, const osh_op_args *a)
{
    int64_t I = a->out[0]->shape[0];
    target_job j = {.out = a->out[0]->data, .factor = a->in[0]->data, .perm = a->in[1]->data,
                    .n_rows = I, .I = I};
    return target_run(cx, &j, shift_chunk);
}

osh_status osh_gptq_target_cpu(osh_ctx *cx, const osh_op_args *a)
{
    const osh_tensor *w = a->in[0];
    target_job j = {.out = a->out[0]->data, .w = w, .factor = a->in[1]->data, .n_rows = osh_rows(w),
                    .I = osh_width(w)};
    return target_run(cx, &j, target_chunk);
}

static size_t target_room_bytes(int64_t rows, int64_t I, int n_threads)
{
    return osh_mem_gross((size_t)target_room_floats(rows, I, n_threads) * sizeof(float));
}

size_t osh_gptq_shift_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                              int64_t n_tokens, int n_threads)
{
    (void)attr, (void)out_width, (void)n_tokens;
    return target_room_bytes(in_width[0], in_width[0], n_threads);
}

size_t osh_gptq_target_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                               int64_t n_tokens, int n_threads)
{
    (void)attr, (void)out_width;
    return target_room_bytes(n_tokens, in_width[0], n_threads);
}
