/* gptq_refine.h - improves the codes and scales of a weight after GPTQ's column loop. Each step
 * changes codes or scales, row by row, to lower the loss of the row:
 *
 *   w^ = (q - z) s     the quantized row
 *   loss = (w^ - w) H (w^ - w)^T
 *
 * A row keeps the result of a step only if its loss falls. If rows share scales, the sum of their
 * losses decides. */
#ifndef OSH_GPTQ_REFINE_H
#define OSH_GPTQ_REFINE_H
#include "solver/gptq_scales.h"

typedef enum {
    OSH_REFINE_RESCALE, // searches a new scale, zero point and codes for each group: gptq_rescale.c
    OSH_REFINE_DESCEND,    // changes codes by coordinate descent: gptq_descend.c
    OSH_REFINE_FIT_SCALES, // computes all scales of a row by least squares: gptq_fit_scales.c
    OSH_N_REFINES
} osh_refine;
enum { OSH_REFINE_MOST = 16 };     // largest number of refine steps
/* Largest number of times that coordinate descent visits all columns of a row. */
enum { OSH_DESCEND_SWEEPS = 4 };
/* Largest number of groups whose scales OSH_REFINE_FIT_SCALES computes together. */
enum { OSH_FIT_GROUPS = 64 };

typedef struct osh_gptq_refine_args {
    const osh_tensor *w;   // weight to approximate, [O, I], columns as in the checkpoint
    /* For each column, [I]: true if its input is always 0. The weights of such a column count as 0.
     * NULL: no column is like this. */
    const bool *dead;
    const float *h;        // damped Hessian H, [I, I] f32, symmetric, columns as in the checkpoint
    /* perm [I]: perm[k] is the column at position k of the solving order; NULL: columns are solved
     * in the order of the checkpoint. */
    const int32_t *perm;
    /* Input and output: codes [O, I], columns as in the checkpoint (integer types: signed code;
     * floating types: bits of the value). */
    int8_t *codes;
    /* Input and output: scales and zero points, [scale rows, scale columns]. `zero` is NULL if the
     * quantization is symmetric. */
    float *scale, *zero;
    int64_t O, I, group, row_block; // a scale is shared by `group` columns of `row_block` rows
    osh_scale_rule rule;   // how scales are stored; q - z and w^ are also rounded to rule.dtype
    const osh_refine *steps; // [n_steps]
    int n_steps;
    /* Output, [n_steps + 1]: sum of the losses of all rows, before the first step and after each
     * step. */
    double *loss;
    double *all;           // output, one number: the loss if all weights were 0; NULL: not computed
} osh_gptq_refine_args;

/* Runs the refine steps of `a` with vector code on all threads. */
osh_status osh_gptq_refine(osh_ctx *cx, const osh_gptq_refine_args *a);
/* Works like osh_gptq_refine, in plain loops and with sums in double (the reference version). */
osh_status osh_gptq_refine_ref(osh_ctx *cx, const osh_gptq_refine_args *a);
/* Returns the number of bytes of scratch of osh_gptq_refine. */
size_t osh_gptq_refine_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block, int n_threads);

/* Matrices of each group g of columns. One is the inverse of the diagonal block H[g, g]. The other
 * is the upper triangular factor U of this inverse: U^T U = (H[g, g])^-1, with columns in solving
 * order. */
typedef struct osh_group_factors {
    int64_t I, group;
    /* The inverses (H[g, g])^-1, [I, group], one group after the other. Columns are in the order of
     * the checkpoint. */
    float *inverse; // own
    /* Own: the factors U of the inverses, [I, group], one group after the other. Columns are in
     * solving order. */
    float *u;
    /* Solving order of each group, [I]. Element k of a group is the column that is solved at
     * position k, counted from the first column of the group. */
    int32_t *order; // own
    /* [groups]: true if the block H[g, g] is positive definite. Only such a group has an `inverse`
     * and a `u`. */
    bool *ok;       // own
} osh_group_factors;
/* Computes the factors of all groups. Does nothing if no step of `a` needs them. `blocks` [I,
 * group]: the blocks H[g, g], one after the other; NULL: they are read from a->h. */
