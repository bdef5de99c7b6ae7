/* blocks.c - allocates page-locked blocks of host memory, and copies batches between these blocks
 * and a GPU on lanes (CUDA streams, blocks.h).
 *
 * Page-locking takes milliseconds, so a block that is given back is reused for another value. The
 * sizes of batches differ slightly, because batches consist of whole samples. So the size of a
 * block is rounded up to one of 16 sizes between two consecutive powers of two. Batches of
 * different values can then use the same block.
 *
 * For a block that is not page-locked, the host waits for each copy. */
#include "store/blocks.h"

#include <assert.h>

enum { PAGE = 4096, STEPS = 16 };

struct osh_block {
    osh_block *next;   // own: next block of the list `waiting`
    void *room;        // own
    char *data;        // view: first page-aligned address in `room`
    size_t n_bytes;    // whole pages
    bool locked;
};

struct osh_blocks {
    osh_device *device; // view
    /* List of the blocks that were given back and wait for reuse. The last block that was given
     * back comes first. */
    osh_block *waiting; // own
    /* Numbers of bytes, with the allocator's overhead.
     * total: bytes of all blocks.
     * used: bytes of the blocks that are taken now.
     * most_used: largest value that `used` has had. */
    size_t total, used, most_used;
    bool refused;       // true if the system has refused to page-lock memory
    bool pageable;      // true if blocks must not be page-locked
};

static size_t block_rounded(size_t n_bytes)
{
    size_t pages = n_bytes ? (n_bytes + PAGE - 1) / PAGE : 1, step = 1;
    while (pages / step >= 2 * STEPS) step *= 2;
    return (pages + step - 1) / step * step * PAGE;
}

static size_t block_gross(size_t n_bytes) // n_bytes: size that block_rounded has returned
{
    return osh_mem_gross(n_bytes + PAGE) + osh_mem_gross(sizeof(osh_block));
}

size_t osh_blocks_gross(size_t n_bytes) { return block_gross(block_rounded(n_bytes)); }

osh_status osh_blocks_new(osh_ctx *cx, osh_blocks **out, osh_device *d, bool pin)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, *out, 1);
    (*out)->device = d, (*out)->pageable = !pin;
done:
    return rc;
}

/* Frees a block, which may be NULL. */
static void block_free(osh_ctx *cx, osh_blocks *b, osh_block *block)
{
    if (!block) return;
    if (block->locked) b->device->type->pinned->unlock(cx, b->device, block->data);
    osh_free(cx, block->room);
    osh_free(cx, block);
}

/* Frees the first block of the list `waiting`. */
static void blocks_drop_waiting(osh_ctx *cx, osh_blocks *b)
{
    osh_block *block = b->waiting;
    b->waiting = block->next;
    b->total -= block_gross(block->n_bytes);
    block_free(cx, b, block);
}

void osh_blocks_free(osh_ctx *cx, osh_blocks *b)
{
    if (!b) return;
    assert(!b->used);
    while (b->waiting) blocks_drop_waiting(cx, b);
    osh_free(cx, b);
}

static osh_status block_lock(osh_ctx *cx, osh_blocks *b, osh_block *block)
{
    osh_status rc = OSH_OK;
    const char *why = NULL;
    if (b->refused || b->pageable) goto done;
    OSH_TRY(b->device->type->pinned->lock(cx, b->device, &why, block->data, block->n_bytes));
    block->locked = !why, b->refused = why;
    if (why)
        osh_log(cx, OSH_LOG_WARN,
                "%zu bytes of host memory cannot be page-locked (%s): values are stored in pageable"
                " memory, and copies wait",
                block->n_bytes, why);
done:
    return rc;
}

static osh_status block_new(osh_ctx *cx, osh_blocks *b, osh_block **out, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_block *block = NULL; // own
    OSH_NEW(cx, block, 1);
    block->n_bytes = n_bytes;
    if (!(block->room = osh_alloc(cx, n_bytes + PAGE))) OSH_TRY(OSH_E_NOMEM);
    block->data = (char *)(((uintptr_t)block->room + PAGE - 1) / PAGE * PAGE);
    OSH_TRY(block_lock(cx, b, block));
    b->total += block_gross(n_bytes);
    *out = block, block = NULL; // give
done:
    block_free(cx, b, block);
    return rc;
}

osh_status osh_blocks_take(osh_ctx *cx, osh_blocks *b, osh_block **out, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    size_t n = block_rounded(n_bytes),
           most = b->used + block_gross(n) > b->most_used ? b->used + block_gross(n) : b->most_used;
    osh_block **at = &b->waiting;
    while (*at && (*at)->n_bytes != n) at = &(*at)->next;
    if (*at) {
        *out = *at, *at = (*at)->next;
    } else {
        while (b->waiting && b->total + block_gross(n) > most) blocks_drop_waiting(cx, b);
        OSH_TRY(block_new(cx, b, out, n));
    }
    b->used += block_gross(n), b->most_used = most;
done:
    return rc;
}

void osh_blocks_give(osh_blocks *b, osh_block *block)
{
    if (!block) return;
    b->used -= block_gross(block->n_bytes);
    block->next = b->waiting, b->waiting = block;
}

void *osh_block_data(osh_block *block) { return block->data; }

