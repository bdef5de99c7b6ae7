/* device.h - manages the memory of a device (an accelerator): one arena of fixed size, which is
 * allocated when the device is opened; tensors in the arena; copies to and from the host.
 *
 *   | OSH_LIFE_LONG: weights, statistics ──►       ◄── OSH_LIFE_SHORT: values of a batch, scratch |
 *   0                              one arena of n_bytes                                       end
 *
 * A device executes requests in their order (one stream), so a freed block may be reused at once.
 * The exceptions are put_ahead and the lanes IN and OUT, which run concurrently. Tensors with
 * device == NULL are in host memory; the tensor functions below accept such tensors too. */
#ifndef OSH_DEVICE_H
#define OSH_DEVICE_H
#include "tensor/tensor.h"

/* Lifetime of a block: blocks with OSH_LIFE_LONG are taken from the start of the arena, blocks with
 * OSH_LIFE_SHORT from its end. */
typedef enum { OSH_LIFE_LONG, OSH_LIFE_SHORT } osh_life;

/* A lane is a queue of requests (a CUDA stream) that runs concurrently with the other lanes. WORK:
 * kernels; IN: copies of values to the device; OUT: copies of values from the device. */
typedef enum { OSH_LANE_WORK, OSH_LANE_IN, OSH_LANE_OUT, OSH_N_LANES } osh_lane;

typedef struct osh_device_type {
    const char *name; // name of the kind of device, such as "cuda"
    void (*close)(osh_ctx *cx, osh_device *d);
    /* put copies to the device. When put returns, `from` has been read, but the copy may still run.
     * get copies to the host and waits for the copy. */
    osh_status (*put)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*get)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    /* Copies within the memory of the device. */
    osh_status (*copy)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*fill)(osh_ctx *cx, osh_device *d, void *to, int byte, size_t n_bytes);
    /* put_ahead copies to the device while other requests run. Only one thread at a time may call
     * it. The copy begins after all requests that were made before osh_cuda_follow. Requests that
     * are made after a call of `fence` wait for the copy. */
    osh_status (*put_ahead)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*fence)(osh_ctx *cx, osh_device *d);
    /* `move` queues a copy between page-locked host memory and the device on the lane IN or OUT,
     * and returns at once. The copy waits only for earlier requests of its lane. `order` makes
     * later requests on lane `later` wait for all requests that were made so far on lane `earlier`.
     * Only the thread that requests kernels may call the two. */
    osh_status (*move)(osh_ctx *cx, osh_device *d, osh_lane lane, void *to, const void *from,
                       size_t n_bytes);
    osh_status (*order)(osh_ctx *cx, osh_device *d, osh_lane later, osh_lane earlier);
    /* Waits for all requests. If an earlier request failed, returns its error. */
    osh_status (*sync)(osh_ctx *cx, osh_device *d);
    /* Only used if blocks_apart is true. `take` allocates memory outside of the arena; `give` frees
     * it after all requests are done. NULL: the device does not support blocks_apart. */
    void *(*take)(osh_device *d, size_t n_bytes);
    void (*give)(osh_device *d, void *p);
} osh_device_type;

typedef struct osh_arena osh_arena;
struct osh_device {
    const osh_device_type *type;
    void *impl;       // private data of the implementation
    char *base;       // address of the arena on the device
    osh_arena *arena; // own
    /* True in tests with a memory checker: each block is then a separate allocation, and the arena
     * only records offsets and limits the sum of the sizes. */
    bool blocks_apart;
    /* own: names of hardware and libraries on which the bits of results depend, such as "NVIDIA
     * H200, compute capability 9.0, CUDA 13.0, cuBLASLt 13.0.2". */
    char *text;
};

/* An arena is the list of blocks of one range of addresses; the list is in host memory. A new block
 * is taken from the first free block that is large enough, counted from the start (OSH_LIFE_LONG)
 * or the end (OSH_LIFE_SHORT) of the range. Free neighbours are merged. Each call locks a mutex.
 * Offsets and sizes are multiples of 512 bytes. */
osh_status osh_arena_new(osh_ctx *cx, osh_arena **out, size_t n_bytes);
void osh_arena_free(osh_ctx *cx, osh_arena *a);
/* Takes a block and sets *offset. Returns false if no free block is large enough. */
bool osh_arena_take(osh_arena *a, size_t *offset, size_t n_bytes, osh_life life);
void osh_arena_give(osh_arena *a, size_t offset);
/* Requests that the next OSH_LIFE_LONG block is at `offset`. If the bytes there are not free, the
 * block is taken as without the request. OSH_ANYWHERE cancels the request. */
void osh_arena_aim(osh_arena *a, size_t offset);
#define OSH_ANYWHERE SIZE_MAX
/* Returns the number of OSH_LIFE_LONG blocks for which osh_arena_aim requested no offset, or
 * requested an offset that was in use. */
size_t osh_arena_missed(const osh_arena *a);
/* Used if blocks_apart is true: osh_arena_note records the address `at` of the separate allocation
 * for the block at `offset`. osh_arena_noted returns the offset of the block with the address
 * `at`. */
void osh_arena_note(osh_arena *a, size_t offset, void *at);
/* Returns OSH_ANYWHERE if no block has this address. */
size_t osh_arena_noted(const osh_arena *a, const void *at);
size_t osh_arena_used(const osh_arena *a);
size_t osh_arena_peak(const osh_arena *a); // largest value of osh_arena_used so far
size_t osh_arena_gross(size_t n_bytes);    // bytes that a block for n_bytes takes in the arena
size_t osh_arena_room(const osh_arena *a); // bytes of the largest free block
/* Returns the size of the smallest arena that could hold all blocks that are taken now: the size of
 * this arena minus its largest free block. */
size_t osh_arena_extent(const osh_arena *a);

void osh_device_close(osh_ctx *cx, osh_device *d); // accepts NULL
/* Allocates a block of the arena. Returns NULL and records OSH_E_NOMEM on failure. */
void *osh_device_alloc(osh_ctx *cx, osh_device *d, size_t n_bytes, osh_life life);
void osh_device_free(osh_device *d, void *p);

/* d: device of the memory; NULL: host memory. */
typedef struct osh_where { osh_device *d; osh_life life; } osh_where;
osh_status osh_tensor_new_on(osh_ctx *cx, osh_tensor **out, osh_where where, osh_dtype dt, int ndim,
                             const int64_t *shape);
/* osh_tensor_put copies n_bytes from host memory into the data of a tensor, from byte `offset` of
 * the data on. osh_tensor_get copies n_bytes of the data, from byte `offset` on, to host memory. */
osh_status osh_tensor_put(osh_ctx *cx, osh_tensor *to, size_t offset, const void *from,
                          size_t n_bytes);
osh_status osh_tensor_get(osh_ctx *cx, void *to, const osh_tensor *from, size_t offset,
                          size_t n_bytes);
osh_status osh_tensor_zero(osh_ctx *cx, osh_tensor *t);
/* Copies a whole tensor from any memory to any memory. Both have the same dtype and number of
 * elements. */
osh_status osh_tensor_copy(osh_ctx *cx, osh_tensor *to, const osh_tensor *from);
#endif
