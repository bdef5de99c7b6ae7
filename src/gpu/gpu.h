/* gpu.h - declares the table of kinds of devices, and sizes for the memory of a GPU.
 *
 * The memory of a device is one arena (tensor/device.h). One stream executes all work in order. So
 * a call may free its scratch before the GPU has used it: later work cannot overwrite the scratch
 * too early. A call waits for the GPU only if it returns values to the host. A failed CUDA call
 * gives OSH_E_IO and a message with the name of the call and CUDA's text. An allocation that does
 * not fit in the arena gives OSH_E_NOMEM. */
#ifndef OSH_GPU_H
#define OSH_GPU_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/file.h"
#include "tensor/device.h"

/* OSH_CUDA_FN(f) is f if the binary has CUDA, else NULL. Tables of kernels use this macro. */
#ifdef OSH_CUDA_BUILT
#define OSH_CUDA_FN(f) f
#else
#define OSH_CUDA_FN(f) NULL
#endif

/* A kind of device: a row of the table osh_device_kinds. Every binary has all rows, because
 * `oneshot plan` plans the memory of a GPU on machines without one. */
typedef struct osh_device_kind {
    const char *name; // name in --device
    /* Functions of the kind; NULL: this binary was built without them. */
    const osh_device_type *type;
    /* Bytes of the workspace that all matrix products share. It is the first block of the arena.
     * The size decides which algorithms cuBLASLt may choose, so it is the same for every GPU and
     * every arena. The fastest algorithms on compute capability 9 need this size. */
    size_t workspace;
    size_t stage;      // bytes of the stage in the arena (osh_device_files)
    /* Bytes for the code and handles of libraries. A default budget leaves these bytes free. */
    size_t reserve;
    size_t host_bytes; // bytes of page-locked host memory of an open device, for copies
    size_t plan_bytes; // host bytes for the plans of matrix products (blas.cu)
} osh_device_kind;
enum { OSH_HOST, OSH_GPU, OSH_N_DEVICE_KINDS }; // row numbers in osh_device_kinds
extern const osh_device_kind osh_device_kinds[OSH_N_DEVICE_KINDS];
/* Sizes of the row OSH_GPU of osh_device_kinds. */
enum {
    OSH_GPU_WORKSPACE = 32 << 20,
    OSH_GPU_STAGE = (16 << 20) + 8192,
    OSH_GPU_HOST = 32 << 20,
    OSH_GPU_PLANS = 9 << 18
};

/* The next three functions read `text`, the value of --device: "cpu", "cuda", "cuda:N", or "auto".
 * NULL means "auto": the GPU if there is one, else the host. osh_device_find sets *ordinal to N or
 * 0. It fails with OSH_E_USAGE for other texts, and with OSH_E_UNSUPPORTED if this binary was built
 * without the device. */
bool osh_device_is_auto(const char *text);
bool osh_device_is_gpu(const char *text); // true if osh_device_find finds a GPU, not the host
osh_status osh_device_find(osh_ctx *cx, const osh_device_kind **out, int *ordinal,
                           const char *text);
/* True if this binary and this machine have a device of the kind. */
bool osh_device_present(const osh_device_kind *k);
/* Opens a device (osh_device_type.open). For a GPU, n_bytes includes the workspace. Fails with
 * OSH_E_UNSUPPORTED if this binary was built without devices of this kind. */
osh_status osh_device_open(osh_ctx *cx, osh_device **out, const osh_device_kind *k, int ordinal,
                           size_t n_bytes);

/* Returns the number of bytes that osh_cuda_factor_inverse allocates in the arena for a matrix [n,
 * n], with the allocator's overhead. */
size_t osh_cuda_triangle_bytes(int64_t n);
/* Sizes for the inverse of a Cholesky factor (triangle.cu). A matrix is cut into blocks in two
 * cases: if it has more than OSH_TRIANGLE_BLOCK rows, or if cuSOLVER needs more scratch for the
 * whole matrix than osh_triangle_room returns. A block has OSH_TRIANGLE_BLOCK rows, or this number
 * divided by 2, 4, ..., but never fewer than OSH_TRIANGLE_LEAST. osh_triangle_room returns the size
 * of the scratch for a matrix of n rows, in bytes. The size is a sum of two terms. The first is the
 * size of the matrix, or of 2 x 2 blocks of OSH_TRIANGLE_BLOCK rows if the matrix is larger. The
 * second is OSH_TRIANGLE_SPARE bytes. */
enum { OSH_TRIANGLE_BLOCK = 2048, OSH_TRIANGLE_LEAST = 64, OSH_TRIANGLE_SPARE = 1 << 20 };
size_t osh_triangle_room(int64_t n);

#ifdef __cplusplus
}
#endif
#endif
