/* globals.h - the global scale of each Linear with strategy tensor_group (NVFP4). The scale is
 * computed from the largest magnitude of the weight and of the weights that runtimes fuse with it:
 * q, k and v of a layer share one scale, gate and up another. */
#ifndef OSH_GLOBALS_H
#define OSH_GLOBALS_H
#include "match/matching.h"

/* Sets osh_linear.joint of all Linears. */
osh_status osh_plan_joint(osh_ctx *cx, osh_matching *p);

typedef struct osh_globals osh_globals; // magnitudes and scales that are known so far
/* Sets *out to NULL if no Linear has a global scale. */
osh_status osh_globals_new(osh_ctx *cx, osh_globals **out, const osh_matching *p);
void osh_globals_free(osh_ctx *cx, osh_globals *g);
/* Finds the largest magnitudes that are not yet known of these Linears and of the Linears fused
 * with them. Reads their weights piece by piece. */
osh_status osh_globals_find(osh_ctx *cx, osh_globals *g, const int *linears, int n);
/* True if the largest magnitude of the weight is known. */
bool osh_globals_knows(const osh_globals *g, int linear);
/* Records the largest magnitude of the Linear's weight. The scale becomes known when the magnitudes
 * of all fused Linears are known. */
void osh_globals_put(osh_globals *g, int linear, float amax);
float osh_globals_of(const osh_globals *g, int linear); // 0: the Linear has no global scale; g may
                                                        // be NULL
int64_t osh_globals_bytes(const osh_matching *p); // host memory of osh_globals
/* Returns the host memory of osh_globals_find for one Linear without the buffers. *piece: bytes of
 * the buffer of each thread. */
size_t osh_globals_search_bytes(const osh_matching *p, int linear, size_t *piece);
#endif
