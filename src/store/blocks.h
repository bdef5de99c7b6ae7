/* blocks.h - manages page-locked blocks of host memory for the values of a run on a GPU, with one
 * block for each batch of a value. Also copies between the blocks and the GPU. Lanes are CUDA
 * streams of the device: WORK runs kernels, IN and OUT copy to and from the GPU.
 *
 *   store   WORK: t -> through           OUT waits for WORK: through -> block
 *                                                  WORK waits for OUT before the next store
 *   load    IN waits for WORK: block -> t                 WORK waits for IN
 *   ask     IN waits for WORK: block -> landing
 *   arrive  WORK waits for IN: landing -> t
 *
 * A block can be taken again as soon as it is given back, even while it is still copied to the GPU.
 * No lane overwrites it too early: WORK waits for this copy, and OUT waits for WORK before it
 * writes to the block. */
#ifndef OSH_BLOCKS_H
#define OSH_BLOCKS_H
#include "tensor/device.h"

typedef struct osh_blocks osh_blocks;
typedef struct osh_block osh_block;
/* Makes an empty set of blocks. If `pin` is false, no block is page-locked. */
osh_status osh_blocks_new(osh_ctx *cx, osh_blocks **out, osh_device *d, bool pin);
/* Frees all blocks. The caller must have given all of them back. b may be NULL. */
void osh_blocks_free(osh_ctx *cx, osh_blocks *b);
/* Sets *out to a block with room for n_bytes: one that was given back, or a new one. If memory
 * cannot be page-locked, the block is pageable. Copies are then slower, and the reason is logged
 * once. */
osh_status osh_blocks_take(osh_ctx *cx, osh_blocks *b, osh_block **out, size_t n_bytes);
void osh_blocks_give(osh_blocks *b, osh_block *block); // accepts NULL
/* Returns the host memory of a block. No copy of the block may be in progress. */
void *osh_block_data(osh_block *block);
/* Returns the number of host bytes that a block for n_bytes needs, including all overhead. Blocks
 * that are given back are kept for reuse. The bytes of all blocks together never exceed the largest
 * number of bytes that were in use at one time. */
size_t osh_blocks_gross(size_t n_bytes);

/* osh_block_store copies a whole tensor t to a block, and osh_block_load copies a block to t.
 * osh_block_load_part copies the bytes of a block from byte `at` on to t. t is in GPU memory or in
 * host memory. Work that is queued on the GPU after the call may read or overwrite t.
 * osh_block_store may return before its copy is complete. `through` is a buffer in GPU memory with
 * the size of t, or NULL. With NULL, later work of the GPU waits for the copy. With a buffer, it
 * does not wait. But until osh_blocks_settle is called, only osh_block_store may write to the
 * buffer, and blocks that were stored through the buffer must not be loaded. */
osh_status osh_block_store(osh_ctx *cx, osh_blocks *b, osh_block *block, const osh_tensor *t,
                           void *through);
osh_status osh_block_load(osh_ctx *cx, osh_blocks *b, osh_block *block, osh_tensor *t);
osh_status osh_block_load_part(osh_ctx *cx, osh_blocks *b, osh_block *block, size_t at,
                               osh_tensor *t);
/* osh_block_ask begins to copy n_bytes of a block to the buffer `landing` in GPU memory, and
 * osh_block_arrive copies the bytes from there to t. Work that is queued between the two calls runs
 * during the first copy. *asked: set to false if no copy was begun, because the block is not
 * page-locked or n_bytes is 0. */
osh_status osh_block_ask(osh_ctx *cx, osh_blocks *b, osh_block *block, void *landing,
                         size_t n_bytes, bool *asked);
osh_status osh_block_arrive(osh_ctx *cx, osh_blocks *b, const void *landing, osh_tensor *t);
/* Makes later work of lane WORK wait for all copies that have begun. */
osh_status osh_blocks_settle(osh_ctx *cx, osh_blocks *b);
#endif
