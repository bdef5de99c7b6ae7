/* globals.h - the global scale of each Linear with strategy tensor_group (NVFP4). It comes from the
 * largest magnitude of the weight and of the weights that runtimes fuse with it: q, k and v of a
 * layer share one scale, gate and up another. */
#ifndef OSH_GLOBALS_H
#define OSH_GLOBALS_H
#include "plan/plan.h"

/* Fills in osh_linear.joint. */
osh_status osh_plan_joint(osh_ctx *cx, osh_plan *p);

typedef struct osh_globals osh_globals; // the magnitudes and scales that are known so far
/* Sets *out to NULL if no Linear has a global scale. */
osh_status osh_globals_new(osh_ctx *cx, osh_globals **out, const osh_plan *p);
void osh_globals_free(osh_ctx *cx, osh_globals *g);
/* Reads the unknown weights of these Linears, and of the Linears fused with them, in pieces. */
osh_status osh_globals_find(osh_ctx *cx, osh_globals *g, const int *linears, int n);
/* True if the largest magnitude of the weight is known. */
bool osh_globals_knows(const osh_globals *g, int linear);
/* Records the largest magnitude. The scale is known when all fused Linears are. */
void osh_globals_put(osh_globals *g, int linear, float amax);
float osh_globals_of(const osh_globals *g, int linear); // 0: it has none; g may be NULL
int64_t osh_globals_bytes(const osh_plan *p); // host memory of osh_globals
/* host memory that osh_globals_find takes beside it. */
int64_t osh_globals_scan_bytes(const osh_plan *p, int n_threads);
#endif
