/* ada.cuh - declares the group of a weight that learns on a GPU, and functions that both ada.cu and
 * ada_adam.cu use. The f32 operations are those of solver/cpu/ada_rows.c and ada_moves.c, in the
 * same order and without fused products. */
#ifndef OSH_ADA_CUH
#define OSH_ADA_CUH
#include "ops/cuda/pack.cuh"
#include "solver/cuda/gptq_refine.cuh"
#include "solver/cuda/solver.h"

enum { WARPS = 8, LANES = 32, THREADS = WARPS * LANES };

__device__ inline double osh_ada_warp_sum(double x)
{
    for (int d = LANES / 2; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ inline float osh_ada_rounded(osh_dtype dt, float x)
{
    return dt == OSH_BF16  ? osh_cu_round<osh_bf16_t>(x)
           : dt == OSH_F16 ? osh_cu_round<osh_f16_t>(x)
                           : x;
}

__device__ inline float osh_ada_stored(const osh_scale_rule &r, float s)
{
    return r.dtype == OSH_BF16  ? osh_cu_stored<osh_bf16_t>(r, s)
           : r.dtype == OSH_F16 ? osh_cu_stored<osh_f16_t>(r, s)
                                : osh_cu_stored<float>(r, s);
}

struct osh_ada_group { // a group of a row, and its learned range
    int64_t first, n;                    // columns [first, first + n) of the weight's elements
    float s0, z0, low, high, a, b, s, z; // low, high: magnitudes of the two ends of the range
};

/* Returns the value of the grid that is the code of weight w with offset v. Sets *u to w / s. Sets
 * *in to false if the code was clipped. */
__device__ inline float osh_ada_code(const osh_ada_there &p, const osh_ada_group &g, float w,
                                     float v, float *u, bool *in)
{
    const osh_grid &grid = p.rule.grid;
    const float magic = 12582912.0f; // adding and subtracting it rounds to whole numbers
    *u = __fdiv_rn(w, g.s);
    float q = __fadd_rn(*u, v);
    if (!grid.digits) {
        q = q > 4096 ? 4096 : q < -4096 ? -4096 : q;
        q = __fadd_rn(__fsub_rn(__fadd_rn(q, magic), magic), g.z);
    }
    *in = q >= grid.lo && q <= grid.hi;
    q = q < grid.lo ? grid.lo : q > grid.hi ? grid.hi : q;
    return grid.digits ? osh_cu_on_grid(grid, q) : q;
}

/* Returns group k of the weight, without its scale and zero point. */
__device__ inline osh_ada_group osh_ada_group_at(const osh_ada_there &p, int64_t k)
{
    int64_t n = p.O * p.groups, column = k % p.groups * p.group;
    const float *small = p.small + k;
    return {k / p.groups * p.I + column,
            p.I - column < p.group ? p.I - column : p.group,
            small[OSH_ADA_S0 * n],
            p.has_zero ? small[OSH_ADA_BEST_Z * n] : 0,
            -small[OSH_ADA_LEAST * n],
            small[OSH_ADA_MOST * n],
            small[OSH_ADA_D * n],
            small[OSH_ADA_MEAN * n],
            0,
            0};
}
#endif
