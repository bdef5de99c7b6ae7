/* device_peaks.h - predicts the bytes that osh_exec_run needs for short-lived blocks in a device's
 * arena (OSH_LIFE_SHORT of tensor/device.h), for many numbers of tokens. One walk over the nodes
 * makes a list of steps: take (allocate a block), give (free a block), touch (read the extent of
 * the arena). Then the list is simulated in an arena for each number of tokens. Equal layers have
 * equal lists, and the result for a list and a number of tokens is computed only once.
 *
 *   q = linear(a); s = act(q)
 *   take ids, take a, touch, take q, touch scratch of linear, give a, take s, touch, give q, ... */
#ifndef OSH_DEVICE_PEAKS_H
#define OSH_DEVICE_PEAKS_H
#include "graph/exec.h"

typedef struct osh_device_peaks osh_device_peaks;
/* Makes an object that predicts peaks for the graph g. *out keeps a view of g, so g must outlive
 * *out. */
osh_status osh_device_peaks_new(osh_ctx *cx, osh_device_peaks **out, const osh_graph *g);
/* Frees p. Accepts NULL. */
void osh_device_peaks_free(osh_ctx *cx, osh_device_peaks *p);
/* Walks over the nodes of `s` and makes the list of steps, which osh_device_peaks_at uses until the
 * next walk. Ignores in->lent. */
osh_status osh_device_peaks_walk(osh_ctx *cx, osh_device_peaks *p, const osh_exec_span *s,
                                 const osh_exec_brought *in);
/* Simulates the list of steps for n_tokens tokens.
 * *peak: set to the largest number of bytes that short-lived blocks of the arena need. The ids of
 * the batch and the gaps between blocks count, too.
 * *left: set to the bytes of the values that exist after the last node. */
osh_status osh_device_peaks_at(osh_ctx *cx, size_t *peak, size_t *left, osh_device_peaks *p,
                               int64_t n_tokens);
/* Returns the number of simulations that the object has made. */
int64_t osh_device_peaks_placed(const osh_device_peaks *p);
#endif
