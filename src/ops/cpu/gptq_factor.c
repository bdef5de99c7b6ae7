/* gptq_factor.c - flip-Cholesky in place: flip, Cholesky, triangular inverse, turn by 180 degrees. Each step over fixed
 * tiles of SIDE columns on all threads, so that their number changes no byte.
 *
 *   Cholesky, block column k          inverse, block row i
 *   | L       |   D -= C C^T          | X       |   B := A X      by slabs of rows: a row needs itself alone,
 *   | C D     |   D = L L^T           | A L     |                 its columns from the left
 *   | A B     |   B -= A C^T                        B := -L^-1 B  by slabs of columns
 *                 B := B L^-T                       L := L^-1
 *
 * LAPACK is column-major: our lower triangle is its upper one. */
#include "ops/cpu/blas.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"
#include "ops/kernel.h"

enum { SIDE = 256, SLAB = 128, ROWS = 16 }; // of a block; rows or columns of a chunk; rows of a chunk that only moves

typedef struct factor_job {
    float *a; // [n, n]
    int64_t n, at, wide; // the block: its first row and column, its rows
} factor_job;

static float *elem(const factor_job *f, int64_t row, int64_t column) { return f->a + row * f->n + column; }

/* J H J of a symmetric H of which the lower triangle is given: element (i, j) becomes (n-1-j, n-1-i). */
static osh_status flip_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t n = f->n;

    (void)cx, (void)worker;
    for (int64_t i = chunk * ROWS; i < osh_min64(n, (chunk + 1) * ROWS); i++)
        for (int64_t j = 0; j <= i && i + j < n - 1; j++) {
            float *p = elem(f, i, j), *q = elem(f, n - 1 - j, n - 1 - i), t = *p;
            *p = *q;
            *q = t;
        }
    return OSH_OK;
}

/* Upper triangle = the lower one turned by 180 degrees, lower = 0. */
static osh_status turn_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t n = f->n;

    (void)cx, (void)worker;
    for (int64_t i = chunk * ROWS; i < osh_min64(n, (chunk + 1) * ROWS); i++) {
        float *row = elem(f, i, 0), *mirror = elem(f, n - 1 - i, n - 1 - i);
        for (int64_t j = 0; j < i; j++) mirror[i - j] = row[j], row[j] = 0;
        if (i <= n - 1 - i) continue;
        float t = row[i]; // the diagonal trades places with its mirror image
        row[i] = *mirror;
        *mirror = t;
    }
    return OSH_OK;
}

/* A non-finite element of the lower triangle. */
static osh_status finite_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;

    (void)cx, (void)worker;
    for (int64_t i = chunk * ROWS; i < osh_min64(f->n, (chunk + 1) * ROWS); i++)
        if (osh_find_nonfinite(elem(f, i, 0), OSH_F32, i + 1) >= 0) return OSH_E_NUMERIC;
    return OSH_OK;
}

/* What the block columns to the left take from this one: chunk 0 from the diagonal block, the others below it. */
static osh_status update_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t row = f->at + (chunk ? f->wide + (chunk - 1) * SLAB : 0);
    const float *left = elem(f, f->at, 0);

    (void)cx, (void)worker;
    if (!chunk)
        osh_blas()->ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, (blasint)f->wide, (blasint)f->at, -1, left,
                          (blasint)f->n, 1, elem(f, row, f->at), (blasint)f->n);
    else
        osh_blas()->sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)osh_min64(SLAB, f->n - row),
                          (blasint)f->wide, (blasint)f->at, -1, elem(f, row, 0), (blasint)f->n, left, (blasint)f->n, 1,
                          elem(f, row, f->at), (blasint)f->n);
    return OSH_OK;
}

static osh_status below_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t row = f->at + f->wide + chunk * SLAB;

    (void)cx, (void)worker;
    osh_blas()->strsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit,
                      (blasint)osh_min64(SLAB, f->n - row), (blasint)f->wide, 1, elem(f, f->at, f->at), (blasint)f->n,
                      elem(f, row, f->at), (blasint)f->n);
    return OSH_OK;
}

static osh_status cholesky(osh_ctx *cx, factor_job *f)
{
    osh_status rc = OSH_OK;

    for (f->at = 0; f->at < f->n; f->at += SIDE) {
        f->wide = osh_min64(SIDE, f->n - f->at);
        int64_t slabs = osh_div_up(f->n - f->at - f->wide, SLAB);
        if (f->at) OSH_TRY(osh_parallel_for(cx, 1 + slabs, update_chunk, f));
        blasint wide = (blasint)f->wide, lda = (blasint)f->n, info = 0;
        osh_blas()->spotrf("U", &wide, elem(f, f->at, f->at), &lda, &info, 1);
        if (info) return OSH_E_NUMERIC;
        OSH_TRY(osh_parallel_for(cx, slabs, below_chunk, f));
    }
done:
    return rc;
}

/* Some rows of A X: column block j takes from itself and those to its right, which are still those of A. */
static osh_status product_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const factor_job *f = user;
    int64_t row = f->at + chunk * SLAB, rows = osh_min64(SLAB, f->at + f->wide - row);

    (void)worker;
    for (int64_t j = 0; j < f->at; j += SIDE) { // all blocks but the last one are SIDE wide
        int64_t next = j + SIDE;
        OSH_TRY(osh_check_interrupt(cx)); // of 28,672 columns this takes seconds
        osh_blas()->strmm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, (blasint)rows, SIDE, 1,
                          elem(f, j, j), (blasint)f->n, elem(f, row, j), (blasint)f->n);
        if (next < f->at)
            osh_gemm_nn((osh_into){elem(f, row, j), f->n, true}, (osh_mat){elem(f, row, next), f->n},
                        (osh_mat){elem(f, next, j), f->n}, (osh_mnk){rows, SIDE, f->at - next});
    }
done:
    return rc;
}

static osh_status solve_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t column = chunk * SLAB;

    (void)cx, (void)worker;
    osh_blas()->strsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, (blasint)f->wide,
                      (blasint)osh_min64(SLAB, f->at - column), -1, elem(f, f->at, f->at), (blasint)f->n,
                      elem(f, f->at, column), (blasint)f->n);
    return OSH_OK;
}

static osh_status invert(osh_ctx *cx, factor_job *f)
{
    osh_status rc = OSH_OK;

    for (f->at = 0; f->at < f->n; f->at += SIDE) {
        f->wide = osh_min64(SIDE, f->n - f->at);
        if (f->at) OSH_TRY(osh_parallel_for(cx, osh_div_up(f->wide, SLAB), product_chunk, f));
        OSH_TRY(osh_parallel_for(cx, osh_div_up(f->at, SLAB), solve_chunk, f));
        blasint wide = (blasint)f->wide, lda = (blasint)f->n, info = 0;
        osh_blas()->strtri("U", "N", &wide, elem(f, f->at, f->at), &lda, &info, 1, 1);
        if (info) return OSH_E_NUMERIC;
    }
done:
    return rc;
}

osh_status osh_gptq_factor_cpu(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    factor_job f = {.a = a->out[0]->data, .n = a->out[0]->shape[0]};
    int64_t moves = osh_div_up(f.n, ROWS);

    OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_parallel_for(cx, moves, flip_chunk, &f));
    OSH_TRY(cholesky(cx, &f));
    OSH_TRY(invert(cx, &f));
    OSH_TRY(osh_parallel_for(cx, moves, finite_chunk, &f)); // before the upper triangle is touched: after a failure
    OSH_TRY(osh_parallel_for(cx, moves, turn_chunk, &f));   // it is the caller's
done:
    return rc;
}
