/* cards.h - GPUs that a run can be planned for without having them, and how long it would take on
 * one. */
#ifndef OSH_CARDS_H
#define OSH_CARDS_H
#include "budget/cost.h"

typedef struct osh_card_model {
    const char *name, *title;
    int64_t memory_bytes; // total, as nvidia-smi reports
    bool tf32_pays;       // osh_cuda_tf32_pays of its compute capability
    /* bf16, tf32, f32: dense operations a second of products with F32 sums. memory: bytes a second;
     * bus: bytes a second from the host, in one direction. */
    double bf16, tf32, f32, memory, bus;
} osh_card_model;
const osh_card_model *osh_card_model_find(const char *name); // NULL: unknown
const osh_card_model *osh_card_model_at(size_t i);           // NULL: no more models

typedef struct osh_estimate { // seconds, without the disk
    double phase[OSH_N_PHASES]; // observe, solve, propagate; with the copies that are not hidden
    double copies;              // over the bus, hidden or not
} osh_estimate;
/* Estimates how long the planned run takes on that GPU. */
osh_status osh_plan_estimate(osh_ctx *cx, osh_estimate *out, const osh_budget *p,
                             const osh_card_model *m);
#endif
