/* layout.h - predicts the addresses of long-lived blocks in a GPU's memory. The prediction
 * allocates and frees the blocks in the order of the run with the GPU's allocator (its arena), so
 * gaps between blocks are included. */
#ifndef OSH_LAYOUT_H
#define OSH_LAYOUT_H
#include "budget/budget.h"

typedef struct osh_layout osh_layout;
osh_status osh_layout_new(osh_ctx *cx, osh_layout **out, const osh_budget *p);
void osh_layout_free(osh_ctx *cx, osh_layout *c);
/* osh_layout_take allocates the block of this kind and index, if it is not allocated.
 * osh_layout_give frees the block, if it is allocated. With c NULL (the run computes on the host),
 * these functions, osh_layout_enter and osh_layout_extent do nothing. */
osh_status osh_layout_take(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index);
void osh_layout_give(osh_layout *c, osh_layout_kind kind, int64_t index);
/* Returns the bytes from the beginning of the simulated GPU memory to the end of its last block. */
int64_t osh_layout_extent(const osh_layout *c);
/* osh_layout_enter sets the visit and the part of the visit (osh_way) for the blocks that are
 * allocated after the call. The addresses of these blocks are recorded if osh_layout_record was
 * called with `on` true. */
/* Part of a visit (the work on one subgraph).
 * FIRST: the first pass.
 * AGAIN: later passes.
 * AHEAD: loads for the visit during the previous visit. */
typedef enum {
    OSH_WAY_FIRST, OSH_WAY_AGAIN, OSH_WAY_AHEAD
} osh_way;
void osh_layout_enter(osh_layout *c, int visit, osh_way way);
void osh_layout_record(osh_layout *c, bool on);
/* Sets *out (own) to the recorded addresses. */
osh_status osh_layout_places(osh_ctx *cx, osh_places **out, osh_layout *c);

/* Frees the planned addresses. A resumed run skips steps, but allocates its blocks at the planned
 * addresses, so it stays within the planned memory. */
void osh_places_free(osh_ctx *cx, osh_places *l);
size_t osh_places_bytes(const osh_places *l);
bool osh_places_has(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                    int64_t index);
/* Makes the arena of p's GPU allocate its next block at the planned address for this visit and part
 * of the visit. If the plan has none, the address for another part of the visit is used. */
void osh_places_aim(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                    int64_t index);
void osh_places_aim_off(const osh_budget *p);
int64_t osh_layout_bytes(const osh_layout *c, osh_layout_kind kind, int64_t index);
#endif
