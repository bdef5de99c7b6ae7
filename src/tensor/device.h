/* device.h - manages the memory of a device (an accelerator). A device has one arena of fixed size,
 * which is allocated when the device is opened. Also declares functions that make tensors in the
 * arena, and functions that copy to and from the host.
 *
 *   | OSH_LIFE_LONG: weights, statistics ──►       ◄── OSH_LIFE_SHORT: values of a batch, scratch |
 *   0                              one arena of n_bytes                                       end
 *
 * A device executes requests in their order (one stream), so a freed block may be reused at once.
 * There are two exceptions to this order: the copies of put_ahead, and the copies on the lanes IN
 * and OUT. They run during other requests. Tensors with device == NULL are in host memory. The
 * tensor functions below accept them, too. */
#ifndef OSH_DEVICE_H
#define OSH_DEVICE_H
#include <pthread.h>

#include "tensor/tensor.h"

/* Lifetime of a block of the arena. Blocks with OSH_LIFE_LONG are taken from the start of the
 * arena, and blocks with OSH_LIFE_SHORT from its end. */
typedef enum { OSH_LIFE_LONG, OSH_LIFE_SHORT } osh_life;

/* A lane is a queue of requests (a CUDA stream) that runs concurrently with the other lanes. WORK:
 * kernels. IN: copies of values to the device. OUT: copies of values from the device. */
typedef enum { OSH_LANE_WORK, OSH_LANE_IN, OSH_LANE_OUT, OSH_N_LANES } osh_lane;

/* Columns of a table of kernels, such as osh_op.run. REF: plain loops. CPU: fast code for the host.
 * CUDA: kernels for a GPU. */
typedef enum { OSH_REF, OSH_CPU, OSH_CUDA, OSH_N_BACKENDS } osh_backend_id;

/* A detour is a slower code path with the same output. A run counts how often it takes each
 * detour. */
typedef enum osh_detour {
    /* Products of F32 matrices. cuBLASLt has no pedantic algorithm for these products, so they use
     * the default mode. */
    OSH_DETOUR_F32,
    /* Products of a batch of matrices. The algorithm does not support the number of matrices, so
     * the products are computed one by one. */
    OSH_DETOUR_BATCH,
    OSH_DETOUR_PAGEABLE,  // copies to or from host memory that is not page-locked
    OSH_DETOUR_ELSEWHERE, // blocks of the arena that are not at their planned address
    OSH_DETOUR_FILE,      // files that the host reads, because cuFile cannot read them
    OSH_N_DETOURS
} osh_detour;
/* Returns the name of a detour for JSON, such as "products_one_by_one". */
const char *osh_detour_name(osh_detour which);
/* Returns the words with which messages name a detour: "products of a batch one by one". */
const char *osh_detour_text(osh_detour which);

/* Bytes, times and other numbers that were counted since the device was opened. */
typedef struct osh_device_counters {
    // Numbers of copied bytes.
    // put_bytes: copied to the device, in order with the work of the device (put).
    // get_bytes: copied from the device (get).
    // ahead_bytes: copied to the device, during the work of the device (put_ahead).
    int64_t put_bytes, get_bytes, ahead_bytes;
    /* Seconds that the copies `put`, `get` and `put_ahead` took, by the clock of the device. */
    double put_s, get_s, ahead_s;
    // Seconds of copies for which the device's work did not wait. hidden_s is a part of ahead_s,
    // and get_hidden_s is a part of get_s.
    double hidden_s, get_hidden_s;
    int64_t detours[OSH_N_DETOURS];
    /* Values between subgraphs: bytes that were read from the host or the disk (in), and bytes that
     * were written to the host or the disk (out). */
    int64_t value_in_bytes, value_out_bytes;
    int64_t file_bytes; // bytes that cuFile has read; the other counters do not include them
} osh_device_counters;

/* Functions for page-locked host memory. */
typedef struct osh_device_pinned {
    osh_status (*alloc)(osh_ctx *cx, osh_device *d, void **out, size_t n_bytes);
    void (*free)(osh_ctx *cx, osh_device *d, void *p);
    /* `lock` page-locks memory of the caller. p and n_bytes must describe whole pages. Sets *why to
     * NULL, or to the reason if the system or the driver refuses. Copies then still work, but are
     * slower. `unlock` waits for the device's copies, and unlocks the memory. */
    osh_status (*lock)(osh_ctx *cx, osh_device *d, const char **why, void *p, size_t n_bytes);
    void (*unlock)(osh_ctx *cx, osh_device *d, void *p);
} osh_device_pinned;

