/* edges.h - blocks of an output file that several pieces share: each waits in memory until its last byte came, and goes
 * past the page cache as all others do. A buffered write would wait for every direct one that is on its way to the same
 * file, and hold up those behind it. */
#ifndef OSH_EDGES_H
#define OSH_EDGES_H
#include "base/file.h"

typedef struct osh_edges osh_edges;
osh_status osh_edges_new(osh_ctx *cx, osh_edges **out);
void osh_edges_free(osh_ctx *cx, osh_edges *e);
size_t osh_edges_bytes(void); // that it takes
/* From any thread: n bytes of f at offset at, no byte twice. from lies as its bytes do in the file, or goes through the
 * page cache. What fills no block waits. */
osh_status osh_edges_write(osh_ctx *cx, osh_edges *e, osh_file *f, const void *from, size_t n, int64_t at);
/* Writes what waits, and waits for what is being written: afterwards a sync of the files has everything. */
osh_status osh_edges_flush(osh_ctx *cx, osh_edges *e);
#endif