/* ---- copies ---- */

/* Makes all later work on lane `later` (a CUDA stream) wait for the work that is now queued on lane
 * `earlier`. */
static osh_status lane_order(osh_ctx *cx, osh_blocks *b, osh_lane later, osh_lane earlier)
{
    return b->device->type->order(cx, b->device, later, earlier);
}

osh_status osh_blocks_settle(osh_ctx *cx, osh_blocks *b)
{
    osh_status rc = lane_order(cx, b, OSH_LANE_WORK, OSH_LANE_OUT);
    return rc ? rc : lane_order(cx, b, OSH_LANE_WORK, OSH_LANE_IN);
}

/* Copies t to the block on lane OUT while lane WORK runs kernels. through: as in
 * osh_block_store. */
static osh_status block_store_beside(osh_ctx *cx, osh_blocks *b, osh_block *block,
                                     const osh_tensor *t, void *through)
{
    osh_status rc = OSH_OK;
    const osh_device_type *type = b->device->type;
    size_t n = osh_tensor_bytes(t);
    /* WORK overwrites `through`, so it waits until the previous store has read `through`. */
    if (through) OSH_TRY(lane_order(cx, b, OSH_LANE_WORK, OSH_LANE_OUT));
    if (through) OSH_TRY(type->copy(cx, b->device, through, t->data, n));
    OSH_TRY(lane_order(cx, b, OSH_LANE_OUT, OSH_LANE_WORK));
    OSH_TRY(type->move(cx, b->device, OSH_LANE_OUT, block->data, through ? through : t->data, n));
    if (!through) OSH_TRY(lane_order(cx, b, OSH_LANE_WORK, OSH_LANE_OUT));
done:
    return rc;
}

/* Waits until no lane uses the block, so that the host can copy to it or from it. The host makes
 * such a copy if the block is not page-locked, or if the block is copied to or from a tensor in
 * host memory. */
static osh_status block_wait(osh_ctx *cx, osh_blocks *b, const osh_block *block)
{
    if (block->locked) return b->device->type->sync(cx, b->device);
    /* block_lock has already logged why the memory is not page-locked */
    if (!b->pageable) osh_device_detour(b->device, OSH_DETOUR_PAGEABLE, 1);
    return OSH_OK; // lanes only use page-locked blocks
}

osh_status osh_block_store(osh_ctx *cx, osh_blocks *b, osh_block *block, const osh_tensor *t,
                           void *through)
{
    osh_status rc = OSH_OK;
    if (!osh_tensor_bytes(t)) goto done;
    osh_device_count_values(t->device, 0, osh_tensor_bytes(t));
    if (t->device && block->locked) {
        OSH_TRY(block_store_beside(cx, b, block, t, through));
        goto done;
    }
    OSH_TRY(block_wait(cx, b, block));
    OSH_TRY(osh_tensor_get(cx, block->data, t, 0, osh_tensor_bytes(t)));
done:
    return rc;
}

/* Queues a copy of `from`, memory of a block, to the address `to` in GPU memory, on lane IN. The
 * copy starts after the work that is now queued on lane WORK. */
static osh_status block_bring(osh_ctx *cx, osh_blocks *b, const void *from, void *to,
                              size_t n_bytes)
{
    osh_status rc = OSH_OK;
    OSH_TRY(lane_order(cx, b, OSH_LANE_IN, OSH_LANE_WORK));
    osh_device_count_values(b->device, n_bytes, 0);
    OSH_TRY(b->device->type->move(cx, b->device, OSH_LANE_IN, to, from, n_bytes));
done:
    return rc;
}

osh_status osh_block_load(osh_ctx *cx, osh_blocks *b, osh_block *block, osh_tensor *t)
{
    return osh_block_load_part(cx, b, block, 0, t);
}

osh_status osh_block_load_part(osh_ctx *cx, osh_blocks *b, osh_block *block, size_t at,
                               osh_tensor *t)
{
    osh_status rc = OSH_OK;
    const char *from = (const char *)block->data + at;
    if (!osh_tensor_bytes(t)) goto done;
    if (t->device && block->locked) {
        OSH_TRY(block_bring(cx, b, from, t->data, osh_tensor_bytes(t)));
        OSH_TRY(lane_order(cx, b, OSH_LANE_WORK, OSH_LANE_IN));
        goto done;
    }
    OSH_TRY(block_wait(cx, b, block));
    osh_device_count_values(t->device, osh_tensor_bytes(t), 0);
    OSH_TRY(osh_tensor_put(cx, t, 0, from, osh_tensor_bytes(t)));
done:
    return rc;
}

osh_status osh_block_ask(osh_ctx *cx, osh_blocks *b, osh_block *block, void *landing,
                         size_t n_bytes, bool *asked)
{
    *asked = block->locked && n_bytes;
    return *asked ? block_bring(cx, b, block->data, landing, n_bytes) : OSH_OK;
}

osh_status osh_block_arrive(osh_ctx *cx, osh_blocks *b, const void *landing, osh_tensor *t)
{
    osh_status rc = lane_order(cx, b, OSH_LANE_WORK, OSH_LANE_IN);
    return rc ? rc : b->device->type->copy(cx, b->device, t->data, landing, osh_tensor_bytes(t));
}
