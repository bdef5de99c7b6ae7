/* on_gpu.h - runs CUDA kernels in tests on a GPU, real or emulated (tests/play), and copies tensors
 * to the GPU and back.
 *
 * Without a GPU these tests are skipped with a message. The emulated GPU runs the threads of a
 * block in several orders; a real GPU has only its own order. */
#ifndef OSH_KERNEL_ON_GPU_H
#define OSH_KERNEL_ON_GPU_H
#include "kernel_test.h"
#include "gpu/gpu.h"
#include "ops/cuda/cuda.h"
#include "solver/cuda/solver.h"
#include "strict.h"

/* osh_play_order and osh_play_protect (tests/play/play.h) exist if the GPU is emulated.
 * osh_race_barrier exists if the emulated GPU detects races. A test that detects races runs only
 * one order of the threads, which is enough. */
void osh_play_order(unsigned seed) __attribute__((weak));
void osh_play_protect(bool on) __attribute__((weak));
void osh_race_barrier(void) __attribute__((weak));
long osh_play_calls(const char *name) __attribute__((weak)); // exists only if the GPU is emulated

enum { GPU_BYTES = 64 << 20 };
#ifdef __SANITIZE_ADDRESS__
enum { GPU_ORDERS = 1 }; // one order is enough to detect a memory error
#else
enum { GPU_ORDERS = 2 }; // forward and reverse: each pair of threads runs in both orders
#endif

/* Opens a GPU with n_bytes for tensors (own; osh_device_close frees it). Returns NULL if there is
 * no GPU. The host may access the memory of the emulated GPU, which saves two system calls for each
 * kernel. A test with few kernels can call gpu_protect to forbid this. */
static inline osh_device *gpu_open(osh_ctx *cx, size_t n_bytes)
{
    osh_device *d = NULL;
    if (!osh_device_present(&osh_device_kinds[OSH_GPU])) {
        printf("skip: the CUDA column, no GPU is there\n");
        // with OSH_TEST_GPU, CTest runs a test only for its CUDA kernels, so a test without a GPU
        // is skipped (exit code 77)
        if (getenv("OSH_TEST_GPU")) exit(77);
        return NULL;
    }
    if (osh_play_protect) osh_play_protect(false);
    if (osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, OSH_GPU_WORKSPACE + n_bytes))
        fail_msg("%s", osh_error_text(cx));
    // makes each block an allocation of its own, so that a memory checker detects accesses past the
    // end of a tensor
    d->blocks_apart = getenv("OSH_TEST_APART");
    return d;
}

/* True on the emulated GPU. A test then skips the CPU kernels, because another run of the same
 * test, without the emulated GPU, tests them. */
static inline bool gpu_alone(void) { return osh_play_order; }

static inline void gpu_protect(void)
{
    if (osh_play_protect) osh_play_protect(true);
}

static inline int gpu_orders(void)
{
    return osh_play_order && !osh_race_barrier ? GPU_ORDERS : 1;
}
static inline void gpu_order(int k)
{
    if (osh_play_order) osh_play_order((unsigned)k);
}

/* True if the emulated GPU detects wrong addresses or races. A test may then skip a dtype or size
 * for which a kernel accesses the same addresses as in another case. */
static inline bool gpu_looks_at_addresses(void)
{
#ifdef __SANITIZE_ADDRESS__
    return osh_play_order;
#else
    return osh_race_barrier;
#endif
}

/* A copy of a host tensor on the GPU, with guard bytes on both sides. */
typedef struct gpu_copy_of {
    osh_tensor t;
    uint8_t *room; // own: memory of the GPU
} gpu_copy_of;
enum { GPU_GUARD = 512 }; // number of guard bytes; a multiple of the arena's alignment

