/* gptq_factor.c - computes U of ops/gptq_factor.c in place of H, in four steps. They reverse rows
 * and columns, compute the Cholesky factor, invert this factor, and reverse rows and columns
 * again. Each step cuts the matrix into fixed blocks of SIDE columns for all threads, so the bytes
 * do not depend on the number of threads.
 *
 *   Cholesky, block column k          inverse, block row i
 *   | L       |   D -= C C^T          | X       |   B := A X      B overwrites A
 *   | C D     |   D = L L^T           | A L     |   B := -L^-1 B
 *   | A B     |   B -= A C^T                        L := L^-1
 *                 B := B L^-T
 *
 * A X is computed in blocks of columns and slabs of rows. Several threads read a copy of A. One
 * thread needs no copy, because it computes the blocks of columns from left to right.
 *
 * LAPACK factors and inverts a diagonal block on one thread, which takes long. Meanwhile, the other
 * threads compute products that do not need this block. While one thread factors D, the others
 * compute B -= A C^T. While one thread inverts L, the others compute -L^-1 B with a copy of L. The
 * first diagonal block is inverted while block column 1 is updated.
 *
 * LAPACK is column-major. So LAPACK sees the row-major lower triangle as an upper triangle. */
#include "math/blas.h"
#include "ops/cpu/cpu.h"
#include "math/gemm.h"
#include "ops/kernel.h"

#include <string.h>

/* SIDE: number of rows and of columns of a block.
 * SLAB: number of rows or columns in a chunk of parallel work, for matrix products.
 * ROWS: number of rows in a chunk of parallel work, for steps that only copy or check elements. */
enum { SIDE = 256, SLAB = 128, ROWS = 16 };

typedef struct factor_job {
    float *a; // the matrix [n, n]; view
    float *l; // own [SIDE, SIDE]: copy of the diagonal block before its inversion
    /* Copy of the block row A of the drawing above, [SIDE, at]. The product A X reads it. NULL: A X
     * is computed in place. */
    float *row; // own
    /* at: index of the first row and column of the current diagonal block.
     * wide: number of rows of this block. */
    int64_t n, at, wide;
} factor_job;

static float *factor_elem(const factor_job *f, int64_t row, int64_t column)
{
    return f->a + row * f->n + column;
}

/* Computes J H J in place for a symmetric H, where J reverses the order of the rows. Only the lower
 * triangle of H is stored, so the function swaps elements (i, j) and (n-1-j, n-1-i). */
static osh_status factor_flip_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t n = f->n;

    (void)cx, (void)worker;
    // works on blocks of ROWS x ROWS elements, whose cache lines stay in the cache
    for (int64_t first = 0; first < n; first += ROWS)
        for (int64_t i = chunk * ROWS; i < osh_min64(n, (chunk + 1) * ROWS); i++) {
            int64_t end = osh_min64(first + ROWS, osh_min64(i + 1, n - 1 - i));
            for (int64_t j = first; j < end; j++) {
                float *p = factor_elem(f, i, j), *q = factor_elem(f, n - 1 - j, n - 1 - i), t = *p;
                *p = *q;
                *q = t;
            }
        }
    return OSH_OK;
}

/* Reverses rows and columns. Moves element (i, j) of the lower triangle to (n-1-i, n-1-j) in the
 * upper triangle. Sets the lower triangle to 0. */
static osh_status factor_turn_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t n = f->n;

    (void)cx, (void)worker;
    for (int64_t i = chunk * ROWS; i < osh_min64(n, (chunk + 1) * ROWS); i++) {
        float *row = factor_elem(f, i, 0), *mirror = factor_elem(f, n - 1 - i, n - 1 - i);
        for (int64_t j = 0; j < i; j++) mirror[i - j] = row[j], row[j] = 0;
        if (i <= n - 1 - i) continue;
        // the diagonal elements i and n - 1 - i are swapped only once: for the larger i
        float t = row[i];
        row[i] = *mirror;
        *mirror = t;
    }
    return OSH_OK;
}

/* Fails with OSH_E_NUMERIC if an element of the lower triangle is not finite. */
static osh_status factor_finite_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;

    (void)cx, (void)worker;
    for (int64_t i = chunk * ROWS; i < osh_min64(f->n, (chunk + 1) * ROWS); i++)
        if (osh_find_nonfinite(factor_elem(f, i, 0), OSH_F32, i + 1) >= 0) return OSH_E_NUMERIC;
    return OSH_OK;
}

static osh_status factor_diagonal(const factor_job *f)
{
    blasint wide = (blasint)f->wide, lda = (blasint)f->n, info = 0;
    osh_blas()->spotrf("U", &wide, factor_elem(f, f->at, f->at), &lda, &info, 1);
    return info ? OSH_E_NUMERIC : OSH_OK;
}

