/* cast.cuh - converts a GPU array to another dtype. */
#ifndef OSH_CAST_CUH
#define OSH_CAST_CUH
#include "gpu/runtime.h"

typedef struct osh_cuda_array { // array of elements of one dtype in GPU memory; view
    void *data;
    osh_dtype dtype;
} osh_cuda_array;
/* Converts `from` [n] (F64, F32, BF16 or F16) to `to` [n], rounded once to the dtype of `to`. */
osh_status osh_cuda_cast(osh_ctx *cx, osh_device *d, osh_cuda_array to, osh_cuda_array from,
                         int64_t n);
#endif
