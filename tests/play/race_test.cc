/* race_test.cc - tests race.cc with kernels that have races, and the same kernels without races. A
 * kernel that must abort runs in a child process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}
#include <cuda_runtime.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 64 };

/* Waits between the writes and the reads of a kernel whose threads read their neighbours' values.
 * `how` is 0 for no wait, 1 for a shuffle, 2 for __syncwarp, 3 for a barrier of the block. */
static __device__ void wait_in(int how)
{
    if (how == 1) (void)__shfl_xor_sync(0xffffffffu, 1, 1);
    if (how == 2) __syncwarp();
    if (how == 3) __syncthreads();
}

static __global__ void shared_kernel(int *out, int how, int step)
{
    __shared__ int shared[N];
    shared[threadIdx.x] = (int)threadIdx.x;
    wait_in(how);
    out[blockIdx.x * N + threadIdx.x] = shared[(threadIdx.x & ~31u) + (threadIdx.x + step) % 32];
}

// the first warp of a block writes to memory that the second warp has read
static __global__ void memory_kernel(int *out, int how, int step)
{
    int v = out[(threadIdx.x + step) % N];
    wait_in(how);
    out[threadIdx.x] = v + 1;
}

// a block reads the last element of the previous block
static __global__ void blocks_kernel(int *out, int how, int step)
{
    if (how == 0) out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    else if (how == 1) atomicAdd(&out[threadIdx.x], step);
    else
        out[(blockIdx.x * blockDim.x + threadIdx.x + 1) % (2 * N)] =
            out[blockIdx.x * blockDim.x + threadIdx.x];
}

static __global__ void bytes_kernel(signed char *out) // neighbouring threads write different bytes
                                                      // of one word
{
    __shared__ signed char shared[N];
    shared[threadIdx.x] = (signed char)threadIdx.x;
    out[threadIdx.x] = shared[threadIdx.x];
}

/* Runs the kernel in a child process. Returns the message of the child, or "" if it succeeds. */
static const char *run(void (*kernel)(int *, int, int), int grid, int how, int step)
{
    static char text[4096];
    int ends[2], status = 0;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        cudaStream_t s;
        int *out = NULL;
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL); // removes the handler of cmocka
        (void)cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
        (void)cudaMalloc(&out, 4 * N * sizeof *out);
        (void)cudaMemsetAsync(out, 0, 4 * N * sizeof *out, s);
        if (kernel) OSH_LAUNCH(kernel, grid, N, 0, s, out, how, step);
        else OSH_LAUNCH(bytes_kernel, 1, N, 0, s, (signed char *)out);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got;
         n < sizeof text - 1 && (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status != 0, n != 0);
    return text;
}

static void wants(const char *got, const char *part)
{
    if (*part ? !strstr(got, part) : *got != 0) fail_msg("wanted '%s', got: %s", part, got);
}

static void test_races(void **)
{
    wants(run(shared_kernel, 1, 0, 1), "of this block");
    wants(run(shared_kernel, 1, 1, 1), "of this block"); // a shuffle does not order the accesses
    wants(run(shared_kernel, 1, 2, 1), "");
    wants(run(shared_kernel, 1, 3, 1), "");
    // each thread reads its own element, and each block has its own shared memory
    wants(run(shared_kernel, 3, 0, 0), "");
    wants(run(memory_kernel, 1, 2, 32), "of this block");
    wants(run(memory_kernel, 1, 3, 32), "");
    wants(run(blocks_kernel, 2, 0, 0), "");
    wants(run(blocks_kernel, 2, 1, 1), ""); // atomics are not races
    wants(run(blocks_kernel, 2, 2, 0), "by thread");
    wants(run(NULL, 1, 0, 0), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_races)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