/* Functions that read files into the memory of a device. There are two ways, which read the same
 * bytes. The device reads whole blocks of the file into a buffer of the arena, called the stage,
 * and then copies the bytes to their destination. Or the host reads the bytes into page-locked
 * memory, and then copies them to the device. */
typedef struct osh_device_file osh_device_file;
struct osh_file;
typedef struct osh_device_files {
    /* True if the device can read files. If it cannot, the reason is logged, as a warning if `wish`
     * is "true".
     * wish: "auto", "true", "false", or NULL, which means "false".
     * room: true if the arena has space for the stage. */
    bool (*direct)(osh_ctx *cx, int ordinal, const char *wish, bool room);
    /* Allocates the stage, if `direct` returned true for `wish`. Called after the device is opened,
     * before any other block of the arena is allocated. */
    osh_status (*stage_open)(osh_ctx *cx, osh_device *d, const char *wish);
    /* Opens f for reads into the memory of the device. f is a view and must remain open. The caller
     * has called osh_file_use_direct for f. If there is no stage, or if the device refuses the
     * file, the host will read the file. */
    osh_status (*open)(osh_ctx *cx, osh_device_file **out, osh_device *d, struct osh_file *f);
    void (*close)(osh_ctx *cx, osh_device_file *f); // accepts NULL
    /* Reads n_bytes from byte `at` of the file to device memory. If `ahead` is false, the bytes are
     * copied after all earlier requests and before all later requests. If `ahead` is true, the copy
     * runs during other work like put_ahead, and any thread may call this function. If the device
     * fails, the host reads these bytes and all later bytes of the file. */
    osh_status (*read)(osh_ctx *cx, osh_device_file *f, void *to, size_t n_bytes, int64_t at,
                       bool ahead);
    /* Makes the host read the rest of the file. Called if the device has returned bytes that differ
     * from the file. `why`: the reason, for the log. */
    void (*distrust)(osh_ctx *cx, osh_device_file *f, const char *why);
    /* Returns an array of OSH_DEVICE_SUMS checksums in device memory. It is a view that lives as
     * long as the stage. */
    uint64_t *(*sums)(const osh_device *d);
} osh_device_files;
enum { OSH_DEVICE_SUMS = 512 };

/* A mark is a timestamp in the queue of a device's requests. With two marks the time between them
 * is measured. */
typedef struct osh_device_mark osh_device_mark;

typedef struct osh_device_uuid {
    uint8_t bytes[16];
} osh_device_uuid;

/* A row of the table of devices describes how one kind of device works. The functions in the row of
 * the host (osh_host_type) get NULL as d. All memory is then host memory, and requests are done at
 * once. The row of the host has only the functions that copy, fill and wait. Its other members are
 * NULL. */
