/* edges.h - writes blocks of an output file that several pieces share. Each block waits in
 * memory until it is complete, and is then written past the page cache as all others are. A
 * buffered write would wait for all direct writes to the same file that are in progress, and
 * delay the later ones. */
#ifndef OSH_EDGES_H
#define OSH_EDGES_H
#include "base/file.h"

typedef struct osh_edges osh_edges;
osh_status osh_edges_new(osh_ctx *cx, osh_edges **out);
void osh_edges_free(osh_ctx *cx, osh_edges *e);
size_t osh_edges_bytes(void); // gross bytes of the object
/* Writes n bytes of f at offset `at`, from any thread; no byte is written twice. The whole blocks
 * go through the page cache unless `from` has the alignment that they have in the file. Incomplete
 * blocks wait. */
osh_status osh_edges_write(osh_ctx *cx, osh_edges *e, osh_file *f, const void *from, size_t n,
                           int64_t at);
/* Writes the blocks that wait, and waits for writes in progress. After that a sync of the files
 * covers everything. */
osh_status osh_edges_flush(osh_ctx *cx, osh_edges *e);
#endif
