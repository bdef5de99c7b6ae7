/* gpu.h - one GPU: opening it, its memory, copies, files and clocks; callable from C.
 *
 * A device's memory is one arena (tensor/device.h). All work goes to one stream, which keeps its
 * order: scratch may be freed before the call that used it returns. A call waits for the GPU only
 * if it hands something to the host. A failed CUDA call is OSH_E_IO with the name of the call and
 * CUDA's text; an allocation for which the arena has no room is OSH_E_NOMEM. In a build without
 * CUDA every call that can fail returns OSH_E_UNSUPPORTED (absent.c). */
#ifndef OSH_GPU_H
#define OSH_GPU_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/file.h"
#include "tensor/device.h"

/* Bytes of the arena's first block, the workspace of all products. It is the same for every GPU and
 * every size of the arena, because it decides which algorithms cuBLASLt may choose. The fastest
 * ones on compute capability 9 want this much. */
enum { OSH_CUDA_WORKSPACE = 32 << 20 };
enum { OSH_CUDA_PLAN_BYTES = 9 << 18 }; // host bytes of an open GPU: cuBLASLt's plans of products
/* GPU bytes left free without a budget: code, handles of libraries. */
enum { OSH_CUDA_RESERVE = 512 << 20 };
/* Opens GPU `ordinal` and allocates n_bytes of its memory, OSH_CUDA_WORKSPACE of them for products.
 * It allocates no more later. n_bytes 0: allocates nothing; tensors cannot be made
 * (osh_cuda_free_bytes tells what is free). OSH_E_UNSUPPORTED names what is missing: CUDA in this
 * binary, a driver, a driver that is new enough, a GPU, code for the GPU's generation, cuBLASLt or
 * cuSOLVER. */
osh_status osh_cuda_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes);
bool osh_cuda_built(void); // true if this binary has the kernels
osh_status osh_cuda_absent(osh_ctx *cx); // fails with OSH_E_UNSUPPORTED: this binary has no kernels
bool osh_cuda_present(void); // true if this binary has the kernels and the driver finds a GPU
osh_status osh_cuda_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal);
/* Returns the bytes in use on the whole GPU, by all processes, as the driver reports them (NVML); <
 * 0: it does not. Callable from any thread. */
int64_t osh_cuda_driver_bytes(const osh_device *d);

/* Slower ways that a run had to take. The output is right all the same. */
typedef enum osh_cuda_detour {
    OSH_DETOUR_F32,       // products of F32 without a pedantic algorithm
    OSH_DETOUR_BATCH,     // products one by one: the algorithm takes no batch of this size
    OSH_DETOUR_PAGEABLE,  // copies of values whose memory is not page-locked
    OSH_DETOUR_ELSEWHERE, // blocks of the arena at other addresses than planned
    OSH_DETOUR_FILE,      // reads of files by the host instead of cuFile
    OSH_N_DETOURS
} osh_cuda_detour;
const char *osh_cuda_detour_name(osh_cuda_detour which); // "products_one_by_one", ...
const char *osh_cuda_detour_text(osh_cuda_detour which); // "products of a batch one by one", ...
/* Counts n detours. True if they are the first of their kind: then the caller logs it. */
bool osh_cuda_detour_add(osh_device *d, osh_cuda_detour which, int64_t n);
/* Counts value_in_bytes, value_out_bytes. */
void osh_cuda_values_add(osh_device *d, size_t in_bytes, size_t out_bytes);

/* Counters of the device since it was opened. */
typedef struct osh_cuda_counters {
    // copied to the GPU, from it, and to it during other work
    int64_t put_bytes, get_bytes, ahead_bytes;
    double put_s, get_s, ahead_s;              // seconds on the GPU's clock
    // parts of ahead_s and get_s for which the work did not wait
    double hidden_s, get_hidden_s;
    int64_t detours[OSH_N_DETOURS];
    int64_t value_in_bytes, value_out_bytes;   // values between subgraphs, from and to their tier
    int64_t file_bytes;                        // read by cuFile; not among the copies
} osh_cuda_counters;
osh_status osh_cuda_count(osh_ctx *cx, osh_device *d, osh_cuda_counters *out);
/* A mark is a point of the compute stream, in order with the work; two marks give the time between
 * them. */
