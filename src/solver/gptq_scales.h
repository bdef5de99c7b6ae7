/* gptq_scales.h - searches the scale and the zero point of each group of weights, for GPTQ's column
 * loop. */
#ifndef OSH_GPTQ_SCALES_H
#define OSH_GPTQ_SCALES_H
#include "math/grid.h"
#include "ops/op.h"

/* Numbers of candidates that the search tries. OSH_SCALE_PLAIN tries scales for the whole range of
 * a group, and for 1.05 ... 0.475 of the range in steps of 1/40. OSH_SCALE_E4M3 and OSH_SCALE_E8M0
 * try 1.55 ... 0.4 of the range in steps of 1/20, because their scales are coarser. Asymmetric
 * rules try three zero points for each scale. */
enum {
    OSH_SCALE_STEPS = 24,
    OSH_SCALE_ZEROS = 3,
    OSH_SCALE_CANDIDATES = OSH_SCALE_STEPS * OSH_SCALE_ZEROS
};

typedef enum {
    OSH_SCALE_PLAIN, // a scale is any value of `dtype`
    OSH_SCALE_E4M3,  // a scale is a positive FP8 E4M3 value, divided by `global` (NVFP4)
    /* A scale is a power of two, at least osh_power_least and at most osh_power_most (MX). */
    OSH_SCALE_E8M0,
} osh_scale_kind;

typedef struct osh_scale_rule {
    osh_grid grid;
    bool symmetric;
    osh_dtype dtype; // dtype of dequantized weights, and of the scales of OSH_SCALE_PLAIN
    bool fixed; // true: each scale covers the whole range of its group; false: scales are searched
    osh_scale_kind kind;
    float global;    // number by which each E4M3 value of OSH_SCALE_E4M3 is divided
} osh_scale_rule;

typedef struct osh_gptq_scales_args {
    const osh_tensor *w;  // the weight [O, I], columns as in the checkpoint
    /* For each column, [I]: true if its input is always 0. The weights of such a column count as 0.
     * NULL: there are none. */
    const bool *dead;
    /* For each column, the factor of its squared errors in the loss, [I]; NULL: 1. */
    const float *weight;
    int64_t O, I;
    int64_t group;        // number of columns that share a scale
    int64_t row_block;    // number of rows that share a scale
    osh_scale_rule rule;
    /* Output: the scales, rounded to values that can be stored, [scale rows, scale columns]. */
    float *scale;
    float *zero;          // output: the zero points, in the shape of `scale`; NULL: symmetric
} osh_gptq_scales_args;

/* Searches all scales and zero points of `a` on all threads. */
osh_status osh_gptq_scales(osh_ctx *cx, const osh_gptq_scales_args *a);
/* Works like osh_gptq_scales, in plain loops (the reference version). */
osh_status osh_gptq_scales_ref(osh_ctx *cx, const osh_gptq_scales_args *a);
/* Searches the scale and the zero point of one group x [n] in plain loops. `weight` [n]: factor of
 * the squared error of each element; NULL: 1. */
void osh_scale_search_ref(float *scale, float *zero, const osh_scale_rule *r, const float *x,
                          const float *weight, int64_t n);
/* Returns the number of bytes of scratch of osh_gptq_scales. */
size_t osh_gptq_scales_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block, int n_threads);

/* Returns the fraction of a group's range that the k-th candidate scale covers. It is 1 for k = 0.
 * The comment of OSH_SCALE_STEPS lists the other fractions. */
OSH_EVERYWHERE float osh_scale_share(osh_scale_kind kind, int k)
{
    int whole = kind == OSH_SCALE_PLAIN ? 2 : 11, i = k == 0 ? whole : k <= whole ? k - 1 : k;
    return (float)(kind == OSH_SCALE_PLAIN ? 42 - i : 62 - 2 * i) / 40;
}
/* Returns the grid of the positive FP8 E4M3 values. */
OSH_EVERYWHERE osh_grid osh_scale_e4m3(void)
{
    osh_grid g = {0x1p-9f, 448, 8, 4, -9};
    return g;
}
/* The next two functions return the smallest and the largest scale of OSH_SCALE_E8M0. Both scales
 * are powers of two. */
OSH_EVERYWHERE float osh_power_least(osh_dtype dt) { return dt == OSH_F16 ? 0x1p-24f : 0x1p-126f; }
OSH_EVERYWHERE float osh_power_most(osh_dtype dt) { return dt == OSH_F16 ? 0x1p15f : 0x1p127f; }
/* Returns the scale that a group gets if its computed scale is 0. This scale is the eps of dt, as
 * in compressed-tensors. */
OSH_EVERYWHERE float osh_scale_least(osh_dtype dt)
{
    return dt == OSH_BF16 ? 0x1p-7f : dt == OSH_F16 ? 0x1p-10f : 0x1p-23f;
}
/* Returns the scale nearest to s that the rule can store, or 0 if s is not above 0. */
float osh_scale_round(const osh_scale_rule *r, float s);
/* Returns the scale for the fraction `share` of the range [lo, hi], lo <= 0 <= hi. Sets *zero to
 * the middle one of the three candidate zero points for this scale. The caller clamps *zero. */
float osh_scale_of(float *zero, const osh_scale_rule *r, float share, float lo, float hi);
#endif
