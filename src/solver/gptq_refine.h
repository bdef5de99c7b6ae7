/* gptq_refine.h - what is done to codes and scales after the column loop, each step lowering, row by row,
 *
 *   loss = (w^ - w) H (w^ - w)^T
 *
 * of the quantized row w^ = (q - z) s. A step's result is taken for a row (for all rows that share scales: for these
 * together) where this falls, else the row stays as it was. */
#ifndef OSH_GPTQ_REFINE_H
#define OSH_GPTQ_REFINE_H
#include "solver/gptq_scales.h"

typedef enum {
    OSH_REFINE_RESCALE,    // scale, zero point and codes of each group anew, given the others: gptq_rescale.c
    OSH_REFINE_DESCEND,    // codes, one after another: gptq_descend.c
    OSH_REFINE_FIT_SCALES, // scales of a row by least squares, given its codes: gptq_fit_scales.c
    OSH_N_REFINES
} osh_refine;
enum { OSH_REFINE_MOST = 16 };     // steps
enum { OSH_DESCEND_SWEEPS = 4 };   // over the columns of a row
enum { OSH_FIT_GROUPS = 64 };      // whose scales are found together

typedef struct osh_gptq_refine_args {
    const osh_tensor *w;   // [O, I] in file order: what the quantized weight is to come near
    const bool *dead;      // [I] by column: its weights are taken as 0; NULL: none
    const float *h;        // [I, I] f32, symmetric, damped, file order
    const int32_t *perm;   // [I] order -> column, inside a group of rescale too; NULL: file order
    int8_t *codes;         // [O, I] in and out, file order (int: signed code; else the byte)
    float *scale, *zero;   // [rows of scales, columns of scales] in and out; zero NULL where symmetric
    int64_t O, I, group, row_block; // as osh_gptq_scales_args
    osh_scale_rule rule;   // dtype: also what q - z and w^ are rounded to
    const osh_refine *steps; // [n_steps]
    int n_steps;
    double *loss;          // [n_steps + 1] out: of all rows, before the first step and after each
    double *all;           // [1] out: the loss of w^ = 0; NULL: not wanted
} osh_gptq_refine_args;

osh_status osh_gptq_refine(osh_ctx *cx, const osh_gptq_refine_args *a);
osh_status osh_gptq_refine_ref(osh_ctx *cx, const osh_gptq_refine_args *a); // plain loops, sums in double
size_t osh_gptq_refine_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block, int n_threads); // scratch

/* Of each group of columns the inverse of its part of H and the factor U of that, U^T U = (H[g, g])^-1, upper, in
 * solving order. A part that cannot be factored is left out (ok false). */
typedef struct osh_group_factors {
    int64_t I, group;
    float *inverse; // own: [I, group], a group's rows behind each other, file order
    float *u;       // own: [I, group] likewise, solving order
    int32_t *order; // own: [I] solving order -> column of the group
    bool *ok;       // own: [groups]
} osh_group_factors;
/* blocks [I, group]: the groups' parts of H, one behind the other; NULL: they are taken from a->h. */
osh_status osh_group_factors_init(osh_ctx *cx, osh_group_factors *f, const osh_gptq_refine_args *a,
                                  const float *blocks);
void osh_group_factors_deinit(osh_ctx *cx, osh_group_factors *f);
size_t osh_group_factors_bytes(int64_t I, int64_t group, int n_threads);
enum { OSH_RESCALE_WIDEST = 1024 }; // groups of more columns are not scaled anew
static inline bool osh_rescales(const osh_gptq_refine_args *a)
{
    return a->row_block == 1 && a->group < a->I && a->group <= OSH_RESCALE_WIDEST;
}

/* The references, on one row (row block): codes as values of the grid. */
typedef struct osh_refine_row {
    const osh_gptq_refine_args *a;
    const osh_group_factors *f;
    int64_t n;     // rows
    double *w, *q; // [n, I] target; values of the grid
    float *s, *z;  // [groups]
} osh_refine_row;
/* gptq_pull.c */
double osh_refine_value(const osh_gptq_refine_args *a, float q, float s, float z); // round(round(q - z) s)
void osh_refine_pull(double *g, const osh_refine_row *r, int64_t row);             // [I] (w^ - w) H
/* each in the file of its step */
void osh_rescale_ref(const osh_refine_row *r, double *room);                       // room: [4 I]
void osh_descend_ref(const osh_refine_row *r, double *room);
void osh_fit_scales_ref(const osh_refine_row *r, double *room);                    // room: [I + groups (groups + 1)]

/* b [n] = A^-1 b, A [n, n] with 1e-9 of its mean diagonal; A is lost, its lower triangle is read. Elements are `step`
 * apart. false: A has no inverse. */
OSH_EVERYWHERE bool osh_fit_solve(double *a, double *b, int64_t n, int64_t step)
{
    double mean = 0;
    for (int64_t i = 0; i < n; i++) mean += a[i * (n + 1) * step] / (double)n;
    if (!(mean > 0)) return false;
    for (int64_t i = 0; i < n; i++) {
        a[i * (n + 1) * step] += 1e-9 * mean;
        for (int64_t j = 0; j <= i; j++) { // row i of L, A = L L^T, in its place
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
