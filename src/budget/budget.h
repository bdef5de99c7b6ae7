/* budget.h - counts the memory, disk space and transfers of a plan. Chooses settings of the plan
 * that keep the budgets. (A budget is a limit in bytes that the user gives.) */
#ifndef OSH_BUDGET_H
#define OSH_BUDGET_H
#include "rewrite/manifest.h"
#include "schedule/schedule.h"
#include "store/tier.h"

/* Kinds of long-lived blocks in a GPU's arena (the block of GPU memory from which the program
 * allocates). Each block has a kind and an index (layout.h). */
/* Index of a block of each kind.
 * WEIGHT: index of the graph's weight.
 * ROWS: (index of the value) * n_batches + (index of the batch).
 * FOLD to FOLD_HESSIAN_PART: index of the fold.
 * All other kinds: index of the graph's value. */
typedef enum {
    OSH_LAYOUT_WEIGHT, OSH_LAYOUT_HESSIAN, OSH_LAYOUT_SHIFT, OSH_LAYOUT_RANGE, OSH_LAYOUT_ROWS,
    /* The statistics of a fold: of its channels, and the Hessian for a search of factors. */
    OSH_LAYOUT_FOLD, OSH_LAYOUT_FOLD_PART, OSH_LAYOUT_FOLD_HESSIAN, OSH_LAYOUT_FOLD_HESSIAN_PART,
    /* Partial sums of a Hessian and of a shift (member `part` of osh_stat). */
    OSH_LAYOUT_HESSIAN_PART, OSH_LAYOUT_SHIFT_PART,
    OSH_LAYOUT_SQUARES, OSH_LAYOUT_SQUARES_PART,
    OSH_LAYOUT_N_KINDS
} osh_layout_kind;
typedef struct osh_places osh_places; // planned addresses of blocks (layout.c)
typedef struct osh_device_peaks osh_device_peaks; // peaks of GPU passes (graph/device_peaks.h)
typedef struct osh_trials osh_trials; // results of simulations (trials.c)
typedef struct osh_memory {
    osh_tier tier;
    /* True if values for two-pass observers (schedule/looks.h) are stored as F16. This choice
     * changes the output. */
    bool looks_f16;
    int64_t n_kept;      // tier disk: number of batches whose values stay in memory
    int n_loaders;       // number of threads that prefetch values from the disk
    int64_t n_ahead;     // tier disk: number of batches that the prefetch threads read in advance
    /* True if the next weight is read while the current Linear is rounded. Only for Linears that
     * are rounded without data. */
    bool read_ahead;
    /* Number of threads of a stream (output/stream.h). Each thread processes one band of rows at a
     * time. */
    int n_stream;
    /* Number of bands that a stream keeps in memory from its first to its second pass. */
    int n_held;
    /* Host bytes for checking large output tensors during the run, included in base_bytes; 0: all
     * tensors are checked at the end, when the output is sealed. */
    int64_t early;
    bool direct; // true if reads of the source and writes of the output bypass the page cache
    /* Tier disk: true if the GPU reads the files of values directly, without a copy in host
     * memory. */
    bool by_gpu;
    /* Host bytes of the process outside of visits (base_bytes.h). They include memory that its
     * libraries allocate later. */
    int64_t base_bytes;
    /* The part of base_bytes that osh_mem_used does not count, such as libraries and stacks. */
    int64_t uncounted;
    int64_t reading;     // host bytes for reading a weight; 0: base_bytes includes them
    int64_t load_bytes;  // peak of the host bytes before visits, while inputs are read
    osh_peaks peak;      // peaks of the whole run; peak.host includes base_bytes
    int highest;         // index of the visit with the highest host peak; -1: none
    /* read_bytes: bytes read from the source.
     * write_bytes: bytes written.
     * reread_bytes: bytes read back from the output when it is sealed. */
    int64_t read_bytes, write_bytes, reread_bytes;
    /* With a GPU: peaks of passes. Used while the plan is made, then NULL. */
    osh_device_peaks *peaks; // own
    osh_trials *trials; // own: results of simulations. Used while the plan is made, then NULL.
    /* With a GPU: planned addresses of blocks. NULL: a block may get any free address. */
    osh_places *places;  // own
    /* Smallest budgets with which the run is possible. least.host includes base_bytes. */
    osh_peaks least;
    /* Limit of the device bytes of a solve. With a higher limit, a solve processes more rows at a
     * time. 0: a solve uses as little memory as possible. */
    int64_t solve_limit;
} osh_memory;

typedef struct osh_budget {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    const osh_manifest *manifest; // view
    osh_schedule *schedule; // view; src/budget sets its members `visits`, `looks` and batch_*
    osh_memory memory;
} osh_budget;

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
