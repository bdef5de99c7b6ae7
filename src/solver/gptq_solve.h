/* gptq_solve.h - runs the GPTQ column loop over one weight (gptq_quantize.py of LLM Compressor).
 * For each column i: q = quant(w / s), err = (w - dq) / U[i,i], W[:, i:] -= err U[i, i:]. Columns
 * inside a block of block_size columns are updated after each column; columns after the block are
 * updated once, after the block. */
#ifndef OSH_GPTQ_SOLVE_H
#define OSH_GPTQ_SOLVE_H
#include "ops/op.h"

typedef struct osh_gptq_solve_args {
    /* The weight [O, I], columns as in the checkpoint, in the dtype in which it is stored. */
    const osh_tensor *w;
    /* Weight to approximate, [O, I], F32, on the device of w; NULL: w itself. */
    const osh_tensor *target;
    /* perm[k]: index of the column that is solved as the k-th, [I]; NULL: columns are solved in the
     * order of the checkpoint. */
    const int32_t *perm;
    /* True for dead columns (the input is always 0; their weights count as 0), [I]; NULL: no dead
     * columns. */
    const bool *dead;
    /* Output: codes [O, I], columns as in the checkpoint (integer types: signed code; floating
     * types: bits of the value). */
    int8_t *codes;
    float *dq; // output: dequantized weight [O, I], columns in solving order; NULL: not computed
    /* upper factor of H^-1, [I, I], f32, row-major, columns in solving order. osh_gptq_solve needs
     * the transpose of the factor below the diagonal (osh_gptq_mirror). */
    const float *u;
    const float *scale;   // scales as stored (already rounded), in f32, [rows, n_scale_cols]
    const float *zero;    // shape of `scale`; NULL: symmetric
    const int32_t *col_scale; // index of the scale column for each column, in solving order, [I]
    int64_t O, I, n_scale_cols;
    // Number of rows that share scales: 1 for the strategies channel and group, O for strategy
    // tensor, and the height of a block for strategy block.
    int64_t row_block;
    int64_t block_size;
    /* Number of bits of a code. The smallest code of an integer type is -2^(bits-1). Floating types
     * have 8 or 4 bits. */
    int bits;
    bool fp8;             // true: codes of a floating type; false: whole numbers
    osh_dtype dq_dtype;   // dtype to which q - zp and (q - zp) scale are rounded
    double *loss;         // output: sum over columns of err^2 / 2, [O]
    /* True: a weight that is 0 in w gets the code of 0, although errors of other columns may have
     * changed the weight. Not supported on a device. */
    bool keep_zeros;
    /* True: only computes the loss of rounding to nearest, for the rows for which osh_gptq_judges
     * is true, and writes no codes. Not supported on a device. */
    bool nearest;
    /* ---- only for w on a device; a result whose pointer is NULL is not computed ---- */
    // output: the dequantized weight [O, I] on the device, columns as in the checkpoint, dtype of
    // w. May be w.
    osh_tensor *w_out;
    double *squares;      // output: |w - w_out|^2 and |w|^2, [2]
    /* True: the result in `codes` is packed rows, u32 [O, words], as in quant/formats/pack.c.
     * False: one byte per code. */
    bool packed;
} osh_gptq_solve_args;
/* The loss of rounding to nearest is computed ("judged") only for about 64 rows, because judging a
 * row takes as long as solving it. If there are 768 rows, the judged rows are 0, 12, 24 ..., so
 * every attention head has judged rows. */
enum { OSH_GPTQ_JUDGED = 64 };
static inline int64_t osh_gptq_judge_step(int64_t O)
{
    return O < OSH_GPTQ_JUDGED ? 1 : O / OSH_GPTQ_JUDGED;
}
static inline bool osh_gptq_judges(int64_t O, int64_t row)
{
    return row % osh_gptq_judge_step(O) == 0;
}
/* Runs the column loop on tiles of rows, on all threads. Each thread needs memory for one tile of
 * the weight in f32. The lower triangle of a->u must contain the transpose of the upper
 * triangle. */
osh_status osh_gptq_solve(osh_ctx *cx, const osh_gptq_solve_args *a);
// works like osh_gptq_solve, in plain loops (the reference version)
osh_status osh_gptq_solve_ref(osh_ctx *cx, const osh_gptq_solve_args *a);
/* Returns the number of bytes of scratch of osh_gptq_solve. */
size_t osh_gptq_solve_bytes(int64_t O, int64_t I, int64_t n_scale_cols, int64_t block_size,
                            int n_threads);
/* Returns the number of bytes of scratch of the op gptq_factor on the CPU. */
size_t osh_gptq_factor_bytes(int64_t I, int n_threads);

/* osh_gptq_permute copies the lower triangle of H [I, I] to the upper triangle, and then permutes
 * rows and columns by perm (NULL: no change), in place. osh_gptq_restore restores H after a failure
 * of the op gptq_factor, which overwrites the lower triangle and the diagonal. The function copies
 * the upper triangle to the lower triangle, and diag [I] to the diagonal. gptq_permute.c defines
 * both functions. */
osh_status osh_gptq_permute(osh_ctx *cx, osh_tensor *h, const int32_t *perm);
osh_status osh_gptq_restore(osh_ctx *cx, osh_tensor *h, const float *diag);
/* Returns the number of bytes of scratch of osh_gptq_permute. */
size_t osh_gptq_permute_bytes(int64_t I, int n_threads);
/* Copies the upper triangle of u [I, I], transposed, to the lower triangle. */
osh_status osh_gptq_mirror(osh_ctx *cx, float *u, int64_t I);
#endif
