/* refine.h - declares osh_refine_tile, which contains some rows of a weight, and functions that do
 * the steps of gptq_refine.h on a tile. */
#ifndef OSH_CPU_REFINE_H
#define OSH_CPU_REFINE_H
#include "solver/cpu/panel.h"
#include "math/vec.h"
#include "solver/gptq_refine.h"
#include "ops/kernel.h"

/* Number of columns that osh_tile_descend tests before it updates the other columns. */
enum { OSH_DESCEND_BLOCK = 64 };
/* In one row, the dequantized weight in column `column` changes by `by`. */
typedef struct osh_change { int32_t column; float by; } osh_change;

typedef struct osh_refine_tile {
    const osh_gptq_refine_args *a;
    const osh_group_factors *f;
    /* The tile has rows [row, row + n) of the weight. groups: number of scales of a row. */
    int64_t row, n, groups;
    int64_t rows; // number of rows for which the arrays have memory, a multiple of OSH_PANEL_STEP
    /* True: the tile does not store its scales, because other tiles use the same scales. */
    bool keeps_scales;
    float *q, *d, *g; // q: codes as values of the grid; d: w^ - w; g: (w^ - w) H; each [n, I]
    float *next; // Scratch during a step. After the step: (w^ - w) H of the new values, [n, I].
    float *scale, *zero;     // scales and zero points, [n, groups]
    double *loss; // loss of each row with the codes and scales that were accepted last, [n]
    osh_panel panel;         // the columns of one group, transposed, for osh_tile_rescale
    float *cost, *lo, *hi;   // [group], [rows], [rows]
    int32_t *zeros;          // [group], all 0: each column of `panel` has scale column 0
    double *fit;             // A and b of each row for osh_fit_solve, [rows, window (window + 1)]
    osh_change *changes;     // changes of the codes of each row, [n, OSH_DESCEND_BLOCK]
    int32_t *n_changes;      // [n]
    /* Flags of each row of the tile.
     * settled: true if the previous pass of coordinate descent changed no code.
     * moved: true if the current pass changed a code. */
    bool *settled, *moved;
} osh_refine_tile;

/* Computes t->d from t->q, and then g = d H, [n, I]. */
void osh_tile_pull(osh_refine_tile *t, float *g);
/* Changes t->q, t->scale and t->zero; updates t->g but not t->d. */
void osh_tile_rescale(osh_refine_tile *t);
void osh_tile_descend(osh_refine_tile *t);        // changes t->q; updates t->g but not t->d
void osh_tile_fit_scales(osh_refine_tile *t);     // changes t->scale; does not update t->d and t->g
/* For each row: computes A and b of the normal equations for the scales of groups [g0, g0 + n), and
 * writes them to t->fit. Overwrites t->d and t->next. */
void osh_tile_fit_sums(osh_refine_tile *t, int64_t g0, int64_t n);

/* Sets `to` to the dequantized weights round(round(q - z) s), like osh_refine_value. */
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
