/* rank_gpu.h - chooses the GPU of each rank (process of one job, ranks/ranks.h). All ranks
 * call these functions. If r is NULL, there is only one process, which chooses and compares
 * nothing. */
#ifndef OSH_RANK_GPU_H
#define OSH_RANK_GPU_H
#include "gpu/gpu.h"
#include "ranks/ranks.h"

/* Sets *ordinal to the GPU of this rank among the GPUs that this process may use. Ranks of a node
 * that see the same GPUs take them in turn. If each rank sees only one GPU, as with
 * srun --gpus-per-task, *ordinal is 0. *ordinal does not change if this process has no GPU, or if
 * `text`, the value of --device, has a GPU number. */
osh_status osh_rank_gpu(osh_ctx *cx, int *ordinal, osh_ranks *r, const osh_device_kind *k,
                        const char *text);
/* Opens the GPU `ordinal` (osh_device_open). Fails if two ranks have the same GPU, or if the GPUs
 * of the ranks differ in hardware or libraries. *out (own) may be set although the function
 * fails. */
osh_status osh_rank_gpu_open(osh_ctx *cx, osh_device **out, osh_ranks *r, const osh_device_kind *k,
                             int ordinal, size_t n_bytes);
/* Fails if some ranks work on a GPU and others on the host. */
osh_status osh_rank_devices_agree(osh_ctx *cx, osh_ranks *r, bool on_gpu);
#endif
