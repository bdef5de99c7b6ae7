/* device.cu - opens and closes a GPU. An open GPU has one allocation for the arena, one stream for
 * all kernels, and streams for copies while kernels run (state.h). The file also allocates
 * page-locked host memory and measures times with marks (gpu.h). */
#include "gpu/state.h"

#include "base/nvml.h"

osh_status osh_gpu_number(osh_ctx *cx, int *out)
{
    osh_status rc = OSH_OK;
    int driver = 0, wanted = 0, n = 0;

    OSH_CUDA(cx, cudaRuntimeGetVersion(&wanted));
    if (cudaDriverGetVersion(&driver) != cudaSuccess || !driver)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "no NVIDIA driver: libcuda.so.1 was not found or does not start; wanted one for"
                 " CUDA %d.%d",
                 wanted / 1000, wanted % 1000 / 10);
    if (cudaError_t e = cudaGetDeviceCount(&n)) {
        if (e == cudaErrorInsufficientDriver)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "the NVIDIA driver is for CUDA %d.%d, wanted one for CUDA %d.%d or later",
                     driver / 1000, driver % 1000 / 10, wanted / 1000, wanted % 1000 / 10);
        if (e != cudaErrorNoDevice)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "the NVIDIA driver does not list its GPUs: %s (%s)",
                     cudaGetErrorString(e), cudaGetErrorName(e));
        n = 0;
    }
    if (!n)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "there is no CUDA GPU in this machine, or CUDA_VISIBLE_DEVICES hides it");
    *out = n;
done:
    return rc;
}

/* Makes GPU number `ordinal` current. Fails if there is no driver, if the driver is too old, or if
 * the machine has no such GPU. */
static osh_status gpu_find(osh_ctx *cx, int ordinal)
{
    osh_status rc = OSH_OK;
    int n = 0;
    OSH_TRY(osh_gpu_number(cx, &n));
    if (ordinal < 0 || ordinal >= n)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "there is no GPU cuda:%d: this machine has %d", ordinal,
                 n);
    OSH_CUDA(cx, cudaSetDevice(ordinal));
done:
    return rc;
}

bool osh_gpu_present(void)
{
    int driver = 0, n = 0;
    bool yes = cudaDriverGetVersion(&driver) == cudaSuccess && driver &&
               cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
    (void)cudaGetLastError(); // clears the error of CUDA: an error only means that there is no GPU
    return yes;
}

osh_status osh_gpu_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal)
{
    osh_status rc = OSH_OK;
    size_t total = 0;
    OSH_TRY(gpu_find(cx, ordinal));
    OSH_CUDA(cx, cudaMemGetInfo(n_bytes, &total));
done:
    return rc;
}

osh_status osh_gpu_identify(osh_ctx *cx, osh_device_uuid *id, int ordinal)
{
    osh_status rc = OSH_OK;
    cudaDeviceProp p;
    OSH_TRY(gpu_find(cx, ordinal));
    OSH_CUDA(cx, cudaGetDeviceProperties(&p, ordinal));
    static_assert(sizeof p.uuid == sizeof id->bytes, "a UUID has 16 bytes");
    memcpy(id->bytes, &p.uuid, sizeof id->bytes);
done:
    return rc;
}

/* This kernel is never launched. gpu_describe only reads its attributes: the read fails if the
 * binary has no code for the GPU. */
static __global__ void probe_kernel(int *out) { *out = 1; }

/* Reads the properties of the GPU, opens cuBLASLt and cuSOLVER, and sets d->text. */
static osh_status gpu_describe(osh_ctx *cx, osh_device *d, osh_gpu *c)
{
    osh_status rc = OSH_OK;
    cudaDeviceProp p;
    cudaFuncAttributes probe;
    int version = 0;
    char *libraries = NULL; // own

    OSH_CUDA(cx, cudaGetDeviceProperties(&p, c->ordinal));
    if (cudaError_t e = cudaFuncGetAttributes(&probe, probe_kernel)) {
        if (e == cudaErrorNoKernelImageForDevice)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "this program has no code for %s, compute capability %d.%d: build with"
                     " %d%d in CMAKE_CUDA_ARCHITECTURES",
                     p.name, p.major, p.minor, p.major, p.minor);
        OSH_TRY(osh_cuda_check(cx, e, "cudaFuncGetAttributes"));
    }
    OSH_CUDA(cx, cudaDeviceGetPCIBusId(c->bus_id, (int)sizeof c->bus_id, c->ordinal));
    c->n_multiprocessors = p.multiProcessorCount, c->major = p.major, c->minor = p.minor;
    c->shared_bytes = (int)p.sharedMemPerMultiprocessor;
    OSH_CUDA(cx, cudaRuntimeGetVersion(&version));
    OSH_TRY(osh_cuda_blas_open(cx, &c->blas, &libraries, c->compute));
    d->text = osh_sprintf(cx, "%s, compute capability %d.%d, CUDA %d.%d, %s", p.name, p.major,
                          p.minor, version / 1000, version % 1000 / 10, libraries);
    if (!d->text) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(cx, libraries);
    return rc;
}

