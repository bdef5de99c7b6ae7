/* gpu.h - one GPU: opening it, its memory, copies, files and clocks; callable from C.
 *
 * A device's memory is one arena (tensor/device.h). All work goes to one stream, which keeps its order: scratch may be
 * freed before the call that used it returns. No call waits for the GPU unless it hands something to the host. A failed
 * CUDA call is OSH_E_IO with the name of the call and CUDA's text; an allocation that the arena cannot make is
 * OSH_E_NOMEM. Without CUDA in the build each of them fails with OSH_E_UNSUPPORTED (absent.c). */
#ifndef OSH_GPU_H
#define OSH_GPU_H
#ifdef __cplusplus
extern "C" {
#endif
#include "base/file.h"
#include "tensor/device.h"

/* Bytes of the arena's first block, the workspace of all products. The same for every card and every size of the
 * arena, since it decides which algorithms cuBLASLt may choose: so much it wants for its fastest ones on compute
 * capability 9. */
enum { OSH_CUDA_WORKSPACE = 32 << 20 };
enum { OSH_CUDA_PLAN_BYTES = 9 << 18 }; // of host memory, for how products are made: an open card has them
enum { OSH_CUDA_RESERVE = 512 << 20 }; // of a card without a budget: code, libraries' handles
/* Opens card `ordinal` and takes n_bytes of its memory, all that it will take, OSH_CUDA_WORKSPACE of it for itself.
 * OSH_E_UNSUPPORTED naming what is missing: the binary was built without CUDA, no driver, too old a driver, no card, a
 * card of a generation that the binary has no code for, no cuBLASLt or cuSOLVER. n_bytes 0: nothing is taken yet
 * (osh_cuda_free_bytes tells what there is), tensors cannot be made. */
osh_status osh_cuda_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes);
bool osh_cuda_built(void); // this binary has the kernels
osh_status osh_cuda_absent(osh_ctx *cx); // fails: this binary does not have them
bool osh_cuda_present(void); // built with CUDA, and a driver with a card is there
osh_status osh_cuda_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal);
/* In use on the whole card, whoever uses it, as its driver reports it (NVML); from any thread. < 0: it does not. */
int64_t osh_cuda_driver_bytes(const osh_device *d);

/* What went another way than it should: the output is right, and takes longer. */
typedef enum osh_cuda_detour {
    OSH_DETOUR_F32,       // products of F32 without a pedantic algorithm
    OSH_DETOUR_BATCH,     // products one by one: the algorithm takes no batch of this size
    OSH_DETOUR_PAGEABLE,  // copies of values whose memory is not page-locked
    OSH_DETOUR_ELSEWHERE, // blocks of the arena that do not lie where the plan saw them
    OSH_DETOUR_FILE,      // reads of files that cuFile was to do
    OSH_N_DETOURS
} osh_cuda_detour;
const char *osh_cuda_detour_name(osh_cuda_detour which); // "products_one_by_one", ...
const char *osh_cuda_detour_text(osh_cuda_detour which); // a sentence's worth
bool osh_cuda_detour_add(osh_device *d, osh_cuda_detour which, int64_t n); // true: the first; who adds it logs it
void osh_cuda_values_add(osh_device *d, size_t in_bytes, size_t out_bytes); // to value_in_bytes and value_out_bytes

/* Of the device since it was opened. */
typedef struct osh_cuda_counters {
    int64_t put_bytes, get_bytes, ahead_bytes; // copied to the card, from it, and to it beside other work
    double put_s, get_s, ahead_s;              // seconds on the card's clock
    double hidden_s, get_hidden_s;             // of ahead_s and get_s: the work did not wait for it
    int64_t detours[OSH_N_DETOURS];
    int64_t value_in_bytes, value_out_bytes;   // of values between subgraphs: from where they rest, and to there
    int64_t file_bytes;                        // that cuFile read; not among the copies
} osh_cuda_counters;
osh_status osh_cuda_count(osh_ctx *cx, osh_device *d, osh_cuda_counters *out);
/* Time on the compute stream between two points, from events. A mark is taken in order with the work. */
typedef struct osh_cuda_mark osh_cuda_mark;
osh_status osh_cuda_mark_new(osh_ctx *cx, osh_device *d, osh_cuda_mark **out);
osh_status osh_cuda_mark_between(osh_ctx *cx, double *seconds, osh_cuda_mark *from, osh_cuda_mark *to); // waits
void osh_cuda_mark_free(osh_ctx *cx, osh_cuda_mark *m);

