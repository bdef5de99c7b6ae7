/* gptq_scales.h - searches the scale and the zero point of each group of weights, for GPTQ's column
 * loop. */
#ifndef OSH_GPTQ_SCALES_H
#define OSH_GPTQ_SCALES_H
#include "math/grid.h"
#include "ops/op.h"

/* Numbers of candidates. OSH_SCALE_PLAIN tries the whole range of a group and 1.05 ... 0.475 of
 * this range, in steps of 1/40. OSH_SCALE_E4M3 and OSH_SCALE_E8M0, whose scales are coarser, try
 * 1.55 ... 0.4 of the range, in steps of 1/20. Asymmetric rules try three zero points for each
 * scale. */
enum {
    OSH_SCALE_STEPS = 24,
    OSH_SCALE_ZEROS = 3,
    OSH_SCALE_CANDIDATES = OSH_SCALE_STEPS * OSH_SCALE_ZEROS
};

typedef enum {
    OSH_SCALE_PLAIN, // scale: any value of `dtype`
    OSH_SCALE_E4M3,  // scale: a positive value of FP8 E4M3 divided by `global` (NVFP4)
    OSH_SCALE_E8M0,  // scale: a power of two from osh_power_least to osh_power_most (MX)
} osh_scale_kind;

typedef struct osh_scale_rule {
    osh_grid grid;
    bool symmetric;
    osh_dtype dtype; // dtype to which scales of OSH_SCALE_PLAIN and dequantized weights are rounded
    bool fixed;      // true: the scale covers the whole range; false: the scale is searched
    osh_scale_kind kind;
    float global;    // divisor of the scales of OSH_SCALE_E4M3
} osh_scale_rule;

typedef struct osh_gptq_scales_args {
    const osh_tensor *w;  // the weight [O, I], columns as in the checkpoint
    /* True for dead columns (the input is always 0; their weights count as 0), [I]; NULL: no dead
     * columns. */
    const bool *dead;
    const float *weight;  // cost of a squared error in each column, [I]; NULL: 1
    int64_t O, I;
    int64_t group;        // number of columns that share a scale
    int64_t row_block;    // number of rows that share a scale
    osh_scale_rule rule;
    float *scale; // output: scales as stored, exact in rule.dtype, [scale rows, scale columns]
    float *zero;          // output, shape of `scale`; NULL: symmetric
} osh_gptq_scales_args;

osh_status osh_gptq_scales(osh_ctx *cx, const osh_gptq_scales_args *a);
osh_status osh_gptq_scales_ref(osh_ctx *cx, const osh_gptq_scales_args *a);
/* Searches the scale and the zero point of one group x [n] with plain loops. `weight` [n]: cost of
 * a squared error; NULL: 1. */
void osh_scale_search_ref(float *scale, float *zero, const osh_scale_rule *r, const float *x,
                          const float *weight, int64_t n);
/* Returns the number of bytes of scratch of osh_gptq_scales. */
size_t osh_gptq_scales_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block, int n_threads);

/* Returns the fraction of the range that the k-th candidate scale covers: 1 for k = 0, else one of
 * the fractions that the comment of OSH_SCALE_STEPS lists. */
OSH_EVERYWHERE float osh_scale_share(osh_scale_kind kind, int k)
{
    int whole = kind == OSH_SCALE_PLAIN ? 2 : 11, i = k == 0 ? whole : k <= whole ? k - 1 : k;
    return (float)(kind == OSH_SCALE_PLAIN ? 42 - i : 62 - 2 * i) / 40;
}
/* Returns the grid of the positive values of E4M3. */
OSH_EVERYWHERE osh_grid osh_scale_e4m3(void)
{
    osh_grid g = {0x1p-9f, 448, 8, 4, -9};
    return g;
}
/* Return the smallest and the largest power of two of OSH_SCALE_E8M0. */
OSH_EVERYWHERE float osh_power_least(osh_dtype dt) { return dt == OSH_F16 ? 0x1p-24f : 0x1p-126f; }
OSH_EVERYWHERE float osh_power_most(osh_dtype dt) { return dt == OSH_F16 ? 0x1p15f : 0x1p127f; }
/* Returns the scale that replaces a scale of 0 (compressed-tensors' eps of the dtype). */
OSH_EVERYWHERE float osh_scale_least(osh_dtype dt)
{
    return dt == OSH_BF16 ? 0x1p-7f : dt == OSH_F16 ? 0x1p-10f : 0x1p-23f;
}
/* Returns the scale nearest to s that the rule can store. Returns 0 if s is not above 0. */
float osh_scale_round(const osh_scale_rule *r, float s);
/* Returns the scale for `share` of the range [lo, hi], lo <= 0 <= hi. Sets *zero to the middle one
 * of the three candidate zero points for this scale. *zero is not clamped. */
float osh_scale_of(float *zero, const osh_scale_rule *r, float share, float lo, float hi);
#endif
