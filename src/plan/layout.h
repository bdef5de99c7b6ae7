/* layout.h - the long-lived blocks of a card's arena as a plan foresees them, taken and freed in the order of the run,
 * so that the gaps between them are counted, too. */
#ifndef OSH_LAYOUT_H
#define OSH_LAYOUT_H
#include "plan/plan.h"

typedef enum { // index: graph weight; graph value; value * n_batches + batch
    OSH_LAYOUT_WEIGHT, OSH_LAYOUT_HESSIAN, OSH_LAYOUT_SHIFT, OSH_LAYOUT_RANGE, OSH_LAYOUT_ROWS, OSH_LAYOUT_N_KINDS
} osh_layout_kind;
typedef struct osh_layout osh_layout;
osh_status osh_layout_new(osh_ctx *cx, osh_layout **out, const osh_plan *p);
void osh_layout_free(osh_ctx *cx, osh_layout *c);
/* Nothing where the block is there (or, give, is not). */
osh_status osh_layout_take(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index);
void osh_layout_give(osh_layout *c, osh_layout_kind kind, int64_t index);
bool osh_layout_has(const osh_layout *c, osh_layout_kind kind, int64_t index);
int64_t osh_layout_extent(const osh_layout *c); // bytes of the arena up to the last of them
/* Takes from here on are those of this visit and way; they are recorded where record is set. */
typedef enum { // in which a visit goes through its subgraph; or before it begins, while the one before is worked on
    OSH_WAY_FIRST, OSH_WAY_AGAIN, OSH_WAY_AHEAD
} osh_way;
void osh_layout_enter(osh_layout *c, int visit, osh_way way);
void osh_layout_record(osh_layout *c, bool on);
osh_status osh_layout_places(osh_ctx *cx, osh_places **out, osh_layout *c); // own: what was recorded

/* Where the plan saw each block. A run that goes on from an earlier one skips steps: what it takes lies where the plan
 * saw it at the same step, so that it fits wherever the whole run fits. */
void osh_places_free(osh_ctx *cx, osh_places *l);
size_t osh_places_bytes(const osh_places *l);
bool osh_places_has(const osh_plan *p, int visit, osh_way way, osh_layout_kind kind, int64_t index);
/* Aims the arena of p's card at the place of what is taken next: that of the way, else the visit's other ones. */
void osh_places_aim(const osh_plan *p, int visit, osh_way way, osh_layout_kind kind, int64_t index);
void osh_places_aim_off(const osh_plan *p);
int64_t osh_layout_bytes(const osh_layout *c, osh_layout_kind kind, int64_t index);
#endif
