/* bytes.h - sizes of statistics (run/stats.h collects them). */
#ifndef OSH_BYTES_H
#define OSH_BYTES_H
#include "budget/budget.h"
#include "ops/stat.h"

/* The sums that modifiers want of a value, one row each. The run makes and feeds them by this
 * table, the plan counts their bytes by it. A new sum needs a row, a type (ops/stat.h), and a
 * modifier that wants it. */
typedef enum { OSH_SUM_HESSIAN, OSH_SUM_SHIFT, OSH_SUM_SQUARES, OSH_SUM_PEAKS, OSH_N_SUMS } osh_sum;
typedef struct osh_sum_type {
    const osh_stat_type *type;
    unsigned stat;          // OSH_STAT_*
    bool original;          // it is fed with x of both models
    bool mixed;             // x is mixed from both models if the recipe says so (osh_linear.share)
    bool on_card;           // with a GPU it is in its arena, in blocks of these kinds; else in host
                            // memory
    osh_layout_kind layout, part; // osh_stat.all, osh_stat.part
    size_t solving;         // bytes a channel that a solve derives from it
} osh_sum_type;
extern const osh_sum_type osh_sums[OSH_N_SUMS];
bool osh_sum_wanted(osh_sum sum, const osh_linear *l);
int64_t osh_sum_bytes(osh_sum sum, int64_t I); // gross: one block of it
int64_t osh_stats_bytes(const osh_budget *p, int subgraph); // Hessians and shifts of the subgraph
/* In a device's arena. */
int64_t osh_stats_device_bytes(const osh_budget *p, int value, bool hessian, bool range);
#endif
