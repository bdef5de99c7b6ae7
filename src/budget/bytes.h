/* bytes.h - computes the sizes of statistics (run/stats.h collects the statistics). */
#ifndef OSH_BYTES_H
#define OSH_BYTES_H
#include "budget/budget.h"
#include "ops/stat.h"

/* Kinds of statistics that modifiers need and that are sums over all samples of a value, such as
 * the Hessian X^T X. The table osh_sums has a row for each kind. The run collects the sums of the
 * table, and the plan counts their bytes. A new kind needs a row, a type (ops/stat.h), and a
 * modifier that uses the sum. */
typedef enum { OSH_SUM_HESSIAN, OSH_SUM_SHIFT, OSH_SUM_SQUARES, OSH_SUM_PEAKS, OSH_N_SUMS } osh_sum;
typedef struct osh_sum_type {
    const osh_stat_type *type;
    unsigned stat;          // bit OSH_STAT_* by which a modifier asks for the sum
    bool original; // true if the sum needs the input of the quantized and of the original model
    /* True if a recipe may ask for the sum of a mix of both models' inputs (member `share` of
     * osh_linear). */
    bool mixed;
    bool on_gpu; // with a GPU: true if the sum is in the GPU's memory, false if in host memory
    /* Kinds of the GPU's memory blocks for the members `all` and `part` of osh_stat. */
    osh_layout_kind layout, part;
    size_t solving;         // bytes per channel that a solve computes from the sum
} osh_sum_type;
extern const osh_sum_type osh_sums[OSH_N_SUMS];
bool osh_sum_wanted(osh_sum sum, const osh_linear *l);
/* Returns the bytes of one block of the sum for I input channels, with the allocator's overhead. */
int64_t osh_sum_bytes(osh_sum sum, int64_t I);
#endif
