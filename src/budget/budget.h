/* budget.h - computes the memory, disk space and transfers of a plan, and chooses how the plan
 * keeps its budgets. */
#ifndef OSH_BUDGET_H
#define OSH_BUDGET_H
#include "rewrite/manifest.h"
#include "schedule/schedule.h"
#include "store/tier.h"

/* Kinds of long-lived blocks of a GPU's arena (layout.h). */
typedef enum { // the index of a block is: graph weight; graph value; or value * n_batches + batch
    OSH_LAYOUT_WEIGHT, OSH_LAYOUT_HESSIAN, OSH_LAYOUT_SHIFT, OSH_LAYOUT_RANGE, OSH_LAYOUT_ROWS,
    OSH_LAYOUT_HESSIAN_PART, OSH_LAYOUT_SHIFT_PART, // osh_stat.part
    OSH_LAYOUT_N_KINDS
} osh_layout_kind;
typedef struct osh_places osh_places; // layout.h
typedef struct osh_device_peaks osh_device_peaks; // graph/device_peaks.h
typedef struct osh_trials osh_trials; // trials.h
typedef struct osh_peaks { // bytes
    int64_t device, host, scratch;
} osh_peaks;
typedef struct osh_memory {
    osh_tier tier;
    bool looks_f16;      // values that an observer reads twice (schedule/looks.h) are kept as F16;
                         // this changes the bytes of the output
    int64_t n_kept;      // tier disk: number of batches whose values stay in memory
    int n_loaders;       // threads that read values from the disk in advance
    int64_t n_ahead;     // tier disk: number of batches that the loaders read in advance
    bool read_ahead; // for Linears that are rounded without data: the next weight is read during
                     // the rounding
    int n_stream;        // number of threads of a stream; each has one band of a tensor
    int n_held;          // number of bands that a stream keeps until it reads them a second time
    int64_t early;       // host bytes, part of the base, for reading large output tensors back
                         // during the run; 0: they are read back only at the seal
    bool direct;         // source and output bypass the page cache
    bool by_card;        // tier disk: the GPU itself reads files of values
    int64_t base_bytes;  // host bytes of the process before the first visit, including those that
                         // its libraries will allocate
    int64_t uncounted;   // part of base_bytes that osh_mem_used does not count
    int64_t load_bytes;  // peak of host bytes while source, tokenizer and data are read
    osh_peaks peak;      // peaks of the run; host includes the base
    int highest;         // index of the visit with the highest host peak; -1: none
    int64_t read_bytes, write_bytes, reread_bytes; // bytes read from the source, written, and read
                                                   // from the output at the seal
    osh_device_peaks *peaks; // own: for a GPU: peaks of passes; NULL: the plan is finished
    osh_trials *trials;  // own: results of simulations so far; NULL: the plan is finished
    osh_places *places;  // own: for a GPU: planned addresses of blocks; NULL: blocks are allocated
                         // at any free address
    osh_peaks least;     // smallest budgets with which the run is possible
    int64_t solve_limit; // device bytes that a solve may use to work on more rows at a time; 0: it
                         // works on as few rows as possible
} osh_memory;

typedef struct osh_budget {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    const osh_manifest *manifest; // view
    osh_schedule *schedule; // view: the members visits, looks and batch_* are chosen by src/budget
    osh_memory memory;
} osh_budget;

typedef struct osh_limits {
    int64_t device, host, scratch; // bytes; host: without the base; <= 0: no budget
    bool device_given, host_given, scratch_given;
} osh_limits;
static inline void max_into(int64_t *peak, int64_t now)
{
    if (now > *peak) *peak = now;
}
#endif
