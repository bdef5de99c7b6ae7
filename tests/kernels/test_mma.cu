/* test_mma.cu - compares the wrappers of src/ops/cuda/mma.cuh with their definitions.
 *
 * On a GPU, tests the instructions (label cuda; skipped without a GPU). On the emulated GPU
 * (tests/play/test_mma.cc includes this file), tests the functions that emulate them. Operands are
 * small integers, so sums have the same bits in every order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <vector>

#include "base/rng.h"
#include "ops/cuda/mma.cuh"

enum { SEED = 5, STRIDE = 24 }; // STRIDE: distance of two rows in shared memory, in elements

/* ---- kernels of one warp ---- */
/* The kernels repeat the layouts that mma.cuh defines. */
template <class T>
static __global__ void mma_kernel(float *d, const uint16_t *a, const uint16_t *b, const float *c)
{
    int g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    osh_cu_frag_a fa;
    osh_cu_frag_b fb;
    osh_cu_frag_c fc;
    for (int i = 0; i < 8; i++) { // i is the index of an element of A
        int row = i < 2 || (i >= 4 && i < 6) ? g : g + 8, col = 2 * t + i % 2 + (i >= 4 ? 8 : 0);
        uint32_t e = a[row * 16 + col];
        fa.r[i / 2] = i % 2 ? fa.r[i / 2] | e << 16 : e;
    }
    for (int i = 0; i < 4; i++) {
        uint32_t e = b[(2 * t + i % 2 + (i >= 2 ? 8 : 0)) * 8 + g];
        fb.r[i / 2] = i % 2 ? fb.r[i / 2] | e << 16 : e;
    }
    for (int i = 0; i < 4; i++) fc.v[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    osh_cu_mma<T>(fc, fa, fb);
    for (int i = 0; i < 4; i++) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = fc.v[i];
}

/* Loads four matrices. Element (row, col) of matrix m is 64 m + 8 row + col. In out [2, 32, 4],
 * out[0] gets the matrices, and out[1] gets the transposed matrices. */
static __global__ void ldmatrix_kernel(uint32_t *out)
{
    OSH_DYNAMIC_SHARED(uint16_t, rows);
    int lane = (int)threadIdx.x;
    for (int i = lane; i < 256; i += 32) rows[i / 8 * STRIDE + i % 8] = (uint16_t)i;
    __syncthreads();
    uint32_t r[4];
    osh_cu_ldmatrix<false>(r, rows + lane * STRIDE);
    for (int m = 0; m < 4; m++) out[lane * 4 + m] = r[m];
    osh_cu_ldmatrix<true>(r, rows + lane * STRIDE);
    for (int m = 0; m < 4; m++) out[128 + lane * 4 + m] = r[m];
}

/* Copies two groups of 16-byte elements asynchronously to shared memory. Then each element is
 * written to out [2, 64] by a thread that did not copy it. Each third element of a group is not
 * read from `in`: the copy stores zeros. */
static __global__ void async_kernel(uint4 *out, const uint4 *in)
{
    OSH_DYNAMIC_SHARED(uint4, shared);
    int i = (int)threadIdx.x, turned = (i + 17) % 64;
    for (int group = 0; group < 2; group++) {
        osh_cu_async_copy(shared + 64 * group + i, in + 64 * group + i, i % 3 != 2);
        osh_cu_async_commit();
    }
    osh_cu_async_wait<1>();
    __syncthreads();
    out[turned] = shared[turned];
    osh_cu_async_wait<0>();
    __syncthreads();
    out[64 + turned] = shared[64 + turned];
}

template <class T> static __global__ void scalar_kernel(float *exps, uint32_t *twos, const float *x)
{
    int i = osh_cu_thread();
    exps[i] = osh_cu_exp2(x[i]);
    twos[i] = osh_cu_two<T>(x[i], x[i] + 1);
}

/* ---- host ---- */
static cudaStream_t stream;

static void *gpu_put(const void *from, size_t n_bytes) // copies to the GPU; from == NULL: only
                                                       // allocates
{
    char *to = NULL;
    assert_int_equal(cudaMalloc(&to, n_bytes), cudaSuccess);
    if (from)
        assert_int_equal(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, stream),
                         cudaSuccess);
    return to;
}

static void gpu_take(void *to, void *from, size_t n_bytes)
{
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    if (to)
        assert_int_equal(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToHost, stream),
                         cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaFree(from), cudaSuccess);
}

static int setup(void **)
{
    if (!osh_device_present(&osh_device_kinds[OSH_GPU])) {
        printf("skip: no GPU is there\n");
        exit(77);
    }
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
}

static int teardown(void **) { return cudaStreamDestroy(stream) != cudaSuccess; }

static int whole(uint64_t s, int i) { return (int)(osh_rng_u64(SEED, s, (uint64_t)i) % 17) - 8; }

