/* layout.h - predicts the addresses of the long-lived blocks of a GPU's arena. The blocks are
 * allocated and freed in the order of the run, so that the prediction includes the gaps between
 * them. */
#ifndef OSH_LAYOUT_H
#define OSH_LAYOUT_H
#include "budget/budget.h"

typedef struct osh_layout osh_layout;
osh_status osh_layout_new(osh_ctx *cx, osh_layout **out, const osh_budget *p);
void osh_layout_free(osh_ctx *cx, osh_layout *c);
/* osh_layout_take allocates a block and osh_layout_give frees one. They have no effect if the block
 * already exists, or does not exist. */
osh_status osh_layout_take(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index);
void osh_layout_give(osh_layout *c, osh_layout_kind kind, int64_t index);
/* Returns the bytes of the arena up to the end of the last block. */
int64_t osh_layout_extent(const osh_layout *c);
/* osh_layout_enter assigns the blocks that are allocated from now on to this visit and way. Their
 * addresses are recorded while osh_layout_record is on. */
typedef enum { // the pass of a visit; AHEAD: during the previous visit
    OSH_WAY_FIRST, OSH_WAY_AGAIN, OSH_WAY_AHEAD
} osh_way;
void osh_layout_enter(osh_layout *c, int visit, osh_way way);
void osh_layout_record(osh_layout *c, bool on);
osh_status osh_layout_places(osh_ctx *cx, osh_places **out, osh_layout *c); // *out (own): the
                                                                            // recorded addresses

/* Frees the planned addresses of blocks. A resumed run skips steps. It allocates each block at the
 * address that the plan has for the same step, so it fits if the whole run fits. */
void osh_places_free(osh_ctx *cx, osh_places *l);
size_t osh_places_bytes(const osh_places *l);
bool osh_places_has(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                    int64_t index);
/* Makes the arena of p's GPU allocate its next block at the planned address: the address for this
 * way, or else for another way of the visit. */
void osh_places_aim(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                    int64_t index);
void osh_places_aim_off(const osh_budget *p);
int64_t osh_layout_bytes(const osh_layout *c, osh_layout_kind kind, int64_t index);
#endif
