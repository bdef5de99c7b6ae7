/* mma.cuh - defines one function for each instruction of tensor cores and of asynchronous copies
 * (sm_80 and later). If OSH_PLAY is defined (in tests), the functions emulate the instructions on
 * the host. tests/kernels/test_mma.cu tests instructions and emulation against the definitions
 * below.
 *
 * osh_cu_mma computes D [16, 8] = A [16, 16] B [16, 8] + C. It is the instruction
 * mma.sync.aligned.m16n8k16.row.col.f32 (PTX ISA 9, section 9.7.14.5.8, "Matrix Fragments for
 * mma.m16n8k16 with floating point type"). Let g be lane / 4 and t be lane % 4. The registers of a
 * lane contain (lower half first):
 *
 *   a[0] = A[g][2t, 2t+1]      a[1] = A[g+8][2t, 2t+1]
 *   a[2] = A[g][2t+8, 2t+9]    a[3] = A[g+8][2t+8, 2t+9]
 *   b[0] = B[2t, 2t+1][g]      b[1] = B[2t+8, 2t+9][g]
 *   c[0], c[1] = C[g][2t, 2t+1]              c[2], c[3] = C[g+8][2t, 2t+1]
 *
 * So two adjacent results D, rounded and packed, can be used as an operand A: the left D gives a[0]
 * and a[1], the right D gives a[2] and a[3].
 *
 * osh_cu_ldmatrix reads four 8 x 8 matrices M of 16-bit elements. It is the instruction
 * ldmatrix.sync.aligned.m8n8.x4.shared.b16 (the same chapter, "Warp-level matrix load instruction:
 * ldmatrix"). Lane 8 m + r passes the address of row r of matrix m. A row has 16 bytes, and its
 * address is a multiple of 16. After the call, register r[m] of a lane contains elements of matrix
 * m: M[g][2t, 2t+1], or M[2t, 2t+1][g] with .trans.
 *
 * osh_cu_async_copy copies 16 bytes from device to shared memory while the thread continues. It is
 * the instruction cp.async.cg.shared.global (section "Data Movement and Conversion Instructions:
 * cp.async"). A thread sees the bytes after it waits for the group of the copy (osh_cu_async_wait).
 * Other threads see the bytes after a barrier that follows the wait. */
#ifndef OSH_MMA_CUH
#define OSH_MMA_CUH
#include "base/checked.h"
#include "ops/cuda/op.cuh"

struct osh_cu_frag_a { uint32_t r[4]; };
struct osh_cu_frag_b { uint32_t r[2]; };
struct osh_cu_frag_c { float v[4]; };

#ifdef OSH_PLAY
typedef float osh_play_f4 __attribute__((vector_size(16)));

/* Emulates one lane of osh_cu_mma: adds the products to the four sums c of the lane in f32, in
 * ascending order of k. (The order in a tensor core is not documented.) `of` [32]: for each lane of
 * the warp, its operands a [8] and b [4], as f32. */
OSH_RANGES_CHECKED static inline void osh_cu_mma_sums(float (&c)[4], const osh_play_slot *of,
                                                      int lane)
{
    int g = lane / 4, t = lane % 4;
    osh_play_f4 products[16], sums;
    for (int i = 0; i < 4; i++) {
        /* Lane i of four lanes holds the elements with k = 2i, 2i + 1, 2i + 8 and 2i + 9. */
        float a[8], b[2][4];      // a: rows g and g + 8 of A; b: columns 2t and 2t + 1 of B
        memcpy(a, &of[4 * g + i], sizeof a);
        for (int col = 0; col < 2; col++)
            memcpy(b[col], of[4 * (2 * t + col) + i].word + 4, sizeof b[col]);
        for (int k = 0; k < 4; k++) {
            float upper = a[4 * (k / 2) + k % 2], lower = a[4 * (k / 2) + 2 + k % 2];
            products[2 * i + k % 2 + k / 2 * 8] = (osh_play_f4){upper, upper, lower, lower} *
                                                  (osh_play_f4){b[0][k], b[1][k], b[0][k], b[1][k]};
        }
    }
    memcpy(&sums, c, sizeof sums);
    for (int k = 0; k < 16; k++) sums += products[k];
    memcpy(c, &sums, sizeof sums);
}

