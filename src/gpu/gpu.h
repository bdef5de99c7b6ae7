/* gpu.h - the C interface to one GPU: opening and closing, memory, copies, files and times.
 *
 * The memory of a device is one arena (tensor/device.h). One stream executes all work in order. So
 * a call may free its scratch before the GPU has used it: later work cannot overwrite the scratch
 * too early. A call waits for the GPU only if it returns values to the host. A failed CUDA call
 * gives OSH_E_IO and a message with the name of the call and CUDA's text. An allocation that does
 * not fit in the arena gives OSH_E_NOMEM. In a build without CUDA every call that can fail returns
 * OSH_E_UNSUPPORTED (absent.c). */
#ifndef OSH_GPU_H
#define OSH_GPU_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/file.h"
#include "tensor/device.h"

/* Bytes of the workspace that all matrix products share. It is the first block of the arena. The
 * size decides which algorithms cuBLASLt may choose, so it is the same for every GPU and every
 * arena. The fastest algorithms on compute capability 9 need this size. */
enum { OSH_CUDA_WORKSPACE = 32 << 20 };
enum { OSH_CUDA_PLAN_BYTES = 9 << 18 }; // host bytes for the plans of matrix products (blas.cu)
/* GPU bytes for the code and handles of CUDA libraries. The default budget leaves them free. */
enum { OSH_CUDA_RESERVE = 512 << 20 };
/* Opens GPU `ordinal` and allocates an arena of n_bytes, of which OSH_CUDA_WORKSPACE bytes are for
 * matrix products. No later call allocates more memory of the GPU. If n_bytes is 0, there is no
 * arena, and no tensor can be allocated on the GPU. Fails with OSH_E_UNSUPPORTED and names the
 * missing part: CUDA in this binary, a driver, a new enough driver, a GPU, code for the GPU's
 * generation, cuBLASLt or cuSOLVER. */
osh_status osh_cuda_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes);
bool osh_cuda_built(void); // true if this binary has CUDA kernels
/* Fails with OSH_E_UNSUPPORTED; for binaries without CUDA kernels. */
osh_status osh_cuda_absent(osh_ctx *cx);
bool osh_cuda_present(void); // true if this binary has CUDA kernels and the driver finds a GPU
osh_status osh_cuda_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal);
/* Makes later calls of put_ahead wait for all work queued so far. A caller that has allocated
 * blocks for put_ahead calls this function once, because earlier work may still use the memory of
 * these blocks. */
osh_status osh_cuda_follow(osh_ctx *cx, osh_device *d);
/* Returns the bytes in use on the whole GPU, by all processes, as the driver reports them (NVML),
 * or a negative number if they are unknown. Any thread may call this function. */
int64_t osh_cuda_driver_bytes(const osh_device *d);

/* Detours: slower code paths that give the same output. A run counts how often each is taken. */
typedef enum osh_cuda_detour {
    /* F32 matrix products in the default mode, because cuBLASLt has no pedantic algorithm. */
    OSH_DETOUR_F32,
    /* Matrix products of a batch computed one by one, because the algorithm does not support the
     * batch size. */
    OSH_DETOUR_BATCH,
    OSH_DETOUR_PAGEABLE,  // copies to or from host memory that is not page-locked
    OSH_DETOUR_ELSEWHERE, // blocks of the arena whose address is not the planned one
    OSH_DETOUR_FILE,      // files that the host reads because cuFile cannot
    OSH_N_DETOURS
} osh_cuda_detour;
/* Returns the name of a detour for JSON, such as "products_one_by_one". */
const char *osh_cuda_detour_name(osh_cuda_detour which);
/* Returns the text of a detour for messages, such as "products of a batch one by one". */
const char *osh_cuda_detour_text(osh_cuda_detour which);
/* Adds n to the count of a detour. Returns true if the count was 0; the caller then logs the
 * detour, so it is logged once. */
bool osh_cuda_detour_add(osh_device *d, osh_cuda_detour which, int64_t n);
/* Adds in_bytes to the counter value_in_bytes and out_bytes to value_out_bytes. */
void osh_cuda_values_add(osh_device *d, size_t in_bytes, size_t out_bytes);

/* Counters of a GPU since it was opened. */
typedef struct osh_cuda_counters {
    // Bytes that were copied to the GPU on the compute stream (put), from the GPU (get), and to the
    // GPU on the copy stream (put_ahead).
    int64_t put_bytes, get_bytes, ahead_bytes;
    /* Duration of the put, get and put_ahead copies in seconds, by the GPU's clock. */
    double put_s, get_s, ahead_s;
    // Seconds of copies during which the compute stream did not wait for them: hidden_s is a part
    // of ahead_s, get_hidden_s is a part of get_s.
    double hidden_s, get_hidden_s;
    int64_t detours[OSH_N_DETOURS];
    /* Bytes of values between subgraphs that were read from the host or disk (in) and written to
     * the host or disk (out). */
    int64_t value_in_bytes, value_out_bytes;
    int64_t file_bytes; // bytes read by cuFile, which the other counters do not include
} osh_cuda_counters;
osh_status osh_cuda_count(osh_ctx *cx, osh_device *d, osh_cuda_counters *out);
/* A mark is a timestamp (CUDA event) in the compute stream. Two marks measure the time between
 * them. */
