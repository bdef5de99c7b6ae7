/* memory.h - what a plan takes in memory, on disk and over the wire, and how it is made to fit into budgets.
 *
 * Bytes are those of osh_mem_gross. Device: weights, Hessians, the batch at work, scratch; on the CPU back end it is a
 * part of the host's. Host: all of the process's anonymous memory. docs/memory.md has the model. */
#ifndef OSH_MEMORY_H
#define OSH_MEMORY_H
#include "pipeline/visit.h"

/* Fills p->memory: simulates every visit, chooses tier, prefetch and phases, and fails (OSH_E_USAGE), naming the
 * smallest budget that would do, where the budgets of p->opt cannot be held. */
osh_status osh_plan_memory(osh_ctx *cx, osh_plan *p);
/* Holds the context to the budgets from here on. */
void osh_memory_enforce(osh_ctx *cx, const osh_plan *p);
/* Directory for values of the disk tier; own. partial: where the output is made. NULL: no memory. */
char *osh_scratch_dir(osh_ctx *cx, const osh_plan *p, const char *partial);
#endif
