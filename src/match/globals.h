/* globals.h - the global scale of each Linear with strategy tensor_group (NVFP4). It comes from the
 * largest magnitude of the weight and of the weights that runtimes fuse with it: q, k and v of a
 * layer share one scale, gate and up another. */
#ifndef OSH_GLOBALS_H
#define OSH_GLOBALS_H
#include "match/matching.h"

/* Fills in osh_linear.joint. */
osh_status osh_plan_joint(osh_ctx *cx, osh_matching *p);

typedef struct osh_globals osh_globals; // the magnitudes and scales that are known so far
/* Sets *out to NULL if no Linear has a global scale. */
osh_status osh_globals_new(osh_ctx *cx, osh_globals **out, const osh_matching *p);
void osh_globals_free(osh_ctx *cx, osh_globals *g);
/* Reads the unknown weights of these Linears, and of the Linears fused with them, in pieces. */
osh_status osh_globals_find(osh_ctx *cx, osh_globals *g, const int *linears, int n);
/* True if the largest magnitude of the weight is known. */
bool osh_globals_knows(const osh_globals *g, int linear);
/* Records the largest magnitude. The scale is known when all fused Linears are. */
void osh_globals_put(osh_globals *g, int linear, float amax);
float osh_globals_of(const osh_globals *g, int linear); // 0: it has none; g may be NULL
int64_t osh_globals_bytes(const osh_matching *p); // host memory of osh_globals
/* Host memory of osh_globals_find for one Linear. *piece: buffer of each thread; returns the memory
 * of the search beside it. */
size_t osh_globals_search_bytes(const osh_matching *p, int linear, size_t *piece);
#endif
