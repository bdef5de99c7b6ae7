/* gemm.c - multiplies f32 matrices on one thread with OpenBLAS, and widens rows of a tensor to f32
 * on all threads. */
#include "math/gemm.h"
#include "math/blas.h"
#include "tensor/scalar.h"

#include <string.h>

static void gemm_product(CBLAS_TRANSPOSE turn_a, CBLAS_TRANSPOSE turn_b, osh_into c, osh_mat a,
                         osh_mat b, osh_mnk s)
{
    osh_blas()->sgemm(CblasRowMajor, turn_a, turn_b, (blasint)s.m, (blasint)s.n, (blasint)s.k, 1,
                      a.p, (blasint)a.ld, b.p, (blasint)b.ld, c.add, c.p, (blasint)c.ld);
}

void osh_gemm_nt(osh_into c, osh_mat a, osh_mat b, osh_mnk size)
{
    gemm_product(CblasNoTrans, CblasTrans, c, a, b, size);
}

void osh_gemm_nn(osh_into c, osh_mat a, osh_mat b, osh_mnk size)
{
    gemm_product(CblasNoTrans, CblasNoTrans, c, a, b, size);
}

void osh_gemm_tn(osh_into c, osh_mat a, osh_mat b, osh_mnk size)
{
    gemm_product(CblasTrans, CblasNoTrans, c, a, b, size);
}

void osh_syrk_lower_t(float *c, int64_t ldc, osh_mat a, int64_t n, int64_t k)
{
    osh_blas()->ssyrk(CblasRowMajor, CblasLower, CblasTrans, (blasint)n, (blasint)k, 1, a.p,
                      (blasint)a.ld, 1, c, (blasint)ldc);
}

enum { WIDEN_ROWS = 16 };
typedef struct widen_job {
    float *to;
    const osh_tensor *x;
    int64_t first, n_rows, I;
} widen_job;

static osh_status widen_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const widen_job *j = user;
    int64_t row = chunk * WIDEN_ROWS, n = osh_min64(WIDEN_ROWS, j->n_rows - row);

    (void)cx, (void)worker;
    osh_to_f32(j->to + row * j->I, osh_elem(j->x, (j->first + row) * j->I), j->x->dtype, n * j->I);
    return OSH_OK;
}

osh_status osh_widen_rows(osh_ctx *cx, float *to, const osh_tensor *x, int64_t first,
                          int64_t n_rows)
{
    widen_job j = {.to = to, .x = x, .first = first, .n_rows = n_rows, .I = osh_width(x)};
    return osh_parallel_for(cx, osh_div_up(n_rows, WIDEN_ROWS), widen_chunk, &j);
}
