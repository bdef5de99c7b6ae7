/* state.h - the state of an open GPU (osh_device.impl), which the files of this folder share. */
#ifndef OSH_CUDA_STATE_H
#define OSH_CUDA_STATE_H
#include "gpu/runtime.h"

extern "C" {
#include "base/file.h"
}

#include <pthread.h>

enum {
    OSH_GPU_PIECES = 4,
    OSH_GPU_PIECE = OSH_CUDA_HOST_BYTES / (2 * OSH_GPU_PIECES),
    OSH_GPU_TIMED = 64,
    OSH_GPU_MOVES = 16
};

/* A timed copy: events before and after it. */
typedef struct osh_gpu_copy {
    cudaEvent_t begin, end; // own
    bool pending, ahead, from_gpu;
    bool hidden; // true if the compute stream had work when the copy was queued
} osh_gpu_copy;

/* A ring of page-locked pieces that copies pass through. The pieces are filled one after the other;
 * a piece is used again when its copies are done. */
typedef struct osh_gpu_ring {
    char *room;                         // own: page-locked memory
    cudaEvent_t free[OSH_GPU_PIECES];   // own: recorded after the last copy out of the piece
    int piece;                          // index of the piece that is being filled
    size_t used;                        // bytes used of that piece
    osh_gpu_copy timed[OSH_GPU_TIMED];  // a ring; the oldest is replaced
    int n_timed;                        // number of timed copies so far
    pthread_mutex_t lock;               // held during a call that uses the ring
} osh_gpu_ring;

/* A timed copy of a lane. */
typedef struct osh_gpu_move {
    cudaEvent_t begin, end; // own
    cudaEvent_t wanted;     // own: point at which the work begins to wait for the copy
    bool pending, is_wanted;
} osh_gpu_move;
typedef struct osh_gpu_lane { // lane OSH_LANE_IN or OSH_LANE_OUT
    cudaStream_t stream;      // own
    osh_gpu_move timed[OSH_GPU_MOVES]; // a ring; the oldest is replaced
    int n_timed;                       // number of timed copies so far
} osh_gpu_lane;

typedef struct osh_gpu_pinned { // memory of osh_cuda_host_alloc or osh_cuda_host_lock
    struct osh_gpu_pinned *next;
    char *data;
    size_t n_bytes;
    bool locked; // the memory belongs to the caller and is only page-locked here
} osh_gpu_pinned;

/* GPU memory into which cuFile reads. A slot is used by one read at a time, of any thread. */
enum { OSH_GPU_SLOTS = 4, OSH_GPU_SLOT = 4 << 20 };
typedef struct osh_gpu_slot {
    cudaEvent_t copied; // own: recorded after the last copy out of the slot
    bool taken;
} osh_gpu_slot;
typedef struct osh_gpu_stage {
    char *block, *base;  // own: block, in the arena; view: base, its first whole page
    int64_t *verdict;    // view: array of osh_cuda_sums, in the block
    osh_gpu_slot slots[OSH_GPU_SLOTS];
    bool locked, asked;  // locked: registered with cuFile; asked: --use-gds is true
    pthread_mutex_t lock; // protects the member `taken` of slots
    pthread_cond_t given;
} osh_gpu_stage;

typedef struct osh_cuda_blas osh_cuda_blas; // in blas.cu

typedef struct osh_gpu {
    int ordinal, n_multiprocessors, major, minor; // compute capability
    int shared_bytes;                             // shared memory per multiprocessor in bytes
    char bus_id[32];
    cudaStream_t compute, copy;        // own
    // own: ends of compute and copy that the other stream waits for
    cudaEvent_t asked, copied;
    osh_gpu_ring ring, ahead;
    osh_gpu_lane lane[OSH_N_LANES];    // OSH_LANE_WORK: unused
    cudaEvent_t lane_end[OSH_N_LANES]; // own: end of the lane, for another lane to wait for
    osh_gpu_pinned *pinned;           // own
    osh_gpu_stage stage;               // stage.block is NULL if cuFile is not used
    osh_cuda_counters count;
    pthread_mutex_t lock;              // protects count, pinned and the member `refused` of files
    void *workspace;                   // view: first block of the arena
    osh_cuda_blas *blas;               // own
} osh_gpu;

static inline osh_gpu *osh_gpu_of(const osh_device *d) { return (osh_gpu *)d->impl; }

/* ---- copies.cu ---- */
extern const osh_device_type osh_cuda_type;
osh_status osh_gpu_ring_init(osh_ctx *cx, osh_gpu_ring *r);
void osh_gpu_ring_deinit(osh_gpu_ring *r);
typedef struct osh_gpu_read { // bytes [at, at + n_bytes) of a file
    char *to;
    osh_file *f; // view
    size_t n_bytes;
    int64_t at;
    bool ahead; // true: on the copy stream, like put_ahead; false: in order with the work
} osh_gpu_read;
/* Reads bytes of a file through a ring of host memory and copies them to the GPU. */
osh_status osh_gpu_put_file(osh_ctx *cx, osh_gpu *c, const osh_gpu_read *r);
/* Makes later copies of the copy stream wait for the work queued so far. */
osh_status osh_gpu_follow(osh_ctx *cx, osh_gpu *c);
osh_status osh_gpu_lanes_init(osh_ctx *cx, osh_gpu *c);
void osh_gpu_lanes_deinit(osh_gpu *c);
/* Waits until the lanes have no work. Returns the first error. */
cudaError_t osh_gpu_lanes_wait(const osh_gpu *c);

/* ---- files.cu ---- */
void osh_gpu_stage_deinit(osh_gpu *c);

/* ---- device.cu ---- */
void osh_gpu_close(osh_ctx *cx, osh_device *d);

/* ---- state.cu ---- */
bool osh_gpu_detour(osh_gpu *c, osh_cuda_detour which, int64_t n); // see osh_cuda_detour_add

/* Opens both libraries. Fails with OSH_E_UNSUPPORTED and names the library that is missing. *text:
 * own, such as "cuBLASLt 13.0.2, cuSOLVER 12.0.3". */
osh_status osh_cuda_blas_open(osh_ctx *cx, osh_cuda_blas **out, char **text, cudaStream_t stream);
void osh_cuda_blas_close(osh_ctx *cx, osh_cuda_blas *b);
#endif
