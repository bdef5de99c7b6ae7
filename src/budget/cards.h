/* cards.h - lists GPUs for which a run can be planned without having one, and estimates the time
 * that the run would need. */
#ifndef OSH_CARDS_H
#define OSH_CARDS_H
#include "budget/cost.h"

typedef struct osh_card_model {
    const char *name, *title;
    int64_t memory_bytes; // total memory, as nvidia-smi reports it
    bool tf32_pays;       // result of osh_cuda_tf32_pays for the GPU's compute capability
    /* bf16, tf32, f32: dense operations per second of products with F32 sums. memory: bytes per
     * second. bus: bytes per second from the host, in one direction. */
    double bf16, tf32, f32, memory, bus;
} osh_card_model;
const osh_card_model *osh_card_model_find(const char *name); // NULL: unknown

typedef struct osh_estimate { // seconds, without the time of the disk
    double phase[OSH_N_PHASES]; // observe, solve, propagate; including copies that are not hidden
    double copies;              // all copies over the bus, hidden or not
} osh_estimate;
/* Estimates how long the planned run needs on this GPU. */
osh_status osh_plan_estimate(osh_ctx *cx, osh_estimate *out, const osh_budget *p,
                             const osh_card_model *m);
#endif
