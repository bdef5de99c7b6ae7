/* edges.h - writes the blocks of an output file that contain bytes of several pieces, for example
 * of two tensors. A piece consists of the bytes of one call of osh_edges_write. A block with bytes
 * of several pieces waits in memory until all of its bytes have arrived. Then it is written without
 * the page cache, like all other blocks. A write through the page cache would be slow: it would
 * wait for all direct writes to the same file, and later direct writes would wait for it. */
#ifndef OSH_EDGES_H
#define OSH_EDGES_H
#include "base/file.h"

typedef struct osh_edges osh_edges;
/* Allocates *out, which the caller frees with osh_edges_free. */
osh_status osh_edges_new(osh_ctx *cx, osh_edges **out);
void osh_edges_free(osh_ctx *cx, osh_edges *e);
/* Returns the number of bytes of an osh_edges, with the allocator's overhead. */
size_t osh_edges_bytes(void);
/* Writes n bytes to f at offset `at`. Any thread may call this function; no byte may be written
 * twice. Incomplete blocks are stored in e until they are complete. Whole blocks are written
 * immediately. They bypass the page cache if (uintptr_t)from and `at` have the same remainder
 * modulo OSH_BLOCK_BYTES. */
osh_status osh_edges_write(osh_ctx *cx, osh_edges *e, osh_file *f, const void *from, size_t n,
                           int64_t at);
/* Writes the bytes of all incomplete blocks, and waits for writes in progress. A sync of the files
 * after this call includes all bytes. */
osh_status osh_edges_flush(osh_ctx *cx, osh_edges *e);
#endif
