/* device_ops.c - has the table of the functions of a device (device_ops.h). */
#include "ops/cuda/cuda.h"

#ifdef OSH_CUDA_BUILT
static const osh_device_ops cuda_ops = {
    .wordsum = osh_cuda_wordsum, .finite = osh_cuda_finite, .finite_rows = osh_cuda_finite_rows,
    .all_finite = osh_cuda_all_finite, .minmax = osh_cuda_minmax,
    .minmax_rows = osh_cuda_minmax_rows, .routes = osh_cuda_routes,
    .count_routes = osh_cuda_count_routes, .mixture = osh_cuda_mixture_run,
    .factors = osh_gptq_factors_cuda, .gather = osh_cuda_gather, .speed = &osh_cuda_speed,
};
#endif

const osh_device_ops *osh_device_ops_of(const osh_device *d)
{
    static const osh_device_ops *const rows[OSH_N_BACKENDS] = {[OSH_CUDA] = OSH_CUDA_FN(&cuda_ops)};
    return rows[d->type->column];
}
