/* blocks.c - see blocks.h.
 *
 * Locking pages takes milliseconds, so a block serves value after value. Sizes are rounded up to the next of 16 between
 * two powers of two: batches end with a whole sample, and blocks of nearly equal ones serve each other.
 *
 * A block that is not page-locked is copied by calls that wait. */
#include "store/blocks.h"

#include <assert.h>

#include "gpu/gpu.h"

enum { PAGE = 4096, STEPS = 16 };

struct osh_block {
    osh_block *next;   // own: of those that wait
    void *room;        // own
    char *data;        // view: of room, from the start of a page
    size_t n_bytes;    // whole pages
    bool locked;
};

struct osh_blocks {
    osh_device *device; // view
    osh_block *waiting; // own: given back, the last one first
    size_t total, used, most_used; // gross bytes: of all blocks, of those that are taken, the most of these so far
    bool refused;       // memory cannot be page-locked
    bool pageable;      // it is not to be
};

static size_t rounded(size_t n_bytes)
{
    size_t pages = n_bytes ? (n_bytes + PAGE - 1) / PAGE : 1, step = 1;
    while (pages / step >= 2 * STEPS) step *= 2;
    return (pages + step - 1) / step * step * PAGE;
}

static size_t gross(size_t n_bytes) // of rounded bytes
{
    return osh_mem_gross(n_bytes + PAGE) + osh_mem_gross(sizeof(osh_block));
}

size_t osh_blocks_gross(size_t n_bytes) { return gross(rounded(n_bytes)); }

osh_status osh_blocks_new(osh_ctx *cx, osh_blocks **out, osh_device *d, bool pin)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, *out, 1);
    (*out)->device = d, (*out)->pageable = !pin;
done:
    return rc;
}

/* block: NULL is fine. */
static void free_block(osh_ctx *cx, osh_blocks *b, osh_block *block)
{
    if (!block) return;
    if (block->locked) osh_cuda_host_unlock(cx, b->device, block->data);
    osh_free(cx, block->room);
    osh_free(cx, block);
}

static void drop_waiting(osh_ctx *cx, osh_blocks *b)
{
    osh_block *block = b->waiting;
    b->waiting = block->next;
    b->total -= gross(block->n_bytes);
    free_block(cx, b, block);
}

void osh_blocks_free(osh_ctx *cx, osh_blocks *b)
{
    if (!b) return;
    assert(!b->used);
    while (b->waiting) drop_waiting(cx, b);
    osh_free(cx, b);
}

static osh_status lock(osh_ctx *cx, osh_blocks *b, osh_block *block)
{
    osh_status rc = OSH_OK;
    const char *why = NULL;
    if (b->refused || b->pageable) goto done;
    OSH_TRY(osh_cuda_host_lock(cx, b->device, &why, block->data, block->n_bytes));
    block->locked = !why, b->refused = why;
    if (why)
        osh_log(cx, OSH_LOG_WARN, "%zu bytes of host memory cannot be page-locked (%s): values rest in memory that is"
                " not, copies wait", block->n_bytes, why);
done:
    return rc;
}

static osh_status new_block(osh_ctx *cx, osh_blocks *b, osh_block **out, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_block *block = NULL; // own
    OSH_NEW(cx, block, 1);
    block->n_bytes = n_bytes;
    if (!(block->room = osh_alloc(cx, n_bytes + PAGE))) OSH_TRY(OSH_E_NOMEM);
    block->data = (char *)(((uintptr_t)block->room + PAGE - 1) / PAGE * PAGE);
    OSH_TRY(lock(cx, b, block));
    b->total += gross(n_bytes);
    *out = block, block = NULL; // give
done:
    free_block(cx, b, block);
    return rc;
}

osh_status osh_blocks_take(osh_ctx *cx, osh_blocks *b, osh_block **out, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    size_t n = rounded(n_bytes), most = b->used + gross(n) > b->most_used ? b->used + gross(n) : b->most_used;
    osh_block **at = &b->waiting;
    while (*at && (*at)->n_bytes != n) at = &(*at)->next;
    if (*at) {
        *out = *at, *at = (*at)->next;
    } else {
        while (b->waiting && b->total + gross(n) > most) drop_waiting(cx, b);
        OSH_TRY(new_block(cx, b, out, n));
    }
    b->used += gross(n), b->most_used = most;
done:
    return rc;
}

void osh_blocks_give(osh_blocks *b, osh_block *block)
{
    if (!block) return;
    b->used -= gross(block->n_bytes);
    block->next = b->waiting, b->waiting = block;
}

