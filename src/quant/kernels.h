/* kernels.h - declares the loops over the elements of a segment: range, encode, decode, error. A
 * segment is n elements of a row that share scale and zero point. This header is only for
 * src/quant. There are three implementations: plain C, AVX2 and AVX-512. The plain C defines the
 * results, and the other two give the same bytes. tests/unit/test_arith.c compares them. */
#ifndef OSH_QUANT_KERNELS_H
#define OSH_QUANT_KERNELS_H
#include "quant/arith.h"

/* Kinds of codes.
 * INT: whole numbers in two's complement.
 * FP8: E4M3.
 * FP4: E2M1 in the low 4 bits: sign, then an index into 0 .5 1 1.5 2 3 4 6.
 * FP6: E2M3 in the low 6 bits: sign, then an index into 0 .125 ... 1.875, 2 2.25 ... 3.75, 4 4.5
 * ... 7.5. */
typedef enum { OSH_Q_CODE_INT, OSH_Q_CODE_FP8, OSH_Q_CODE_FP6, OSH_Q_CODE_FP4 } osh_q_code_kind;
typedef struct osh_q_code { // how the elements of one segment are encoded and decoded
    float scale, zero;      // zero: zero point, 0 if the quantization is symmetric
    float qmin, qmax;
    osh_q_code_kind kind;
    /* Dtype to which w / scale is rounded. After zero is added, the sum is rounded to this dtype,
     * too. OSH_F32: neither is rounded. */
    osh_dtype round;
} osh_q_code;

/* Consecutive segments of equal length, each with its own scale and zero point. */
typedef struct osh_q_run {
    int64_t seg, n;           // seg: number of elements of a segment; n: number of segments
    const float *scale, *zero; // views [n]: scale and zero point of each segment
} osh_q_run;
enum { OSH_Q_RUN = 64 }; // largest number of segments of a run

typedef struct osh_q_scale_rule { // how a range is converted to a scale and a zero point
    float qmin, qmax;
    bool symmetric;
    /* dt: dtype of the scale. step: dtype to which each step of the computation is rounded. */
    osh_dtype dt, step;
} osh_q_scale_rule;

typedef struct osh_q_kernels {
    const char *name;
    /* Computes the exact minimum and maximum of x [n], n > 0. If x contains a NaN or an infinite
     * value, *min or *max is not finite. */
    void (*range)(float *min, float *max, const void *x, osh_dtype dt, int64_t n);
    /* Widens n ranges. Range i is [min[i], max[i]]. It is widened until it contains segment i,
     * which is x[seg * i] ... x[seg * (i + 1) - 1]. A NaN in a segment makes an end of its range a
     * NaN, which then remains. */
    void (*ranges)(float *min, float *max, const void *x, osh_dtype dt, int64_t seg, int64_t n);
    /* Converts n ranges to `scale` [n], and to `zp` [n] if `zp` is not NULL. Returns the number k
     * of ranges that were converted. The caller must convert the other ranges, [k, n). */
    int64_t (*params)(void *scale, int8_t *zp, const float *min, const float *max, int64_t n,
                      const osh_q_scale_rule *rule);
    /* Computes codes [n] = round(clamp(rnd(rnd(x / scale) + zero), qmin, qmax)). x must be finite.
     * An E2M3 code has the sign of x, so the code of -0 is -0. */
    void (*encode)(uint8_t *codes, const void *x, osh_dtype dt, int64_t n, const osh_q_code *c);
    /* Computes y[i] = rnd((code - zero) * scale) for y [n] of dtype dt. */
    void (*decode)(void *y, osh_dtype dt, const uint8_t *codes, int64_t n, const osh_q_code *c);
    /* The next two functions encode and decode the segments of a run. They use the scales of the
     * run, not c->scale and c->zero. */
    void (*encode_run)(uint8_t *codes, const void *x, osh_dtype dt, const osh_q_run *r,
                       const osh_q_code *c);
    void (*decode_run)(void *y, osh_dtype dt, const uint8_t *codes, const osh_q_run *r,
                       const osh_q_code *c);
    /* Computes sum[0] = |a - b|^2 and sum[1] = |a|^2 in double. Element i is added to partial sum i
     * % 8; at the end the partial sums are added in order. */
    void (*error)(double sum[2], const void *a, const void *b, osh_dtype dt, int64_t n);
} osh_q_kernels;

extern const osh_q_kernels osh_q_kernels_c;
/* The next two functions call k->encode or k->decode for each segment of a run. Kernels without a
 * faster loop use them as encode_run and decode_run. */
void osh_q_encode_each(uint8_t *codes, const void *x, osh_dtype dt, const osh_q_run *r,
                       const osh_q_code *c, const osh_q_kernels *k);
void osh_q_decode_each(void *y, osh_dtype dt, const uint8_t *codes, const osh_q_run *r,
                       const osh_q_code *c, const osh_q_kernels *k);
/* The next two functions return the kernels for a CPU with AVX2 or with AVX-512 (OSH_ISA_AVX2,
 * OSH_ISA_AVX512). The caller checks once that the CPU has these instructions, because CPUID is
 * slow in a virtual machine. Both functions return NULL if the program was not built for x86-64. */
const osh_q_kernels *osh_q_kernels_avx2(void);
const osh_q_kernels *osh_q_kernels_avx512(void);
/* The next three functions belong to the AVX2 kernels. The AVX-512 kernels use them, too. */
void osh_q_range_avx2(float *min, float *max, const void *x, osh_dtype dt, int64_t n);
void osh_q_ranges_avx2(float *min, float *max, const void *x, osh_dtype dt, int64_t seg, int64_t n);
int64_t osh_q_params_avx2(void *scale, int8_t *zp, const float *min, const float *max, int64_t n,
                          const osh_q_scale_rule *r);
const osh_q_kernels *osh_q_kernels_best(void);

float osh_q_round_to(float x, osh_dtype dt); // rounds x to the nearest value of dt, ties to even
/* The next two functions compute the scale of one range. osh_q_scale_e8m0 returns a power of two,
 * rounded to dt. osh_q_scale_e4m3 multiplies the scale by `global`, and returns the E4M3 code of
 * the product. */
float osh_q_scale_e8m0(float min, float max, const osh_q_args *a, osh_dtype dt);
uint8_t osh_q_scale_e4m3(float min, float max, float global, osh_dtype dt);
/* Sets the scale and the zero point of `code` from the range [min, max] (calculate_qparams). If
 * `zero_f32` is true, the difference qmin - rnd(min / s) is not rounded to the dtype. The reference
 * does not round this difference for 0-dimensional tensors, which occur in dynamic quantization
 * with strategy tensor. */
void osh_q_code_scale(osh_q_code *code, float min, float max, const osh_q_args *a, osh_dtype dt,
                      bool zero_f32);
osh_q_code osh_q_code_of(const osh_q_args *a, osh_dtype round);
/* Widens the range [*min, *max] to contain lo and hi. A NaN becomes an end of the range, and then
 * remains. */
static inline void osh_q_widen(float *min, float *max, float lo, float hi)
{
    if (*min == *min && !(lo >= *min)) *min = lo;
    if (*max == *max && !(hi <= *max)) *max = hi;
}
#endif
