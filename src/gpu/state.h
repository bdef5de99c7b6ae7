/* state.h - declares the state of an open GPU (osh_device.impl), which the files of this folder
 * share. */
#ifndef OSH_CUDA_STATE_H
#define OSH_CUDA_STATE_H
#include "gpu/runtime.h"

extern "C" {
#include "base/file.h"
}

#include <pthread.h>

enum {
    OSH_GPU_PIECES = 4,
    OSH_GPU_PIECE = OSH_GPU_HOST / (2 * OSH_GPU_PIECES),
    OSH_GPU_TIMED = 64,
    OSH_GPU_MOVES = 16
};

/* A timed copy, with CUDA events before and after the copy. */
typedef struct osh_gpu_copy {
    cudaEvent_t begin, end; // own
    bool pending, ahead, from_gpu;
    bool hidden; // true: the compute stream had work when the copy was queued
} osh_gpu_copy;

/* Ring of page-locked staging buffers ("pieces") for copies between the host and the GPU. The
 * pieces are used in turn. A piece is reused after its last copy is complete. */
typedef struct osh_gpu_ring {
    char *room;                         // own: page-locked memory
    /* One event per piece, recorded after the last copy that uses the piece. */
    cudaEvent_t free[OSH_GPU_PIECES];   // own
    int piece;                          // index of the piece that is being filled
    size_t used;                        // number of used bytes in the piece that is being filled
    /* Ring buffer of the last timed copies: a new copy replaces the oldest. */
    osh_gpu_copy timed[OSH_GPU_TIMED];
    int n_timed;                        // number of timed copies so far
    pthread_mutex_t lock;               // held by each function that uses the ring
} osh_gpu_ring;

/* A copy of one value to the GPU or from the GPU. CUDA events before and after the copy measure its
 * time. */
typedef struct osh_gpu_move {
    cudaEvent_t begin, end; // own
    /* Event on the compute stream, recorded immediately before the stream begins to wait for the
     * copy. */
    cudaEvent_t wanted;     // own
    bool pending, is_wanted;
} osh_gpu_move;
/* Stream for copies of values to the GPU (OSH_LANE_IN) or from the GPU (OSH_LANE_OUT). */
typedef struct osh_gpu_lane {
    cudaStream_t stream;      // own
    /* Ring buffer of the last timed copies: a new copy replaces the oldest. */
    osh_gpu_move timed[OSH_GPU_MOVES];
    int n_timed;                       // number of timed copies so far
} osh_gpu_lane;

typedef struct osh_gpu_pinned { // a block of page-locked memory (osh_device_type.pinned)
    struct osh_gpu_pinned *next;
    char *data;
    size_t n_bytes;
    /* True: `lock` has locked memory of the caller. False: `alloc` has allocated the memory. */
    bool locked;
} osh_gpu_pinned;

/* The stage: GPU memory into which cuFile reads. The stage is cut into slots; each read occupies
 * one slot. Reads may run in several threads. */
enum { OSH_GPU_SLOTS = 4, OSH_GPU_SLOT = 4 << 20 };
typedef struct osh_gpu_slot {
    cudaEvent_t copied; // own: event after the last copy out of the slot
    bool taken;
} osh_gpu_slot;
typedef struct osh_gpu_stage {
    char *block, *base;  // block: own, in the arena; base: view, the first whole page of `block`
    int64_t *verdict; // view: the part of `block` with the checksums of osh_device_files.sums
    osh_gpu_slot slots[OSH_GPU_SLOTS];
    /* locked: true if the stage is registered with cuFile.
     * asked: true if the user requested cuFile (`--use-gds true`). */
    bool locked, asked;
    pthread_mutex_t lock; // protects the member `taken` of all slots
    pthread_cond_t given;
} osh_gpu_stage;

typedef struct osh_cuda_blas osh_cuda_blas; // defined in blas.cu

