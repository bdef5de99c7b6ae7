/* blocks.h - manages page-locked blocks of host memory for values of a run on a GPU (one block for
 * each batch of a value), and copies between them and the GPU.
 *
 *   store   work: t -> through; lane OUT waits for the work: through -> block
 *                                                  the next store of the work waits for OUT
 *   load    lane IN waits for the work: block -> t          the work waits for IN
 *   ask     lane IN waits for the work: block -> landing
 *   arrive  the work waits for IN: landing -> t
 *
 * A block can be taken again as soon as it is given back, because the work waits for the copy out
 * of it, and OUT waits for the work. */
#ifndef OSH_BLOCKS_H
#define OSH_BLOCKS_H
#include "tensor/device.h"

typedef struct osh_blocks osh_blocks;
typedef struct osh_block osh_block;
/* Makes an empty set of blocks. If `pin` is false, no block is page-locked. */
osh_status osh_blocks_new(osh_ctx *cx, osh_blocks **out, osh_device *d, bool pin);
/* Frees the blocks. All of them must have been given back. Accepts NULL. */
void osh_blocks_free(osh_ctx *cx, osh_blocks *b);
/* Takes a block for n_bytes: one that was given back, or a new one. If memory cannot be
 * page-locked, the block is pageable: its copies are slower, and this is logged once. */
osh_status osh_blocks_take(osh_ctx *cx, osh_blocks *b, osh_block **out, size_t n_bytes);
void osh_blocks_give(osh_blocks *b, osh_block *block); // accepts NULL
void *osh_block_data(osh_block *block); // returns its host memory; no copy of the block may be in
                                        // progress
/* Returns the gross host bytes of a block for n_bytes. Blocks in use and blocks that wait for the
 * next value together never have more bytes than were in use at one time. */
size_t osh_blocks_gross(size_t n_bytes);

/* These calls copy whole tensors, in GPU memory or in host memory. Work queued on the GPU after a
 * call may overwrite t or read it. osh_block_store does not wait for its copy. With `through` (GPU
 * memory of the size of t, or NULL) later work of the GPU does not wait for it either. Until
 * osh_blocks_settle, only osh_block_store may write to `through`, and rows that were stored through
 * it may not be loaded. */
osh_status osh_block_store(osh_ctx *cx, osh_blocks *b, osh_block *block, const osh_tensor *t,
                           void *through);
osh_status osh_block_load(osh_ctx *cx, osh_blocks *b, osh_block *block, osh_tensor *t);
/* Begins to copy n_bytes of a block to `landing` in GPU memory. Work queued before osh_block_arrive
 * runs during the copy; osh_block_arrive copies the rows to t. *asked is false if no copy was
 * begun: the block is not page-locked, or n_bytes is 0. */
osh_status osh_block_ask(osh_ctx *cx, osh_blocks *b, osh_block *block, void *landing,
                         size_t n_bytes, bool *asked);
osh_status osh_block_arrive(osh_ctx *cx, osh_blocks *b, const void *landing, osh_tensor *t);
/* Makes later work of the GPU wait for all copies. */
osh_status osh_blocks_settle(osh_ctx *cx, osh_blocks *b);
#endif