static inline gpu_copy_of gpu_put(osh_ctx *cx, osh_device *d, const osh_tensor *t)
{
    gpu_copy_of c = {.t = *t};
    size_t n = osh_tensor_bytes(t);
    c.room = osh_device_alloc(cx, d, n + 2 * GPU_GUARD, OSH_LIFE_LONG);
    assert_non_null(c.room);
    assert_int_equal(d->type->fill(cx, d, c.room, 0xA5, n + 2 * GPU_GUARD), OSH_OK);
    c.t.device = d, c.t.own = false, c.t.data = c.room + GPU_GUARD;
    assert_int_equal(osh_tensor_copy(cx, &c.t, t), OSH_OK);
    return c;
}

/* Copies the values of `c` to the host tensor `to`, checks the guard bytes and frees the copy on
 * the GPU. If `to` is NULL, copies nothing. */
static inline void gpu_take(osh_ctx *cx, osh_tensor *to, gpu_copy_of *c)
{
    uint8_t guards[2][GPU_GUARD];
    osh_device *d = c->t.device;
    size_t n = osh_tensor_bytes(&c->t);
    if (to) assert_int_equal(osh_tensor_copy(cx, to, &c->t), OSH_OK);
    assert_int_equal(d->type->get(cx, d, guards[0], c->room, GPU_GUARD), OSH_OK);
    assert_int_equal(d->type->get(cx, d, guards[1], c->room + GPU_GUARD + n, GPU_GUARD), OSH_OK);
    for (int i = 0; i < GPU_GUARD; i++) assert_true(guards[0][i] == 0xA5 && guards[1][i] == 0xA5);
    osh_device_free(d, c->room);
}

/* Takes bytes of the arena, so that its largest free block has `left` bytes. A kernel that needs
 * more then fails with OSH_E_NOMEM. Returns the offset of the taken block. gpu_release frees it.
 * Only the list of the arena changes: no bytes of memory are allocated or written. */
static inline size_t gpu_leave(osh_device *d, size_t left)
{
    size_t room = osh_arena_room(d->arena), offset = OSH_ANYWHERE;
    if (room > left)
        assert_true(osh_arena_take(d->arena, &offset, room - left, OSH_LIFE_LONG));
    assert_true(osh_arena_room(d->arena) <= left);
    return offset;
}

static inline void gpu_release(osh_device *d, size_t offset)
{
    if (offset != OSH_ANYWHERE) osh_arena_give(d->arena, offset);
}

/* Runs the CUDA kernel of op on copies of the host tensors, and copies the outputs back. The arena
 * has `scratch` free bytes for the kernel. */
static inline osh_status gpu_run(osh_ctx *cx, osh_device *d, const osh_op *op,
                                  const osh_op_args *a, size_t scratch)
{
    osh_op_args on = *a;
    gpu_copy_of in[OSH_OP_MAX_IN] = {0}, out[OSH_OP_MAX_OUT] = {0};
    for (int i = 0; i < OSH_OP_MAX_IN; i++)
        if (a->in[i]) in[i] = gpu_put(cx, d, a->in[i]), on.in[i] = &in[i].t;
    for (int i = 0; i < OSH_OP_MAX_OUT; i++)
        if (a->out[i]) out[i] = gpu_put(cx, d, a->out[i]), on.out[i] = &out[i].t;
    size_t taken = gpu_leave(d, scratch), before = osh_arena_used(d->arena);
    osh_status rc = op->run[OSH_CUDA](cx, &on);
    assert_int_equal(osh_arena_used(d->arena), before);
    if (rc == OSH_E_NOMEM)
        fail_msg("%s needs more than the predicted %zu bytes of the GPU: %s", op->name, scratch,
                 osh_error_text(cx));
    gpu_release(d, taken);
    for (int i = 0; i < OSH_OP_MAX_OUT; i++)
        if (a->out[i]) gpu_take(cx, a->out[i], &out[i]);
    for (int i = 0; i < OSH_OP_MAX_IN; i++)
        if (a->in[i]) gpu_take(cx, NULL, &in[i]);
    return rc;
}
#endif