typedef struct osh_device_type {
    const char *name;      // name of this kind of device, such as "cuda"
    osh_backend_id column; // the device's column in the tables of kernels
    /* True if this machine has a device of this kind. */
    bool (*present)(void);
    /* Opens device number `ordinal` and allocates its arena of n_bytes. No later call allocates
     * more memory of the device. If n_bytes is 0, there is no arena. If the device, its driver or a
     * library is missing, fails with OSH_E_UNSUPPORTED. The message names the missing part. */
    osh_status (*open)(osh_ctx *cx, osh_device **out, int ordinal, size_t n_bytes);
    void (*close)(osh_ctx *cx, osh_device *d);
    osh_status (*free_bytes)(osh_ctx *cx, size_t *n_bytes, int ordinal);
    /* Returns the number of bytes that all processes together use on the device, as the driver
     * reports it. A negative result means that the number is unknown. Any thread may call this
     * function. */
    int64_t (*driver_bytes)(const osh_device *d);
    /* Sets *n to the number of devices that this process may use. */
    osh_status (*number)(osh_ctx *cx, int *n);
    /* Sets *id to the UUID of device `ordinal`. Processes that see the device under another ordinal
     * get the same UUID. */
    osh_status (*identify)(osh_ctx *cx, osh_device_uuid *id, int ordinal);
    /* `put` copies to the device. When it returns, `from` may be overwritten, but the copy may
     * still run. `get` copies to the host, and returns when the copy is complete. */
    osh_status (*put)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*get)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    /* Copies within the memory of the device. */
    osh_status (*copy)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*fill)(osh_ctx *cx, osh_device *d, void *to, int byte, size_t n_bytes);
    /* put_ahead copies to the device while other requests run. Only one thread at a time may call
     * it. The copy begins after all requests that were made before the last call of `follow`. A
     * caller that has allocated blocks for put_ahead calls `follow` once, because earlier requests
     * may still use the memory of these blocks. Requests that are made after a call of `fence` wait
     * for the copy. */
    osh_status (*put_ahead)(osh_ctx *cx, osh_device *d, void *to, const void *from, size_t n_bytes);
    osh_status (*follow)(osh_ctx *cx, osh_device *d);
    osh_status (*fence)(osh_ctx *cx, osh_device *d);
    /* `move` queues a copy between page-locked host memory and the device on lane IN or OUT, and
     * returns at once. The copy only waits for earlier requests of its lane. `order` makes later
     * requests of lane `later` wait for all requests that lane `earlier` has so far. Only the
     * thread that requests kernels may call `move` and `order`. */
    osh_status (*move)(osh_ctx *cx, osh_device *d, osh_lane lane, void *to, const void *from,
                       size_t n_bytes);
    osh_status (*order)(osh_ctx *cx, osh_device *d, osh_lane later, osh_lane earlier);
    /* Waits until all requests are done. If an earlier request failed, returns its error. */
    osh_status (*sync)(osh_ctx *cx, osh_device *d);
    /* Only used if blocks_apart is true. `take` allocates memory outside of the arena. `give` frees
     * such memory after all requests are done. Both are NULL if the device does not support
     * blocks_apart. */
    void *(*take)(osh_device *d, size_t n_bytes);
    void (*give)(osh_device *d, void *p);
    osh_status (*count)(osh_ctx *cx, osh_device *d, osh_device_counters *out);
    osh_status (*mark_new)(osh_ctx *cx, osh_device *d, osh_device_mark **out);
    /* Sets *seconds to the time from mark `from` to mark `to`. Waits until the device reaches mark
     * `to`. */
    osh_status (*mark_between)(osh_ctx *cx, double *seconds, osh_device_mark *from,
                               osh_device_mark *to);
    void (*mark_free)(osh_ctx *cx, osh_device_mark *m); // accepts NULL
    const osh_device_pinned *pinned;
    const osh_device_files *files;
} osh_device_type;
extern const osh_device_type osh_host_type;

typedef struct osh_arena osh_arena;
struct osh_device {
    const osh_device_type *type;
    void *impl;       // data that only the implementation of the device uses
    pthread_mutex_t lock;      // protects `count`
    osh_device_counters count; // counters, which osh_device_type.count returns
    char *base;       // address of the arena on the device
    /* View: scratch in the arena that any call may overwrite. Requests use it in their order. */
    void *workspace;
    size_t workspace_bytes;
    osh_arena *arena; // own
    /* True in tests with a memory checker. Each block is then a separate allocation, and the arena
     * only records offsets and limits the sum of the sizes. */
    bool blocks_apart;
    /* Own: names of the hardware and the libraries on which the bits of results depend, such as
     * "NVIDIA H200, compute capability 9.0, CUDA 13.0, cuBLASLt 13.0.2". */
    char *text;
};

/* An osh_arena is a list, in host memory, of the blocks of one range of addresses. A new block is
 * taken from a free block that is large enough: for OSH_LIFE_LONG the first one, for OSH_LIFE_SHORT
 * the last one. Free neighbours are merged. Each call locks a mutex. Offsets and sizes are
 * multiples of 512 bytes. */
