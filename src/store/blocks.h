/* blocks.h - page-locked blocks of host memory for values that rest there while the run works on a card: one for each
 * batch of a value, and the copies between them and the card.
 *
 *   store   work: t -> through | lane OUT: through -> block, behind it   the work's next store waits for OUT
 *   load    lane IN, behind the work: block -> t                         the work waits for IN
 *   ask     lane IN, behind the work: block -> landing
 *   arrive  the work waits for IN; landing -> t
 *
 * A block that is given back is safe to take again: the work has waited for what came out of it, and OUT waits for the
 * work. */
#ifndef OSH_BLOCKS_H
#define OSH_BLOCKS_H
#include "tensor/device.h"

typedef struct osh_blocks osh_blocks;
typedef struct osh_block osh_block;
/* pin false: none is page-locked. */
osh_status osh_blocks_new(osh_ctx *cx, osh_blocks **out, osh_device *d, bool pin);
void osh_blocks_free(osh_ctx *cx, osh_blocks *b); // all blocks have been given back
/* One for n_bytes: a block that was given back, or a new one. Where memory cannot be page-locked it is not; the same
 * bytes rest there, by slower copies, and the log says so once. */
osh_status osh_blocks_take(osh_ctx *cx, osh_blocks *b, osh_block **out, size_t n_bytes);
void osh_blocks_give(osh_blocks *b, osh_block *block); // NULL is fine
void *osh_block_data(osh_block *block); // host memory: of a block that nothing is asked of
/* Gross host bytes of one for n_bytes. What is kept for the next value, with what is in use, is never more than what
 * has been in use at once. */
size_t osh_blocks_gross(size_t n_bytes);

/* Whole tensors, on the card or in host memory. What is asked of the card behind these calls may overwrite t, or read
 * it. store does not wait, nor does the card's work that comes next where the rows go by way of `through` (t's size on
 * the card, or NULL). Until osh_blocks_settle nothing but store writes there, and what went that way is not loaded. */
osh_status osh_block_store(osh_ctx *cx, osh_blocks *b, osh_block *block, const osh_tensor *t, void *through);
osh_status osh_block_load(osh_ctx *cx, osh_blocks *b, osh_block *block, osh_tensor *t);
/* Asks for the rows of a block ahead, n_bytes to `landing` on the card; *asked false: it is not page-locked. What is
 * asked of the card until arrive runs beside that; arrive gives the rows to t. */
osh_status osh_block_ask(osh_ctx *cx, osh_blocks *b, osh_block *block, void *landing, size_t n_bytes, bool *asked);
osh_status osh_block_arrive(osh_ctx *cx, osh_blocks *b, const void *landing, osh_tensor *t);
osh_status osh_blocks_settle(osh_ctx *cx, osh_blocks *b); // the card's work that comes next is behind all copies
#endif
