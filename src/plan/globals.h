/* globals.h - the global scale of each Linear with strategy tensor_group (NVFP4), from the largest magnitude of its
 * weight and of those that runtimes fuse with it: q, k and v of a layer have one, gate and up too. */
#ifndef OSH_GLOBALS_H
#define OSH_GLOBALS_H
#include "plan/plan.h"

/* Fills in osh_linear.joint. */
osh_status osh_plan_joint(osh_ctx *cx, osh_plan *p);

typedef struct osh_globals osh_globals; // what is known of them so far
/* *out NULL: no Linear has one. */
osh_status osh_globals_new(osh_ctx *cx, osh_globals **out, const osh_plan *p);
void osh_globals_free(osh_ctx *cx, osh_globals *g);
/* Reads the weights of these Linears, and of those that are fused with them, in pieces, where they are not known. */
osh_status osh_globals_find(osh_ctx *cx, osh_globals *g, const int *linears, int n);
bool osh_globals_knows(const osh_globals *g, int linear); // the largest magnitude of this weight
/* It is amax; where those of all that are fused with it are known, so is their scale. */
void osh_globals_put(osh_globals *g, int linear, float amax);
float osh_globals_of(const osh_globals *g, int linear); // 0: it has none. g NULL is fine
int64_t osh_globals_bytes(const osh_plan *p); // host memory of what is known
int64_t osh_globals_scan_bytes(const osh_plan *p, int n_threads); // and, while osh_globals_find reads, beside it
#endif
