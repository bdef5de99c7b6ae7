/* edges.c - collects blocks of a file that contain the end of one piece and the beginning of the
 * next. A piece is the bytes of one call of osh_edges_write. The first and the last block of a
 * piece can be incomplete. The neighbouring pieces in the file complete such blocks, usually soon,
 * so few blocks wait at a time. If N_EDGES blocks wait and one more must wait, the bytes of the
 * oldest block that have arrived are written. */
#include "io/edges.h"

#include <pthread.h>
#include <string.h>

enum { N_EDGES = 64, WORDS = OSH_BLOCK_BYTES / 64 };

typedef enum { FREE, WAITS, IS_WRITTEN } edge_state;
typedef struct edge {
    edge_state state;
    osh_file *f; // view
    int64_t at;  // offset of the waiting block in the file
    int64_t age;
    size_t n;             // number of bytes of the block that have arrived
    uint64_t came[WORDS]; // bit i is 1 if byte i of the block has arrived
    uint8_t *bytes;       // view: [OSH_BLOCK_BYTES], aligned
} edge;

struct osh_edges {
    pthread_mutex_t lock;
    pthread_cond_t written;
    void *room; // own
    int64_t age;
    edge edges[N_EDGES];
};

size_t osh_edges_bytes(void)
{
    return osh_mem_gross(sizeof(osh_edges)) + osh_mem_gross((N_EDGES + 1) * OSH_BLOCK_BYTES);
}

osh_status osh_edges_new(osh_ctx *cx, osh_edges **out)
{
    osh_status rc = OSH_OK;
    osh_edges *e = NULL; // own
    OSH_NEW(cx, e, 1);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->written, NULL);
    if (!(e->room = osh_alloc(cx, (N_EDGES + 1) * OSH_BLOCK_BYTES)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the ends of tensors");
    uint8_t *at = osh_file_align(e->room);
    for (int i = 0; i < N_EDGES; i++) e->edges[i].bytes = at + (size_t)i * OSH_BLOCK_BYTES;
    *out = e, e = NULL; // give
done:
    osh_edges_free(cx, e);
    return rc;
}

void osh_edges_free(osh_ctx *cx, osh_edges *e)
{
    if (!e) return;
    pthread_cond_destroy(&e->written);
    pthread_mutex_destroy(&e->lock);
    osh_free(cx, e->room);
    osh_free(cx, e);
}

static bool edge_has(const edge *x, size_t i) { return x->came[i / 64] >> i % 64 & 1; }

/* Writes those bytes of a block that have arrived, one contiguous sequence after the other. The
 * other bytes of the block are written when they arrive. */
static osh_status edge_write_runs(osh_ctx *cx, edge *x)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < OSH_BLOCK_BYTES;) {
        size_t from = i;
        if (!edge_has(x, i++)) continue;
        while (i < OSH_BLOCK_BYTES && edge_has(x, i)) i++;
        OSH_TRY(osh_file_pwrite(cx, x->f, x->bytes + from, i - from, x->at + (int64_t)from));
    }
    x->state = FREE;
done:
    return rc;
}

/* Sets *out to the incomplete block of file f at offset `at`. If there is none, *out becomes an
 * empty block. The empty block gets free memory, or the memory of the oldest incomplete block,
 * which is written first. The caller holds the lock. */
static osh_status edge_find(osh_ctx *cx, osh_edges *e, edge **out, osh_file *f, int64_t at)
{
    osh_status rc = OSH_OK;
    edge *x = NULL, *oldest = NULL;
    for (int i = 0; i < N_EDGES; i++) {
        edge *y = &e->edges[i];
        if (y->state == WAITS && y->f == f && y->at == at) return *out = y, OSH_OK;
        if (y->state == FREE) x = y;
        if (y->state == WAITS && (!oldest || y->age < oldest->age)) oldest = y;
    }
    while (!x && !oldest) { // all blocks are being written, so this thread waits until one is free
        pthread_cond_wait(&e->written, &e->lock);
        for (int i = 0; i < N_EDGES; i++)
            if (e->edges[i].state == FREE) x = &e->edges[i];
    }
    if (!x) {
        OSH_TRY(edge_write_runs(cx, oldest));
        x = oldest;
    }
    x->state = WAITS, x->f = f, x->at = at, x->age = e->age++, x->n = 0;
    memset(x->came, 0, sizeof x->came);
    *out = x;
done:
    return rc;
}

static osh_status edges_put(osh_ctx *cx, osh_edges *e, osh_file *f, const uint8_t *from, size_t n,
                            int64_t at)
{
    osh_status rc = OSH_OK;
    edge *x = NULL;
    size_t lead = (size_t)(at % OSH_BLOCK_BYTES);
    pthread_mutex_lock(&e->lock);
    OSH_TRY(edge_find(cx, e, &x, f, at - (int64_t)lead));
    memcpy(x->bytes + lead, from, n);
    for (size_t i = lead; i < lead + n; i++) x->came[i / 64] |= (uint64_t)1 << i % 64;
    if ((x->n += n) < OSH_BLOCK_BYTES) goto done;
    x->state = IS_WRITTEN;
    pthread_mutex_unlock(&e->lock);
    rc = osh_file_write_blocks(cx, f, x->bytes, OSH_BLOCK_BYTES, x->at);
    pthread_mutex_lock(&e->lock);
    // if the write fails, the block waits, and osh_edges_flush writes the block again
    x->state = rc ? WAITS : FREE;
    pthread_cond_broadcast(&e->written);
done:
    pthread_mutex_unlock(&e->lock);
    return rc;
}

osh_status osh_edges_write(osh_ctx *cx, osh_edges *e, osh_file *f, const void *from, size_t n,
                           int64_t at)
{
    osh_status rc = OSH_OK;
    const uint8_t *p = from;
    size_t head = (size_t)((OSH_BLOCK_BYTES - at % OSH_BLOCK_BYTES) % OSH_BLOCK_BYTES);
    if (head > n) head = n;
    size_t whole = (n - head) / OSH_BLOCK_BYTES * OSH_BLOCK_BYTES, tail = n - head - whole;
    int64_t middle = at + (int64_t)head, end = middle + (int64_t)whole;
    if (head) OSH_TRY(edges_put(cx, e, f, p, head, at));
    if (whole && (uintptr_t)(p + head) % OSH_BLOCK_BYTES)
        OSH_TRY(osh_file_pwrite(cx, f, p + head, whole, middle));
    else if (whole) OSH_TRY(osh_file_write_blocks(cx, f, p + head, whole, middle));
    if (tail) OSH_TRY(edges_put(cx, e, f, p + head + whole, tail, end));
done:
    return rc;
}

osh_status osh_edges_flush(osh_ctx *cx, osh_edges *e)
{
    osh_status rc = OSH_OK;
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < N_EDGES; i++) {
        edge *x = &e->edges[i];
        while (x->state == IS_WRITTEN) pthread_cond_wait(&e->written, &e->lock);
        if (x->state == WAITS) OSH_TRY(edge_write_runs(cx, x));
    }
done:
    pthread_mutex_unlock(&e->lock);
    return rc;
}
