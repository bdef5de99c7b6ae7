/* held.h - a stream's search for the largest magnitude of Linears with a global scale (stream.h).
 *
 * Some Linears share a global scale. The largest magnitude of all these Linears must be known
 * before the first band is rounded, so a stream reads each band twice: first it looks for the
 * largest magnitude, later it rounds. If a slot is free, the band stays in memory after the search;
 * if not, it is read again for the rounding. The number of slots limits the number of bands that
 * stay in memory.
 *
 * The output does not depend on the bands that stay in memory. The caller holds the stream's lock
 * in all calls, except for osh_held_room. */
#ifndef OSH_HELD_H
#define OSH_HELD_H
#include "match/globals.h"
#include "plan/plan.h"

typedef struct osh_held osh_held;
typedef struct osh_held_band {
    int linear;
    int64_t first, n; // rows
    int slot;         // index of the slot in which the band stays after the search; -1: none
} osh_held_band;

/* Prepares the search for the Linears of ids [n]: the output tensors in the order in which they are
 * rounded. Tensors of copies are ignored. *out is NULL if no band must be searched. The largest
 * magnitudes are recorded in g, which must outlive *out. */
osh_status osh_held_new(osh_ctx *cx, osh_held **out, const osh_plan *p, osh_globals *g,
                        const int64_t *ids, int64_t n);
void osh_held_free(osh_ctx *cx, osh_held *h);

/* True if the bands of the Linear can be rounded, because its global scale is known. Always true if
 * h is NULL. */
bool osh_held_knows(const osh_held *h, int linear);
/* Gets the next band to search for its largest magnitude. Returns false if no band can be searched
 * now. A band that this stream also rounds must wait for a free slot. But if no slot will become
 * free and Linear `wanted` (-1: none) waits for the global scale, the band is searched without a
 * slot. */
bool osh_held_take(osh_held *h, osh_held_band *b, int wanted);
/* Returns the memory of a slot: whole blocks of the file system, large enough for any band. The
 * caller need not hold the lock. */
uint8_t *osh_held_room(const osh_held *h, int slot);
/* Records the largest magnitude `amax` of a band. `from` points to the first row of the band in the
 * memory of its slot. */
void osh_held_saw(osh_held *h, const osh_held_band *b, float amax, uint8_t *from);
/* Returns the rows of the band that begins with row `first`, and sets *slot. Returns NULL if the
 * band is not in memory. The caller gives *slot back after the rounding. */
uint8_t *osh_held_find(osh_held *h, int linear, int64_t first, int *slot);
void osh_held_give_back(osh_held *h, int slot);
#endif
