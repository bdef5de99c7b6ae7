/* gpu.h - the C interface to one GPU: opening it, memory, copies, files and times.
 *
 * A device's memory is one arena (tensor/device.h). All work goes to one stream, which executes it
 * in order. So a call may free its scratch before the GPU has used it. A call waits for the GPU
 * only if it returns values to the host. A failed CUDA call is OSH_E_IO with the name of the call
 * and CUDA's text; an allocation for which the arena has no room is OSH_E_NOMEM. In a build without
 * CUDA every call that can fail returns OSH_E_UNSUPPORTED (absent.c). */
#ifndef OSH_GPU_H
#define OSH_GPU_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/file.h"
#include "tensor/device.h"

/* Bytes of the arena's first block, which is the workspace of all products. The size is the same
 * for every GPU and every arena, because it decides which algorithms cuBLASLt may choose. The
 * fastest ones on compute capability 9 want this much. */
enum { OSH_CUDA_WORKSPACE = 32 << 20 };
enum { OSH_CUDA_PLAN_BYTES = 9 << 18 }; // host bytes of an open GPU: cuBLASLt's plans of products
/* GPU bytes that stay free if there is no budget, for code and handles of libraries. */
enum { OSH_CUDA_RESERVE = 512 << 20 };
/* Opens GPU `ordinal` and allocates n_bytes of its memory, of which OSH_CUDA_WORKSPACE are for
 * products. No later call allocates more. If n_bytes is 0, it allocates nothing and no tensors can
 * be made. osh_cuda_free_bytes tells the free bytes. OSH_E_UNSUPPORTED names what is missing: CUDA
 * in this binary, a driver, a driver that is new enough, a GPU, code for the GPU's generation,
 * cuBLASLt or cuSOLVER. */
osh_status osh_cuda_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes);
bool osh_cuda_built(void); // true if this binary has the kernels
osh_status osh_cuda_absent(osh_ctx *cx); // fails with OSH_E_UNSUPPORTED: this binary has no kernels
bool osh_cuda_present(void); // true if this binary has the kernels and the driver finds a GPU
osh_status osh_cuda_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal);
/* Makes later calls of put_ahead wait for all work that was requested so far. A caller calls it
 * once after it has taken blocks for put_ahead, because earlier work may still use them. */
osh_status osh_cuda_follow(osh_ctx *cx, osh_device *d);
/* Returns the bytes in use on the whole GPU, by all processes, as the driver reports them (NVML). <
 * 0: unknown. Any thread may call it. */
int64_t osh_cuda_driver_bytes(const osh_device *d);

/* Cases in which a run had to do something in a slower way. The output is right in all of them. */
typedef enum osh_cuda_detour {
    OSH_DETOUR_F32,       // products of F32 without a pedantic algorithm
    OSH_DETOUR_BATCH,     // batched products computed one by one: the algorithm has no batch of
                          // this size
    OSH_DETOUR_PAGEABLE,  // copies of values whose memory is not page-locked
    OSH_DETOUR_ELSEWHERE, // blocks of the arena at other addresses than the plan's
    OSH_DETOUR_FILE,      // files read by the host instead of cuFile
    OSH_N_DETOURS
} osh_cuda_detour;
const char *osh_cuda_detour_name(osh_cuda_detour which); // "products_one_by_one", ...
const char *osh_cuda_detour_text(osh_cuda_detour which); // "products of a batch one by one", ...
/* Adds n to the count of a detour. Returns true if it was 0: then the caller logs the detour. */
bool osh_cuda_detour_add(osh_device *d, osh_cuda_detour which, int64_t n);
/* Adds to the counters value_in_bytes and value_out_bytes. */
void osh_cuda_values_add(osh_device *d, size_t in_bytes, size_t out_bytes);

/* Counters of the device since it was opened. */
typedef struct osh_cuda_counters {
    // Bytes copied to the GPU, from it, and to it during other work.
    int64_t put_bytes, get_bytes, ahead_bytes;
    double put_s, get_s, ahead_s;              // seconds on the GPU's clock
    // parts of ahead_s and get_s for which the work did not wait
    double hidden_s, get_hidden_s;
    int64_t detours[OSH_N_DETOURS];
    int64_t value_in_bytes, value_out_bytes;   // bytes of values between subgraphs, from and to
                                               // their tier
    int64_t file_bytes;                        // bytes read by cuFile; not in the counters of
                                               // copies
} osh_cuda_counters;
osh_status osh_cuda_count(osh_ctx *cx, osh_device *d, osh_cuda_counters *out);
/* A mark is a point in the work of the compute stream. Two marks measure the time between them. */
typedef struct osh_cuda_mark osh_cuda_mark;
osh_status osh_cuda_mark_new(osh_ctx *cx, osh_device *d, osh_cuda_mark **out);
/* Sets *seconds to the time between two marks. Waits for the second. */
osh_status osh_cuda_mark_between(osh_ctx *cx, double *seconds, osh_cuda_mark *from,
                                 osh_cuda_mark *to);
