/* gptq_solve.c - the GPTQ column loop over tiles of rows: inside a block a lane is a row, behind it
 * one sgemm per tile.
 *
 * A tile's block is held transposed, [column][row]. Column j gathers what the columns before it in
 * the block leave to it, w_j + (-err_0 U[0, j]) + (-err_1 U[1, j]) + ..., in the order in which the
 * reference subtracts, so the same bytes come out without storing w_j j times. No fused
 * multiply-add: the reference rounds each product. */
#include "ops/gptq_solve.h"
#include "base/isa.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/vec.h"
#include "ops/kernel.h"

#include <assert.h>

enum { STRIP = 8, STEP = 32 }; // columns of U turned at a time; rows in registers

typedef struct solve_worker { // own: w, tile and loss; the others point behind w
    float *w, *ne, *q;        // [block, rows]: weights, negated errors, quantized values before scaling
    float *scale, *zero;      // [n_scale_cols, rows]
    float *strip;             // [STRIP, block] columns of U
    float *line;              // [I] a row of q, a row of the weight
    float *tile;              // own: [rows, I] the weight, solving order
    double *loss;             // own: [rows]
} solve_worker;

typedef struct solve_job {
    const osh_gptq_solve_args *a;
    solve_worker *workers;
    int64_t rows; // of a tile, a multiple of STEP
} solve_job;

/* x = the nearest E4M3 value, |x| <= 448: 4 significant bits, multiples of 2^-9 below 2^-6. */
OSH_VEC_FN void v8_round_fp8(osh_v8f *x)
{
    osh_v8u u = (osh_v8u)*x, sign = u & 0x80000000u, a = u & 0x7fffffffu;
    osh_v8f r = (osh_v8f)((a + 0x7ffffu + ((a >> 20) & 1)) & 0xfff00000u), magic, s;
    osh_v8i tiny = (osh_v8i)(a < 0x3c800000u);

    v8_set(&magic, 16384.0f);
    s = ((osh_v8f)a + magic) - magic;
    v8_select(&r, &tiny, &s, &r);
    *x = (osh_v8f)((osh_v8u)r | sign);
}

/* Quantizes 8 rows of column `col` of the block: w becomes dq, q and ne are stored. */
OSH_VEC_FN void quantize_8(const osh_gptq_solve_args *a, solve_worker *me, int64_t at, int64_t scale_at, float diag)
{
    osh_v8f w, s, zp, q, d, lo, hi;
    osh_v8i m;

    v8_load(&w, me->w + at);
    v8_load(&s, me->scale + scale_at);
    v8_load(&zp, me->zero + scale_at);
    q = w / s;
    if (!a->fp8) q = q + zp;
    v8_set(&lo, a->fp8 ? -448.0f : -(float)(1 << (a->bits - 1)));
    v8_set(&hi, a->fp8 ? 448.0f : (float)((1 << (a->bits - 1)) - 1));
    m = q < lo, v8_select(&q, &m, &lo, &q);
    m = q > hi, v8_select(&q, &m, &hi, &q);
    if (a->fp8) v8_round_fp8(&q);
    else v8_nearest(&q);
    v8_store(me->q + at, &q);
    d = q - zp;
    v8_round(&d, a->dq_dtype);
    d = d * s;
    v8_round(&d, a->dq_dtype);
    v8_store(me->w + at, &d);
    w = -((w - d) / diag);
    v8_store(me->ne + at, &w);
}

/* Column j of the block: what columns before it leave to it. u [j]: U[0..j, j] of the block. */
OSH_VEC_FN void gather_column(solve_worker *me, const float *u, int64_t j, int64_t rows)
{
    for (int64_t r = 0; r < rows; r += STEP) {
        float *w = me->w + j * rows + r;
        const float *e = me->ne + r;
        osh_v8f a0, a1, a2, a3, e0, e1, e2, e3;
        v8_load(&a0, w), v8_load(&a1, w + 8), v8_load(&a2, w + 16), v8_load(&a3, w + 24);
        for (int64_t i = 0; i < j; i++, e += rows) {
            v8_load(&e0, e), v8_load(&e1, e + 8), v8_load(&e2, e + 16), v8_load(&e3, e + 24);
            a0 = a0 + e0 * u[i];
            a1 = a1 + e1 * u[i];
            a2 = a2 + e2 * u[i];
            a3 = a3 + e3 * u[i];
        }
        v8_store(w, &a0), v8_store(w + 8, &a1), v8_store(w + 16, &a2), v8_store(w + 24, &a3);
    }
}

