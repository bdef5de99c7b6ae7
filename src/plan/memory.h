/* memory.h - what a plan takes in memory, on disk and over the wire, and how it is made to fit into budgets.
 *
 * Bytes are those of osh_mem_gross. Device: weights, Hessians, the batch at work, scratch; on the CPU back end it is a
 * part of the host's. Host: all of the process's anonymous memory. docs/memory.md has the model. */
#ifndef OSH_MEMORY_H
#define OSH_MEMORY_H
#include "plan/visit.h"

static inline void max_into(int64_t *peak, int64_t now)
{
    if (now > *peak) *peak = now;
}

/* Fills p->memory: simulates every visit, chooses tier, prefetch and phases, and fails (OSH_E_USAGE), naming the
 * smallest budget that would do, where the budgets of p->opt cannot be held. */
osh_status osh_plan_memory(osh_ctx *cx, osh_plan *p);
/* Holds the context to the budgets from here on. */
void osh_memory_enforce(osh_ctx *cx, const osh_plan *p);
typedef struct osh_budget {
    int64_t device, host, scratch; // host: without the base; 0 or less: none given
    bool device_given, host_given, scratch_given;
} osh_budget;
/* simulate.c: all visits as p->memory.visits and the tier say; fills in their figures. ever [weights]: is set where a
 * visit loads it, or NULL. */
osh_status osh_memory_simulate(osh_ctx *cx, osh_plan *p, osh_tier tier, bool *ever);
osh_status osh_memory_place(osh_ctx *cx, osh_plan *p); // once more, for p->memory.places
/* Tensors are read past the page cache from the beginning on, by whoever reads. Else, where a large source is read so
 * without data, a stream has bands for it and what is rounded in one piece is read by one thread. */
bool osh_memory_blocks_in_base(const osh_plan *p);
/* memory_rest.c: chooses how what runs outside of visits goes through memory and fills in its figures; least: without
 * reading ahead, with one band and nothing held. ever as above. */
osh_status osh_memory_rest(osh_ctx *cx, osh_plan *p, const bool *ever, const osh_budget *b, osh_budget *least);
int64_t osh_memory_pack_bytes(const osh_plan *p, const osh_linear *l); // buffers that a Linear is packed into
/* What a modifier's compress takes, and that of the one that prunes before it; jobs are left as they are.
 * device: of a card's arena; NULL: all is host memory. */
int64_t osh_memory_compress_bytes(const osh_plan *p, osh_linear_job *jobs, int n, const osh_linear *lead, int n_threads,
                                  size_t *device);
/* Fills in the smallest budgets of p->memory, without its base, for what runs inside of visits: everything cold and in
 * small pieces. */
osh_status osh_memory_least(osh_ctx *cx, osh_plan *p);
/* refuse.c: OSH_E_USAGE with the smallest budget that would do. outside: what runs outside of visits takes. */
osh_status osh_memory_refuse(osh_ctx *cx, const osh_plan *p, const osh_budget *b, const osh_budget *outside);
/* Bytes of the arena on a card: the budget, or without one what is predicted and a little more, since a run that goes
 * on from an earlier one has other gaps between its blocks. */
int64_t osh_memory_arena(const osh_plan *p);
int64_t osh_memory_of_card(int64_t free_bytes); // what is planned with at most on a card that has so much
bool osh_memory_pins(const osh_options *o); // host memory of values is page-locked with a card
/* The host peak as osh_mem_used counts it. */
size_t osh_memory_counted(const osh_plan *p);
#endif
