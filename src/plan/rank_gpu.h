/* rank_gpu.h - chooses the GPU of each rank (process of one job, ranks/ranks.h). If ranks is NULL,
 * there is only one process, and the functions do nothing. */
#ifndef OSH_RANK_GPU_H
#define OSH_RANK_GPU_H
#include "gpu/gpu.h"
#include "ranks/ranks.h"

/* Called by all ranks. Sets *ordinal to the GPU of this rank among the GPUs that this process may
 * use. Those ranks of a node that see the same GPUs use them in turn. If each rank sees only one
 * GPU, as with srun --gpus-per-task, *ordinal is 0. *ordinal does not change if this process has no
 * GPU, or if `text`, the value of --device, has a GPU number. */
osh_status osh_rank_gpu(osh_ctx *cx, int *ordinal, osh_ranks *r, const osh_device_kind *k,
                        const char *text);
/* Called by all ranks. Fails on rank 0 if two ranks have the same GPU. */
osh_status osh_rank_gpus_differ(osh_ctx *cx, osh_ranks *r, const osh_device_kind *k, int ordinal);
#endif
