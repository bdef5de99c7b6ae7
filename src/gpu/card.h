/* card.h - what is behind osh_device.impl: between card.cu, device.cu, copies.cu and blas.cu. */
#ifndef OSH_CUDA_CARD_H
#define OSH_CUDA_CARD_H
#include "gpu/runtime.h"

extern "C" {
#include "base/file.h"
}

#include <pthread.h>

enum { OSH_CARD_PIECES = 4, OSH_CARD_PIECE = OSH_CUDA_HOST_BYTES / (2 * OSH_CARD_PIECES), OSH_CARD_TIMED = 64,
       OSH_CARD_MOVES = 16 };

/* A copy between two events. */
typedef struct osh_card_copy {
    cudaEvent_t begin, end; // own
    bool pending, ahead, from_card;
    bool hidden; // the compute stream had work when it was asked for
} osh_card_copy;

/* Pinned memory that copies pass through: pieces are filled in turn, each again when what it held has been copied. */
typedef struct osh_card_ring {
    char *room;                         // own: pinned
    cudaEvent_t free[OSH_CARD_PIECES];  // own: behind the last copy out of the piece
    int piece;                          // that is being filled
    size_t used;                        // of it, bytes
    osh_card_copy timed[OSH_CARD_TIMED];
    int n_timed;                        // so far
    pthread_mutex_t lock;               // one call at a time
} osh_card_ring;

/* Of osh_lane, but for the work's. */
typedef struct osh_card_move {
    cudaEvent_t begin, end; // own
    cudaEvent_t wanted;     // own: when the work came to where it waits for it
    bool pending, is_wanted;
} osh_card_move;
typedef struct osh_card_lane {
    cudaStream_t stream;    // own
    osh_card_move timed[OSH_CARD_MOVES];
    int n_timed;
} osh_card_lane;

typedef struct osh_card_pinned { // what osh_cuda_host_alloc gave out, or osh_cuda_host_lock locked
    struct osh_card_pinned *next;
    char *data;
    size_t n_bytes;
    bool locked; // the caller's memory
} osh_card_pinned;

/* Card memory that cuFile reads into: slots, each for one read at a time, from any thread. */
enum { OSH_CARD_SLOTS = 4, OSH_CARD_SLOT = 4 << 20 };
typedef struct osh_card_slot {
    cudaEvent_t copied; // own: behind the last copy out of it
    bool taken;
} osh_card_slot;
typedef struct osh_card_stage {
    char *block, *base;  // own: of the arena; its first page on
    int64_t *verdict;    // view: of the block
    osh_card_slot slots[OSH_CARD_SLOTS];
    bool locked, asked;  // registered with cuFile; --use-gds true
    pthread_mutex_t lock; // of the slots' taken
    pthread_cond_t given;
} osh_card_stage;

typedef struct osh_cuda_blas osh_cuda_blas; // blas.cu

typedef struct osh_card {
    int ordinal, n_multiprocessors, major, minor; // compute capability
    int shared_bytes;                             // shared memory of a multiprocessor
    char bus_id[32];
    cudaStream_t compute, copy;        // own
    cudaEvent_t asked, copied;         // own: the end of each when the other one was told to wait for it
    osh_card_ring ring, ahead;
    osh_card_lane lane[OSH_N_LANES];   // that of the work: nothing
    cudaEvent_t lane_end[OSH_N_LANES]; // own: when another one was told to wait for it
    osh_card_pinned *pinned;           // own
    osh_card_stage stage;              // block NULL: files go through the rings
    osh_cuda_counters count;
    pthread_mutex_t lock;              // of count and pinned
    void *workspace;                   // view: the arena's first block
    osh_cuda_blas *blas;               // own
} osh_card;

static inline osh_card *osh_card_of(const osh_device *d) { return (osh_card *)d->impl; }

/* copies.cu */
extern const osh_device_type osh_cuda_type;
osh_status osh_card_ring_init(osh_ctx *cx, osh_card_ring *r);
void osh_card_ring_deinit(osh_card_ring *r);
typedef struct osh_card_read { // bytes [at, at + n_bytes) of a file
    char *to;
    osh_file *f; // view
    size_t n_bytes;
    int64_t at;
    bool ahead;
} osh_card_read;
osh_status osh_card_put_file(osh_ctx *cx, osh_card *c, const osh_card_read *r); // through a ring, as put or put_ahead
osh_status osh_card_follow(osh_ctx *cx, osh_card *c); // what the copy stream is asked for is behind the work so far
osh_status osh_card_lanes_init(osh_ctx *cx, osh_card *c);
void osh_card_lanes_deinit(osh_card *c);
cudaError_t osh_card_lanes_wait(const osh_card *c); // until they are empty

/* files.cu */
void osh_card_stage_deinit(osh_card *c);

/* device.cu */
void osh_card_close(osh_ctx *cx, osh_device *d);

/* card.cu */
bool osh_card_detour(osh_card *c, osh_cuda_detour which, int64_t n); // osh_cuda_detour_add

/* blas.cu: OSH_E_UNSUPPORTED naming the library that is missing. text: own, "cuBLASLt 13.0.2, cuSOLVER 12.0.3" */
osh_status osh_cuda_blas_open(osh_ctx *cx, osh_cuda_blas **out, char **text, cudaStream_t stream);
void osh_cuda_blas_close(osh_ctx *cx, osh_cuda_blas *b);
#endif
