/* gptq_solve.h - runs the GPTQ column loop over one weight (gptq_quantize.py of LLM Compressor).
 * For each column i: q = quant(w / s), err = (w - dq) / U[i,i], W[:, i:] -= err U[i, i:]. Columns
 * after a block of block_size columns are updated once, after the block. */
#ifndef OSH_GPTQ_SOLVE_H
#define OSH_GPTQ_SOLVE_H
#include "ops/op.h"

typedef struct osh_gptq_solve_args {
    const osh_tensor *w;  // [O, I] in file order, stored dtype
    const osh_tensor *target; // [O, I] F32 on w's device: the weight to approximate; NULL: w itself
    const int32_t *perm;  // [I] column at each position of the solving order; NULL: file order
    const bool *dead;     // [I] by column: true: its weights count as 0; NULL: no dead columns
    int8_t *codes;        // [O, I] output, file order (int: signed code; fp8: its bits)
    float *dq;            // [O, I] output, solving order: the dequantized weight; NULL: not
                          // computed
    /* [I, I] f32 upper factor of H^-1, row-major, solving order. osh_gptq_solve needs its transpose
     * below the diagonal (osh_gptq_mirror). */
    const float *u;
    const float *scale;   // [rows, n_scale_cols] f32 values of the stored (rounded) scale
    const float *zero;    // like scale; NULL: symmetric
    const int32_t *col_scale; // [I] scale column of each column, in solving order
    int64_t O, I, n_scale_cols;
    // Rows that share a row of scales: 1 (channel, group), O (tensor), block height (block).
    int64_t row_block;
    int64_t block_size;
    int bits;             // int: qmin = -2^(bits-1); floating type: 8 or 4
    bool fp8;             // true: a floating type
    osh_dtype dq_dtype;   // q - zp and its product with the scale are rounded to this dtype
    double *loss;         // [O] output: sum over columns of err^2 / 2
    // true: a weight that is 0 gets the code of 0, whatever errors reach it (not on a device)
    bool keep_zeros;
    /* Computes only the loss of rounding to nearest, and only for the rows of osh_gptq_judges;
     * writes nothing for other rows (not on a device). */
    bool nearest;
    /* ---- only if w is on a device; NULL: not computed ---- */
    // [O, I] output on the device, file order, dtype of w: the dequantized weight. May be w.
    osh_tensor *w_out;
    double *squares;      // [2] output: |w - w_out|^2 and |w|^2
    bool packed;          // codes are [O, words] u32 output, with rows packed as in
                          // quant/formats/pack.c
} osh_gptq_solve_args;
/* The loss of rounding to nearest is computed for some rows only, because it needs as much time as
 * the column loop of these rows. Of 768 rows, 64 are judged: rows 0, 12, 24 ..., so that every
 * attention head has judged rows. */
enum { OSH_GPTQ_JUDGED = 64 };
static inline int64_t osh_gptq_judge_step(int64_t O)
{
    return O < OSH_GPTQ_JUDGED ? 1 : O / OSH_GPTQ_JUDGED;
}
static inline bool osh_gptq_judges(int64_t O, int64_t row)
{
    return row % osh_gptq_judge_step(O) == 0;
}
/* Solves fixed tiles of rows on all threads. Each thread has one tile of the weight in f32. Needs
 * the transpose in u. */
osh_status osh_gptq_solve(osh_ctx *cx, const osh_gptq_solve_args *a);
osh_status osh_gptq_solve_ref(osh_ctx *cx, const osh_gptq_solve_args *a); // the reference: plain
                                                                          // loops
/* Returns the bytes of scratch. */
size_t osh_gptq_solve_bytes(int64_t O, int64_t I, int64_t n_scale_cols, int64_t block_size,
                            int n_threads);
size_t osh_gptq_factor_bytes(int64_t I, int n_threads); // returns the scratch of the op gptq_factor
                                                        // on the CPU

/* Makes H [I, I] symmetric from its lower triangle and orders rows and columns by perm (NULL: no
 * change), in place. If the op gptq_factor fails, it has overwritten the lower triangle, but no
 * element above the diagonal: osh_gptq_restore then makes the lower triangle again from the
 * elements above the diagonal, with diag [I] on the diagonal. In gptq_permute.c. */
osh_status osh_gptq_permute(osh_ctx *cx, float *h, int64_t I, const int32_t *perm);
osh_status osh_gptq_restore(osh_ctx *cx, float *h, int64_t I, const float *diag);
size_t osh_gptq_permute_bytes(int64_t I, int n_threads); // returns the bytes of scratch
/* Copies the transpose of the upper triangle of u [I, I] below the diagonal. */
osh_status osh_gptq_mirror(osh_ctx *cx, float *u, int64_t I);
#endif
