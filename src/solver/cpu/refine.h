/* refine.h - a tile of rows on its way through the steps of gptq_refine.h. */
#ifndef OSH_CPU_REFINE_H
#define OSH_CPU_REFINE_H
#include "solver/cpu/panel.h"
#include "math/vec.h"
#include "solver/gptq_refine.h"
#include "ops/kernel.h"

enum { OSH_DESCEND_BLOCK = 64 }; // columns
typedef struct osh_change { int32_t column; float by; } osh_change; // of w^

typedef struct osh_refine_tile {
    const osh_gptq_refine_args *a;
    const osh_group_factors *f;
    int64_t row, n, groups;  // rows [row, row + n) of the weight; of scales in a row
    int64_t rows;            // room for so many, a multiple of OSH_PANEL_STEP
    bool keeps_scales;       // they are shared with other tiles
    float *q, *d, *g;        // [n, I] values on the grid; w^ - w; (w^ - w) H
    float *next;             // [n, I] room, then g of what a step proposes
    float *scale, *zero;     // [n, groups]
    float *line;             // [I] a row of the weight
    double *loss;            // [n] of what was kept last
    osh_panel panel;         // of a group: rescale; q also is room for a group's [n, group]
    float *cost, *lo, *hi;   // [group], [rows], [rows]
    int32_t *zeros;          // [group] 0
    double *fit;             // [rows, window (window + 1)] A and b of each row
    osh_change *changes;     // [n, OSH_DESCEND_BLOCK]
    int32_t *n_changes;      // [n]
    bool *settled, *moved;   // [n] no code changed in the sweep before; one did in this
} osh_refine_tile;

void osh_tile_pull(osh_refine_tile *t, float *g); // d of q, and g [n, I] of d
void osh_tile_rescale(osh_refine_tile *t); // g follows, d does not
void osh_tile_descend(osh_refine_tile *t); // likewise
void osh_tile_fit_scales(osh_refine_tile *t); // neither does
/* A and b of groups [g0, g0 + n) for each row, into fit; d is lost. */
void osh_tile_fit_sums(osh_refine_tile *t, int64_t g0, int64_t n);

/* round(round(q - z) s), as osh_refine_value. */
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
