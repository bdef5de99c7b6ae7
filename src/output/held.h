/* held.h - the first look of a stream (stream.h) at Linears with a global scale: the largest magnitude of all that
 * share one has to be known before the first of their bands is rounded. A band that was looked at is held for its
 * rounding where there is room; else it is read again. Looks run ahead of the rounding as far as there is room.
 *
 * Which bands are held decides no byte of the output. All calls but those of a worker's own slot are made with the
 * stream's lock. */
#ifndef OSH_HELD_H
#define OSH_HELD_H
#include "plan/globals.h"

typedef struct osh_held osh_held;
typedef struct osh_held_band {
    int linear;
    int64_t first, n; // rows
    int slot;         // where it is to be held; -1: nowhere
} osh_held_band;

/* ids [n]: output tensors in the order in which they will be rounded; others than Linears' are passed over. *out NULL:
 * there is nothing to look at. g is a view, and is told what is found. */
osh_status osh_held_new(osh_ctx *cx, osh_held **out, const osh_plan *p, osh_globals *g, const int64_t *ids, int64_t n);
void osh_held_free(osh_ctx *cx, osh_held *h);

bool osh_held_knows(const osh_held *h, int linear); // it may be rounded; h NULL: all may
/* The next band to look at: one for which there is room, or whichever comes next where wanted waits for it. false: none
 */
bool osh_held_take(osh_held *h, osh_held_band *b, int wanted);
uint8_t *osh_held_room(const osh_held *h, int slot); // whole blocks, of a band of any of them; needs no lock
/* The band was looked at; from: where its first row begins in its slot. */
void osh_held_saw(osh_held *h, const osh_held_band *b, float amax, uint8_t *from);
/* Where the band that begins with row first is held; NULL: nowhere. *slot: is given back behind its rounding. */
uint8_t *osh_held_find(osh_held *h, int linear, int64_t first, int *slot);
void osh_held_give_back(osh_held *h, int slot);
#endif
