/* mix.c - takes each element from one of two tensors at random. Learned rounding uses this op to
 * mix the inputs that a block has in the quantized model and in the original model.
 *
 *   in[0] x [N, D]     in[1] x0 [N, D]     out y [N, D]     y may overwrite x
 *
 *   y = x if u < share, else x0
 *   u = (osh_rng_u64(key, sample, row * D + column) >> 40) / 2^24
 *
 * u is a random number in [0, 1), and `row` is the index of the row in its sample. The result does
 * not depend on batches or threads. Shapes: N tokens of the batch, D elements per token. */
#include "base/rng.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>

uint64_t osh_mix_key(uint64_t seed, uint64_t what, uint64_t step)
{
    return osh_rng_u64(seed, (1u << 20) + what, step);
}

static void mix_row(const osh_op_args *a, int64_t row, int64_t sample, int64_t at)
{
    const osh_mix_attr *m = a->attr;
    int64_t D = osh_width(a->in[0]);
    uint64_t below = (uint64_t)(m->share * (1 << 24));
    size_t size = osh_dtype_bytes(a->in[0]->dtype);
    for (int64_t c = 0; c < D; c++) {
        bool first = osh_rng_u64(m->key, (uint64_t)sample, (uint64_t)(at * D + c)) >> 40 < below;
        memmove(osh_elem(a->out[0], row * D + c), osh_elem(a->in[first ? 0 : 1], row * D + c),
                size);
    }
}

static osh_status mix_sample(osh_ctx *cx, void *user, int64_t k, int worker)
{
    const osh_op_args *a = user;
    const osh_mix_attr *m = a->attr;
    int64_t first = a->seqs ? a->seqs->offsets[k] : 0,
            end = a->seqs ? a->seqs->offsets[k + 1] : osh_rows(a->in[0]);
    (void)cx, (void)worker;
    for (int64_t row = first; row < end; row++)
        mix_row(a, row, m->samples ? m->samples[k] : m->first_sample + k, row - first);
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    assert(a->in[0]->dtype == a->in[1]->dtype && a->in[0]->dtype == a->out[0]->dtype);
    for (int64_t k = 0; k < (a->seqs ? a->seqs->n : 1); k++) mix_sample(cx, (void *)a, k, 0);
    return OSH_OK;
}

static osh_status mix_fast(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, a->seqs ? a->seqs->n : 1, 1, mix_sample);
}

const osh_op osh_op_mix = {
    .name = "mix", .n_in = 2, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = mix_fast, [OSH_CUDA] = OSH_CUDA_FN(osh_mix_cuda)},
};
