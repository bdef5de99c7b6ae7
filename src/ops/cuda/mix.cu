/* mix.cu - runs the op mix (ops/mix.c) on a GPU, with one launch for each sample. */
#include "ops/cuda/pack.cuh"

enum { THREADS = 256 };

/* Returns osh_rng_u64(key, sample, i). */
__device__ static inline uint64_t mix_random(uint64_t key, uint64_t sample, uint64_t i)
{
    uint64_t x = key + 0x9E3779B97F4A7C15ull * ((sample << 32) + i + 1);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* The n elements of a sample. x and y may be the same array. */
template <class T> struct mix_part {
    const T *x, *x0;
    T *y;
    int64_t n;
    uint64_t key, sample, below; // an element comes from x if its random number is under `below`
};

template <class T> static __global__ void mix_kernel(mix_part<T> p)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.n;
         i += (int64_t)gridDim.x * THREADS)
        p.y[i] = (mix_random(p.key, p.sample, (uint64_t)i) >> 40 < p.below ? p.x : p.x0)[i];
}

template <class T> static osh_status mix_samples(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_mix_attr *m = static_cast<const osh_mix_attr *>(a->attr);
    osh_device *d = a->out[0]->device;
    int64_t D = osh_width(a->in[0]), whole[2] = {0, osh_rows(a->in[0])};
    const int64_t *offsets = a->seqs ? a->seqs->offsets : whole;
    for (int64_t k = 0; k < (a->seqs ? a->seqs->n : 1); k++) {
        int64_t at = offsets[k] * D, n = offsets[k + 1] * D - at;
        mix_part<T> p = {static_cast<const T *>(a->in[0]->data) + at,
                         static_cast<const T *>(a->in[1]->data) + at,
                         static_cast<T *>(a->out[0]->data) + at, n, m->key,
                         (uint64_t)(m->samples ? m->samples[k] : m->first_sample + k),
                         (uint64_t)(m->share * (1 << 24))};
        if (!n) continue;
        OSH_LAUNCH(mix_kernel<T>, osh_cu_grid(d, n, THREADS), THREADS, 0, osh_cuda_stream(d), p);
        OSH_CUDA(cx, cudaGetLastError());
    }
done:
    return rc;
}

osh_status osh_mix_cuda(osh_ctx *cx, const osh_op_args *a)
{
    return osh_dtype_bytes(a->in[0]->dtype) == 2 ? mix_samples<uint16_t>(cx, a)
                                                 : mix_samples<uint32_t>(cx, a);
}