/* Allocates the arena, the workspace and the rings of page-locked memory. If n_bytes is 0,
 * allocates nothing. */
static osh_status gpu_take_memory(osh_ctx *cx, osh_device *d, osh_gpu *c, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    size_t free_bytes = 0, total = 0;
    cudaError_t e;

    if (!n_bytes) return OSH_OK;
    e = cudaMalloc(&d->base, n_bytes);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); // clears the error of CUDA; it is reported below
        OSH_CUDA(cx, cudaMemGetInfo(&free_bytes, &total));
        OSH_FAIL(cx, OSH_E_NOMEM,
                 "cudaMalloc: %s (%s): the GPU cuda:%d has %zu of %zu bytes free, wanted %zu",
                 cudaGetErrorString(e), cudaGetErrorName(e), c->ordinal, free_bytes, total,
                 n_bytes);
    }
    OSH_TRY(osh_cuda_check(cx, e, "cudaMalloc"));
    d->workspace = osh_device_alloc(cx, d, OSH_GPU_WORKSPACE, OSH_LIFE_LONG);
    if (!d->workspace) OSH_TRY(OSH_E_NOMEM);
    d->workspace_bytes = OSH_GPU_WORKSPACE;
    OSH_TRY(osh_cuda_factor_probe(cx, d));
    OSH_TRY(osh_gpu_ring_init(cx, &c->ring));
    OSH_TRY(osh_gpu_ring_init(cx, &c->ahead));
    OSH_TRY(osh_gpu_lanes_init(cx, c));
done:
    return rc;
}

int64_t osh_gpu_driver_bytes(const osh_device *d)
{
    const osh_gpu *c = (const osh_gpu *)d->impl;
    return osh_nvml_used(c->bus_id);
}

osh_status osh_gpu_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_device *d = NULL; // own
    osh_gpu *c = NULL;    // private data of d; view

    OSH_TRY(gpu_find(cx, ordinal));
    OSH_NEW(cx, d, 1);
    d->type = osh_device_kinds[OSH_GPU].type;
    pthread_mutex_init(&d->lock, NULL);
    OSH_NEW(cx, c, 1);
    d->impl = c, c->d = d, c->ordinal = ordinal;
    pthread_mutex_init(&c->ring.lock, NULL);
    pthread_mutex_init(&c->ahead.lock, NULL);
    pthread_mutex_init(&c->stage.lock, NULL);
    pthread_cond_init(&c->stage.given, NULL);
    OSH_TRY(osh_arena_new(cx, &d->arena, n_bytes));
    OSH_CUDA(cx, cudaStreamCreateWithFlags(&c->compute, cudaStreamNonBlocking));
    OSH_CUDA(cx, cudaStreamCreateWithFlags(&c->copy, cudaStreamNonBlocking));
    OSH_CUDA(cx, cudaEventCreateWithFlags(&c->asked, cudaEventDisableTiming));
    OSH_CUDA(cx, cudaEventCreateWithFlags(&c->copied, cudaEventDisableTiming));
    OSH_TRY(gpu_describe(cx, d, c));
    OSH_TRY(gpu_take_memory(cx, d, c, n_bytes));
    *out = d, d = NULL; // passes ownership of d to the caller
done:
    if (rc) osh_note(cx, "opening the device cuda:%d", ordinal);
    if (d) osh_gpu_close(cx, d);
    return rc;
}

static void pinned_release(osh_ctx *cx, osh_device *d, void *data);

/* Closes a GPU, even a GPU whose opening has failed. Ignores failures, because earlier calls
 * reported them. */
void osh_gpu_close(osh_ctx *cx, osh_device *d)
{
    osh_gpu *c = osh_gpu_of(d);
    if (c) {
        if (c->compute) cudaStreamSynchronize(c->compute);
        if (c->copy) cudaStreamSynchronize(c->copy);
        (void)osh_gpu_lanes_wait(c);
        osh_gpu_stage_deinit(c);
        osh_cuda_blas_close(cx, c->blas);
        osh_gpu_ring_deinit(&c->ahead);
        osh_gpu_ring_deinit(&c->ring);
        osh_gpu_lanes_deinit(c);
        while (c->pinned) pinned_release(cx, d, c->pinned->data);
        if (d->base) cudaFree(d->base);
        if (c->copied) cudaEventDestroy(c->copied);
        if (c->asked) cudaEventDestroy(c->asked);
        if (c->copy) cudaStreamDestroy(c->copy);
        if (c->compute) cudaStreamDestroy(c->compute);
        (void)cudaGetLastError();
        osh_free(cx, c);
    }
    pthread_mutex_destroy(&d->lock);
    osh_arena_free(cx, d->arena);
    osh_free(cx, d->text);
    osh_free(cx, d);
}

