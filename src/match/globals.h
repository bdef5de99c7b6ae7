/* globals.h - the global scale of each Linear with strategy tensor_group (NVFP4). The scale is
 * computed from the largest magnitude of the weight and of the weights that runtimes fuse with it:
 * q, k and v of a layer share one scale, gate and up another. */
#ifndef OSH_GLOBALS_H
#define OSH_GLOBALS_H
#include "match/matching.h"

/* Sets the members `joint` and `next.joint` of all Linears, by which Linears that share a global
 * scale are found. */
osh_status osh_plan_joint(osh_ctx *cx, osh_matching *p);

typedef struct osh_globals osh_globals; // largest magnitudes and global scales known so far
/* Sets *out to NULL if no Linear has a global scale. */
osh_status osh_globals_new(osh_ctx *cx, osh_globals **out, const osh_matching *p);
void osh_globals_free(osh_ctx *cx, osh_globals *g);
/* Finds the largest magnitudes of these Linears, and of the Linears that share a scale with them.
 * Skips magnitudes that are known. Reads weights in chunks. Computes the global scales. */
osh_status osh_globals_find(osh_ctx *cx, osh_globals *g, const int *linears, int n);
/* True if the largest magnitude of the Linear's weight is known. */
bool osh_globals_knows(const osh_globals *g, int linear);
/* Records the largest magnitude of the Linear's weight. Computes the global scale if the magnitudes
 * of all Linears that share it are known. */
void osh_globals_put(osh_globals *g, int linear, float amax);
/* Returns 0 if the Linear has no global scale or g is NULL. */
float osh_globals_of(const osh_globals *g, int linear);
int64_t osh_globals_bytes(const osh_matching *p); // bytes of host memory of osh_globals
/* Returns the bytes of host memory that osh_globals_find needs for one Linear, without the threads'
 * buffers. *piece: set to the bytes of the buffer of one thread. */
size_t osh_globals_search_bytes(const osh_matching *p, int linear, size_t *piece);
#endif
