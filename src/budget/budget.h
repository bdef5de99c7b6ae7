/* budget.h - declares the counts of memory, disk space and transfers of a plan. Also declares the
 * settings that a plan chooses to keep the budgets. (A budget is a limit in bytes that the user
 * gives.) */
#ifndef OSH_BUDGET_H
#define OSH_BUDGET_H
#include "rewrite/manifest.h"
#include "schedule/schedule.h"
#include "store/tier.h"

/* Kinds of long-lived blocks in a GPU's arena (the block of GPU memory from which the program
 * allocates). A kind and an index identify a block (layout.h). */
/* The index of a block depends on its kind.
 * WEIGHT: index of the graph's weight.
 * ROWS: (index of the value) * n_batches + (index of the batch).
 * FOLD to FOLD_HESSIAN_PART: index of the fold.
 * All other kinds: index of the graph's value. */
typedef enum {
    OSH_LAYOUT_WEIGHT, OSH_LAYOUT_HESSIAN, OSH_LAYOUT_SHIFT, OSH_LAYOUT_RANGE, OSH_LAYOUT_ROWS,
    /* Statistics of a fold: the statistic of its channels, and the Hessian if a search finds the
     * factors. */
    OSH_LAYOUT_FOLD, OSH_LAYOUT_FOLD_PART, OSH_LAYOUT_FOLD_HESSIAN, OSH_LAYOUT_FOLD_HESSIAN_PART,
    /* Partial sums of a Hessian or shift over a group of samples (member `part` of osh_stat). */
    OSH_LAYOUT_HESSIAN_PART, OSH_LAYOUT_SHIFT_PART,
    OSH_LAYOUT_SQUARES, OSH_LAYOUT_SQUARES_PART,
    OSH_LAYOUT_N_KINDS
} osh_layout_kind;
typedef struct osh_places osh_places; // planned addresses of blocks (layout.c)
/* predicted peaks of passes on a GPU (graph/device_peaks.h) */
typedef struct osh_device_peaks osh_device_peaks;
typedef struct osh_memory {
    osh_tier tier;
    /* True if the values that two-pass observers read a second time (schedule/looks.h) are stored
     * as F16. This changes the output. */
    bool looks_f16;
    int64_t n_kept;      // only for tier disk: number of batches whose values stay in memory
    int n_loaders;       // number of threads that prefetch values from the disk
    /* only for tier disk: number of batches that the prefetch threads read in advance */
    int64_t n_ahead;
    /* True if the next weight is read while the current Linear is rounded. Only for Linears that
     * are rounded without data. */
    bool read_ahead;
    /* Number of threads of a stream (output/stream.h). Each of them processes one band of rows at a
     * time. */
    int n_stream;
    /* Number of bands that a stream keeps in memory between its two passes. */
    int n_held;
    /* Host bytes for checking large output tensors during the run; base_bytes includes them. 0: all
     * tensors are checked when the output is sealed. */
    int64_t early;
    bool direct; // true if reads of the source and writes of the output bypass the page cache
    /* Only for tier disk: true if the GPU reads the files of values directly, without a copy in
     * host memory. */
    bool by_gpu;
    /* Host bytes of the process outside of visits (base_bytes.h), including the memory that its
     * libraries allocate later. */
    int64_t base_bytes;
    /* The part of base_bytes that osh_mem_used does not count, such as libraries and stacks. */
    int64_t uncounted;
    int64_t reading;     // host bytes for reading one weight, or 0 if base_bytes includes them
    int64_t load_bytes;  // peak of the host bytes before the first visit, while inputs are read
    osh_peaks peak;      // peaks of the whole run; peak.host includes base_bytes
    int highest;         // index of the visit with the highest host peak; -1: there is none
    /* read_bytes: bytes read from the source.
     * write_bytes: bytes written to the output.
     * reread_bytes: bytes read back from the output when it is sealed. */
    int64_t read_bytes, write_bytes, reread_bytes;
    /* With a GPU: predicted peaks of passes. Only used while the plan is made; after that NULL. */
    osh_device_peaks *peaks; // own
    /* own [graph weights], only while the plan is made: true if a visit of the last simulation
     * loads the weight; NULL: simulations do not set it */
    bool *ever;
    /* With a GPU: planned addresses of blocks. NULL: a block may get any free address. */
    osh_places *places;  // own
    /* Smallest budgets with which the run is possible. least.host includes base_bytes. */
    osh_peaks least;
    /* Limit for the device bytes of a solve. With more bytes, a solve processes more rows at a
     * time. 0: a solve uses as little memory as possible. */
    int64_t solve_limit;
} osh_memory;

typedef struct osh_budget {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    const osh_manifest *manifest; // view
    /* view; src/budget sets only the members `visits`, `looks` and batch_* of the schedule */
    osh_schedule *schedule;
    osh_memory memory;
} osh_budget;

/* Returns the number of MiB in which n bytes fit. */
static inline double mib_for(int64_t n) { return (double)((n + (1 << 20) - 1) >> 20); }
static inline void max_into(int64_t *peak, int64_t now)
{
    if (now > *peak) *peak = now;
}
static inline void peaks_max_into(osh_peaks *peak, const osh_peaks *now)
{
    max_into(&peak->device, now->device);
    max_into(&peak->host, now->host);
    max_into(&peak->scratch, now->scratch);
}
static inline bool peaks_fit(const osh_peaks *need, const osh_peaks *budget)
{
    return need->device <= budget->device && need->host <= budget->host &&
           need->scratch <= budget->scratch;
}
#endif
