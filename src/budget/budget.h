/* budget.h - computes the memory, disk space and transfers of a plan, and chooses how the plan
 * keeps its budgets. */
#ifndef OSH_BUDGET_H
#define OSH_BUDGET_H
#include "rewrite/manifest.h"
#include "schedule/schedule.h"
#include "store/tier.h"

/* Kinds of long-lived blocks in the memory that the program manages on a GPU (its arena,
 * layout.h). */
typedef enum { // index of a block: graph weight for WEIGHT; value * n_batches + batch for ROWS;
               // else graph value
    OSH_LAYOUT_WEIGHT, OSH_LAYOUT_HESSIAN, OSH_LAYOUT_SHIFT, OSH_LAYOUT_RANGE, OSH_LAYOUT_ROWS,
    OSH_LAYOUT_HESSIAN_PART, OSH_LAYOUT_SHIFT_PART, // second block (osh_stat.part) of a Hessian, of
                                                    // a shift
    OSH_LAYOUT_N_KINDS
} osh_layout_kind;
typedef struct osh_places osh_places; // defined in layout.c: planned addresses of blocks
typedef struct osh_device_peaks osh_device_peaks; // defined in graph/device_peaks.h: peaks of
                                                  // passes on a GPU
typedef struct osh_trials osh_trials; // defined in trials.c: results of simulations
typedef struct osh_peaks { // peaks in bytes of device memory, host memory and scratch files
    int64_t device, host, scratch;
} osh_peaks;
typedef struct osh_memory {
    osh_tier tier;
    bool looks_f16;      // values that an observer reads twice (schedule/looks.h) are stored as
                         // F16, which changes the output
    int64_t n_kept;      // tier disk: number of batches whose values stay in memory
    int n_loaders;       // number of threads that read values from the disk in advance
    int64_t n_ahead;     // tier disk: number of batches that the loaders read in advance
    bool read_ahead; // for Linears that are rounded without data: reads the next weight while the
                     // current Linear is rounded
    int n_stream;        // number of threads of a stream; each has one band of a tensor
    int n_held;          // number of bands that a stream keeps in memory until it reads them a
                         // second time
    int64_t early;       // host bytes for reading large output tensors back during the run, part of
                         // base_bytes; 0: all tensors are read back at the seal
    bool direct;         // source and output bypass the page cache
    bool by_card;        // tier disk: the GPU itself reads the files of values, without a copy in
                         // host memory
    int64_t base_bytes;  // host bytes of the process before the first visit, including later
                         // allocations of its libraries
    int64_t uncounted;   // part of base_bytes that osh_mem_used does not count, such as libraries
                         // and stacks
    int64_t load_bytes;  // peak of the host bytes while source, tokenizer and data are read
    osh_peaks peak;      // peaks of the whole run; peak.host includes base_bytes
    int highest;         // index of the visit with the highest host peak; -1: none
    int64_t read_bytes, write_bytes, reread_bytes; // bytes read from the source; written; read from
                                                   // the output at the seal
    osh_device_peaks *peaks; // own: with a GPU: peaks of passes, used while the plan is made; NULL:
                             // not needed any more
    osh_trials *trials;  // own: results of simulations, used while the plan is made; NULL: not
                         // needed any more
    osh_places *places;  // own: with a GPU: planned addresses of blocks; NULL: each block gets any
                         // free address
    osh_peaks least;     // smallest budgets with which the run is possible; memory.c describes
                         // `host`
    int64_t solve_limit; // a solve may use device memory up to this many bytes, to work on more
                         // rows at a time; 0: a solve uses the least memory
} osh_memory;

typedef struct osh_budget {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    const osh_manifest *manifest; // view
    osh_schedule *schedule; // view; src/budget sets its members visits, looks and batch_*
    osh_memory memory;
} osh_budget;

typedef struct osh_limits {
    int64_t device, host, scratch; // bytes; host: without base_bytes; <= 0: no budget
    bool device_given, host_given, scratch_given;
} osh_limits;
static inline void max_into(int64_t *peak, int64_t now)
{
    if (now > *peak) *peak = now;
}
#endif
