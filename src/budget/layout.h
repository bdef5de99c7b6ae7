/* layout.h - predicts the addresses of long-lived blocks in a GPU's memory. The prediction runs the
 * GPU's allocator (its arena) without actual memory. It allocates and frees the blocks in the order
 * of the run, so it includes the gaps between blocks. */
#ifndef OSH_LAYOUT_H
#define OSH_LAYOUT_H
#include "budget/budget.h"
#include "schedule/visit.h"

typedef struct osh_layout osh_layout;
/* Makes the simulated memory of a GPU, with only the workspace allocated. If `record` is true, the
 * addresses of blocks are recorded. `p` must outlive *out. The caller frees *out with
 * osh_layout_free. */
osh_status osh_layout_new(osh_ctx *cx, osh_layout **out, const osh_budget *p, bool record);
void osh_layout_free(osh_ctx *cx, osh_layout *c);
/* A block is identified by its kind and index. osh_layout_take allocates the block, unless it is
 * allocated already. osh_layout_give frees the block if it is allocated. If c is NULL (the run
 * computes on the host), these functions and osh_layout_enter do nothing, and osh_layout_extent
 * returns 0. */
osh_status osh_layout_take(osh_ctx *cx, osh_layout *c, osh_layout_kind kind, int64_t index);
void osh_layout_give(osh_layout *c, osh_layout_kind kind, int64_t index);
/* Returns the number of bytes from the beginning of the simulated GPU memory to the end of its last
 * block. */
int64_t osh_layout_extent(const osh_layout *c);
/* A part of a visit (the work on one subgraph).
 * FOLD: the pass that collects statistics for the factors of folds.
 * FIRST: the passes with the original weights.
 * AGAIN: the pass with the solved weights.
 * AHEAD: loads of weights for this visit, during the previous visit. */
typedef enum {
    OSH_WAY_FIRST, OSH_WAY_AGAIN, OSH_WAY_AHEAD, OSH_WAY_FOLD, OSH_N_WAYS
} osh_way;
/* Returns the part of a visit to which a load or a pass belongs. */
static inline osh_way osh_way_of(const osh_step *s)
{
    return s->fold ? OSH_WAY_FOLD : s->again ? OSH_WAY_AGAIN : OSH_WAY_FIRST;
}
/* Sets the visit and the part of the visit to which later blocks belong. c may be NULL. */
void osh_layout_enter(osh_layout *c, int visit, osh_way way);
/* Sets *out (own) to the list of recorded addresses. */
osh_status osh_layout_places(osh_ctx *cx, osh_places **out, osh_layout *c);

/* Frees a list of planned addresses. A resumed run skips steps, but allocates its blocks at the
 * planned addresses. So the run stays within the planned memory. */
void osh_places_free(osh_ctx *cx, osh_places *l);
/* Returns the number of bytes of the list, with the allocator's overhead. */
size_t osh_places_bytes(const osh_places *l);
/* True if the plan has an address for the block (kind, index) in this part of the visit. */
bool osh_places_has(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                    int64_t index);
/* Makes the arena of p's GPU allocate its next block at the address that is planned for the block
 * (kind, index). A block can have different addresses in the parts of the visit. Uses the address
 * in the part `way`. If the plan has none, uses the address in another part. */
void osh_places_aim(const osh_budget *p, int visit, osh_way way, osh_layout_kind kind,
                    int64_t index);
/* Makes the arena choose the addresses of later blocks. */
void osh_places_aim_off(const osh_budget *p);
/* Returns the number of bytes of the block (kind, index) in GPU memory. */
int64_t osh_layout_bytes(const osh_layout *c, osh_layout_kind kind, int64_t index);
#endif
