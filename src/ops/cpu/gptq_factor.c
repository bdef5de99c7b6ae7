/* gptq_factor.c - flip-Cholesky in place: flip, Cholesky, triangular inverse, turn by 180 degrees. Each step over fixed
 * tiles of SIDE columns on all threads, so that their number changes no byte.
 *
 *   Cholesky, block column k          inverse, block row i
 *   | L       |   D -= C C^T          | X       |   B := A X      by blocks of columns and slabs of rows, from a copy
 *   | C D     |   D = L L^T           | A L     |                 of A; on one thread in place, columns from the left
 *   | A B     |   B -= A C^T                        B := -L^-1 B  by slabs of columns
 *                 B := B L^-T                       L := L^-1
 *
 * A diagonal block is one thread's work, by LAPACK, and takes long; the others do meanwhile what does not wait for it.
 * It is factored while the rows below it take their products, and inverted while B is multiplied by a copy of L; the
 * first one while block column 1 is made.
 *
 * LAPACK is column-major: our lower triangle is its upper one. */
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/kernel.h"
#include "ops/kernel.h"

#include <string.h>

enum { SIDE = 256, SLAB = 128, ROWS = 16 }; // of a block; rows or columns of a chunk; rows of a chunk that only moves

typedef struct factor_job {
    float *a; // [n, n]
    float *l; // own: [SIDE, SIDE] the diagonal block before it is inverted
    float *row; // own: [SIDE, at] the block row that is multiplied; NULL: in its place
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

static osh_status factor_diagonal(const factor_job *f)
{
    blasint wide = (blasint)f->wide, lda = (blasint)f->n, info = 0;
    osh_blas()->spotrf("U", &wide, elem(f, f->at, f->at), &lda, &info, 1);
    return info ? OSH_E_NUMERIC : OSH_OK;
}

/* L := L^-1 of the diagonal block from row `at` on. */
static osh_status invert_diagonal(const factor_job *f, int64_t at)
{
    blasint wide = (blasint)osh_min64(SIDE, f->n - at), lda = (blasint)f->n, info = 0;
    osh_blas()->strtri("U", "N", &wide, elem(f, at, at), &lda, &info, 1, 1);
    return info ? OSH_E_NUMERIC : OSH_OK;
}

/* What this block column takes from those to its left: chunk 0 the diagonal block, which is factored, too, those from 2
 * on what lies below it. Chunk 1 inverts the first block, from whose rows nothing is taken any more. */
static osh_status update_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const factor_job *f = user;
    int64_t row = f->at + (chunk ? f->wide + (chunk - 2) * SLAB : 0);
    const float *left = elem(f, f->at, 0);

    (void)cx, (void)worker;
    if (!chunk) {
        osh_blas()->ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, (blasint)f->wide, (blasint)f->at, -1, left,
                          (blasint)f->n, 1, elem(f, row, f->at), (blasint)f->n);
        OSH_TRY(factor_diagonal(f));
    } else if (chunk == 1) {
        if (f->at == SIDE) OSH_TRY(invert_diagonal(f, 0));
    } else {
        osh_blas()->sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)osh_min64(SLAB, f->n - row),
                          (blasint)f->wide, (blasint)f->at, -1, elem(f, row, 0), (blasint)f->n, left, (blasint)f->n, 1,
                          elem(f, row, f->at), (blasint)f->n);
    }
done:
    return rc;
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
        if (f->at) OSH_TRY(osh_parallel_for(cx, 2 + slabs, update_chunk, f));
        else OSH_TRY(factor_diagonal(f));
        OSH_TRY(osh_parallel_for(cx, slabs, below_chunk, f));
    }
done:
    return rc;
}

/* Columns [j, j + SIDE) of some rows of A X, from those and the ones to their right, which are still those of A: in
 * `from`, rows ld apart. All blocks but the last one are SIDE wide. */
static void multiply_block(const factor_job *f, int64_t row, int64_t j, osh_mat from)
{
    int64_t next = j + SIDE, rows = osh_min64(SLAB, f->at + f->wide - row);
    osh_blas()->strmm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, (blasint)rows, SIDE, 1,
                      elem(f, j, j), (blasint)f->n, elem(f, row, j), (blasint)f->n);
    if (next >= f->at) return;
    from.p += next;
    osh_gemm_nn((osh_into){elem(f, row, j), f->n, true}, from, (osh_mat){elem(f, next, j), f->n},
                (osh_mnk){rows, SIDE, f->at - next});
}

