/* bytes.h - what statistics take (run/stats.h collects them). */
#ifndef OSH_BYTES_H
#define OSH_BYTES_H
#include "plan/layout.h"

/* The sums that are collected of a value, a row each: the run makes and feeds them by it, the plan counts them by it.
 * Adding one is a row, and who wants it. */
typedef enum { OSH_SUM_HESSIAN, OSH_SUM_SHIFT, OSH_SUM_SQUARES, OSH_SUM_PEAKS, OSH_N_SUMS } osh_sum;
typedef struct osh_sum_type {
    const char *op;         // adds a batch: in {x} or {x, what x is in the original model}, out {the sum}
    unsigned stat;          // OSH_STAT_*
    osh_dtype dtype;
    int ndim;               // of I channels [I, I], [I]; 0: one number, [1]
    bool original;          // the op reads both
    bool mixed;             // of values of both models, where a recipe mixes them (osh_linear.share)
    bool on_card;           // with a card it lies there, in a place of this kind; else always in host memory
    osh_layout_kind layout;
    size_t solving;         // bytes a channel that a solve makes of it
} osh_sum_type;
extern const osh_sum_type osh_sums[OSH_N_SUMS];
bool osh_sum_wanted(osh_sum sum, const osh_linear *l);
osh_tensor osh_sum_shape(osh_sum sum, int64_t I); // its data NULL
int64_t osh_sum_bytes(osh_sum sum, int64_t I); // gross
int64_t osh_stats_bytes(const osh_plan *p, int subgraph); // of its Hessians and shifts
int64_t osh_stats_device_bytes(const osh_plan *p, int value, bool hessian, bool range); // in a device's arena
#endif