typedef struct osh_cuda_mark osh_cuda_mark;
osh_status osh_cuda_mark_new(osh_ctx *cx, osh_device *d, osh_cuda_mark **out);
/* Sets *seconds to the time from mark `from` to mark `to`. Waits until the GPU reaches `to`. */
osh_status osh_cuda_mark_between(osh_ctx *cx, double *seconds, osh_cuda_mark *from,
                                 osh_cuda_mark *to);
void osh_cuda_mark_free(osh_ctx *cx, osh_cuda_mark *m);

/* Page-locked host memory. An open GPU always has OSH_CUDA_HOST_BYTES of it for the rings of
 * staging buffers (state.h). */
enum { OSH_CUDA_HOST_BYTES = 32 << 20 };
osh_status osh_cuda_host_alloc(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes);
void osh_cuda_host_free(osh_ctx *cx, osh_device *d, void *p);
/* Page-locks memory of the caller; p and n_bytes must be whole pages. Sets *why to NULL, or to the
 * reason if the system or the driver refused to lock the memory. After a refusal copies still work,
 * but are slower. osh_cuda_host_unlock waits for the GPU's copies and unlocks the memory. */
osh_status osh_cuda_host_lock(osh_ctx *cx, osh_device *d, const char **why, void *p,
                              size_t n_bytes);
void osh_cuda_host_unlock(osh_ctx *cx, osh_device *d, void *p);

/* Files are read into GPU memory by cuFile (base/cufile.h) or by the host. cuFile reads whole
 * blocks of the file into the stage, a buffer of OSH_CUDA_STAGE bytes in the arena, and a copy
 * moves the bytes to their destination. The host reads into page-locked memory. The bytes are the
 * same. */
enum { OSH_CUDA_STAGE = (16 << 20) + 8192 };
/* True if cuFile can read files for this GPU. `wish` is "auto", "true", "false" or NULL, which
 * means "false". `room` is true if the arena has OSH_CUDA_STAGE free bytes. If cuFile cannot read,
 * the reason is logged, as a warning if `wish` is "true". */
bool osh_cuda_direct(osh_ctx *cx, int ordinal, const char *wish, bool room);
/* Allocates the stage if osh_cuda_direct returned true for `wish`. The caller calls this function
 * after osh_cuda_open and before any other block of the arena is allocated. */
osh_status osh_cuda_stage_open(osh_ctx *cx, osh_device *d, const char *wish);
typedef struct osh_cuda_file osh_cuda_file;
/* Opens f for reads into GPU memory. `f` is a view and must remain open; osh_file_use_direct must
 * have been called for it. If there is no stage or cuFile refuses the file, the host reads the
 * file. */
osh_status osh_cuda_file_open(osh_ctx *cx, osh_cuda_file **out, osh_device *d, osh_file *f);
void osh_cuda_file_close(osh_ctx *cx, osh_cuda_file *f); // accepts NULL
/* Reads n_bytes from byte `at` of the file to GPU memory. If `ahead` is false, the bytes are copied
 * after all earlier requests and before all later ones. If `ahead` is true, the copy runs during
 * other work like put_ahead (tensor/device.h), and any thread may call this function. If cuFile
 * fails, the host reads the rest of the bytes and all later bytes of the file. */
osh_status osh_cuda_file_read(osh_ctx *cx, osh_cuda_file *f, void *to, size_t n_bytes, int64_t at,
                              bool ahead);
/* Makes the host read the rest of the file. The caller calls this function if cuFile has returned
 * bytes that differ from the file. `why`: the reason, for the log. */
void osh_cuda_file_distrust(osh_ctx *cx, osh_cuda_file *f, const char *why);
/* osh_cuda_sums returns an array in GPU memory for OSH_CUDA_SUMS checksums: a view that lives as
 * long as the stage (osh_cuda_stage_open). */
enum { OSH_CUDA_SUMS = 512 };
uint64_t *osh_cuda_sums(const osh_device *d);
/* Returns the number of bytes that osh_cuda_factor_inverse allocates in the arena for a matrix [n,
 * n], with the allocator's overhead. */
size_t osh_cuda_triangle_bytes(int64_t n);
/* Sizes for the inversion of a triangular matrix (triangle). A triangle with at most
 * OSH_TRIANGLE_BLOCK rows is passed to cuSOLVER as a whole. A larger triangle is cut into blocks.
 * The number of rows of a block is OSH_TRIANGLE_BLOCK, or this number divided by 2, 4, ..., and at
 * least OSH_TRIANGLE_LEAST. osh_triangle_room returns the number of bytes of scratch for a triangle
 * of n rows: a square of at most 2 x 2 blocks, and OSH_TRIANGLE_SPARE bytes. */
enum { OSH_TRIANGLE_BLOCK = 2048, OSH_TRIANGLE_LEAST = 64, OSH_TRIANGLE_SPARE = 1 << 20 };
size_t osh_triangle_room(int64_t n);

#ifdef __cplusplus
}
#endif
#endif