/* u: the block's corner of U, row stride I; scale_at [n]: scale column of each column. */
OSH_VEC_FN void block_body(const osh_gptq_solve_args *a, solve_worker *me, int64_t i1, int64_t n, int64_t rows)
{
    const float *u = a->u + i1 * a->I + i1;

    for (int64_t j = 0; j < n; j++) {
        int64_t c = j % STRIP;
        if (c == 0) {
            int64_t wide = osh_min64(STRIP, n - j);
            for (int64_t i = 0; i < j + wide; i++)
                for (int64_t k = 0; k < wide; k++) me->strip[k * n + i] = u[i * a->I + j + k];
        }
        gather_column(me, me->strip + c * n, j, rows);
        for (int64_t r = 0; r < rows; r += OSH_LANES)
            quantize_8(a, me, j * rows + r, a->col_scale[i1 + j] * rows + r, me->strip[c * n + j]);
    }
}
OSH_AVX2 static void block_avx2(const osh_gptq_solve_args *a, solve_worker *me, int64_t i1, int64_t n, int64_t rows)
{
    block_body(a, me, i1, n, rows);
}
static void block_base(const osh_gptq_solve_args *a, solve_worker *me, int64_t i1, int64_t n, int64_t rows)
{
    block_body(a, me, i1, n, rows);
}

static void load_scales(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t n, int64_t rows)
{
    for (int64_t c = 0; c < a->n_scale_cols; c++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = (row + osh_min64(r, n - 1)) / a->row_block * a->n_scale_cols +
                         c; // padding repeats the last row
            me->scale[c * rows + r] = a->scale[at];
            me->zero[c * rows + r] = a->zero ? a->zero[at] : 0;
        }
}

/* The tile's rows in f32, columns in solving order. */
static void load_tile(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t n)
{
    for (int64_t r = 0; r < n; r++) {
        float *to = me->tile + r * a->I;
        const void *from = osh_elem(a->w, (row + r) * a->I);
        if (!a->perm && !a->dead) {
            osh_to_f32(to, from, a->w->dtype, a->I);
            continue;
        }
        osh_to_f32(me->line, from, a->w->dtype, a->I);
        for (int64_t i = 0; i < a->I; i++) {
            int64_t c = a->perm ? a->perm[i] : i;
            to[i] = a->dead && a->dead[c] ? 0 : me->line[c];
        }
    }
}

static void load_block(const osh_gptq_solve_args *a, solve_worker *me, int64_t n, int64_t rows, int64_t i1,
                       int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++) me->w[j * rows + r] = r < n ? me->tile[r * a->I + i1 + j] : 0;
}

static void store_codes(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t i1, int64_t cols)
{
    int8_t bytes[256], *to = a->codes + row * a->I;
    for (int64_t at = 0; at < cols; at += (int64_t)sizeof bytes) {
        int64_t n = osh_min64((int64_t)sizeof bytes, cols - at);
        if (a->fp8) osh_from_f32(bytes, OSH_FP8, me->line + at, n);
        else
            for (int64_t j = 0; j < n; j++) bytes[j] = (int8_t)me->line[at + j];
        for (int64_t j = 0; j < n; j++) to[a->perm ? a->perm[i1 + at + j] : i1 + at + j] = bytes[j];
    }
}

static void store_block(const osh_gptq_solve_args *a, solve_worker *me, int64_t row, int64_t n,
                        int64_t rows, int64_t i1, int64_t cols)
{
    for (int64_t r = 0; r < n; r++) {
        double loss = 0;
        for (int64_t j = 0; j < cols; j++) {
            float e = me->ne[j * rows + r];
            me->line[j] = me->q[j * rows + r];
            loss += (double)e * e / 2;
        }
        me->loss[r] += loss;
        store_codes(a, me, row + r, i1, cols);
        for (int64_t j = 0; a->dq && j < cols; j++) a->dq[(row + r) * a->I + i1 + j] = me->w[j * rows + r];
    }
}