static osh_status copy_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;

    (void)cx, (void)worker;
    for (int64_t i = chunk * ROWS; i < osh_min64(f->wide, (chunk + 1) * ROWS); i++)
        memcpy(f->row + i * f->at, elem(f, f->at + i, 0), (size_t)f->at * sizeof *f->row);
    return OSH_OK;
}

/* A block of columns, of a slab of rows: those with the longest sums first. */
static osh_status product_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t slabs = osh_div_up(f->wide, SLAB), slab = chunk % slabs * SLAB;

    (void)worker;
    multiply_block(f, f->at + slab, chunk / slabs * SIDE, (osh_mat){f->row + slab * f->at, f->at});
    return osh_check_interrupt(cx); // of 28,672 columns it takes seconds
}

/* A slab of rows in its place. */
static osh_status slab_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const factor_job *f = user;
    int64_t row = f->at + chunk * SLAB;

    (void)worker;
    for (int64_t j = 0; j < f->at; j += SIDE) {
        OSH_TRY(osh_check_interrupt(cx));
        multiply_block(f, row, j, (osh_mat){elem(f, row, 0), f->n});
    }
done:
    return rc;
}

static osh_status multiply_row(osh_ctx *cx, factor_job *f)
{
    osh_status rc = OSH_OK;
    int64_t slabs = osh_div_up(f->wide, SLAB);
    if (!f->row || f->at == SIDE) return osh_parallel_for(cx, slabs, slab_chunk, f);
    OSH_TRY(osh_parallel_for(cx, osh_div_up(f->wide, ROWS), copy_chunk, f));
    OSH_TRY(osh_parallel_for(cx, f->at / SIDE * slabs, product_chunk, f));
done:
    return rc;
}

/* Chunk 0 inverts the block, the others solve by the copy. */
static osh_status solve_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t column = (chunk - 1) * SLAB;

    (void)cx, (void)worker;
    if (!chunk) return invert_diagonal(f, f->at);
    osh_blas()->strsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, (blasint)f->wide, SLAB, -1,
                      f->l, SIDE, elem(f, f->at, column), (blasint)f->n);
    return OSH_OK;
}

/* Of the copy of a block row: where there is a second block to its left. */
static size_t row_bytes(int64_t n, int n_threads)
{
    int64_t last = (osh_div_up(n, SIDE) - 1) * SIDE; // the last block row's columns
    return n_threads > 1 && last > SIDE ? (size_t)(SIDE * last) * sizeof(float) : 0;
}

/* The first of several blocks is inverted by now. */
static osh_status invert(osh_ctx *cx, factor_job *f)
{
    osh_status rc = OSH_OK;

    if (f->n <= SIDE) return invert_diagonal(f, 0);
    if (!(f->l = osh_alloc(cx, (size_t)SIDE * SIDE * sizeof *f->l))) OSH_TRY(OSH_E_NOMEM);
    size_t row = row_bytes(f->n, osh_threads(cx));
    if (row && !(f->row = osh_alloc(cx, row))) OSH_TRY(OSH_E_NOMEM);
    for (f->at = SIDE; f->at < f->n; f->at += SIDE) {
        f->wide = osh_min64(SIDE, f->n - f->at);
        for (int64_t i = 0; i < f->wide; i++)
            memcpy(f->l + i * SIDE, elem(f, f->at + i, f->at), (size_t)(i + 1) * sizeof *f->l);
        OSH_TRY(multiply_row(cx, f));
        OSH_TRY(osh_parallel_for(cx, 1 + f->at / SLAB, solve_chunk, f));
    }
done:
    osh_free(cx, f->row);
    osh_free(cx, f->l);
    return rc;
}

size_t osh_gptq_factor_bytes(int64_t I, int n_threads)
{
    size_t row = row_bytes(I, n_threads);
    return I > SIDE ? osh_mem_gross((size_t)SIDE * SIDE * sizeof(float)) + (row ? osh_mem_gross(row) : 0) : 0;
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