typedef struct osh_cuda_mark osh_cuda_mark;
osh_status osh_cuda_mark_new(osh_ctx *cx, osh_device *d, osh_cuda_mark **out);
/* Waits. */
osh_status osh_cuda_mark_between(osh_ctx *cx, double *seconds, osh_cuda_mark *from,
                                 osh_cuda_mark *to);
void osh_cuda_mark_free(osh_ctx *cx, osh_cuda_mark *m);

/* Page-locked memory of the host. An open GPU has OSH_CUDA_HOST_BYTES of it, the rings that copies
 * pass through. */
enum { OSH_CUDA_HOST_BYTES = 32 << 20 };
osh_status osh_cuda_host_alloc(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes);
void osh_cuda_host_free(osh_ctx *cx, osh_device *d, void *p);
/* Page-locks whole pages of memory of the caller, until osh_cuda_host_unlock, which waits for the
 * GPU's copies. *why is NULL, or the reason of the system or driver for refusing; then copies work,
 * but are slower. */
osh_status osh_cuda_host_lock(osh_ctx *cx, osh_device *d, const char **why, void *p,
                              size_t n_bytes);
void osh_cuda_host_unlock(osh_ctx *cx, osh_device *d, void *p);

/* Files are read into GPU memory by cuFile (base/cufile.h) or by the host. cuFile reads whole
 * blocks of the file into a stage of OSH_CUDA_STAGE bytes of the arena; a copy takes them to their
 * destination. The host reads into page-locked memory. The bytes are the same. */
enum { OSH_CUDA_STAGE = (16 << 20) + 8192 };
/* True if cuFile can read for this GPU. wish: "auto", "true", "false" or NULL, which is "false".
 * room: the arena has OSH_CUDA_STAGE bytes to spare. Logs the reason if cuFile cannot, for "true"
 * as a warning. */
bool osh_cuda_direct(osh_ctx *cx, int ordinal, const char *wish, bool room);
/* Allocates the stage. To be called after osh_cuda_open, before any other block is taken, if
 * osh_cuda_direct was true for this wish. */
osh_status osh_cuda_stage_open(osh_ctx *cx, osh_device *d, const char *wish);
typedef struct osh_cuda_file osh_cuda_file;
/* f: view: osh_file_use_direct was called for it. Without a stage, or if cuFile refuses the file,
 * the host reads it. */
osh_status osh_cuda_file_open(osh_ctx *cx, osh_cuda_file **out, osh_device *d, osh_file *f);
void osh_cuda_file_close(osh_ctx *cx, osh_cuda_file *f); // NULL is fine
/* Reads n_bytes from byte `at` of the file to GPU memory. ahead false: in order with the work;
 * true: as put_ahead, from any thread. If cuFile fails, the host reads the rest of this call and
 * all later bytes of the file. */
osh_status osh_cuda_file_read(osh_ctx *cx, osh_cuda_file *f, void *to, size_t n_bytes, int64_t at,
                              bool ahead);
/* The bytes that cuFile read are not those of the file: the host reads the file from now on. */
void osh_cuda_file_distrust(osh_ctx *cx, osh_cuda_file *f, const char *why);
/* Returns an array of the GPU for OSH_CUDA_SUMS checksums. The GPU must have the staging buffer of
 * osh_cuda_stage_open(). View: valid while that buffer exists. */
enum { OSH_CUDA_SUMS = 512 };
uint64_t *osh_cuda_sums(const osh_device *d);
/* Returns the gross arena bytes of osh_cuda_factor_inverse for a matrix [n, n]. */
size_t osh_cuda_triangle_bytes(int64_t n);
/* cuSOLVER gets triangles of at most OSH_TRIANGLE_BLOCK rows; a larger one is cut into blocks of
 * that many rows, or of that number halved once or more. A triangle needs room for its square, of
 * no more than 2 x 2 blocks, and OSH_TRIANGLE_SPARE bytes. */
enum { OSH_TRIANGLE_BLOCK = 2048, OSH_TRIANGLE_LEAST = 64, OSH_TRIANGLE_SPARE = 1 << 20 };
size_t osh_triangle_room(int64_t n);

#ifdef __cplusplus
}
#endif
#endif
