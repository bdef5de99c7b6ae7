/* device.h - memory of an accelerator: one arena, taken when the device is opened and never grown, tensors in it, and
 * copies to and from the host.
 *
 *   | weights, statistics, values at rest ──►                      ◄── values of a batch, scratch of a call |
 *   0                                         one arena of n_bytes                                        end
 *
 * Everything that is asked of a device happens in the order in which it was asked (one stream): a block that is freed
 * may be given out at once. Only put_ahead and the lanes run beside it. Tensors with device == NULL lie in host memory;
 * the calls below take them, too. */
#ifndef OSH_DEVICE_H
#define OSH_DEVICE_H
#include "tensor/tensor.h"

typedef enum { OSH_LIFE_LONG, OSH_LIFE_SHORT } osh_life; // the end of the arena that a block is taken from

/* What happens in the order in which it was asked for, beside the other lanes: the work, copies of values to the
 * device, copies of values from it. */
typedef enum { OSH_LANE_WORK, OSH_LANE_IN, OSH_LANE_OUT, OSH_N_LANES } osh_lane;

typedef struct osh_device_type {
    const char *name; // "cuda"
    void (*close)(osh_ctx *cx, osh_device *d);
    /* Copies; put may return before the copy is done but has read `from` by then; get waits. */
    osh_status (*put)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*get)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*copy)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes); // inside the device
    osh_status (*fill)(osh_ctx *cx, osh_device *d, void *to, int byte, size_t n_bytes);
    /* Beside the work at hand, from any one thread: starts behind what was asked for before. fence: what is asked for
     * from now on waits for it. */
    osh_status (*put_ahead)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*fence)(osh_ctx *cx, osh_device *d);
    /* From the thread that asks for the work. move, on IN or OUT, between page-locked host memory and the device:
     * returns at once, waits for nothing but its lane. order: what is asked of `later` from now on waits for what was
     * asked of `earlier` until now. */
    osh_status (*move)(osh_ctx *cx, osh_device *d, osh_lane lane, void *to, const void *from, size_t n_bytes);
    osh_status (*order)(osh_ctx *cx, osh_device *d, osh_lane later, osh_lane earlier);
    osh_status (*sync)(osh_ctx *cx, osh_device *d); // all of it is done; failures of earlier calls come out here
    /* Memory beside the arena, for blocks_apart; NULL: there is none. give waits for the work. */
    void *(*take)(osh_device *d, size_t n_bytes);
    void (*give)(osh_device *d, void *p);
} osh_device_type;

typedef struct osh_arena osh_arena;
struct osh_device {
    const osh_device_type *type;
    void *impl;       // of the type
    char *base;       // address on the device
    osh_arena *arena; // own
    bool blocks_apart; // for tests under a memory checker: each block is memory of its own, the arena counts
    char *text;       // own: "NVIDIA H200, compute capability 9.0, CUDA 13.0, cuBLASLt 13.0.2": what decides the bytes
};

/* Blocks of one range, kept on the host: the first fit from either end, neighbours merged, a mutex around each call.
 * Offsets and sizes are multiples of 512 bytes. */
osh_status osh_arena_new(osh_ctx *cx, osh_arena **out, size_t n_bytes);
void osh_arena_free(osh_ctx *cx, osh_arena *a);
bool osh_arena_take(osh_arena *a, size_t *offset, size_t n_bytes, osh_life life); // false: no block is large enough
void osh_arena_give(osh_arena *a, size_t offset);
/* The next block of OSH_LIFE_LONG is taken at this offset, where it is free there; else as any other. OSH_ANYWHERE: the
 * aim before it is taken back. */
void osh_arena_aim(osh_arena *a, size_t offset);
#define OSH_ANYWHERE SIZE_MAX
size_t osh_arena_missed(const osh_arena *a); // blocks of OSH_LIFE_LONG without an aim, or whose place was not free
/* With blocks_apart: where the taken block at this offset is in truth, and the offset of what is there. */
void osh_arena_note(osh_arena *a, size_t offset, void *at);
size_t osh_arena_noted(const osh_arena *a, const void *at); // OSH_ANYWHERE: none
size_t osh_arena_used(const osh_arena *a);
size_t osh_arena_peak(const osh_arena *a); // highest
size_t osh_arena_gross(size_t n_bytes);    // what a block of n_bytes counts
size_t osh_arena_room(const osh_arena *a); // the largest block that could be taken
/* From either end to the blocks that reach furthest, both together: an arena of so many bytes would do as well. */
size_t osh_arena_extent(const osh_arena *a);

void osh_device_close(osh_ctx *cx, osh_device *d); // NULL is fine
void *osh_device_alloc(osh_ctx *cx, osh_device *d, size_t n_bytes, osh_life life); // NULL: recorded, OSH_E_NOMEM
void osh_device_free(osh_device *d, void *p);

typedef struct osh_where { osh_device *d; osh_life life; } osh_where; // d NULL: host memory
osh_status osh_tensor_new_on(osh_ctx *cx, osh_tensor **out, osh_where where, osh_dtype dt, int ndim,
                             const int64_t *shape);
/* n_bytes from byte `offset` of the tensor's data. */
osh_status osh_tensor_put(osh_ctx *cx, osh_tensor *to, size_t offset, const void *from, size_t n_bytes);
osh_status osh_tensor_get(osh_ctx *cx, void *to, const osh_tensor *from, size_t offset, size_t n_bytes);
osh_status osh_tensor_zero(osh_ctx *cx, osh_tensor *t);
/* Whole, between any two places; same dtype and number of elements. */
osh_status osh_tensor_copy(osh_ctx *cx, osh_tensor *to, const osh_tensor *from);
#endif
