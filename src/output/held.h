/* held.h - finds the largest magnitude in the weights of Linears with a global scale, for a stream
 * (stream.h).
 *
 * Some Linears share a global scale. The scale depends on the largest magnitude of all their
 * weights, which must be known before the first band is rounded. So a stream reads each band twice:
 * to search it, and later to round it. If a slot (a buffer for one band) is free, the band stays in
 * memory after the search; if not, it is read again for the rounding. The number of slots limits
 * how many bands stay in memory.
 *
 * The output does not depend on which bands stay in memory. The caller holds the stream's lock in
 * all calls except osh_held_room. */
#ifndef OSH_HELD_H
#define OSH_HELD_H
#include "match/globals.h"
#include "plan/plan.h"

typedef struct osh_held osh_held;
typedef struct osh_held_band {
    int linear;
    int64_t first, n; // rows
    int slot; // index of the slot in which the band stays after the search; -1: it does not stay
} osh_held_band;

/* Prepares the search for largest magnitudes. ids [n]: output tensors in the order in which they
 * are written; copied tensors are ignored. The magnitudes are stored in g, which must outlive *out.
 * *out becomes NULL if nothing must be searched. */
osh_status osh_held_new(osh_ctx *cx, osh_held **out, const osh_plan *p, osh_globals *g,
                        const int64_t *ids, int64_t n);
/* Frees h and its slots. Accepts NULL. */
void osh_held_free(osh_ctx *cx, osh_held *h);

/* True if the global scale of the Linear is known, so that the Linear can be rounded. Always true
 * if h is NULL. */
bool osh_held_knows(const osh_held *h, int linear);
/* Gets the next band to search for its largest magnitude. Returns false if no band can be searched
 * now.
 * A band that this stream also rounds must wait for a free slot. But if Linear `wanted` waits for
 * its global scale and no slot will become free, the band is searched without a slot. wanted -1: no
 * Linear waits. */
bool osh_held_take(osh_held *h, osh_held_band *b, int wanted);
/* Returns the memory of a slot. Its size is a multiple of the block size of the file system, and
 * large enough for any band. The caller need not hold the lock. */
uint8_t *osh_held_room(const osh_held *h, int slot);
/* Stores `amax`, the largest magnitude of a band that was searched. `from`: address of the band's
 * first row in the memory of its slot. */
void osh_held_saw(osh_held *h, const osh_held_band *b, float amax, uint8_t *from);
/* Returns the rows of the band that begins with row `first` of a Linear, and sets *slot to its
 * slot. Returns NULL if the band is not in memory. The caller gives the slot back after the
 * rounding. */
uint8_t *osh_held_find(osh_held *h, int linear, int64_t first, int *slot);
/* Makes a slot of osh_held_find free for other bands. */
void osh_held_give_back(osh_held *h, int slot);
#endif
