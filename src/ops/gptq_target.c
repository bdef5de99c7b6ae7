/* gptq_target.c - computes T = W + W S. GPTQ then rounds the target T instead of the weight W. S
 * comes from gptq_shift.
 *
 *   in[0] w [O, I], stored dtype
 *   in[1] s F32 [I, I]
 *   out t F32 [O, I]
 *
 * If S is 0, T equals W bit for bit. Shapes: O out_features, I in_features. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t O = osh_rows(a->in[0]), I = osh_width(a->in[0]);
    const float *s = a->in[1]->data;
    // w: own [O, I], the weight in f32. t: view of the output
    float *w = NULL, *t = a->out[0]->data;

    OSH_TRY(osh_f32_copy(cx, &w, a->in[0]));
    for (int64_t o = 0; o < O; o++)
        for (int64_t i = 0; i < I; i++) {
            double sum = w[o * I + i];
            for (int64_t k = 0; k < I; k++) sum += (double)w[o * I + k] * s[k * I + i];
            t[o * I + i] = (float)sum;
        }
done:
    osh_free(cx, w);
    return rc;
}

const osh_op osh_op_gptq_target = {
    .name = "gptq_target", .n_in = 2, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_gptq_target_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_gptq_target_cuda)},
    .tol = 1e-11, .scratch = osh_gptq_target_scratch, .arena_bytes = osh_gptq_target_cuda_scratch,
};