template <class T> static void check_mma(osh_dtype dt)
{
    uint16_t a[256], b[128];
    float c[128], d[128];
    for (int i = 0; i < 256; i++) {
        float f = (float)whole(0, i);
        osh_from_f32(&a[i], dt, &f, 1);
    }
    for (int i = 0; i < 128; i++) {
        float f = (float)whole(1, i);
        osh_from_f32(&b[i], dt, &f, 1);
        c[i] = (float)whole(2, i) * 1000;
    }
    void *on[4] = {gpu_put(NULL, sizeof d), gpu_put(a, sizeof a), gpu_put(b, sizeof b),
                   gpu_put(c, sizeof c)};
    OSH_LAUNCH(mma_kernel<T>, 1, 32, 0, stream, (float *)on[0], (uint16_t *)on[1],
               (uint16_t *)on[2], (float *)on[3]);
    gpu_take(d, on[0], sizeof d), gpu_take(NULL, on[1], 0), gpu_take(NULL, on[2], 0),
        gpu_take(NULL, on[3], 0);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int want = whole(2, i * 8 + j) * 1000;
            for (int k = 0; k < 16; k++) want += whole(0, i * 16 + k) * whole(1, k * 8 + j);
            if (d[i * 8 + j] != (float)want)
                fail_msg("D[%d][%d] is %g, want %d", i, j, d[i * 8 + j], want);
        }
}

static void test_mma(void **)
{
    check_mma<osh_bf16_t>(OSH_BF16);
    check_mma<osh_f16_t>(OSH_F16);
}

static void test_ldmatrix(void **)
{
    uint32_t out[256];
    void *on = gpu_put(NULL, sizeof out);
    OSH_LAUNCH(ldmatrix_kernel, 1, 32, 32 * STRIDE * sizeof(uint16_t), stream, (uint32_t *)on);
    gpu_take(out, on, sizeof out);
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t m = 0; m < 4; m++) {
            uint32_t g = lane / 4, t = lane % 4, plain = 64 * m + 8 * g + 2 * t,
                     turned = 64 * m + 8 * 2 * t + g;
            assert_int_equal(out[lane * 4 + m], plain | (plain + 1) << 16);
            assert_int_equal(out[128 + lane * 4 + m], turned | (turned + 8) << 16);
        }
}

static void test_async_copy(void **)
{
    uint32_t in[512], out[512];
    for (int i = 0; i < 512; i++) in[i] = 0x1000u + (uint32_t)i;
    void *from = gpu_put(in, sizeof in), *to = gpu_put(NULL, sizeof out);
    OSH_LAUNCH(async_kernel, 1, 64, sizeof in, stream, (uint4 *)to, (const uint4 *)from);
    gpu_take(out, to, sizeof out), gpu_take(NULL, from, 0);
    for (int i = 0; i < 512; i++) assert_int_equal(out[i], i / 4 % 64 % 3 == 2 ? 0 : in[i]);
}

template <class T> static void check_scalars(osh_dtype dt)
{
    enum { N = 256 };
    float x[N], exps[N];
    uint32_t twos[N];
    for (int i = 0; i < N; i++)
        x[i] = 20 * (float)osh_rng_sym(SEED, 3, (uint64_t)i) * (i % 8 ? 1 : 6);
    x[0] = 0, x[1] = -INFINITY, x[2] = -1, x[3] = -127, x[4] = -1e30f;
    /* these values are in the middle between two numbers of BF16 or F16 */
    x[5] = 1 + ldexpf(1, -8), x[6] = 1 + ldexpf(3, -8), x[7] = 1 + ldexpf(1, -11);
    void *on[3] = {gpu_put(NULL, sizeof exps), gpu_put(NULL, sizeof twos), gpu_put(x, sizeof x)};
    OSH_LAUNCH(scalar_kernel<T>, 1, N, 0, stream, (float *)on[0], (uint32_t *)on[1],
               (const float *)on[2]);
    gpu_take(exps, on[0], sizeof exps), gpu_take(twos, on[1], sizeof twos),
        gpu_take(NULL, on[2], 0);
    assert_true(exps[0] == 1 && exps[1] == 0 && exps[2] == 0.5f && exps[3] == 0 && exps[4] == 0);
    for (int i = 5; i < N; i++) {
        double want = x[i] < -126 ? 0 : exp2((double)x[i]);
        if (!(fabs(exps[i] - want) <= ldexp(want, -21)))
            fail_msg("2^%g is %g, want %g", x[i], exps[i], want);
    }
    for (int i = 0; i < N; i++) {
        float f[2] = {x[i], x[i] + 1};
        uint16_t want[2];
        osh_from_f32(want, dt, f, 2);
        if (i == 4 && dt == OSH_F16) continue; // the value is too large for F16
        assert_int_equal(twos[i], (uint32_t)want[1] << 16 | want[0]);
    }
}

static void test_scalars(void **)
{
    check_scalars<osh_bf16_t>(OSH_BF16);
    check_scalars<osh_f16_t>(OSH_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mma),
        cmocka_unit_test(test_ldmatrix),
        cmocka_unit_test(test_async_copy),
        cmocka_unit_test(test_scalars),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