osh_status osh_arena_new(osh_ctx *cx, osh_arena **out, size_t n_bytes);
/* Frees the object, not the memory of its blocks. */
void osh_arena_free(osh_ctx *cx, osh_arena *a);
/* Takes a block of n_bytes and sets *offset. Returns false if no free block is large enough. */
bool osh_arena_take(osh_arena *a, size_t *offset, size_t n_bytes, osh_life life);
/* Makes the block at `offset` free. */
void osh_arena_give(osh_arena *a, size_t offset);
/* Requests that the next OSH_LIFE_LONG block is at `offset`. If the bytes there are not free, the
 * request has no effect. OSH_ANYWHERE cancels the request. */
void osh_arena_aim(osh_arena *a, size_t offset);
#define OSH_ANYWHERE SIZE_MAX
/* Returns how many OSH_LIFE_LONG blocks are not at a requested offset: either osh_arena_aim
 * requested none, or the bytes there were not free. */
size_t osh_arena_missed(const osh_arena *a);
/* Only used if blocks_apart is true. osh_arena_note stores `at`, the address of the separate
 * allocation for the block at `offset`. osh_arena_noted returns the offset of the block with the
 * address `at`. */
void osh_arena_note(osh_arena *a, size_t offset, void *at);
/* Returns OSH_ANYWHERE if no block has the address `at`. */
size_t osh_arena_noted(const osh_arena *a, const void *at);
/* Returns the number of bytes of all blocks that are now taken. */
size_t osh_arena_used(const osh_arena *a);
size_t osh_arena_peak(const osh_arena *a); // returns the largest osh_arena_used so far
/* Returns the number of bytes that a block of n_bytes takes in the arena. */
size_t osh_arena_gross(size_t n_bytes);
size_t osh_arena_room(const osh_arena *a); // returns the size in bytes of the largest free block
/* Returns the size of the smallest arena that could hold all blocks that are now taken. This is the
 * size of the arena minus its largest free block. */
size_t osh_arena_extent(const osh_arena *a);

/* Returns the table row for the kind of device of d. If d is NULL, returns the row of the host. */
static inline const osh_device_type *osh_device_type_of(const osh_device *d)
{
    return d ? d->type : &osh_host_type;
}
void osh_device_close(osh_ctx *cx, osh_device *d); // accepts NULL
/* Adds n to the count of a detour. Returns true if the count was 0 before, so that the caller logs
 * each detour only once. */
bool osh_device_detour(osh_device *d, osh_detour which, int64_t n);
/* Adds in_bytes to the counter value_in_bytes, and out_bytes to value_out_bytes. Does nothing if d
 * is NULL. */
void osh_device_count_values(osh_device *d, size_t in_bytes, size_t out_bytes);
/* Allocates a block of n_bytes in the arena. Returns NULL and records OSH_E_NOMEM if no free block
 * is large enough. */
void *osh_device_alloc(osh_ctx *cx, osh_device *d, size_t n_bytes, osh_life life);
/* Frees a block of osh_device_alloc. Accepts NULL. */
void osh_device_free(osh_device *d, void *p);

/* The memory for a tensor. d: its device; NULL: host memory. life: lifetime of its block. */
typedef struct osh_where { osh_device *d; osh_life life; } osh_where;
/* Allocates a tensor, whose data are not set. The caller frees *out with osh_tensor_free. */
osh_status osh_tensor_new_on(osh_ctx *cx, osh_tensor **out, osh_where where, osh_dtype dt, int ndim,
                             const int64_t *shape);
/* osh_tensor_put copies n_bytes from host memory into the data of a tensor. osh_tensor_get copies
 * n_bytes of the data to host memory. `offset`: position of these n_bytes in the data. */
osh_status osh_tensor_put(osh_ctx *cx, osh_tensor *to, size_t offset, const void *from,
                          size_t n_bytes);
osh_status osh_tensor_get(osh_ctx *cx, void *to, const osh_tensor *from, size_t offset,
                          size_t n_bytes);
/* Sets all bytes of the data to 0. */
osh_status osh_tensor_zero(osh_ctx *cx, osh_tensor *t);
/* Copies all elements of a tensor to another tensor. Each may be in host memory or on a device.
 * Both have the same dtype and number of elements. */
osh_status osh_tensor_copy(osh_ctx *cx, osh_tensor *to, const osh_tensor *from);
#endif