template <class T>
static inline void osh_cu_mma(osh_cu_frag_c &c, const osh_cu_frag_a &a, const osh_cu_frag_b &b)
{
    osh_play_slot mine;
    float f[12];
    static_assert(sizeof f == sizeof mine, "a slot holds the operands of a lane");
    for (int i = 0; i < 12; i++) {
        uint32_t r = i < 8 ? a.r[i / 2] : b.r[i / 2 - 4];
        f[i] = osh_cu_load(T{(uint16_t)(i & 1 ? r >> 16 : r)});
    }
    memcpy(&mine, f, sizeof mine);
    const osh_play_slot *of = osh_play_warp(OSH_PLAY_SITE, 0xffffffffu, mine);
    osh_check_range(of, 32 * sizeof *of);
    osh_cu_mma_sums(c.v, of, osh_play_lane());
}

template <bool TRANS> static inline void osh_cu_ldmatrix(uint32_t (&r)[4], const void *row)
{
    osh_play_aligned(row, 16, "ldmatrix");
    const osh_play_slot *of =
        osh_play_warp(OSH_PLAY_SITE, 0xffffffffu, {{(uint64_t)(uintptr_t)row}});
    int g = osh_play_lane() / 4, t = osh_play_lane() % 4;
    for (int m = 0; m < 4; m++) {
        uint16_t e[2];
        for (int i = 0; i < 2; i++) {
            int at = TRANS ? 2 * t + i : g, col = TRANS ? g : 2 * t + i;
            memcpy(&e[i], (const char *)(uintptr_t)of[8 * m + at].word[0] + 2 * col, sizeof e[i]);
        }
        r[m] = (uint32_t)e[1] << 16 | e[0];
    }
}

/* Copies 16 bytes asynchronously. If `there` is false, writes zeros and does not read `from`. */
static inline void osh_cu_async_copy(void *to, const void *from, bool there)
{
    osh_play_async_copy(to, from, 16, there ? 16 : 0);
}
static inline void osh_cu_async_commit(void) { osh_play_async_commit(); }
template <int LEFT> static inline void osh_cu_async_wait(void) { osh_play_async_wait(LEFT); }

/* Returns threadIdx.x. On a GPU each call reads the special register again. So no other register
 * needs to keep the value between two calls. */
static inline int osh_cu_thread(void) { return (int)threadIdx.x; }

/* Returns 2^x with an error of at most 2 units in the last place, or 0 if the result is below
 * 2^-126. */
static inline float osh_cu_exp2(float x) { return x < -126 ? 0 : exp2f(x); }

/* Returns lo and hi, rounded to T and packed in one word; lo is in the lower half. */
template <class T> static inline uint32_t osh_cu_two(float lo, float hi)
{
    T a, b;
    osh_cu_store(&a, lo), osh_cu_store(&b, hi);
    return (uint32_t)b.bits << 16 | a.bits;
}
#else
template <class T> struct osh_cu_is_bf16 { static constexpr bool value = false; };
template <> struct osh_cu_is_bf16<osh_bf16_t> { static constexpr bool value = true; };

template <class T>
static __device__ __forceinline__ void osh_cu_mma(osh_cu_frag_c &c, const osh_cu_frag_a &a,
                                                  const osh_cu_frag_b &b)
{
    if constexpr (osh_cu_is_bf16<T>::value)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
                     : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]),
                       "r"(b.r[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3])
                     : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]),
                       "r"(b.r[1]));
}

template <bool TRANS>
static __device__ __forceinline__ void osh_cu_ldmatrix(uint32_t (&r)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

static __device__ __forceinline__ void osh_cu_async_copy(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void osh_cu_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> static __device__ __forceinline__ void osh_cu_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ int osh_cu_thread(void)
{
    int i;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
    return i;
}

static __device__ __forceinline__ float osh_cu_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <class T> static __device__ __forceinline__ uint32_t osh_cu_two(float lo, float hi)
{
    uint32_t r;
    if constexpr (osh_cu_is_bf16<T>::value)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
#endif
#endif
