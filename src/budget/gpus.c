/* gpus.c - has the table of speeds of GPUs, and estimates the time that a run needs on a GPU.
 *
 *   time of a pass = max(compute, copies) if the plan overlaps them, else compute + copies
 *   compute = operations / BF16 + operations of Hessians / BF16 + bytes of values / memory
 *   copies  = (weights loaded + values stored outside of the GPU) / bus
 *
 * Solving a Linear takes O I^2 operations in F32, or 3 O I^2 in TF32. Each input of Linears takes
 * 2/3 I^3 operations in F32, too. Each input also takes 1.05 us for each column of the factor and
 * 160 us for each block of 128 columns, because factor and column loop compute the columns one
 * after the other. Learning by block takes operations / BF16.
 *
 * O and I: output and input features of a Linear. The speeds are from the vendors' data sheets
 * (docs/how-to/cuda.md names them). A run reaches a fraction of each speed. The fractions and the
 * microseconds were measured on an H100 and an H200 (docs/internals/cuda.md). For other GPUs, they
 * are assumptions. */
#include "budget/gpus.h"

#include <math.h>
#include <string.h>

/* A run reaches a fraction of each speed in the table.
 * bf16: fraction of the BF16 speed, for matrix products of passes.
 * sums: fraction of the BF16 speed, for Hessians.
 * tf32: fraction of the TF32 speed, for products of a solve.
 * f32: fraction of the F32 speed, for products of a solve and for factors of Hessians. */
static const double share_of_bf16 = 0.7, share_of_sums = 0.47, share_of_tf32 = 0.17,
                    share_of_f32 = 0.5, share_of_memory = 0.85, share_of_bus = 0.7;
enum { BLOCK = 128 };
static const double block_seconds = 160e-6, column_seconds = 1.05e-6;

static const osh_gpu_model models[] = {
    /* Columns: name, title, memory_bytes, tf32_pays, bf16, tf32, f32, memory, bus
     * (osh_gpu_model). */
    {"b200", "NVIDIA B200 SXM", 171661ll << 20, true,
     2250e12, 1125e12, 75e12, 7.7e12, 64e9},
    {"h200", "NVIDIA H200 SXM", 143771ll << 20, true,
     989e12, 495e12, 67e12, 4.8e12, 64e9},
    {"h100", "NVIDIA H100 SXM 80GB", 81559ll << 20, true,
     989e12, 495e12, 67e12, 3.35e12, 64e9},
    {"a100", "NVIDIA A100 SXM 80GB", 81920ll << 20, true,
     312e12, 156e12, 19.5e12, 2.039e12, 32e9},
    {"l40s", "NVIDIA L40S", 46068ll << 20, false,
     362e12, 183e12, 91.6e12, 0.864e12, 32e9},
    {"rtx5090", "GeForce RTX 5090", 32607ll << 20, false,
     209.5e12, 104.8e12, 104.8e12, 1.792e12, 64e9},
    {"rtx4090", "GeForce RTX 4090", 24564ll << 20, false,
     165e12, 82.6e12, 82.6e12, 1.008e12, 32e9},
    {"rtx3090", "GeForce RTX 3090", 24576ll << 20, false,
     71e12, 35.6e12, 35.6e12, 0.936e12, 32e9},
    {"rtx3060", "GeForce RTX 3060 12GB", 12288ll << 20, false,
     25.5e12, 12.7e12, 12.7e12, 0.36e12, 32e9},
    {"rtx4060", "GeForce RTX 4060 8GB", 8188ll << 20, false,
     30.2e12, 15.1e12, 15.1e12, 0.272e12, 16e9},
};
enum { N_MODELS = sizeof models / sizeof *models };

const osh_gpu_model *osh_gpu_model_find(const char *name)
{
    for (size_t i = 0; i < N_MODELS; i++)
        if (!strcmp(models[i].name, name)) return &models[i];
    return NULL;
}

static double gpu_copy_seconds(const osh_budget *p, const osh_gpu_model *m, const osh_cost *c,
                               int phase)
{
    bool outside = p->memory.tier != OSH_TIER_DEVICE;
    return (c->loaded[phase] + (outside ? c->stored[phase] : 0)) / (share_of_bus * m->bus);
}

static double gpu_compute_seconds(const osh_gpu_model *m, const osh_cost *c, int phase)
{
    return c->done[phase] / (share_of_bf16 * m->bf16) + c->sums[phase] / (share_of_sums * m->bf16) +
           c->moved[phase] / (share_of_memory * m->memory);
}

/* Returns the seconds of the work that computes columns one after the other: the factors of
 * Hessians, and the column loops of GPTQ. The number of rows does not matter. */
static double gpu_chain_seconds(const osh_budget *p)
{
    double seconds = 0;
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (!osh_hessian_bytes(p->schedule, i) || osh_cost_leaves_gpu(p, l)) continue;
        seconds +=
            ceil((double)l->I / BLOCK) * block_seconds + (double)l->I * column_seconds;
    }
    return seconds;
}

osh_status osh_plan_estimate(osh_ctx *cx, osh_estimate *out, const osh_budget *p,
                             const osh_gpu_model *m)
{
    osh_status rc = OSH_OK;
    osh_cost *cost = NULL; // own
    int n = 0;
    double solve_rate = m->tf32_pays ? share_of_tf32 * m->tf32 / 3 : share_of_f32 * m->f32;
    *out = (osh_estimate){0};
    OSH_TRY(osh_cost_new(cx, &cost, &n, p));
    for (int i = 0; i < n; i++) {
        for (int k = OSH_PHASE_OBSERVE; k <= OSH_PHASE_PROPAGATE;
             k += OSH_PHASE_PROPAGATE - OSH_PHASE_OBSERVE) {
            osh_phases how = {0};
            if (i < p->schedule->n_visits) how = p->schedule->visits[i].how;
            bool at_once =
                p->memory.tier == OSH_TIER_DEVICE ? how.prefetch_device : how.values_ahead;
            double compute = gpu_compute_seconds(m, &cost[i], k),
                   copies = gpu_copy_seconds(p, m, &cost[i], k);
            out->phase[k] += at_once ? fmax(compute, copies) : compute + copies;
            out->copies += copies;
        }
        const double *flops = cost[i].flops;
        out->phase[OSH_PHASE_SOLVE] +=
            (flops[OSH_PHASE_SOLVE] - cost[i].factor_flops - cost[i].search_flops -
             cost[i].block_flops) / solve_rate +
            cost[i].factor_flops / (share_of_f32 * m->f32) +
            cost[i].block_flops / (share_of_bf16 * m->bf16);
        out->search_flops += cost[i].search_flops;
        out->pruned_flops += cost[i].pruned_flops;
        out->learned_flops += cost[i].learned_flops;
    }
    out->phase[OSH_PHASE_SOLVE] += gpu_chain_seconds(p);
done:
    osh_free(cx, cost);
    return rc;
}
