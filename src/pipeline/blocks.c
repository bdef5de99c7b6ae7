/* blocks.c - see blocks.h.
 *
 * Locking pages takes milliseconds, so a block serves value after value. Sizes are rounded up to the next of 16 between
 * two powers of two: batches end with a whole sample, and blocks of nearly equal ones serve each other. */
#include "pipeline/blocks.h"

#include <assert.h>

#include "ops/cuda/cuda.h"

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

osh_status osh_blocks_new(osh_ctx *cx, osh_blocks **out, osh_device *d)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, *out, 1);
    (*out)->device = d;
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
    if (b->refused) goto done;
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

osh_status osh_block_store(osh_ctx *cx, osh_blocks *b, osh_block *block, const osh_tensor *t)
{
    (void)b;
    return osh_tensor_get(cx, block->data, t, 0, osh_tensor_bytes(t));
}

osh_status osh_block_load(osh_ctx *cx, osh_blocks *b, osh_block *block, osh_tensor *t)
{
    (void)b;
    return osh_tensor_put(cx, t, 0, block->data, osh_tensor_bytes(t));
}
