/* bytes.h - computes the bytes of statistics. run/stats.h collects the statistics. */
#ifndef OSH_BYTES_H
#define OSH_BYTES_H
#include "budget/budget.h"
#include "ops/stat.h"

/* Kinds of statistics that are sums over all samples of a value, such as the Hessian X^T X. The
 * table osh_sums has a row for each kind. The run collects these sums, and the plan counts their
 * bytes. A new kind needs a row, a type (ops/stat.h), and a modifier that uses the sum. */
typedef enum { OSH_SUM_HESSIAN, OSH_SUM_SHIFT, OSH_SUM_SQUARES, OSH_SUM_PEAKS, OSH_N_SUMS } osh_sum;
typedef struct osh_sum_type {
    const osh_stat_type *type;
    unsigned stat;          // bit OSH_STAT_* with which a modifier asks for the sum
    /* true if the sum needs the inputs of a Linear in both models, quantized and original */
    bool original;
    /* True if the sum can be computed from a mix of the inputs in both models (member `share` of
     * osh_linear). */
    bool mixed;
    bool on_gpu; // with a GPU: true if the sum is in GPU memory, false if it is in host memory
    /* Kinds of the blocks of GPU memory that contain the tensors `all` and `part` of osh_stat. */
    osh_layout_kind layout, part;
    /* Number of bytes per channel of the data that a solve computes from the sum, such as the
     * importance of each channel. */
    size_t solving;
} osh_sum_type;
extern const osh_sum_type osh_sums[OSH_N_SUMS];
/* True if solving the Linear needs this sum of its input. */
bool osh_sum_wanted(osh_sum sum, const osh_linear *l);
/* Returns how many bytes the sum for a value with I channels needs, with the allocator's overhead.
 * Partial sums are not counted. */
int64_t osh_sum_bytes(osh_sum sum, int64_t I);
#endif
