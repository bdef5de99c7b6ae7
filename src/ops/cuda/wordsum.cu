/* wordsum.cu - computes osh_wordsum (ops/wordsum.h) of GPU memory. Threads add integers, so the sum
 * does not depend on the order of the threads. */
#include "ops/cuda/op.cuh"

extern "C" {
#include "ops/wordsum.h"
}

/* BLOCK: number of threads of a block.
 * LEAST_WORDS: the grid has at most one block for each LEAST_WORDS words. */
enum { BLOCK = 256, LEAST_WORDS = 4096 };

/* Adds the checksum of the n_bytes bytes at p to *sum, which must be 0. p may have any
 * alignment. */
static __global__ void wordsum_kernel(unsigned long long *sum, const unsigned char *p,
                                      int64_t n_bytes)
{
    int64_t n = (n_bytes + 7) / 8, step = (int64_t)gridDim.x * blockDim.x;
    unsigned long long mine = 0;
    bool whole = reinterpret_cast<uintptr_t>(p) % 8 == 0;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        unsigned long long x = 0;
        if (whole && i * 8 + 8 <= n_bytes) {
            x = reinterpret_cast<const unsigned long long *>(p)[i];
        } else {
            for (int k = 0; k < 8 && i * 8 + k < n_bytes; k++)
                x |= (unsigned long long)p[i * 8 + k] << (8 * k);
        }
        x ^= (unsigned long long)i * OSH_WORDSUM_K;
        OSH_WORDSUM_MIX(x);
        mine += x;
    }
    if (mine) atomicAdd(sum, mine);
}

osh_status osh_cuda_wordsum(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p,
                            size_t n_bytes)
{
    osh_status rc = OSH_OK;
    int64_t blocks = ((int64_t)n_bytes / 8 + LEAST_WORDS - 1) / LEAST_WORDS,
            most = 4 * osh_cuda_multiprocessors(d);
    OSH_TRY(d->type->fill(cx, d, sum, 0, sizeof *sum));
    OSH_LAUNCH(wordsum_kernel, (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most), BLOCK, 0,
               osh_cuda_stream(d), reinterpret_cast<unsigned long long *>(sum),
               static_cast<const unsigned char *>(p), (int64_t)n_bytes);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