/* Inverts the triangular diagonal block whose first row is `at`, in place: L becomes L^-1. */
static osh_status invert_diagonal(const factor_job *f, int64_t at)
{
    blasint wide = (blasint)osh_min64(SIDE, f->n - at), lda = (blasint)f->n, info = 0;
    osh_blas()->strtri("U", "N", &wide, factor_elem(f, at, at), &lda, &info, 1, 1);
    return info ? OSH_E_NUMERIC : OSH_OK;
}

/* Updates the block column at f->at: subtracts the products with all columns to the left (A C^T).
 * Chunk 0 updates the diagonal block and then factors it.
 * If f->at is SIDE, chunk 1 inverts the first diagonal block, which no later step of the
 * factorization reads.
 * Each other chunk updates some rows below the diagonal block. */
static osh_status factor_update_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const factor_job *f = user;
    int64_t row = f->at + (chunk ? f->wide + (chunk - 2) * SLAB : 0);
    const float *left = factor_elem(f, f->at, 0);

    (void)cx, (void)worker;
    if (!chunk) {
        osh_blas()->ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, (blasint)f->wide, (blasint)f->at,
                          -1, left, (blasint)f->n, 1, factor_elem(f, row, f->at), (blasint)f->n);
        OSH_TRY(factor_diagonal(f));
    } else if (chunk == 1) {
        if (f->at == SIDE) OSH_TRY(invert_diagonal(f, 0));
    } else {
        osh_blas()->sgemm(CblasRowMajor, CblasNoTrans, CblasTrans,
                          (blasint)osh_min64(SLAB, f->n - row), (blasint)f->wide, (blasint)f->at,
                          -1, factor_elem(f, row, 0), (blasint)f->n, left, (blasint)f->n, 1,
                          factor_elem(f, row, f->at), (blasint)f->n);
    }
done:
    return rc;
}

static osh_status factor_below_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t row = f->at + f->wide + chunk * SLAB;

    (void)cx, (void)worker;
    osh_blas()->strsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit,
                      (blasint)osh_min64(SLAB, f->n - row), (blasint)f->wide, 1,
                      factor_elem(f, f->at, f->at), (blasint)f->n, factor_elem(f, row, f->at),
                      (blasint)f->n);
    return OSH_OK;
}

static osh_status factor_cholesky(osh_ctx *cx, factor_job *f)
{
    osh_status rc = OSH_OK;

    for (f->at = 0; f->at < f->n; f->at += SIDE) {
        f->wide = osh_min64(SIDE, f->n - f->at);
        int64_t slabs = osh_div_up(f->n - f->at - f->wide, SLAB);
        if (f->at) OSH_TRY(osh_parallel_for(cx, 2 + slabs, factor_update_chunk, f));
        else OSH_TRY(factor_diagonal(f));
        OSH_TRY(osh_parallel_for(cx, slabs, factor_below_chunk, f));
    }
done:
    return rc;
}

/* Computes columns [j, j + SIDE) of A X for SLAB rows, from row `row` on. Reads columns [j, j +
 * SIDE) of A in place, and the later columns from the array `from`. Only the last block of columns
 * may have fewer than SIDE columns. */
static void multiply_block(const factor_job *f, int64_t row, int64_t j, osh_mat from)
{
    int64_t next = j + SIDE, rows = osh_min64(SLAB, f->at + f->wide - row);
    osh_blas()->strmm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit,
                      (blasint)rows, SIDE, 1, factor_elem(f, j, j), (blasint)f->n,
                      factor_elem(f, row, j), (blasint)f->n);
    if (next >= f->at) return;
    from.p += next;
    osh_gemm_nn((osh_into){factor_elem(f, row, j), f->n, true}, from,
                (osh_mat){factor_elem(f, next, j), f->n}, (osh_mnk){rows, SIDE, f->at - next});
}

static osh_status factor_copy_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;

    (void)cx, (void)worker;
    for (int64_t i = chunk * ROWS; i < osh_min64(f->wide, (chunk + 1) * ROWS); i++)
        memcpy(f->row + i * f->at, factor_elem(f, f->at + i, 0), (size_t)f->at * sizeof *f->row);
    return OSH_OK;
}

/* Computes A X for one block of columns and one slab of rows. Reads the copy of A. The chunks with
 * the longest sums are started first. */
static osh_status factor_product_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t slabs = osh_div_up(f->wide, SLAB), slab = chunk % slabs * SLAB;

    (void)worker;
    multiply_block(f, f->at + slab, chunk / slabs * SIDE, (osh_mat){f->row + slab * f->at, f->at});
    // with 28,672 columns a chunk takes seconds, so each chunk checks for an interrupt
    return osh_check_interrupt(cx);
}

