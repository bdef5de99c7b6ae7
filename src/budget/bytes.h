/* bytes.h - sizes of statistics (run/stats.h collects them). */
#ifndef OSH_BYTES_H
#define OSH_BYTES_H
#include "budget/budget.h"
#include "ops/stat.h"

/* Kinds of sums that modifiers need of a value. The run collects the sums, and the plan counts
 * their bytes, by the table osh_sums, which has a row for each kind. A new kind needs a row, a type
 * (ops/stat.h), and a modifier that uses the sum. */
typedef enum { OSH_SUM_HESSIAN, OSH_SUM_SHIFT, OSH_SUM_SQUARES, OSH_SUM_PEAKS, OSH_N_SUMS } osh_sum;
typedef struct osh_sum_type {
    const osh_stat_type *type;
    unsigned stat;          // OSH_STAT_* bit of the sum
    bool original;          // the sum needs x of both models
    bool mixed;             // x is mixed from both models if the recipe asks for it
                            // (osh_linear.share)
    bool on_card;           // with a GPU the sum is in the GPU's arena, in blocks of the kinds
                            // below; without a GPU in host memory
    osh_layout_kind layout, part; // kinds of the blocks osh_stat.all and osh_stat.part
    size_t solving;         // bytes per channel of the data that a solve computes from it
} osh_sum_type;
extern const osh_sum_type osh_sums[OSH_N_SUMS];
bool osh_sum_wanted(osh_sum sum, const osh_linear *l);
int64_t osh_sum_bytes(osh_sum sum, int64_t I); // gross bytes of one block of the sum
int64_t osh_stats_bytes(const osh_budget *p, int subgraph); // bytes of the Hessians and shifts of
                                                            // the subgraph
/* Returns the bytes in a device's arena. */
int64_t osh_stats_device_bytes(const osh_budget *p, int value, bool hessian, bool range);
#endif