static osh_status solve_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const solve_job *job = user;
    const osh_gptq_solve_args *a = job->a;
    solve_worker *me = &job->workers[worker];
    int64_t rows = job->rows, row = chunk * rows, n = osh_min64(rows, a->O - row);

    (void)cx;
    load_scales(a, me, row, n, rows);
    load_tile(a, me, row, n);
    memset(me->loss, 0, (size_t)rows * sizeof *me->loss);
    for (int64_t i1 = 0; i1 < a->I; i1 += a->block_size) {
        int64_t cols = osh_min64(a->block_size, a->I - i1), i2 = i1 + cols;
        load_block(a, me, n, rows, i1, cols);
        if (osh_isa_used() >= OSH_ISA_AVX2) block_avx2(a, me, i1, cols, rows);
        else block_base(a, me, i1, cols, rows);
        store_block(a, me, row, n, rows, i1, cols);
        if (i2 < a->I)
            osh_gemm_tn(me->tile + i2, a->I, (osh_mat){me->ne, rows}, (osh_mat){a->u + i1 * a->I + i2, a->I}, n,
                        a->I - i2, cols, 1);
    }
    memcpy(a->loss + row, me->loss, (size_t)n * sizeof *me->loss);
    return OSH_OK;
}

static int64_t tile_rows(int64_t O) { return O < 1024 ? 64 : 128; } // by shape alone

/* Floats behind worker.w, apart from the tile. */
static int64_t block_floats(int64_t I, int64_t n_scale_cols, int64_t block_size, int64_t rows)
{
    int64_t block = osh_min64(block_size, I);
    return (3 * block + 2 * n_scale_cols) * rows + STRIP * block + I;
}

static osh_status worker_open(osh_ctx *cx, solve_worker *w, const osh_gptq_solve_args *a, int64_t rows)
{
    osh_status rc = OSH_OK;
    int64_t block = osh_min64(a->block_size, a->I);

    OSH_NEW(cx, w->loss, rows);
    OSH_NEW(cx, w->w, block_floats(a->I, a->n_scale_cols, a->block_size, rows));
    w->ne = w->w + block * rows;
    w->q = w->ne + block * rows;
    w->scale = w->q + block * rows;
    w->zero = w->scale + a->n_scale_cols * rows;
    w->strip = w->zero + a->n_scale_cols * rows;
    w->line = w->strip + STRIP * block;
    w->tile = osh_alloc(cx, (size_t)(osh_min64(rows, a->O) * a->I) * sizeof *w->tile);
    if (!w->tile) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

osh_status osh_gptq_solve(osh_ctx *cx, const osh_gptq_solve_args *a)
{
    osh_status rc = OSH_OK;
    solve_job j = {.a = a, .rows = tile_rows(a->O)};

    assert(!a->w->device && !a->w_out && !a->squares);
    OSH_TRY(osh_blas_open(cx));
    OSH_NEW(cx, j.workers, osh_threads(cx));
    for (int i = 0; i < osh_threads(cx); i++) OSH_TRY(worker_open(cx, &j.workers[i], a, j.rows));
    OSH_TRY(osh_parallel_for(cx, osh_div_up(a->O, j.rows), solve_chunk, &j));
done:
    for (int i = 0; j.workers && i < osh_threads(cx); i++) {
        osh_free(cx, j.workers[i].w);
        osh_free(cx, j.workers[i].tile);
        osh_free(cx, j.workers[i].loss);
    }
    osh_free(cx, j.workers);
    return rc;
}

size_t osh_gptq_solve_bytes(int64_t O, int64_t I, int64_t n_scale_cols, int64_t block_size, int n_threads)
{
    int64_t rows = tile_rows(O), floats = block_floats(I, n_scale_cols, block_size, rows) + osh_min64(rows, O) * I;
    return (size_t)n_threads * (osh_mem_gross((size_t)floats * sizeof(float)) + osh_mem_gross(0) +
                                osh_mem_gross((size_t)rows * sizeof(double)) + sizeof(solve_worker)) +
           osh_mem_gross(0);
}