typedef struct osh_gpu {
    /* ordinal: index of the GPU.
     * major, minor: compute capability. */
    int ordinal, n_multiprocessors, major, minor;
    int shared_bytes;                             // shared memory per multiprocessor in bytes
    char bus_id[32];
    cudaStream_t compute, copy; // own: streams of all kernels (compute) and of put_ahead (copy)
    /* Own events. The copy stream waits for `asked`, which the compute stream records. The compute
     * stream waits for `copied`, which the copy stream records. */
    cudaEvent_t asked, copied;
    osh_gpu_ring ring, ahead;
    osh_gpu_lane lane[OSH_N_LANES];    // lane[OSH_LANE_WORK] is not used
    /* For each lane: event after the lane's last copy. Other lanes wait for this event. */
    cudaEvent_t lane_end[OSH_N_LANES]; // own
    osh_gpu_pinned *pinned;           // own
    osh_gpu_stage stage;               // stage.block is NULL if cuFile is not used
    osh_device *d; // view; d->lock protects the list `pinned`, and osh_device_file.refused
    osh_cuda_blas *blas;               // own
} osh_gpu;

static inline osh_gpu *osh_gpu_of(const osh_device *d) { return (osh_gpu *)d->impl; }

/* ---- copies.cu ---- */
osh_status osh_gpu_ring_init(osh_ctx *cx, osh_gpu_ring *r);
void osh_gpu_ring_deinit(osh_gpu_ring *r);
typedef struct osh_gpu_read { // a request to read bytes [at, at + n_bytes) of a file to GPU memory
    char *to;
    osh_file *f; // view: the file
    size_t n_bytes;
    int64_t at;
    /* True: the copy runs on the copy stream, like put_ahead. False: it runs on the compute stream,
     * in order with the kernels. */
    bool ahead;
} osh_gpu_read;
/* Reads bytes of a file through a ring of page-locked memory and copies the bytes to the GPU. */
osh_status osh_gpu_put_file(osh_ctx *cx, osh_gpu *c, const osh_gpu_read *r);
/* Makes the next work of the copy stream wait for all work that is queued so far on the compute
 * stream. */
osh_status osh_gpu_follow(osh_ctx *cx, osh_gpu *c);
osh_status osh_gpu_lanes_init(osh_ctx *cx, osh_gpu *c);
void osh_gpu_lanes_deinit(osh_gpu *c);
/* Waits until the lanes IN and OUT have no work. Returns the first error. */
cudaError_t osh_gpu_lanes_wait(const osh_gpu *c);

/* ---- files.cu ---- */
extern const osh_device_files osh_gpu_files;
void osh_gpu_stage_deinit(osh_gpu *c);

/* ---- device.cu: members of osh_device_type ---- */
extern const osh_device_pinned osh_gpu_pinned_type;
bool osh_gpu_present(void);
osh_status osh_gpu_open(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes);
void osh_gpu_close(osh_ctx *cx, osh_device *d);
osh_status osh_gpu_free_bytes(osh_ctx *cx, size_t *n_bytes, int ordinal);
osh_status osh_gpu_number(osh_ctx *cx, int *n);
osh_status osh_gpu_identify(osh_ctx *cx, osh_device_uuid *id, int ordinal);
int64_t osh_gpu_driver_bytes(const osh_device *d);
osh_status osh_gpu_mark_new(osh_ctx *cx, osh_device *d, osh_device_mark **out);
osh_status osh_gpu_mark_between(osh_ctx *cx, double *seconds, osh_device_mark *from,
                                osh_device_mark *to);
void osh_gpu_mark_free(osh_ctx *cx, osh_device_mark *m);

/* Opens cuBLASLt and cuSOLVER. Fails with OSH_E_UNSUPPORTED and names the library that is missing.
 * *text: own, such as "cuBLASLt 13.0.2, cuSOLVER 12.0.3". */
osh_status osh_cuda_blas_open(osh_ctx *cx, osh_cuda_blas **out, char **text, cudaStream_t stream);
void osh_cuda_blas_close(osh_ctx *cx, osh_cuda_blas *b);
#endif
