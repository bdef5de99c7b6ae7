/* memory.h - how many bytes of memory, disk and transfer a plan takes, and how the plan is fitted
 * into budgets.
 *
 * Bytes are those of osh_mem_gross. Device: weights, Hessians, the current batch, scratch; on the
 * CPU back end it is a part of the host memory. Host: all anonymous memory of the process.
 * docs/explanation/memory.md has the model. */
#ifndef OSH_MEMORY_H
#define OSH_MEMORY_H
#include "budget/budget.h"
#include "schedule/visit.h"

static inline void max_into(int64_t *peak, int64_t now)
{
    if (now > *peak) *peak = now;
}

/* Fills p->memory: simulates every visit and chooses tier, prefetch and phases. Fails with
 * OSH_E_USAGE and the smallest sufficient budget if the budgets of p->opt cannot be kept. */
osh_status osh_plan_memory(osh_ctx *cx, osh_budget *p);
/* Limits the context to the budgets from now on. */
void osh_memory_enforce(osh_ctx *cx, const osh_budget *p);
typedef struct osh_limits {
    int64_t device, host, scratch; // bytes; host: without the base; 0 or less: none given
    bool device_given, host_given, scratch_given;
} osh_limits;
/* simulate.c: simulates all visits with the phases of p->visits and the tier, and fills in
 * their figures. ever [weights]: set for each weight that some visit loads; may be NULL. */
osh_status osh_memory_simulate(osh_ctx *cx, osh_budget *p, osh_tier tier, bool *ever);
/* Simulates once more, to fill p->memory.places. */
osh_status osh_memory_place(osh_ctx *cx, osh_budget *p);
/* True if every reader bypasses the page cache from the beginning, so that the base has the blocks
 * for it. If false and a large source is read so without data, a stream has bands for it, and one
 * thread reads each tensor that is rounded in one piece. */
bool osh_memory_blocks_in_base(const osh_budget *p);
/* memory_rest.c: chooses how tensors outside of visits pass through memory and fills in the
 * figures. least: without reading ahead, with one band and nothing held. ever: as above. */
osh_status osh_memory_rest(osh_ctx *cx, osh_budget *p, const bool *ever, const osh_limits *b,
                           osh_limits *least);
/* Buffers that a Linear is packed into. */
int64_t osh_memory_pack_bytes(const osh_budget *p, const osh_linear *l);
/* Returns the memory of a modifier's compress, with that of the pruner before it; jobs are not
 * changed. *device: part in a GPU's arena; NULL: all is host memory. */
int64_t osh_memory_compress_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                                  const osh_linear *lead, int n_threads, size_t *device);
/* Fills in the smallest budgets in p->memory for the visits, without the base: everything cold and
 * in small pieces. */
osh_status osh_memory_least(osh_ctx *cx, osh_budget *p);
/* refuse.c: returns OSH_E_USAGE with the smallest sufficient budget. outside: needs outside of
 * visits. */
osh_status osh_memory_refuse(osh_ctx *cx, const osh_budget *p, const osh_limits *b,
                             const osh_limits *outside);
/* Returns the arena size on a GPU: the budget, or without one the prediction and a reserve, since a
 * resumed run has other gaps between its blocks. */
int64_t osh_memory_arena(const osh_budget *p);
/* Most bytes that are planned for a GPU with free_bytes. */
int64_t osh_memory_of_card(int64_t free_bytes);
/* True if host memory of values is page-locked for a GPU. */
bool osh_memory_pins(const osh_options *o);
/* Returns the host peak as osh_mem_used counts it. */
size_t osh_memory_counted(const osh_budget *p);
/* Returns the number of batches whose values stay tensors in the memory that the run computes
 * in. */
int64_t osh_memory_kept(const osh_budget *p, osh_tier tier);
/* learning_bytes.c: host memory of tuning beside the base; 0: nothing is tuned. */
osh_status osh_tuning_bytes(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p);
/* learning_bytes.c: returns in *n_bytes the host memory of the range's block while it learns. */
osh_status osh_block_peak(osh_ctx *cx, int64_t *n_bytes, const osh_budget *p,
                          const osh_range *r);
/* fold_bytes.c, gross: statistics for its factors. */
int64_t osh_fold_seen_bytes(const osh_budget *p, const osh_fold *f);
/* Bytes (gross) for making its factors. reads: weights may have to be read for it. */
osh_status osh_fold_scratch(osh_ctx *cx, int64_t *bytes, const osh_budget *p, const osh_fold *f,
                            bool reads);
#endif
