/* gptq_solve.h - runs the GPTQ column loop over one weight (gptq_quantize.py of LLM Compressor).
 * For each column i:
 *
 *   q = quant(w / s)
 *   err = (w - dq) / U[i,i]     dq: dequantized q
 *   W[:, i:] -= err U[i, i:]
 *
 * The columns are divided into blocks of block_size columns. The later columns of the same block
 * are updated after each column. The columns after the block are updated once, when the block is
 * done. */
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
    /* For each column, [I]: true if its input is always 0. The weights of such a column count as 0.
     * NULL: no column is like this. */
    const bool *dead;
    /* Output: codes [O, I], columns as in the checkpoint (integer types: signed code; floating
     * types: bits of the value). */
    int8_t *codes;
    /* Output: the dequantized weight, [O, I], columns in solving order; NULL: not computed. */
    float *dq;
    /* Upper triangular U with U^T U = H^-1, [I, I], f32, columns in solving order. osh_gptq_solve
     * reads the transpose of U below the diagonal (osh_gptq_mirror writes it). */
    const float *u;
    /* Scales in f32, already rounded to the stored dtype, [scale rows, n_scale_cols]. */
    const float *scale;
    const float *zero;    // zero points, in the shape of `scale`; NULL: symmetric
    /* For each column in solving order, the index of its scale in a row of `scale`, [I]. */
    const int32_t *col_scale;
    int64_t O, I, n_scale_cols;
    // Number of rows that share scales: 1 for the strategies `channel` and `group`, O for `tensor`,
    // and the height of a block for `block`.
    int64_t row_block;
    int64_t block_size;
    /* Number of bits of a code. Integer codes begin at -2^(bits-1). Floating types have 8 or 4
     * bits. */
    int bits;
    bool fp8;             // true: codes of a floating type; false: integer codes
    osh_dtype dq_dtype;   // dtype to which q - zp and (q - zp) scale are rounded
    double *loss;         // output for each row, [O]: sum over the columns of err^2 / 2
    /* True: a weight that is 0 in w gets the code of 0, even if errors of other columns have
     * changed it. This is not supported on a device. */
    bool keep_zeros;
    /* True: computes only the loss of rounding to nearest, and writes no codes. Only rows for which
     * osh_gptq_judges is true are computed. Not supported on a device. */
    bool nearest;
    /* ---- only for a weight on a device; a result is not computed if its pointer is NULL ---- */
    /* Output: the dequantized weight [O, I] on the device, in the dtype of w, columns as in the
     * checkpoint. w_out may be w. */
    osh_tensor *w_out;
    double *squares;      // output, two numbers: the sums of squares of w - w_out and of w
    /* True: the codes of a row are packed into words, u32 [O, words], as in quant/formats/pack.c.
     * False: one byte per code. */
    bool packed;
} osh_gptq_solve_args;
/* The loss of rounding to nearest is computed for about 64 rows only, because computing it for a
 * row takes as long as solving the row. These rows are called judged. For example, rows 0, 12, 24
 * ... of 768 rows are judged, so every attention head has judged rows. */
enum { OSH_GPTQ_JUDGED = 64 };
static inline int64_t osh_gptq_judge_step(int64_t O)
{
    return O < OSH_GPTQ_JUDGED ? 1 : O / OSH_GPTQ_JUDGED;
}
static inline bool osh_gptq_judges(int64_t O, int64_t row)
{
    return row % osh_gptq_judge_step(O) == 0;
}
/* Runs the column loop over one weight, in tiles of rows on all threads. Each thread needs memory
 * for one tile in f32. The lower triangle of a->u must contain the transpose of the upper
 * triangle. */
osh_status osh_gptq_solve(osh_ctx *cx, const osh_gptq_solve_args *a);
/* Works like osh_gptq_solve, in plain loops (the reference version). */
osh_status osh_gptq_solve_ref(osh_ctx *cx, const osh_gptq_solve_args *a);
/* Returns the number of bytes of scratch of osh_gptq_solve. */
size_t osh_gptq_solve_bytes(int64_t O, int64_t I, int64_t n_scale_cols, int64_t block_size,
                            int n_threads);
/* Returns the number of bytes of scratch of the op gptq_factor on the CPU. */
size_t osh_gptq_factor_bytes(int64_t I, int n_threads);

/* osh_gptq_permute copies the lower triangle of H [I, I] to the upper triangle. Then it permutes
 * rows and columns by perm, in place. If perm is NULL, it permutes nothing.
 * osh_gptq_restore repairs H after the op gptq_factor fails, because gptq_factor overwrites the
 * lower triangle and the diagonal. For this, osh_gptq_restore copies the upper triangle to the
 * lower triangle, and diag [I] to the diagonal. */
osh_status osh_gptq_permute(osh_ctx *cx, osh_tensor *h, const int32_t *perm);
osh_status osh_gptq_restore(osh_ctx *cx, osh_tensor *h, const float *diag);
/* Returns the number of bytes of scratch of osh_gptq_permute. */
size_t osh_gptq_permute_bytes(int64_t I, int n_threads);
/* Copies the transpose of the upper triangle of u [I, I] to the lower triangle. */
osh_status osh_gptq_mirror(osh_ctx *cx, float *u, int64_t I);
#endif
