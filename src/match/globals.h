/* globals.h - finds the global scale of each Linear with strategy tensor_group (NVFP4). Runtimes
 * fuse some Linears, such as q, k and v of a layer, or gate and up. Fused Linears share one global
 * scale, which is computed from the largest magnitude in their weights. */
#ifndef OSH_GLOBALS_H
#define OSH_GLOBALS_H
#include "match/matching.h"

/* Sets the members `joint` and `next.joint` of all Linears. They link the Linears that share a
 * global scale. */
osh_status osh_plan_joint(osh_ctx *cx, osh_matching *p);

/* global scales of Linears and largest magnitudes of their weights, as far as they are known */
typedef struct osh_globals osh_globals;
/* Makes an object for the Linears of p. Sets *out to NULL if no Linear has a global scale. */
osh_status osh_globals_new(osh_ctx *cx, osh_globals **out, const osh_matching *p);
/* Frees g. Accepts NULL. */
void osh_globals_free(osh_ctx *cx, osh_globals *g);
/* Finds the largest magnitudes in the weights of the n Linears, and of all Linears that share a
 * global scale with one of them. Then computes their global scales. Skips magnitudes that are known
 * already. Reads the weights in chunks. */
osh_status osh_globals_find(osh_ctx *cx, osh_globals *g, const int *linears, int n);
/* True if the largest magnitude in the Linear's weight is known. */
bool osh_globals_knows(const osh_globals *g, int linear);
/* Records the largest magnitude in the Linear's weight. Computes the global scale as soon as the
 * magnitudes of all Linears that share this scale are known. */
void osh_globals_put(osh_globals *g, int linear, float amax);
/* Returns the global scale of the Linear. Returns 0 if it has none, or if g is NULL. */
float osh_globals_of(const osh_globals *g, int linear);
/* returns the number of host bytes of an osh_globals */
int64_t osh_globals_bytes(const osh_matching *p);
/* Returns the number of host bytes that osh_globals_find needs for one Linear, without the buffers
 * of the threads. *piece: set to the bytes of the buffer of one thread. */
size_t osh_globals_search_bytes(const osh_matching *p, int linear, size_t *piece);
#endif