void *osh_block_data(osh_block *block) { return block->data; }

/* ---- copies ---- */

static osh_status order(osh_ctx *cx, osh_blocks *b, osh_lane later, osh_lane earlier)
{
    return b->device->type->order(cx, b->device, later, earlier);
}

osh_status osh_blocks_settle(osh_ctx *cx, osh_blocks *b)
{
    osh_status rc = order(cx, b, OSH_LANE_WORK, OSH_LANE_OUT);
    return rc ? rc : order(cx, b, OSH_LANE_WORK, OSH_LANE_IN);
}

static osh_status store_beside(osh_ctx *cx, osh_blocks *b, osh_block *block, const osh_tensor *t, void *through)
{
    osh_status rc = OSH_OK;
    const osh_device_type *type = b->device->type;
    size_t n = osh_tensor_bytes(t);
    if (through) OSH_TRY(order(cx, b, OSH_LANE_WORK, OSH_LANE_OUT)); // what was stored before has left
    if (through) OSH_TRY(type->copy(cx, b->device, through, t->data, n));
    OSH_TRY(order(cx, b, OSH_LANE_OUT, OSH_LANE_WORK));
    OSH_TRY(type->move(cx, b->device, OSH_LANE_OUT, block->data, through ? through : t->data, n));
    if (!through) OSH_TRY(order(cx, b, OSH_LANE_WORK, OSH_LANE_OUT));
done:
    return rc;
}

/* Before a copy of a block that is not page-locked, or to or from host memory. */
static osh_status wait_for(osh_ctx *cx, osh_blocks *b, const osh_block *block)
{
    if (block->locked) return b->device->type->sync(cx, b->device);
    if (!b->pageable) osh_cuda_detour_add(b->device, OSH_DETOUR_PAGEABLE, 1); // lock has said why
    return OSH_OK; // its copies have waited
}

osh_status osh_block_store(osh_ctx *cx, osh_blocks *b, osh_block *block, const osh_tensor *t, void *through)
{
    osh_status rc = OSH_OK;
    if (!osh_tensor_bytes(t)) goto done;
    osh_cuda_values_add(b->device, 0, t->device ? osh_tensor_bytes(t) : 0);
    if (t->device && block->locked) {
        OSH_TRY(store_beside(cx, b, block, t, through));
        goto done;
    }
    OSH_TRY(wait_for(cx, b, block));
    OSH_TRY(osh_tensor_get(cx, block->data, t, 0, osh_tensor_bytes(t)));
done:
    return rc;
}

/* The rows of a block on their way, behind what was asked of the card. */
static osh_status bring(osh_ctx *cx, osh_blocks *b, const osh_block *block, void *to, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    OSH_TRY(order(cx, b, OSH_LANE_IN, OSH_LANE_WORK));
    osh_cuda_values_add(b->device, n_bytes, 0);
    OSH_TRY(b->device->type->move(cx, b->device, OSH_LANE_IN, to, block->data, n_bytes));
done:
    return rc;
}

osh_status osh_block_load(osh_ctx *cx, osh_blocks *b, osh_block *block, osh_tensor *t)
{
    osh_status rc = OSH_OK;
    if (!osh_tensor_bytes(t)) goto done;
    if (t->device && block->locked) {
        OSH_TRY(bring(cx, b, block, t->data, osh_tensor_bytes(t)));
        OSH_TRY(order(cx, b, OSH_LANE_WORK, OSH_LANE_IN));
        goto done;
    }
    OSH_TRY(wait_for(cx, b, block));
    osh_cuda_values_add(b->device, t->device ? osh_tensor_bytes(t) : 0, 0);
    OSH_TRY(osh_tensor_put(cx, t, 0, block->data, osh_tensor_bytes(t)));
done:
    return rc;
}

osh_status osh_block_ask(osh_ctx *cx, osh_blocks *b, osh_block *block, void *landing, size_t n_bytes, bool *asked)
{
    *asked = block->locked && n_bytes;
    return *asked ? bring(cx, b, block, landing, n_bytes) : OSH_OK;
}

osh_status osh_block_arrive(osh_ctx *cx, osh_blocks *b, const void *landing, osh_tensor *t)
{
    osh_status rc = order(cx, b, OSH_LANE_WORK, OSH_LANE_IN);
    return rc ? rc : b->device->type->copy(cx, b->device, t->data, landing, osh_tensor_bytes(t));
}