/* Computes A X for one slab of rows in place. Computes one block of columns after the other, from
 * left to right. */
static osh_status factor_slab_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const factor_job *f = user;
    int64_t row = f->at + chunk * SLAB;

    (void)worker;
    for (int64_t j = 0; j < f->at; j += SIDE) {
        OSH_TRY(osh_check_interrupt(cx));
        multiply_block(f, row, j, (osh_mat){factor_elem(f, row, 0), f->n});
    }
done:
    return rc;
}

static osh_status multiply_row(osh_ctx *cx, factor_job *f)
{
    osh_status rc = OSH_OK;
    int64_t slabs = osh_div_up(f->wide, SLAB);
    if (!f->row || f->at == SIDE) return osh_parallel_for(cx, slabs, factor_slab_chunk, f);
    OSH_TRY(osh_parallel_for(cx, osh_div_up(f->wide, ROWS), factor_copy_chunk, f));
    OSH_TRY(osh_parallel_for(cx, f->at / SIDE * slabs, factor_product_chunk, f));
done:
    return rc;
}

/* Chunk 0 inverts the diagonal block L in place. Each other chunk computes B := -L^-1 B for SLAB
 * columns, with f->l, the copy of L. */
static osh_status factor_solve_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const factor_job *f = user;
    int64_t column = (chunk - 1) * SLAB;

    (void)cx, (void)worker;
    if (!chunk) return invert_diagonal(f, f->at);
    osh_blas()->strsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit,
                      (blasint)f->wide, SLAB, -1, f->l, SIDE, factor_elem(f, f->at, column),
                      (blasint)f->n);
    return OSH_OK;
}

/* Returns the size of f->row, the copy of a block row, in bytes. Returns 0 with one thread or with
 * fewer than three blocks, because A X is then computed in place. */
static size_t factor_row_bytes(int64_t n, int n_threads)
{
    int64_t last = (osh_div_up(n, SIDE) - 1) * SIDE; // index of the first column of the last block
    return n_threads > 1 && last > SIDE ? (size_t)(SIDE * last) * sizeof(float) : 0;
}

/* Inverts the lower triangle of the matrix in place. If there is more than one diagonal block,
 * factor_cholesky has inverted the first block already. */
static osh_status factor_invert(osh_ctx *cx, factor_job *f)
{
    osh_status rc = OSH_OK;

    if (f->n <= SIDE) return invert_diagonal(f, 0);
    if (!(f->l = osh_alloc(cx, (size_t)SIDE * SIDE * sizeof *f->l))) OSH_TRY(OSH_E_NOMEM);
    size_t row = factor_row_bytes(f->n, osh_threads(cx));
    if (row && !(f->row = osh_alloc(cx, row))) OSH_TRY(OSH_E_NOMEM);
    for (f->at = SIDE; f->at < f->n; f->at += SIDE) {
        f->wide = osh_min64(SIDE, f->n - f->at);
        for (int64_t i = 0; i < f->wide; i++)
            memcpy(f->l + i * SIDE, factor_elem(f, f->at + i, f->at),
                   (size_t)(i + 1) * sizeof *f->l);
        OSH_TRY(multiply_row(cx, f));
        OSH_TRY(osh_parallel_for(cx, 1 + f->at / SLAB, factor_solve_chunk, f));
    }
done:
    osh_free(cx, f->row);
    osh_free(cx, f->l);
    return rc;
}

size_t osh_gptq_factor_bytes(int64_t I, int n_threads)
{
    size_t row = factor_row_bytes(I, n_threads);
    return I > SIDE
               ? osh_mem_gross((size_t)SIDE * SIDE * sizeof(float)) + (row ? osh_mem_gross(row) : 0)
               : 0;
}

osh_status osh_gptq_factor_cpu(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    factor_job f = {.a = a->out[0]->data, .n = a->out[0]->shape[0]};
    int64_t moves = osh_div_up(f.n, ROWS);

    OSH_TRY(osh_blas_open(cx));
    OSH_TRY(osh_parallel_for(cx, moves, factor_flip_chunk, &f));
    OSH_TRY(factor_cholesky(cx, &f));
    OSH_TRY(factor_invert(cx, &f));
    /* A failure must leave the upper triangle unchanged for the caller. So this check comes before
     * factor_turn_chunk, which overwrites the upper triangle. */
    OSH_TRY(osh_parallel_for(cx, moves, factor_finite_chunk, &f));
    OSH_TRY(osh_parallel_for(cx, moves, factor_turn_chunk, &f));
done:
    return rc;
}
