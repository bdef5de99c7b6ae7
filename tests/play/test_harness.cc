/* test_harness.cc - tests the emulated GPU with faulty kernels. A kernel that must abort runs in a
 * child process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/kernel.cuh"
#include "play/play.h"

enum { N = 256 };

/* ---- kernels ---- */
/* Each thread reads the value that its neighbour has written. This needs a barrier. The kernel has
 * the barrier if `synced` is true. */
static __global__ void turn_kernel(int *out, bool synced)
{
    __shared__ int shared[N];
    shared[threadIdx.x] = (int)threadIdx.x;
    if (synced) __syncthreads();
    out[threadIdx.x] = shared[(threadIdx.x + 1) % N];
}

static __global__ void stale_kernel(float *out, bool write) // reads memory that no thread has
                                                            // written
{
    __shared__ float shared[4];
    if (write) shared[threadIdx.x % 4] = 0;
    OSH_DYNAMIC_SHARED(float, dynamic);
    out[0] = shared[1], out[1] = dynamic[1];
}

#ifdef __SANITIZE_ADDRESS__
static __global__ void past_end_kernel(int *out)
{
    OSH_DYNAMIC_SHARED(int, dynamic);
    dynamic[N + threadIdx.x] = 1;
    out[0] = dynamic[0];
}
#endif

static __global__ void split_kernel(int *out) // half of the threads do not call the barrier
{
    if (threadIdx.x < N / 2) __syncthreads();
    out[threadIdx.x] = 1;
}

static __global__ void two_barriers_kernel(int *out)
{
    if (threadIdx.x < N / 2) __syncthreads();
    else out[0] = 1;
    if (threadIdx.x >= N / 2) __syncthreads();
}

static __global__ void lone_lane_kernel(int *out) // a lane of the mask does not call the shuffle
{
    if (threadIdx.x % 32) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, out[threadIdx.x], 1);
}

static __global__ void warp_kernel(int *out)
{
    int lane = (int)threadIdx.x % 32, v = 100 + lane;
    out[0 * N + threadIdx.x] = __shfl_sync(0xffffffffu, v, 5);
    out[1 * N + threadIdx.x] = __shfl_xor_sync(0xffffffffu, v, 3);
    out[2 * N + threadIdx.x] = __shfl_down_sync(0xffffffffu, v, 4);
    out[3 * N + threadIdx.x] = __shfl_up_sync(0xffffffffu, v, 4, 8);
    out[4 * N + threadIdx.x] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
    out[5 * N + threadIdx.x] =
        __any_sync(0xffffffffu, lane == 31) + 2 * __all_sync(0xffffffffu, lane < 31);
    out[6 * N + threadIdx.x] = __syncthreads_count(lane == 7);
    out[7 * N + threadIdx.x] = atomicAdd(&out[8 * N], 1) >= 0;
}

/* ---- fixture of the faulty kernels ---- */
typedef struct emulated {
    cudaStream_t stream;
    int *out; // points to GPU memory
    int host[9 * N];
} emulated;

static void open_gpu(emulated *p, int fill)
{
    assert_int_equal(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMalloc(&p->out, sizeof p->host), cudaSuccess);
    assert_int_equal(cudaMemsetAsync(p->out, fill, sizeof p->host, p->stream), cudaSuccess);
}

static void close_gpu(emulated *p)
{
    assert_int_equal(
        cudaMemcpyAsync(p->host, p->out, sizeof p->host, cudaMemcpyDeviceToHost, p->stream),
        cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(p->stream), cudaSuccess);
    assert_int_equal(cudaFree(p->out), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(p->stream), cudaSuccess);
    assert_int_equal(osh_play_live(), 0);
}

/* Runs fn in a child process. Checks the stderr of the child. Also checks that the child failed: a
 * signal ended it, or (with a sanitizer) its exit code is not 0. */
