/* bytes.h - sizes of statistics (run/stats.h collects them). */
#ifndef OSH_BYTES_H
#define OSH_BYTES_H
#include "budget/layout.h"

/* The sums that are collected of a value, one row each. The run makes and feeds them by this table,
 * the plan counts their bytes by it. A new sum needs a row and a modifier that wants it. */
typedef enum { OSH_SUM_HESSIAN, OSH_SUM_SHIFT, OSH_SUM_SQUARES, OSH_SUM_PEAKS, OSH_N_SUMS } osh_sum;
typedef struct osh_sum_type {
    const char *op;         // adds a batch: in {x} or {x, x in the original model}, out {the sum}
    unsigned stat;          // OSH_STAT_*
    osh_dtype dtype;
    int ndim;               // 2: [I, I], 1: [I], 0: one number, [1]
    bool original;          // the op reads x of both models
    bool mixed;             // x is mixed from both models if the recipe says so (osh_linear.share)
    bool on_card;           // with a GPU the sum is in its arena, in a place of kind `layout`; else
                            // in host memory
    osh_layout_kind layout;
    size_t solving;         // bytes a channel that a solve derives from it
} osh_sum_type;
extern const osh_sum_type osh_sums[OSH_N_SUMS];
bool osh_sum_wanted(osh_sum sum, const osh_linear *l);
osh_tensor osh_sum_shape(osh_sum sum, int64_t I); // its data is NULL
int64_t osh_sum_bytes(osh_sum sum, int64_t I); // gross
int64_t osh_stats_bytes(const osh_budget *p, int subgraph); // Hessians and shifts of the subgraph
/* In a device's arena. */
int64_t osh_stats_device_bytes(const osh_budget *p, int value, bool hessian, bool range);
#endif
