/* cards.h - cards that a run can be planned for without having them, and how long it would take on one. */
#ifndef OSH_CARDS_H
#define OSH_CARDS_H
#include "plan/cost.h"

typedef struct osh_card_model {
    const char *name, *title;
    int64_t memory_bytes; // all of it, as nvidia-smi tells
    bool tf32_pays;       // osh_cuda_tf32_pays of its compute capability
    /* Dense operations a second of BF16 and TF32 products with F32 sums and of F32; bytes a second of its memory, and
     * from the host in one direction. */
    double bf16, tf32, f32, memory, bus;
} osh_card_model;
const osh_card_model *osh_card_model_find(const char *name); // NULL: unknown
const osh_card_model *osh_card_model_at(size_t i);           // NULL: there are no more

typedef struct osh_estimate { // seconds; without the disk
    double phase[OSH_N_PHASES]; // observe, solve, propagate; copies that are not hidden are in it
    double copies;              // over the bus, hidden or not
} osh_estimate;
osh_status osh_plan_estimate(osh_ctx *cx, osh_estimate *out, const osh_plan *p, const osh_card_model *m);
#endif
