/* device_peaks.h - predicts the bytes of a run of nodes at the short-lived end of a device's arena,
 * for many numbers of tokens. The run is walked once, which gives a list of takes and gives; the
 * list is placed for each number of tokens. Equal layers give equal lists, and an equal list is
 * placed once per number of tokens.
 *
 *   q = linear(a); s = act(q)
 *   take ids, take a, touch, take q, touch scratch of linear, give a, take s, touch, give q, ... */
#ifndef OSH_DEVICE_PEAKS_H
#define OSH_DEVICE_PEAKS_H
#include "graph/exec.h"

typedef struct osh_device_peaks osh_device_peaks;
osh_status osh_device_peaks_new(osh_ctx *cx, osh_device_peaks **out, const osh_graph *g); // g: view
void osh_device_peaks_free(osh_ctx *cx, osh_device_peaks *p);
/* Walks the run. osh_device_peaks_at is for this run until the next walk. in->lent is not read. */
osh_status osh_device_peaks_walk(osh_ctx *cx, osh_device_peaks *p, const osh_exec_span *s,
                                 const osh_exec_brought *in);
/* *peak: the most bytes from the end of the arena, with the ids of the batch and the gaps between
 * blocks. *left: the bytes of the values that stay. */
osh_status osh_device_peaks_at(osh_ctx *cx, size_t *peak, size_t *left, osh_device_peaks *p,
                               int64_t n_tokens);
int64_t osh_device_peaks_placed(const osh_device_peaks *p); // lists placed so far
#endif
