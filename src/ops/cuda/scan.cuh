/* scan.cuh - declares types and functions for the kernels of recurrent layers and of their
 * gradients: lists of samples, lists of weights, and activations. Letters in shapes:
 * ops/scan.h. */
#ifndef OSH_SCAN_CUH
#define OSH_SCAN_CUH
#include "ops/cuda/sizes.h"
#include "ops/cuda/weight.cuh"
extern "C" {
#include "ops/scan.h"
}

/* SCAN_THREADS: number of threads of a block.
 * SCAN_SAMPLES: largest number of samples of one launch. */
enum { SCAN_THREADS = 256, SCAN_SAMPLES = 64 };

typedef struct scan_samples {
    int64_t row[SCAN_SAMPLES]; // first row of each sample
    int64_t n[SCAN_SAMPLES];   // number of tokens of each sample
    int count;
} scan_samples;

/* Calls f for all samples, at most SCAN_SAMPLES at a time. f launches a kernel. */
template <class F>
static osh_status scan_by_samples(osh_ctx *cx, const osh_seqs *seqs, int64_t n_tokens, F f)
{
    osh_status rc = OSH_OK;
    int64_t one[2] = {0, n_tokens}, n_seqs = seqs ? seqs->n : 1;
    const int64_t *offsets = seqs ? seqs->offsets : one;
    scan_samples of = {};

    for (int64_t s = 0; s < n_seqs; s++) {
        if (offsets[s + 1] > offsets[s]) {
            of.row[of.count] = offsets[s], of.n[of.count] = offsets[s + 1] - offsets[s];
            of.count++;
        }
        if (!of.count || (of.count < SCAN_SAMPLES && s + 1 < n_seqs)) continue;
        f(of);
        OSH_CUDA(cx, cudaGetLastError());
        of.count = 0;
    }
done:
    return rc;
}

typedef struct weights { // stored weights of an op
    const void *w[3]; // views of the weights; NULL: the op does not have this weight
    osh_dtype dtype[3];
} weights;

/* Sets *p to the n weights from `in` on. */
static inline osh_status scan_weights_of(osh_ctx *cx, weights *p, const osh_tensor *const *in,
                                         int n)
{
    osh_status rc = OSH_OK;
    for (int k = 0; k < n; k++) {
        const osh_tensor *w = in[k];
        p->w[k] = w ? w->data : NULL, p->dtype[k] = w ? w->dtype : OSH_F32;
        OSH_TRY(osh_cu_readable(cx, p->dtype[k]));
    }
done:
    return rc;
}

static __device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }

static __device__ inline float scan_gate(float z, bool sigmoid)
{
    return sigmoid ? 1.0f / (1.0f + expf(-z)) : silu(z);
}

static __device__ inline double softplus(double x) { return x > 20 ? x : log(1 + exp(x)); }
#endif