osh_status osh_group_factors_init(osh_ctx *cx, osh_group_factors *f, const osh_gptq_refine_args *a,
                                  const float *blocks);
void osh_group_factors_deinit(osh_ctx *cx, osh_group_factors *f);
/* Returns the number of host bytes of the factors and of their computation. */
size_t osh_group_factors_bytes(int64_t I, int64_t group, int n_threads);
/* Largest number of columns of a group that OSH_REFINE_RESCALE changes. */
enum { OSH_RESCALE_WIDEST = 1024 };
/* True if the step OSH_REFINE_RESCALE is possible: no scale is shared by several rows or by several
 * groups of columns. */
static inline bool osh_rescales(const osh_gptq_refine_args *a)
{
    return a->row_block == 1 && a->group < a->I && a->group <= OSH_RESCALE_WIDEST;
}

/* One row of the weight, or one block of rows that share scales, for the reference versions of the
 * steps. */
typedef struct osh_refine_row {
    const osh_gptq_refine_args *a;
    const osh_group_factors *f;
    int64_t n;     // number of rows
    double *w, *q; // w: weight to approximate; q: codes as values of the grid; both [n, I]
    float *s, *z;  // [groups]
} osh_refine_row;
/* ---- gptq_pull.c ---- */
/* Returns the dequantized weight round(round(q - z) s), rounded to the dtype of the scales. */
double osh_refine_value(const osh_gptq_refine_args *a, float q, float s, float z);
/* Sets g [I] to (w^ - w) H for row `row` of `r`. */
void osh_refine_pull(double *g, const osh_refine_row *r, int64_t row);
/* ---- reference versions of the steps, each in the file of the step ---- */
/* The next two functions do the steps OSH_REFINE_RESCALE and OSH_REFINE_DESCEND. `room` [4 I]:
 * scratch. */
void osh_rescale_ref(const osh_refine_row *r, double *room);
void osh_descend_ref(const osh_refine_row *r, double *room);
/* Does the step OSH_REFINE_FIT_SCALES. `room` [I + groups (groups + 1)]: scratch. */
void osh_fit_scales_ref(const osh_refine_row *r, double *room);

/* Solves (A + e I) x = b. I is the identity matrix, and e is 1e-9 times the mean of A's diagonal.
 * Overwrites b [n] with x. Reads and overwrites only the lower triangle of A [n, n]. Neighbouring
 * elements are `step` doubles apart, in A and in b. Returns false if A is not positive definite. */
OSH_EVERYWHERE bool osh_fit_solve(double *a, double *b, int64_t n, int64_t step)
{
    double mean = 0;
    for (int64_t i = 0; i < n; i++) mean += a[i * (n + 1) * step] / (double)n;
    if (!(mean > 0)) return false;
    for (int64_t i = 0; i < n; i++) {
        a[i * (n + 1) * step] += 1e-9 * mean;
        // A = L L^T; computes row i of L, and stores it in the memory of row i of A
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[(i * n + j) * step];
            for (int64_t k = 0; k < j; k++) sum -= a[(i * n + k) * step] * a[(j * n + k) * step];
            if (i == j && !(sum > 0)) return false;
            a[(i * n + j) * step] = i == j ? sqrt(sum) : sum / a[j * (n + 1) * step];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++) b[i * step] -= a[(i * n + k) * step] * b[k * step];
        b[i * step] /= a[i * (n + 1) * step];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        b[i * step] /= a[i * (n + 1) * step];
        for (int64_t k = 0; k < i; k++) b[k * step] -= a[(i * n + k) * step] * b[i * step];
    }
    return true;
}
#endif
