/* device.h - memory of an accelerator: one arena, allocated when the device is opened and never
 * grown, tensors in it, and copies to and from the host.
 *
 *   | weights, statistics, values at rest ──►          ◄── values of a batch, scratch of a call |
 *   0                              one arena of n_bytes                                       end
 *
 * A device executes requests in their order (one stream), so a freed block may be reused at once.
 * Only put_ahead and the lanes run concurrently. Tensors with device == NULL are in host memory;
 * the functions below accept them too. */
#ifndef OSH_DEVICE_H
#define OSH_DEVICE_H
#include "tensor/tensor.h"

/* Lifetime of a block. It chooses the end of the arena from which the block is taken. */
typedef enum { OSH_LIFE_LONG, OSH_LIFE_SHORT } osh_life;

/* Each lane executes its requests in order, concurrently with the other lanes: the work, copies of
 * values to the device, copies of values from it. */
typedef enum { OSH_LANE_WORK, OSH_LANE_IN, OSH_LANE_OUT, OSH_N_LANES } osh_lane;

typedef struct osh_device_type {
    const char *name; // "cuda"
    void (*close)(osh_ctx *cx, osh_device *d);
    /* Copies. put may return before the copy is done, but has then read `from`; get waits. */
    osh_status (*put)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*get)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    /* Copies within the memory of the device. */
    osh_status (*copy)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*fill)(osh_ctx *cx, osh_device *d, void *to, int byte, size_t n_bytes);
    /* put_ahead copies concurrently with the work; only one thread at a time may call it. The copy
     * waits for the requests before osh_cuda_follow. Requests after fence wait for the copy. */
    osh_status (*put_ahead)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*fence)(osh_ctx *cx, osh_device *d);
    /* The thread that requests the work calls both. `move` copies between page-locked host memory
     * and the device on the lane IN or OUT. It returns at once; the copy waits only for earlier
     * requests of its lane. `order` makes later requests on lane `later` wait for all requests made
     * so far on lane `earlier`. */
    osh_status (*move)(osh_ctx *cx, osh_device *d, osh_lane lane, void *to, const void *from,
                       size_t n_bytes);
    osh_status (*order)(osh_ctx *cx, osh_device *d, osh_lane later, osh_lane earlier);
    /* Waits for all requests. Returns a failure of any earlier call. */
    osh_status (*sync)(osh_ctx *cx, osh_device *d);
    /* take and give allocate and free memory outside the arena, for blocks_apart. NULL: not
     * supported. give first waits for the work. */
    void *(*take)(osh_device *d, size_t n_bytes);
    void (*give)(osh_device *d, void *p);
} osh_device_type;

typedef struct osh_arena osh_arena;
struct osh_device {
    const osh_device_type *type;
    void *impl;       // private data of the implementation
    char *base;       // address of the arena on the device
    osh_arena *arena; // own
    /* True in tests with a memory checker: each block is an allocation of its own, and the arena
     * only counts. */
    bool blocks_apart;
    /* own: names the parts that decide the bytes of results: "NVIDIA H200, compute capability 9.0,
     * CUDA 13.0, cuBLASLt 13.0.2". */
    char *text;
};

/* Manages the blocks of one range of addresses on the host. A block is taken at the first fit from
 * either end, and free neighbours are merged. Each call locks a mutex. Offsets and sizes are
 * multiples of 512 bytes. */
osh_status osh_arena_new(osh_ctx *cx, osh_arena **out, size_t n_bytes);
void osh_arena_free(osh_ctx *cx, osh_arena *a);
/* Takes a block and sets *offset. Returns false if no free block is large enough. */
bool osh_arena_take(osh_arena *a, size_t *offset, size_t n_bytes, osh_life life);
void osh_arena_give(osh_arena *a, size_t offset);
/* The next block of OSH_LIFE_LONG is taken at this offset if it is free there, otherwise anywhere.
 * OSH_ANYWHERE cancels an earlier aim. */
void osh_arena_aim(osh_arena *a, size_t offset);
#define OSH_ANYWHERE SIZE_MAX
/* Returns the number of OSH_LIFE_LONG blocks that had no aim, or whose aim was not free. */
size_t osh_arena_missed(const osh_arena *a);
/* For blocks_apart: osh_arena_note records the real address of the taken block at this offset;
 * osh_arena_noted returns the offset of the block with an address. */
void osh_arena_note(osh_arena *a, size_t offset, void *at);
size_t osh_arena_noted(const osh_arena *a, const void *at); // OSH_ANYWHERE: no block has this
                                                            // address
size_t osh_arena_used(const osh_arena *a);
size_t osh_arena_peak(const osh_arena *a); // highest osh_arena_used so far
size_t osh_arena_gross(size_t n_bytes);    // bytes that a block of n_bytes takes
size_t osh_arena_room(const osh_arena *a); // bytes of the largest free block
/* Returns the size of an arena in which the blocks, as they are now, would also fit: the arena
 * without its largest free block. */
size_t osh_arena_extent(const osh_arena *a);

void osh_device_close(osh_ctx *cx, osh_device *d); // accepts NULL
/* Returns NULL and records OSH_E_NOMEM on failure. */
void *osh_device_alloc(osh_ctx *cx, osh_device *d, size_t n_bytes, osh_life life);
void osh_device_free(osh_device *d, void *p);

typedef struct osh_where { osh_device *d; osh_life life; } osh_where; // d NULL: host memory
osh_status osh_tensor_new_on(osh_ctx *cx, osh_tensor **out, osh_where where, osh_dtype dt, int ndim,
                             const int64_t *shape);
/* Copy n_bytes between host memory and the tensor's data, from byte `offset` on. */
osh_status osh_tensor_put(osh_ctx *cx, osh_tensor *to, size_t offset, const void *from,
                          size_t n_bytes);
osh_status osh_tensor_get(osh_ctx *cx, void *to, const osh_tensor *from, size_t offset,
                          size_t n_bytes);
osh_status osh_tensor_zero(osh_ctx *cx, osh_tensor *t);
/* Copies a whole tensor from any memory to any memory. Both have the same dtype and number of
 * elements. */
osh_status osh_tensor_copy(osh_ctx *cx, osh_tensor *to, const osh_tensor *from);
#endif
