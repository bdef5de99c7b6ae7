/* state.cu - returns properties of an open GPU, and messages of CUDA errors. */
#include "gpu/state.h"

/* True if the process cannot use the GPU any more after error e. */
static bool error_is_fatal(cudaError_t e)
{
    switch (e) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
        return true;
    default: return false;
    }
}

osh_status osh_cuda_check(osh_ctx *cx, cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return OSH_OK;
    const char *advice = "";
    if (e == cudaErrorNoKernelImageForDevice)
        advice =
            ": this program has no code for a GPU of this generation; build with its number in"
            " CMAKE_CUDA_ARCHITECTURES";
    if (error_is_fatal(e))
        advice = ": this process has lost the GPU; the same command continues from the end of the "
                 "journal";
    return osh_fail(cx, OSH_E_IO, "%.*s: %s (%s)%s", (int)strcspn(what, "("), what,
                    cudaGetErrorString(e), cudaGetErrorName(e), advice);
}

cudaStream_t osh_cuda_stream(const osh_device *d)
{
    const osh_gpu *c = osh_gpu_of(d);
    // Makes the GPU current in this thread. An error is ignored here, because later CUDA calls
    // return it.
    cudaSetDevice(c->ordinal);
    return c->compute;
}

int osh_cuda_multiprocessors(const osh_device *d) { return osh_gpu_of(d)->n_multiprocessors; }
void *osh_cuda_scratch(const osh_device *d) { return d->workspace; }
int osh_cuda_shared_bytes(const osh_device *d) { return osh_gpu_of(d)->shared_bytes; }

/* The result depends only on the compute capability, because the compute capability determines the
 * ratio of the peak speeds of F32 and TF32. Peak TFLOP/s of dense matrix products in F32 / TF32:
 * A100 20 / 156, H100 67 / 495, one workstation GPU 36 / 36, another workstation GPU 91 / 183. */
bool osh_cuda_tf32_pays(const osh_device *d)
{
    const osh_gpu *c = osh_gpu_of(d);
    return (c->major == 8 && c->minor == 0) || c->major == 9 || c->major == 10;
}