void osh_cuda_mark_free(osh_ctx *cx, osh_cuda_mark *m);

/* Page-locked host memory. An open GPU has OSH_CUDA_HOST_BYTES of it for the rings that copies pass
 * through. */
enum { OSH_CUDA_HOST_BYTES = 32 << 20 };
osh_status osh_cuda_host_alloc(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes);
void osh_cuda_host_free(osh_ctx *cx, osh_device *d, void *p);
/* Page-locks whole pages of memory of the caller, until osh_cuda_host_unlock, which waits for the
 * GPU's copies. *why is NULL, or the reason why the system or the driver refused; then copies still
 * work, but are slower. */
osh_status osh_cuda_host_lock(osh_ctx *cx, osh_device *d, const char **why, void *p,
                              size_t n_bytes);
void osh_cuda_host_unlock(osh_ctx *cx, osh_device *d, void *p);

/* Files are read into GPU memory by cuFile (base/cufile.h) or by the host. cuFile reads whole
 * blocks of the file into a stage, OSH_CUDA_STAGE bytes of the arena; a copy moves the bytes to
 * their destination. The host reads into page-locked memory. The bytes are the same. */
enum { OSH_CUDA_STAGE = (16 << 20) + 8192 };
/* True if cuFile can read for this GPU. `wish` is "auto", "true", "false" or NULL, which means
 * "false". `room` is true if the arena has OSH_CUDA_STAGE bytes left. If cuFile cannot read, the
 * reason is logged; if `wish` is "true", as a warning. */
bool osh_cuda_direct(osh_ctx *cx, int ordinal, const char *wish, bool room);
/* Allocates the stage. The caller calls it after osh_cuda_open, before any other block is taken, if
 * osh_cuda_direct returned true for this wish. */
osh_status osh_cuda_stage_open(osh_ctx *cx, osh_device *d, const char *wish);
typedef struct osh_cuda_file osh_cuda_file;
/* Opens f for reads into GPU memory. View: osh_file_use_direct was called for f, which must stay
 * open. If there is no stage or cuFile refuses the file, the host reads it. */
osh_status osh_cuda_file_open(osh_ctx *cx, osh_cuda_file **out, osh_device *d, osh_file *f);
void osh_cuda_file_close(osh_ctx *cx, osh_cuda_file *f); // accepts NULL
/* Reads n_bytes from byte `at` of the file to GPU memory. If `ahead` is false, the read is in order
 * with the work. If it is true, the read is like put_ahead, and any thread may call it. If cuFile
 * fails, the host reads the rest of this call and all later bytes of the file. */
osh_status osh_cuda_file_read(osh_ctx *cx, osh_cuda_file *f, void *to, size_t n_bytes, int64_t at,
                              bool ahead);
/* Called if cuFile returned other bytes than the file has: the host reads the file from now on.
 * `why` is for the log. */
void osh_cuda_file_distrust(osh_ctx *cx, osh_cuda_file *f, const char *why);
/* Returns an array in GPU memory for OSH_CUDA_SUMS checksums. The GPU must have the staging buffer
 * of osh_cuda_stage_open(). View: valid while that buffer exists. */
enum { OSH_CUDA_SUMS = 512 };
uint64_t *osh_cuda_sums(const osh_device *d);
/* Returns the gross bytes of the arena that osh_cuda_factor_inverse needs for a matrix [n, n]. */
size_t osh_cuda_triangle_bytes(int64_t n);
/* cuSOLVER gets triangles of at most OSH_TRIANGLE_BLOCK rows; a larger one is cut into blocks of
 * that many rows, or of that number halved once or more, but not below OSH_TRIANGLE_LEAST. A
 * triangle needs memory for its square, of at most 2 x 2 blocks, and OSH_TRIANGLE_SPARE bytes. */
enum { OSH_TRIANGLE_BLOCK = 2048, OSH_TRIANGLE_LEAST = 64, OSH_TRIANGLE_SPARE = 1 << 20 };
size_t osh_triangle_room(int64_t n);

#ifdef __cplusplus
}
#endif
#endif
