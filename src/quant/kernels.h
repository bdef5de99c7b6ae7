/* kernels.h - the loops over elements of a row segment: range, code, decode. Internal to quant/.
 *
 * A segment is a run of n elements of one row that share scale and zero point. Two columns: plain C (the definition)
 * and AVX2; both give the same bytes. tests/unit/test_arith.c compares them.
 */
#ifndef OSH_QUANT_KERNELS_H
#define OSH_QUANT_KERNELS_H
#include "quant/arith.h"

/* Bytes of codes: two's complement; E4M3; E2M1 in the low 4 bits: sign, then an index into 0 .5 1 1.5 2 3 4 6;
 * E2M3 in the low 6 bits: sign, then an index into 0 .125 ... 1.875, 2 2.25 ... 3.75, 4 4.5 ... 7.5. */
typedef enum { OSH_Q_CODE_INT, OSH_Q_CODE_FP8, OSH_Q_CODE_FP6, OSH_Q_CODE_FP4 } osh_q_code_kind;
typedef struct osh_q_code { // how a segment is coded
    float scale, zero;      // zero: 0 where symmetric
    float qmin, qmax;
    osh_q_code_kind kind;
    osh_dtype round; // dtype that w/scale, then + zero, are rounded to; OSH_F32: not at all
} osh_q_code;

typedef struct osh_q_scale_rule { // how a range becomes scale and zero point
    float qmin, qmax;
    bool symmetric;
    osh_dtype dt, step; // of the scale; what the steps between are rounded to
} osh_q_scale_rule;

typedef struct osh_q_kernels {
    const char *name;
    /* Exact smallest and largest of x [n]; a NaN or Inf among them comes out as a NaN or Inf. n > 0. */
    void (*range)(float *min, float *max, const void *x, osh_dtype dt, int64_t n);
    /* scale [n], zp [n] (NULL: none) of the ranges. Returns how many it did: a multiple of its width. */
    int64_t (*params)(void *scale, int8_t *zp, const float *min, const float *max, int64_t n,
                      const osh_q_scale_rule *rule);
    /* codes [n] = round(clamp(rnd(rnd(x / scale) + zero), qmin, qmax)); x is finite. E2M3 has no zero: -0 stays -0. */
    void (*encode)(uint8_t *codes, const void *x, osh_dtype dt, int64_t n, const osh_q_code *c);
    /* y [n] of dtype dt = rnd((code - zero) * scale) */
    void (*decode)(void *y, osh_dtype dt, const uint8_t *codes, int64_t n, const osh_q_code *c);
    /* sum[0] = |a - b|^2, sum[1] = |a|^2 in double: element i goes to lane i % 8, the lanes are added in order. */
    void (*error)(double sum[2], const void *a, const void *b, osh_dtype dt, int64_t n);
} osh_q_kernels;

extern const osh_q_kernels osh_q_kernels_c;
/* For a CPU with OSH_ISA_AVX2, which the caller asks for (once: CPUID leaves a virtual machine). NULL: not x86-64. */
const osh_q_kernels *osh_q_kernels_avx2(void);
const osh_q_kernels *osh_q_kernels_best(void);

float osh_q_round_to(float x, osh_dtype dt); // to the nearest value of dt, ties to even
/* The scale of one range where its dtype is E8M0: 2^n, in dt; or E4M3: its code, a group's, relative to global. */
float osh_q_scale_e8m0(float min, float max, const osh_q_args *a, osh_dtype dt);
uint8_t osh_q_scale_e4m3(float min, float max, float global, osh_dtype dt);
/* calculate_qparams of one range: code's scale and zero; zero_f32: its 0-dimensional case (dynamic, strategy tensor),
 * where qmin - t is not rounded. */
void osh_q_code_scale(osh_q_code *code, float min, float max, const osh_q_args *a, osh_dtype dt, bool zero_f32);
osh_q_code osh_q_code_of(const osh_q_args *a, osh_dtype round);
#endif
