/* gpus.h - lists the GPU models for which oneshot can plan a run on a machine without a GPU. Also
 * estimates the time that the run would take on a GPU of such a model. */
#ifndef OSH_GPUS_H
#define OSH_GPUS_H
#include "budget/cost.h"

typedef struct osh_gpu_model {
    const char *name, *title;
    int64_t memory_bytes; // total bytes of memory, as nvidia-smi reports them
    /* True if three matrix products in TF32 take less time than one product in F32. */
    bool tf32_pays;
    /* bf16, tf32, f32: operations per second of dense matrix products with F32 sums.
     * memory: bytes per second of the GPU's memory.
     * bus: bytes per second between host and GPU, in one direction. */
    double bf16, tf32, f32, memory, bus;
} osh_gpu_model;
const osh_gpu_model *osh_gpu_model_find(const char *name); // returns NULL if the name is unknown

typedef struct osh_estimate { // estimated seconds of a run, without the time of the disk
    /* Seconds of each of the phases `observe`, `solve` and `propagate`. Copies count if they do not
     * overlap with computation. */
    double phase[OSH_N_PHASES];
    /* Seconds of all copies between host and GPU, including those that overlap with computation. */
    double copies;
    /* Floating-point operations of searches on the host (osh_cost). Their seconds are not
     * estimated. */
    double search_flops;
    /* Floating-point operations of pruned Linears, which the host solves. Their seconds are not
     * estimated. */
    double pruned_flops;
    /* Floating-point operations of learning Linear by Linear, which the host does. Their seconds
     * are not estimated, either. */
    double learned_flops;
} osh_estimate;
/* Estimates the seconds that the planned run takes on the GPU model m. */
osh_status osh_plan_estimate(osh_ctx *cx, osh_estimate *out, const osh_budget *p,
                             const osh_gpu_model *m);
#endif
