/* ada_there.c - selects the kernels for learners on a GPU, and computes the bytes that a learner
 * needs there. */
#include "solver/ada_there.h"

#include "solver/cuda/solver.h"

static osh_status there_missing(osh_ctx *cx)
{
    return osh_fail(cx, OSH_E_INTERNAL, "this program has no kernels for learned rounding");
}

osh_status osh_ada_there_run(osh_ctx *cx, osh_device *d, const osh_ada_there *a)
{
    osh_status (*run)(osh_ctx *, osh_device *, const osh_ada_there *) =
        OSH_CUDA_FN(osh_ada_run_cuda);
    return run ? run(cx, d, a) : there_missing(cx);
}

osh_status osh_ada_there_add(osh_ctx *cx, osh_device *d, float *sum, const float *x, int64_t n)
{
    osh_status (*run)(osh_ctx *, osh_device *, float *, const float *, int64_t) =
        OSH_CUDA_FN(osh_ada_add_cuda);
    return run ? run(cx, d, sum, x, n) : there_missing(cx);
}

osh_status osh_ada_there_compare(osh_ctx *cx, const osh_ada_compared *c)
{
    osh_status (*run)(osh_ctx *, const osh_ada_compared *) = OSH_CUDA_FN(osh_ada_compare_cuda);
    return run ? run(cx, c) : there_missing(cx);
}

size_t osh_ada_there_offsets(size_t at[OSH_ADA_N_PARTS], const osh_ada_there *a)
{
    size_t n = (size_t)(a->O * a->I), bytes[OSH_ADA_N_PARTS], sum = 0;
    bytes[OSH_ADA_PART_X] = bytes[OSH_ADA_PART_GRAD] = n * sizeof(float);
    bytes[OSH_ADA_PART_MEAN] = a->kind == OSH_ADA_SIGN ? 0 : n * sizeof(float);
    bytes[OSH_ADA_PART_SQUARE] = bytes[OSH_ADA_PART_MEAN];
    bytes[OSH_ADA_PART_SMALL] = (size_t)(OSH_ADA_N_SMALL * a->O * a->groups) * sizeof(float);
    bytes[OSH_ADA_PART_TERMS] = (size_t)a->O * sizeof(double);
    bytes[OSH_ADA_PART_W] = n * osh_dtype_bytes(a->dtype);
    for (int i = 0; i < OSH_ADA_N_PARTS; i++) at[i] = sum, sum += osh_arena_gross(bytes[i]);
    return sum;
}
