/* refine.h - declares osh_refine_tile, which contains some rows of a weight, and the steps of
 * gptq_refine.h on a tile. */
#ifndef OSH_CPU_REFINE_H
#define OSH_CPU_REFINE_H
#include "solver/cpu/panel.h"
#include "math/vec.h"
#include "solver/gptq_refine.h"
#include "ops/kernel.h"

enum { OSH_DESCEND_BLOCK = 64 }; // number of columns of a block in osh_tile_descend
/* A change of one element of a row of w^: the element in column `column` changes by `by`. */
typedef struct osh_change { int32_t column; float by; } osh_change;

typedef struct osh_refine_tile {
    const osh_gptq_refine_args *a;
    const osh_group_factors *f;
    int64_t row, n, groups;  // rows [row, row + n) of the weight; groups: number of scales of a row
    int64_t rows;            // capacity of the arrays in rows, a multiple of OSH_PANEL_STEP
    /* True: this tile does not write its scales to the arguments, because other tiles use the same
     * scales. */
    bool keeps_scales;
    float *q, *d, *g;        // q: values on the grid; d: w^ - w; g: (w^ - w) H; [n, I] each
    float *next; // Scratch of a step. After the step: (w^ - w) H of the new values, [n, I].
    float *scale, *zero;     // [n, groups]
    double *loss; // loss of each row with the codes and scales accepted last, [n]
    osh_panel panel;         // columns of one group, for osh_tile_rescale
    float *cost, *lo, *hi;   // [group], [rows], [rows]
    int32_t *zeros;          // scale column of each column of `panel`, always 0, [group]
    double *fit;             // A and b of each row for osh_fit_solve, [rows, window (window + 1)]
    osh_change *changes;     // [n, OSH_DESCEND_BLOCK]
    int32_t *n_changes;      // [n]
    /* For each row.
     * settled: true if the previous sweep changed no code.
     * moved: true if the current sweep changed a code. */
    bool *settled, *moved;
} osh_refine_tile;

void osh_tile_pull(osh_refine_tile *t, float *g); // computes d from q, then g [n, I] from d
void osh_tile_rescale(osh_refine_tile *t);        // changes q, scale and zero; updates g but not d
void osh_tile_descend(osh_refine_tile *t);        // changes q; updates g but not d
void osh_tile_fit_scales(osh_refine_tile *t);     // changes scale; does not update d and g
/* Writes A and b of groups [g0, g0 + n) for each row to t->fit. Overwrites d and next. */
void osh_tile_fit_sums(osh_refine_tile *t, int64_t g0, int64_t n);

/* Sets `to` to round(round(q - z) s), like osh_refine_value. */
OSH_VEC_FN void v8_value(osh_v8f *to, const osh_v8f *q, float s, float z, osh_dtype dt)
{
    osh_v8f x = *q - z;
    v8_round(&x, dt);
    x = x * s;
    v8_round(&x, dt);
    *to = x;
}
static inline float osh_value(const osh_scale_rule *r, float q, float s, float z)
{
    return osh_round_to(osh_round_to(q - z, r->dtype) * s, r->dtype);
}
#endif
