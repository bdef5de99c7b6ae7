/* fold.h - divides each channel c of a value x by a factor s[c] and folds the factors into the
 * weights before and after x. In a Linear [O, I] (O outputs, I inputs) that reads x, column c is
 * multiplied by s[c]. The weight of the layer that makes x is divided by s: a norm's weight and a
 * bias element by element, a Linear's weight row by row. For example, with O = I = 2:
 *
 *   w      s        OSH_FOLD_COLUMNS    OSH_FOLD_ROWS
 *   2 4    2 0.5     4 2                 1  2
 *   6 8             12 4                12 16
 *
 * A product is computed in f32 and rounded to the weight's dtype, like torch's product of a bf16
 * weight and an f32 factor. */
#ifndef OSH_FOLD_H
#define OSH_FOLD_H
#include "tensor/tensor.h"

typedef enum { OSH_FOLD_COLUMNS, OSH_FOLD_ROWS } osh_fold_way;
typedef struct osh_fold_rule { // how factors are folded into one weight
    osh_fold_way way;
    const float *s; // view: the factors of the columns or of the rows
    int64_t width;  // number of elements of a row; 1 for a norm's weight or a bias
    /* For OSH_FOLD_ROWS: number that the layer adds to its weight w, such as 1 in Gemma's norms.
     * The number is 0 in other layers. w becomes (w + offset) / s - offset. */
    float offset;
} osh_fold_rule;
/* Folds the factors into elements [first, first + n) of a weight. `data`: address of element number
 * `first`. */
void osh_fold_factors(void *data, osh_dtype dt, const osh_fold_rule *r, int64_t first, int64_t n);
/* For elements [first, first + n) of a weight: sets most[c] to the largest magnitude in column c if
 * this magnitude is larger than most[c]. `data`: address of element number `first`. width: number
 * of elements of a row. */
void osh_fold_most(float *most, const void *data, osh_dtype dt, int64_t width, int64_t first,
                   int64_t n);
#endif
