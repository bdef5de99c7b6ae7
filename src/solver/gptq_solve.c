/* gptq_solve.c - runs the GPTQ column loop in plain loops, row by row of the weight.
 *
 *   q     = clamp(round(w / s + zp), qmin, qmax); q = zp for a 0 that keep_zeros keeps
 *   dq    = round(round(q - zp) s), in the dtype of the scale
 *   err   = (w - dq) / U[i, i]
 *   w[j] -= err U[i, j]                     for the later columns j of the block
 *   w[j] -= sum over i of err[i] U[i, j]    after a block of columns [i1, i2), for j >= i2
 *
 * All arithmetic is f32, and each product is rounded before it is subtracted. The results equal
 * those of llmcompressor's quantize_weight and gptq_block_update (eager), except for the sum after
 * a block: llmcompressor computes an f32 matrix product, and this file computes the sum in
 * double. */
#include "solver/gptq_solve.h"
#include "math/grid.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

static float solve_quantize(const osh_gptq_solve_args *a, float w, float s, float zp)
{
    float q = w / s, lo = -(float)(1 << (a->bits - 1)), hi = (float)((1 << (a->bits - 1)) - 1);
    osh_grid g = osh_grid_of(a->bits, a->fp8);

    if (a->fp8) return osh_grid_nearest(&g, fminf(fmaxf(q, g.lo), g.hi));
    q += zp;
    return nearbyintf(fminf(fmaxf(q, lo), hi));
}

/* Loads one row of the weight into two arrays. `line` [I] has the columns as in the checkpoint. `w`
 * [I] has the columns in solving order, with 0 in dead columns (the input is always 0). */
static void solve_load_row(const osh_gptq_solve_args *a, int64_t row, float *line, float *w)
{
    const osh_tensor *from = a->target ? a->target : a->w;
    osh_to_f32(line, osh_elem(from, row * a->I), from->dtype, a->I);
    for (int64_t i = 0; i < a->I; i++) {
        int64_t c = a->perm ? a->perm[i] : i;
        w[i] = a->dead && a->dead[c] ? 0 : line[c];
    }
}

static float solve_dequantize(const osh_gptq_solve_args *a, float q, float s, float zp)
{
    return osh_round_to(osh_round_to(q - zp, a->dq_dtype) * s, a->dq_dtype);
}

/* On entry, w [I] is one row. Replaces it by d, the errors of rounding the row to nearest. The
 * caller then runs the column loop on d and sets all codes to 0. The errors of the loop are
 *
 *   e = d U^-1     with U^T U = H^-1
 *
 * So the sum of e^2 is d H d^T, the loss of rounding to nearest. */
static void solve_leave_rest(const osh_gptq_solve_args *a, int64_t row, float *w)
{
    int64_t scale_row = row / a->row_block * a->n_scale_cols;
    for (int64_t i = 0; i < a->I; i++) {
        float s = a->scale[scale_row + a->col_scale[i]],
              zp = a->zero ? a->zero[scale_row + a->col_scale[i]] : 0;
        w[i] -= solve_dequantize(a, solve_quantize(a, w[i], s, zp), s, zp);
    }
}

/* Solves one row of the weight.
 * line [I]: the row with columns as in the checkpoint.
 * w [I]: on entry the row with columns in solving order, on return the dequantized row.
 * err [I]: scratch. */
static void solve_row(const osh_gptq_solve_args *a, int64_t row, const float *line, float *err,
                      float *w)
{
    int64_t scale_row = row / a->row_block * a->n_scale_cols;

    a->loss[row] = 0;
    if (a->nearest) solve_leave_rest(a, row, w);
    for (int64_t i1 = 0; i1 < a->I; i1 += a->block_size) {
        int64_t i2 = osh_min64(i1 + a->block_size, a->I);
        for (int64_t i = i1; i < i2; i++) {
            const float *u = a->u + i * a->I;
            float s = a->scale[scale_row + a->col_scale[i]],
                  zp = a->zero ? a->zero[scale_row + a->col_scale[i]] : 0;
            bool zero = a->keep_zeros && line[a->perm ? a->perm[i] : i] == 0;
            float q = zero ? zp : solve_quantize(a, w[i], s, zp);
            float dq = a->nearest ? 0 : solve_dequantize(a, q, s, zp);
            int64_t at = row * a->I + (a->perm ? a->perm[i] : i);
            osh_grid g = osh_grid_of(a->bits, a->fp8);
            if (!a->nearest) a->codes[at] = osh_grid_code(&g, q);
            err[i] = (w[i] - dq) / u[i];
            a->loss[row] += (double)err[i] * err[i] / 2;
            w[i] = dq;
            for (int64_t j = i + 1; j < i2; j++) w[j] -= err[i] * u[j];
        }
        for (int64_t j = i2; j < a->I; j++) {
            double sum = 0;
            for (int64_t i = i1; i < i2; i++) sum += (double)err[i] * a->u[i * a->I + j];
            w[j] = (float)(w[j] - sum);
        }
    }
}

osh_status osh_gptq_solve_ref(osh_ctx *cx, const osh_gptq_solve_args *a)
{
    osh_status rc = OSH_OK;
    /* [3, I], own. Row 0: errors. Row 1: one row of the weight, with columns in the order of the
     * checkpoint. Row 2: the same row, with columns in solving order. */
    float *err = NULL;

    OSH_NEW(cx, err, 3 * a->I);
    for (int64_t row = 0; row < a->O; row++) {
        float *w = err + 2 * a->I;
        if (a->nearest && !osh_gptq_judges(a->O, row)) continue;
        solve_load_row(a, row, err + a->I, w);
        solve_row(a, row, err + a->I, err, w);
        if (a->dq) memcpy(a->dq + row * a->I, w, (size_t)a->I * sizeof *w);
    }
done:
    osh_free(cx, err);
    return rc;
}
