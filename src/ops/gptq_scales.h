/* gptq_scales.h - scales and zero points for GPTQ's column loop: of each group of weights those that lose least. */
#ifndef OSH_GPTQ_SCALES_H
#define OSH_GPTQ_SCALES_H
#include "ops/grid.h"
#include "ops/op.h"

/* Candidates: the whole range of a group and 1.05 ... 0.475 of it, in steps of a fortieth; asymmetric with three zero
 * points each. */
enum { OSH_SCALE_STEPS = 24, OSH_SCALE_ZEROS = 3, OSH_SCALE_CANDIDATES = OSH_SCALE_STEPS * OSH_SCALE_ZEROS };

typedef struct osh_scale_rule {
    osh_grid grid;
    bool symmetric;
    osh_dtype dtype; // a scale is rounded to it
    bool fixed;      // the whole range, without a search
} osh_scale_rule;

typedef struct osh_gptq_scales_args {
    const osh_tensor *w;  // [O, I] in file order
    const bool *dead;     // [I] by column: its weights are taken as 0; NULL: none
    const float *weight;  // [I] by column: what a squared error costs; NULL: 1
    int64_t O, I;
    int64_t group;        // columns that share a scale
    int64_t row_block;    // rows that do
    osh_scale_rule rule;
    float *scale;         // [rows of scales, columns of scales] out: values of dtype
    float *zero;          // the same; NULL where symmetric
} osh_gptq_scales_args;

osh_status osh_gptq_scales(osh_ctx *cx, const osh_gptq_scales_args *a);
osh_status osh_gptq_scales_ref(osh_ctx *cx, const osh_gptq_scales_args *a);
/* The reference's search of one group x [n], weight [n] or NULL. */
void osh_scale_search_ref(float *scale, float *zero, const osh_scale_rule *r, const float *x, const float *weight,
                          int64_t n);
size_t osh_gptq_scales_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block, int n_threads); // scratch

/* Share of the range that candidate step k has: first the whole, then falling. */
static inline float osh_scale_share(int k)
{
    int i = k == 0 ? 2 : k <= 2 ? k - 1 : k;
    return (float)(42 - i) / 40;
}
/* What a scale of zero becomes (compressed-tensors' eps of the dtype). */
static inline float osh_scale_least(osh_dtype dt)
{
    return dt == OSH_BF16 ? 0x1p-7f : dt == OSH_F16 ? 0x1p-10f : 0x1p-23f;
}
/* Scale of a candidate and the middle one of its zero points, before it is clamped. lo <= 0 <= hi. */
float osh_scale_of(float *zero, const osh_scale_rule *r, float share, float lo, float hi);
#endif