/* ---- page-locked memory ---- */
static osh_status pinned_alloc(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_gpu *c = osh_gpu_of(d);
    osh_gpu_pinned *p = NULL; // own

    OSH_NEW(cx, p, 1);
    p->n_bytes = n_bytes;
    if (cudaError_t e = cudaHostAlloc(&p->data, n_bytes ? n_bytes : 1, cudaHostAllocDefault)) {
        (void)cudaGetLastError(); // clears the error of CUDA; the next lines report it
        if (e == cudaErrorMemoryAllocation)
            OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate %zu bytes of page-locked memory", n_bytes);
        OSH_TRY(osh_cuda_check(cx, e, "cudaHostAlloc"));
    }
    *out = p->data;
    pthread_mutex_lock(&d->lock);
    p->next = c->pinned, c->pinned = p;
    pthread_mutex_unlock(&d->lock);
    p = NULL; // passes ownership of p to c->pinned
done:
    osh_free(cx, p);
    return rc;
}

/* Unlocks or frees the block of page-locked memory that begins at `data`. Does nothing for NULL or
 * for an address without such a block. */
static void pinned_release(osh_ctx *cx, osh_device *d, void *data)
{
    osh_gpu *c = osh_gpu_of(d);
    osh_gpu_pinned *p = NULL; // own
    if (!data) return;
    pthread_mutex_lock(&d->lock);
    for (osh_gpu_pinned **at = &c->pinned; *at && !p; at = p ? at : &(*at)->next)
        if ((*at)->data == data) p = *at, *at = p->next;
    pthread_mutex_unlock(&d->lock);
    if (p && p->locked) cudaHostUnregister(p->data);
    else if (p) cudaFreeHost(p->data);
    osh_free(cx, p);
}

static osh_status pinned_lock(osh_ctx *cx, osh_device *d, const char **why, void *data,
                              size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_gpu *c = osh_gpu_of(d);
    osh_gpu_pinned *p = NULL; // own

    *why = NULL;
    cudaSetDevice(c->ordinal);
    OSH_NEW(cx, p, 1);
    p->data = (char *)data, p->n_bytes = n_bytes, p->locked = true;
    if (cudaError_t e = cudaHostRegister(data, n_bytes, cudaHostRegisterDefault)) {
        (void)cudaGetLastError(); // clears the error of CUDA; the next lines report it
        bool refused = e == cudaErrorMemoryAllocation || e == cudaErrorOperatingSystem ||
                       e == cudaErrorNotSupported || e == cudaErrorHostMemoryAlreadyRegistered ||
                       e == cudaErrorInvalidValue;
        if (!refused) OSH_TRY(osh_cuda_check(cx, e, "cudaHostRegister"));
        *why = cudaGetErrorString(e);
        goto done;
    }
    pthread_mutex_lock(&d->lock);
    p->next = c->pinned, c->pinned = p;
    pthread_mutex_unlock(&d->lock);
    p = NULL; // passes ownership of p to c->pinned
done:
    osh_free(cx, p);
    return rc;
}

static void pinned_unlock(osh_ctx *cx, osh_device *d, void *data)
{
    // errors are ignored here, because an earlier call has reported them
    cudaStreamSynchronize(osh_cuda_stream(d));
    cudaStreamSynchronize(osh_gpu_of(d)->copy);
    (void)osh_gpu_lanes_wait(osh_gpu_of(d));
    pinned_release(cx, d, data);
}

const osh_device_pinned osh_gpu_pinned_type = {pinned_alloc, pinned_release, pinned_lock,
                                               pinned_unlock};

/* ---- marks ---- */
struct osh_device_mark { cudaEvent_t event; };

osh_status osh_gpu_mark_new(osh_ctx *cx, osh_device *d, osh_device_mark **out)
{
    osh_status rc = OSH_OK;
    osh_device_mark *m = NULL; // own

    OSH_NEW(cx, m, 1);
    OSH_CUDA(cx, cudaEventCreateWithFlags(&m->event, cudaEventDefault));
    OSH_CUDA(cx, cudaEventRecord(m->event, osh_cuda_stream(d)));
    *out = m, m = NULL; // passes ownership of m to the caller
done:
    osh_gpu_mark_free(cx, m);
    return rc;
}

osh_status osh_gpu_mark_between(osh_ctx *cx, double *seconds, osh_device_mark *from,
                                 osh_device_mark *to)
{
    osh_status rc = OSH_OK;
    float ms = 0;
    OSH_CUDA(cx, cudaEventSynchronize(to->event));
    OSH_CUDA(cx, cudaEventElapsedTime(&ms, from->event, to->event));
    *seconds = 1e-3 * ms;
done:
    return rc;
}

void osh_gpu_mark_free(osh_ctx *cx, osh_device_mark *m)
{
    if (!m) return;
    if (m->event) cudaEventDestroy(m->event);
    osh_free(cx, m);
}
