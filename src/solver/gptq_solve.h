/* gptq_solve.h - the GPTQ column loop over one weight (gptq_quantize.py of LLM Compressor): per column
 * q = quant(w / s), err = (w - dq) / U[i,i], W[:, i:] -= err U[i, i:], lazily per block of block_size columns. */
#ifndef OSH_GPTQ_SOLVE_H
#define OSH_GPTQ_SOLVE_H
#include "ops/op.h"

typedef struct osh_gptq_solve_args {
    const osh_tensor *w;  // [O, I] in file order, stored dtype
    const osh_tensor *target; // [O, I] F32 where w lies: what the codes come close to; NULL: w
    const int32_t *perm;  // [I] solving order -> column; NULL: file order
    const bool *dead;     // [I] by column: its weights are taken as 0; NULL: none
    int8_t *codes;        // [O, I] out, file order (int: signed code; fp8: its bits)
    float *dq;            // [O, I] out, solving order: the dequantized weight; NULL: not wanted
    const float *u;       // [I, I] f32 upper factor of H^-1, row-major, solving order; for osh_gptq_solve its transpose
                          // stands below the diagonal (osh_gptq_mirror)
    const float *scale;   // [rows, n_scale_cols] f32 values of the stored (rounded) scale
    const float *zero;    // like scale, or NULL where symmetric
    const int32_t *col_scale; // [I] scale column of each solving-order column
    int64_t O, I, n_scale_cols;
    int64_t row_block;    // rows that share a scale row: 1 (channel, group), O (tensor), block height (block)
    int64_t block_size;
    int bits;             // int: qmin = -2^(bits-1); a floating type: 8, or 4
    bool fp8;             // a floating type
    osh_dtype dq_dtype;   // q - zp and its product with the scale are rounded to this dtype before the error is formed
    double *loss;         // [O] out: sum over columns of err^2 / 2
    bool keep_zeros;      // a weight that is 0 has the code of 0, whatever comes to it (not on a device)
    bool nearest;         // loss alone, of rows that osh_gptq_judges: rounded to nearest, no error pushed on (not on a
                          // device); of the others nothing is written
    /* With w on a device, NULL: not wanted. */
    osh_tensor *w_out;    // [O, I] out there, file order, dtype of w (w itself will do): the dequantized weight
    double *squares;      // [2] out: |w - w_out|^2 and |w|^2
    bool packed;          // codes [O, words] u32 out instead: rows as pack-quantized has them (quant/formats/pack.c)
} osh_gptq_solve_args;
/* Every so many rows one is judged: what rounding it to nearest costs is worked out, which takes as long as its column
 * loop. Of 768 rows these are 0, 12, 24 ...: 64 of them, far apart, so that every head of an attention has some. */
enum { OSH_GPTQ_JUDGED = 64 };
static inline int64_t osh_gptq_judge_step(int64_t O) { return O < OSH_GPTQ_JUDGED ? 1 : O / OSH_GPTQ_JUDGED; }
static inline bool osh_gptq_judges(int64_t O, int64_t row) { return row % osh_gptq_judge_step(O) == 0; }
/* Fast: threads over fixed row tiles. Of the weight only a tile a thread is held in f32. Wants the transpose in u. */
osh_status osh_gptq_solve(osh_ctx *cx, const osh_gptq_solve_args *a);
osh_status osh_gptq_solve_ref(osh_ctx *cx, const osh_gptq_solve_args *a); // plain loops
size_t osh_gptq_solve_bytes(int64_t O, int64_t I, int64_t n_scale_cols, int64_t block_size, int n_threads); // scratch
size_t osh_gptq_factor_bytes(int64_t I, int n_threads); // scratch of the op gptq_factor on the CPU

/* H [I, I], of which the lower triangle is given, becomes symmetric with rows and columns in the order of perm (NULL:
 * as it is), in place. gptq_factor works on the lower triangle and leaves the strictly upper one alone when it fails:
 * osh_gptq_restore makes the lower one anew from it, with diag [I] on the diagonal. gptq_permute.c */
osh_status osh_gptq_permute(osh_ctx *cx, float *h, int64_t I, const int32_t *perm);
osh_status osh_gptq_restore(osh_ctx *cx, float *h, int64_t I, const float *diag);
size_t osh_gptq_permute_bytes(int64_t I, int n_threads); // scratch
/* Below the diagonal of u [I, I] comes what is above it, turned. */
osh_status osh_gptq_mirror(osh_ctx *cx, float *u, int64_t I);
#endif
