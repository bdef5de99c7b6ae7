/* channels.h - declares the CUDA kernels of statistics of channels, callable from C. cuda.h
 * describes tensors and scratch; these functions need no scratch. */
#ifndef OSH_OPS_CUDA_CHANNELS_H
#define OSH_OPS_CUDA_CHANNELS_H
#ifdef __cplusplus
extern "C" {
#endif
#include "ops/cuda/cuda.h"

/* These functions are the kernels of the ops channel_range and channel_sum. */
osh_status osh_channel_range_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_channel_sum_cuda(osh_ctx *cx, const osh_op_args *a);
osh_status osh_merge_channel_sum_cuda(osh_ctx *cx, const osh_op_args *a); // see ops/merge.c

#ifdef __cplusplus
}
#endif
#endif
