/* gptq_solve.h - the GPTQ column loop over one weight (gptq_quantize.py of LLM Compressor): per column
 * q = quant(w / s), err = (w - dq) / U[i,i], W[:, i:] -= err U[i, i:], lazily per block of block_size columns. */
#ifndef OSH_GPTQ_SOLVE_H
#define OSH_GPTQ_SOLVE_H
#include "ops/op.h"

typedef struct osh_gptq_solve_args {
    float *w;            // [O, I] f32, columns already in solving order; changed: becomes the dequantized weight
    int8_t *codes;       // [O, I] out, solving order (int: signed code; fp8: the byte)
    const float *u;      // [I, I] f32 upper factor of H^-1, row-major, solving order
    const float *scale;  // [rows, n_scale_cols] f32 values of the stored (rounded) scale
    const float *zero;   // like scale, or NULL where symmetric
    const int32_t *col_scale; // [I] scale column of each solving-order column
    int64_t O, I, n_scale_cols;
    int64_t row_block;   // rows that share a scale row: 1 (channel, group), O (tensor), block height (block)
    int64_t block_size;
    int bits;            // int: qmin = -2^(bits-1); 8 with fp8
    bool fp8;
    osh_dtype dq_dtype;  // (q - zp) and its product with the scale are rounded to this dtype before the error is formed
    double *loss;        // [O] out: sum over columns of err^2 / 2
} osh_gptq_solve_args;
osh_status osh_gptq_solve(osh_ctx *cx, const osh_gptq_solve_args *a);     // fast, threads over fixed row tiles
osh_status osh_gptq_solve_ref(osh_ctx *cx, const osh_gptq_solve_args *a); // plain loops

/* Row-major products for the rest of the program, single-threaded OpenBLAS on fixed tiles:
 * C[m,n] (+)= A[m,k] B[n,k]^T */
osh_status osh_sgemm_nt(osh_ctx *cx, float *c, const float *a, const float *b, int64_t m, int64_t n,
                        int64_t k, bool accumulate);
#endif
