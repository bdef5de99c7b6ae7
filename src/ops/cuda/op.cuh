/* op.cuh - includes the headers that every CUDA op needs. */
#ifndef OSH_OP_CUH
#define OSH_OP_CUH
#include "gpu/kernel.cuh"
#include "ops/cuda/cuda.h"

extern "C" {
#include "ops/kernel.h"
}
#endif
