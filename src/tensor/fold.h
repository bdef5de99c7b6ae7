/* fold.h - a weight that takes over a factor for each channel from the layer before it, or gives one away. Linear
 * [O, I] reads x / s instead of x: its column c is multiplied by s[c], and what made x is divided by s: a norm's weight
 * and a bias element by element, a Linear row by row.
 *
 *   w  2 4    s  2 0.5    columns  4 2    rows   1  2
 *      6 8                        12 4          12 16
 *
 * A product is one of f32, rounded to the weight's dtype: as torch's of a bf16 weight with an f32 factor. */
#ifndef OSH_FOLD_H
#define OSH_FOLD_H
#include "tensor/tensor.h"

typedef enum { OSH_FOLD_COLUMNS, OSH_FOLD_ROWS } osh_fold_way;
typedef struct osh_fold_rule { // for one weight
    osh_fold_way way;
    const float *s; // view: by column, or by row
    int64_t width;  // elements of a row; of a norm's weight, of a bias: 1
    float offset;   // rows: the layer adds it to its weight, so w becomes (w + offset) / s - offset
} osh_fold_rule;
/* Elements [first, first + n) of the weight, which lie at data. */
void osh_fold_factors(void *data, osh_dtype dt, const osh_fold_rule *r, int64_t first, int64_t n);
/* most[c] becomes the larger of itself and |w| of column c, of such elements. */
void osh_fold_most(float *most, const void *data, osh_dtype dt, int64_t width, int64_t first, int64_t n);
#endif
