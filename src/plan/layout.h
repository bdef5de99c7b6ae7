/* layout.h - the long-lived blocks of a GPU's arena as a plan foresees them. They are taken and
 * freed in the order of the run, so that the gaps between them count. */
#ifndef OSH_LAYOUT_H
#define OSH_LAYOUT_H
#include "plan/plan.h"

typedef enum { // index: graph weight; graph value; value * n_batches + batch
    OSH_LAYOUT_WEIGHT, OSH_LAYOUT_HESSIAN, OSH_LAYOUT_SHIFT, OSH_LAYOUT_RANGE, OSH_LAYOUT_ROWS,
    OSH_LAYOUT_HESSIAN_PART, OSH_LAYOUT_SHIFT_PART, // osh_stat.part
    OSH_LAYOUT_N_KINDS
} osh_layout_kind;
typedef struct osh_layout osh_layout;
osh_status osh_layout_new(osh_ctx *cx, osh_layout **out, const osh_plan *p);
void osh_layout_free(osh_ctx *cx, osh_layout *c);
/* No effect if the block exists (give: if it does not). */
osh_status osh_layout_take(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index);
void osh_layout_give(osh_layout *c, osh_layout_kind kind, int64_t index);
bool osh_layout_has(const osh_layout *c, osh_layout_kind kind, int64_t index);
/* Bytes of the arena up to the end of the last block. */
int64_t osh_layout_extent(const osh_layout *c);
/* Blocks that are taken from now on belong to this visit and way. They are recorded if `on` was
 * set. */
typedef enum { // pass of a visit through its subgraph; AHEAD: during the visit before
    OSH_WAY_FIRST, OSH_WAY_AGAIN, OSH_WAY_AHEAD
} osh_way;
void osh_layout_enter(osh_layout *c, int visit, osh_way way);
void osh_layout_record(osh_layout *c, bool on);
osh_status osh_layout_places(osh_ctx *cx, osh_places **out, osh_layout *c); // *out: own: the record

/* The place of each block in the plan. A resumed run skips steps: it puts each block at the plan's
 * place for the same step, so it fits wherever the whole run fits. */
void osh_places_free(osh_ctx *cx, osh_places *l);
size_t osh_places_bytes(const osh_places *l);
bool osh_places_has(const osh_plan *p, int visit, osh_way way, osh_layout_kind kind, int64_t index);
/* Aims the arena of p's GPU at the place of the next block: the one of this way, else another of
 * the visit. */
void osh_places_aim(const osh_plan *p, int visit, osh_way way, osh_layout_kind kind, int64_t index);
void osh_places_aim_off(const osh_plan *p);
int64_t osh_layout_bytes(const osh_layout *c, osh_layout_kind kind, int64_t index);
#endif
