/* gptq_refine.h - what is done to codes and scales after the column loop, each step lowering, row by row,
 *
 *   loss = (w^ - w) H (w^ - w)^T
 *
 * of the quantized row w^ = (q - z) s. A step's result is taken for a row (for all rows that share scales: for these
 * together) where this falls, else the row stays as it was. */
#ifndef OSH_GPTQ_REFINE_H
#define OSH_GPTQ_REFINE_H
#include "ops/gptq_scales.h"

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
osh_status osh_group_factors_init(osh_ctx *cx, osh_group_factors *f, const osh_gptq_refine_args *a);
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
double osh_refine_value(const osh_gptq_refine_args *a, float q, float s, float z); // round(round(q - z) s)
void osh_refine_pull(double *g, const osh_refine_row *r, int64_t row);             // [I] (w^ - w) H
void osh_rescale_ref(const osh_refine_row *r, double *room);                       // room: [4 I]
void osh_descend_ref(const osh_refine_row *r, double *room);
void osh_fit_scales_ref(const osh_refine_row *r, double *room);                    // room: [I + groups (groups + 1)]
/* b [n] = A^-1 b, with the ridge; A [n, n] is lost, its lower triangle is read. false: A has no inverse. */
bool osh_fit_solve(double *a, double *b, int64_t n);
#endif