/* Page-locked memory of the host; an open card has OSH_CUDA_HOST_BYTES of it, that pieces of copies pass through. */
enum { OSH_CUDA_HOST_BYTES = 32 << 20 };
osh_status osh_cuda_host_alloc(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes);
void osh_cuda_host_free(osh_ctx *cx, osh_device *d, void *p);
/* Page-locks memory that is there, whole pages of it, until unlock, which waits for the card's copies. *why: NULL, or
 * what the system or the driver has against it: the memory serves as it is, only slower. */
osh_status osh_cuda_host_lock(osh_ctx *cx, osh_device *d, const char **why, void *p, size_t n_bytes);
void osh_cuda_host_unlock(osh_ctx *cx, osh_device *d, void *p);

/* From files to the card: by cuFile (base/cufile.h) into OSH_CUDA_STAGE bytes of the arena, in whole blocks of the
 * file, and from there to their place; or through page-locked pieces of host memory. The bytes are the same. */
enum { OSH_CUDA_STAGE = (16 << 20) + 8192 };
/* Whether cuFile is there for a card: wish auto, true, false (as NULL); room: so many bytes are to spare. Why not is
 * logged, where it was wished for as a warning. */
bool osh_cuda_direct(osh_ctx *cx, int ordinal, const char *wish, bool room);
/* Takes it, where osh_cuda_direct said so for this wish: the first block behind osh_cuda_open. */
osh_status osh_cuda_stage_open(osh_ctx *cx, osh_device *d, const char *wish);
typedef struct osh_cuda_file osh_cuda_file;
/* f: a view, told osh_file_use_direct. Without a stage, or where cuFile does not take it, the host reads it. */
osh_status osh_cuda_file_open(osh_ctx *cx, osh_cuda_file **out, osh_device *d, osh_file *f);
void osh_cuda_file_close(osh_ctx *cx, osh_cuda_file *f); // NULL is fine
/* n_bytes from byte `at` of the file; in order with the work, or ahead: as put_ahead, from any thread. What cuFile
 * fails to read the host reads, and the file from then on. */
osh_status osh_cuda_file_read(osh_ctx *cx, osh_cuda_file *f, void *to, size_t n_bytes, int64_t at, bool ahead);
/* What it read is not what the file has: the host reads it from now on. */
void osh_cuda_file_distrust(osh_ctx *cx, osh_cuda_file *f, const char *why);
/* Room for OSH_CUDA_SUMS checksums in the memory of a GPU that has a stage. View: lives as long as the stage. */
enum { OSH_CUDA_SUMS = 512 };
uint64_t *osh_cuda_sums(const osh_device *d);
/* Arena bytes, gross, that a Cholesky factor [n, n] and its inverse take. */
size_t osh_cuda_triangle_bytes(int64_t n);
/* cuSOLVER gets triangles of at most OSH_TRIANGLE_BLOCK rows; a larger one is cut into blocks of that
 * many rows, or of that number halved once or more. A triangle takes its square, of no more than 2 x 2
 * blocks, and OSH_TRIANGLE_SPARE bytes. */
enum { OSH_TRIANGLE_BLOCK = 2048, OSH_TRIANGLE_LEAST = 64, OSH_TRIANGLE_SPARE = 1 << 20 };
size_t osh_triangle_room(int64_t n);

#ifdef __cplusplus
}
#endif
#endif
