/* gptq_refine.cuh - declares osh_cu_tile, and functions that do the steps of solver/gptq_refine.h
 * on a tile. A tile contains some rows of a weight on a GPU. */
#ifndef OSH_GPTQ_REFINE_CUH
#define OSH_GPTQ_REFINE_CUH
#include "ops/cuda/grid.cuh"
extern "C" {
#include "solver/gptq_refine.h"
}

/* Does the work of osh_scale_round on a GPU: returns the scale nearest to s that the rule can
 * store. */
template <class T> __device__ inline float osh_cu_stored(const osh_scale_rule &r, float s)
{
    if (!(s > 0)) return 0;
    if (r.kind == OSH_SCALE_PLAIN) return osh_cu_round<T>(s);
    if (r.kind == OSH_SCALE_E8M0) {
        float power = __uint_as_float((__float_as_uint(s) + 0x400000u) & 0xff800000u);
        return fminf(fmaxf(power, osh_power_least(r.dtype)), osh_power_most(r.dtype));
    }
    const osh_grid e4m3 = osh_scale_e4m3();
    return __fdiv_rn(osh_cu_on_grid(e4m3, fminf(fmaxf(__fmul_rn(s, r.global), e4m3.lo), e4m3.hi)),
                     r.global);
}

/* Arguments of the search for scales (gptq_scales.cu). All arrays are in GPU memory. */
typedef struct osh_cu_search {
    const void *w; // the weight; element (row, col) is at index row * row_step + col * col_step
    /* For each column, the factor of its squared errors in the loss, [I]; NULL: 1. */
    const float *weight;
    const bool *dead;      // true for columns whose input is always 0, [I]; NULL: there are none
    int64_t O, I, group, row_block, across; // across: number of groups of a row
    int64_t row_step, col_step;
    osh_scale_rule rule;
    /* Outputs: scales and zero points, [scale rows, across]. `zero` is NULL if the quantization is
     * symmetric. */
    float *scale, *zero;
} osh_cu_search;
osh_status osh_cuda_search(osh_ctx *cx, osh_device *d, const osh_cu_search *a, osh_dtype stored);

/* A tile: rows [row, row + n) of a weight. All arrays are in GPU memory. */
typedef struct osh_cu_tile {
    /* `group`: number of columns that share a scale.
     * `groups`: number of scales of a row. */
    int64_t row, n, I, group, groups, row_block;
    osh_scale_rule rule;
    const void *w;          // [O, I]
    osh_dtype stored;       // dtype of w
    const bool *dead;       // true for columns whose input is always 0, [I]; NULL: there are none
    const float *h;         // [I, I]
    const float *values;    // value of the grid for each code, [256]
    /* Each array is [n, I].
     * q: proposed codes, as values of the grid.
     * d: w^ - w.
     * g: (w^ - w) H of the accepted codes and scales.
     * next: (w^ - w) H of the proposed codes and scales. */
    float *q, *d, *g, *next;
    float *scale, *zero;    // proposed scales and zero points, [n, groups]
    float *kept_scale, *kept_zero; // accepted scales and zero points, [n, groups]
    int8_t *codes;          // accepted codes, [n, I]
    /* Loss of each row, [n] each.
     * loss: with the accepted codes and scales.
     * now: with the proposed codes and scales. */
    double *loss, *now;
    /* Normal equations A x = b for the scales of each row: matrix A and vector b, [window (window +
     * 1), n]. osh_cuda_rescale uses `fit` as scratch. */
    double *fit;
    float *room;            // scratch of osh_cuda_rescale
    /* turned: scratch for a transposed group, [n_cols, n]; err: changes of w^, [n, n_cols]. */
    float *turned, *err;
    int64_t n_cols;         // number of columns of the current group (rescale) or block (descend)
} osh_cu_tile;

osh_status osh_cuda_rescale(osh_ctx *cx, osh_device *d, const osh_cu_tile *t,
                            const osh_group_factors *f);
osh_status osh_cuda_descend(osh_ctx *cx, osh_device *d, const osh_cu_tile *t);
/* Each row has normal equations A x = b for the scales of the groups [g0, g0 + n). Writes A and b
 * of each row to t->fit. If `band` > 1, each `band` consecutive rows share scales. The first of
 * these rows then gets the sums over all of them. Overwrites t->d and t->next. */
osh_status osh_cuda_fit_sums(osh_ctx *cx, osh_device *d, const osh_cu_tile *t, int64_t g0,
                             int64_t n, int64_t band);
osh_status osh_cuda_fit_scales(osh_ctx *cx, osh_device *d, const osh_cu_tile *t);
/* Computes t->d = w^ - w, and then g [n, I] = t->d H. */
osh_status osh_cuda_pull(osh_ctx *cx, osh_device *d, const osh_cu_tile *t, float *g);
/* Arguments of the product y [n, n_cols] = x [n, n_rows] m [n_rows, n_cols]. If `add` is true, the
 * product is added to y. */
typedef struct osh_cuda_rows_args {
    float *y;
    int64_t ldy;
    const float *x;
    int64_t ldx;
    const float *m;
    int64_t ldm, n, n_cols, n_rows;
    bool add;
} osh_cuda_rows_args;
osh_status osh_cuda_rows(osh_ctx *cx, osh_device *d, const osh_cuda_rows_args &r);
#endif
