/* gpus.c - has the table of speeds of GPUs, and estimates the time that a run needs on a GPU.
 *
 *   pass        max(compute, copies) if both are planned to overlap, else compute + copies
 *     compute   operations / (sustained BF16) + bytes of values through ops / (sustained memory)
 *     copies    (weights loaded + values stored outside of the GPU) / (sustained bus)
 *   solve       per Linear O I^2 operations in F32, or 3 O I^2 in TF32
 *               per input 2/3 I^3 operations in F32, and 28 us for each block of 128 columns,
 *               because the column loop solves the blocks one after the other
 *               (docs/how-to/cuda.md)
 *
 * O and I: output and input features of a Linear. The speeds are from the vendor's data sheets
 * (docs/how-to/cuda.md names them). This program was not measured on any of these GPUs. */
#include "budget/gpus.h"

#include <math.h>
#include <string.h>


/* Fraction of each speed of the table that a run reaches, as an assumption. */
static const double sustained = 0.7;
enum { BLOCK = 128 };
static const double block_seconds = 28e-6;

static const osh_gpu_model models[] = {
    /* Columns: name, title, bytes of memory, tf32_pays, bf16, tf32, f32, memory, bus
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
    return (c->loaded[phase] + (outside ? c->stored[phase] : 0)) / (sustained * m->bus);
}

static double gpu_compute_seconds(const osh_gpu_model *m, const osh_cost *c, int phase)
{
    return c->done[phase] / (sustained * m->bf16) + c->moved[phase] / (sustained * m->memory);
}

/* Returns the seconds of the column loops. A column loop solves the blocks of BLOCK columns one
 * after the other. */
static double gpu_chain_seconds(const osh_budget *p)
{
    double blocks = 0;
    for (int i = 0; i < p->match->n_linears; i++)
        if (osh_hessian_bytes(p->schedule, i))
            blocks += ceil((double)p->match->linears[i].I / BLOCK);
    return blocks * block_seconds;
}

osh_status osh_plan_estimate(osh_ctx *cx, osh_estimate *out, const osh_budget *p,
                             const osh_gpu_model *m)
{
    osh_status rc = OSH_OK;
    osh_cost *cost = NULL; // own
    int n = 0;
    double solve_rate = sustained * (m->tf32_pays ? m->tf32 / 3 : m->f32);
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
            (flops[OSH_PHASE_SOLVE] - cost[i].factor_flops - cost[i].search_flops) / solve_rate +
            cost[i].factor_flops / (sustained * m->f32);
        out->search_flops += cost[i].search_flops;
    }
    out->phase[OSH_PHASE_SOLVE] += gpu_chain_seconds(p);
done:
    osh_free(cx, cost);
    return rc;
}
