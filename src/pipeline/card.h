/* card.h - the long-lived blocks of a card's arena as a plan foresees them, taken and freed in the order of the run, so
 * that the gaps between them are counted, too. */
#ifndef OSH_CARD_H
#define OSH_CARD_H
#include "pipeline/plan.h"

typedef enum { // index: graph weight; graph value; value * n_batches + batch
    OSH_CARD_WEIGHT, OSH_CARD_HESSIAN, OSH_CARD_RANGE, OSH_CARD_ROWS, OSH_CARD_N_KINDS
} osh_card_kind;
typedef struct osh_card osh_card;
osh_status osh_card_new(osh_ctx *cx, osh_card **out, const osh_plan *p);
void osh_card_free(osh_ctx *cx, osh_card *c);
/* Nothing where the block is there (or, give, is not). */
osh_status osh_card_take(osh_ctx *cx, osh_card *c, osh_card_kind kind, int64_t index);
void osh_card_give(osh_card *c, osh_card_kind kind, int64_t index);
bool osh_card_has(const osh_card *c, osh_card_kind kind, int64_t index);
int64_t osh_card_extent(const osh_card *c); // bytes of the arena up to the last of them
int64_t osh_card_bytes(const osh_card *c, osh_card_kind kind, int64_t index);
#endif