static void dies(void (*fn)(emulated *), const char *wanted)
{
    char text[4096];
    int ends[2], status = 0;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        static emulated p;
        dup2(ends[1], STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL); // removes the handler of cmocka
        open_gpu(&p, 0);
        fn(&p);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got;
         n < sizeof text - 1 && (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_not_equal(status, 0);
    if (!strstr(text, wanted)) fail_msg("wanted \"%s\", got: %s", wanted, text);
}

static void test_orders(void **)
{
    for (int synced = 0; synced < 2; synced++) {
        int first[N];
        bool differs = false;
        for (unsigned order = 0; order < 4; order++) {
            static emulated p;
            open_gpu(&p, 0);
            osh_play_order(order);
            OSH_LAUNCH(turn_kernel, 1, N, 0, p.stream, p.out, synced);
            close_gpu(&p);
            if (!order) memcpy(first, p.host, sizeof first);
            differs |= memcmp(first, p.host, sizeof first) != 0;
            for (int i = 0; i < N && synced; i++) assert_int_equal(p.host[i], (i + 1) % N);
        }
        assert_int_equal(differs, !synced); // without the barrier some values are wrong
    }
    osh_play_order(0);
}

static void test_warp(void **)
{
    static emulated p;
    for (unsigned order = 0; order < 3; order++) {
        open_gpu(&p, 0);
        osh_play_order(order);
        OSH_LAUNCH(warp_kernel, 1, dim3(16, 8, 2), 0, p.stream, p.out);
        OSH_LAUNCH(warp_kernel, 1, N, 0, p.stream, p.out);
        close_gpu(&p);
        assert_int_equal(p.host[8 * N], N + N / 16 * 16);
        for (int i = 0; i < N; i++) {
            int lane = i % 32;
            assert_int_equal(p.host[0 * N + i], 105);
            assert_int_equal(p.host[1 * N + i], 100 + (lane ^ 3));
            assert_int_equal(p.host[2 * N + i], lane + 4 < 32 ? 104 + lane : 100 + lane);
            assert_int_equal(p.host[3 * N + i], lane % 8 < 4 ? 100 + lane : 96 + lane);
            assert_int_equal((unsigned)p.host[4 * N + i], 0x49249249u);
            assert_int_equal(p.host[5 * N + i], 1);
            assert_int_equal(p.host[6 * N + i], N / 32);
        }
    }
    osh_play_order(0);
}

/* Shared memory and GPU memory must contain NaN before a thread writes to them. */
static void test_poison(void **)
{
    static emulated p;
    float f[2];
    open_gpu(&p, 0);
    OSH_LAUNCH(stale_kernel, 1, 1, 64, p.stream, (float *)p.out, false);
    close_gpu(&p);
    memcpy(f, p.host, sizeof f);
    assert_true(isnan(f[0]) && isnan(f[1]));
    float *fresh = NULL, read = 0;
    cudaStream_t s;
    assert_int_equal(cudaStreamCreateWithFlags(&s, 0), cudaSuccess);
    assert_int_equal(cudaMalloc(&fresh, 20 << 20), cudaSuccess);
    assert_int_equal(
        cudaMemcpyAsync(&read, fresh + 5000000, sizeof read, cudaMemcpyDeviceToHost, s),
        cudaSuccess);
    assert_true(isnan(read));
    assert_int_equal(cudaFree(fresh), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(s), cudaSuccess);
}

static void test_deadlocks(void **)
{
    dies([](emulated *p) { OSH_LAUNCH(split_kernel, 1, N, 0, p->stream, p->out); },
         "split_kernel, block (0, 0, 0): deadlock: thread 0 waits at a barrier in ");
    dies([](emulated *p) { OSH_LAUNCH(two_barriers_kernel, 1, N, 0, p->stream, p->out); },
         "deadlock: thread 0 waits");
    dies([](emulated *p) { OSH_LAUNCH(lone_lane_kernel, 1, 32, 0, p->stream, p->out); },
         "lone_lane_kernel");
    dies([](emulated *p) { OSH_LAUNCH(lone_lane_kernel, 1, 7, 0, p->stream, p->out); },
         "names lanes that the block of 7 threads does not have");
}

static void test_wrong_memory(void **)
{
    dies([](emulated *p) { ((volatile int *)p->out)[0] = 1; }, ""); // the host accesses GPU memory,
                                                                  // which must crash
    dies([](emulated *p) {
        int here[4] = {0};
        cudaMemcpyAsync(p->out + 9 * N - 1, here, sizeof here, cudaMemcpyHostToDevice, p->stream);
    }, "16 bytes pass the end of their block");
#ifdef __SANITIZE_ADDRESS__
    dies([](emulated *p) { OSH_LAUNCH(past_end_kernel, 1, 1, N * sizeof(int), p->stream, p->out); },
         "heap-buffer-overflow");
#endif
    static emulated p;
    open_gpu(&p, 0);
    int here = 0;
    assert_int_equal(cudaMemcpyAsync(&here, &here, sizeof here, cudaMemcpyHostToDevice, p.stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    close_gpu(&p);
}

static void test_launches(void **)
{
    static const struct { dim3 grid, block; size_t shared; cudaError_t e; } rows[] = {
        {1, 1024, 48 << 10, cudaSuccess},         {1, 1025, 0, cudaErrorInvalidConfiguration},
        {1, 0, 0, cudaErrorInvalidConfiguration}, {dim3(1, 65536), 1, 0,
                                                   cudaErrorInvalidConfiguration},
        {0, 1, 0, cudaErrorInvalidConfiguration}, {1, 32, (48 << 10) + 1,
                                                   cudaErrorInvalidConfiguration},
    };
    static emulated p;
    open_gpu(&p, 0);
    for (auto &r : rows) {
        OSH_LAUNCH(stale_kernel, r.grid, r.block, r.shared, p.stream, (float *)p.out, true);
        assert_int_equal(cudaGetLastError(), r.e);
        assert_int_equal(cudaGetLastError(), cudaSuccess);
    }
    assert_int_equal(
        cudaFuncSetAttribute(stale_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10),
        cudaSuccess);
    OSH_LAUNCH(stale_kernel, 1, 32, 227 << 10, p.stream, (float *)p.out, true);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(
        cudaFuncSetAttribute(stale_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
        cudaErrorInvalidValue);
    (void)cudaGetLastError();
    close_gpu(&p);
}

/* Without an event between two streams, lazy streams must give wrong values. */
static void test_lazy(void **)
{
    for (int with_event = 0; with_event < 2; with_event++) {
        static emulated p;
        cudaStream_t other;
        cudaEvent_t e;
        open_gpu(&p, 1);
        assert_int_equal(cudaStreamCreateWithFlags(&other, 0), cudaSuccess);
        assert_int_equal(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), cudaSuccess);
        osh_play_lazy(true);
        int got = 0;
        assert_int_equal(cudaMemsetAsync(p.out, 2, 4, other), cudaSuccess);
        assert_int_equal(cudaEventRecord(e, other), cudaSuccess);
        // p.stream waits for the event, but not for this memset, which `other` gets after the event
        assert_int_equal(cudaMemsetAsync(p.out, 3, 4, other), cudaSuccess);
        if (with_event) assert_int_equal(cudaStreamWaitEvent(p.stream, e), cudaSuccess);
        assert_int_equal(cudaMemcpyAsync(&got, p.out, 4, cudaMemcpyDeviceToHost, p.stream),
                         cudaSuccess);
        assert_int_equal(got, with_event ? 0x02020202 : 0x01010101);
        osh_play_lazy(false);
        assert_int_equal(cudaStreamSynchronize(other), cudaSuccess);
        assert_int_equal(cudaEventDestroy(e), cudaSuccess);
        assert_int_equal(cudaStreamDestroy(other), cudaSuccess);
        close_gpu(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders), cmocka_unit_test(test_warp), cmocka_unit_test(test_poison),
        cmocka_unit_test(test_deadlocks), cmocka_unit_test(test_wrong_memory),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_lazy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
