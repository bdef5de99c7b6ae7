/* layout.h - the long-lived blocks of a card's arena as a plan foresees them, taken and freed in the order of the run,
 * so that the gaps between them are counted, too. */
#ifndef OSH_LAYOUT_H
#define OSH_LAYOUT_H
#include "pipeline/plan.h"

typedef enum { // index: graph weight; graph value; value * n_batches + batch
    OSH_LAYOUT_WEIGHT, OSH_LAYOUT_HESSIAN, OSH_LAYOUT_RANGE, OSH_LAYOUT_ROWS, OSH_LAYOUT_N_KINDS
} osh_layout_kind;
typedef struct osh_layout osh_layout;
osh_status osh_layout_new(osh_ctx *cx, osh_layout **out, const osh_plan *p);
void osh_layout_free(osh_ctx *cx, osh_layout *c);
/* Nothing where the block is there (or, give, is not). */
osh_status osh_layout_take(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index);
void osh_layout_give(osh_layout *c, osh_layout_kind kind, int64_t index);
bool osh_layout_has(const osh_layout *c, osh_layout_kind kind, int64_t index);
int64_t osh_layout_extent(const osh_layout *c); // bytes of the arena up to the last of them
int64_t osh_layout_bytes(const osh_layout *c, osh_layout_kind kind, int64_t index);
#endif
