/* device_peaks.h - predicts the bytes of a run of nodes at the short-lived end of a device's arena,
 * for many numbers of tokens. The run is walked once, which gives a list of takes and gives of
 * blocks. The list is simulated in an arena for each number of tokens. Equal layers have equal
 * lists, and a list is simulated once for each number of tokens.
 *
 *   q = linear(a); s = act(q)
 *   take ids, take a, touch, take q, touch scratch of linear, give a, take s, touch, give q, ... */
#ifndef OSH_DEVICE_PEAKS_H
#define OSH_DEVICE_PEAKS_H
#include "graph/exec.h"

typedef struct osh_device_peaks osh_device_peaks;
osh_status osh_device_peaks_new(osh_ctx *cx, osh_device_peaks **out, const osh_graph *g); // g:
                                                                                          // view,
                                                                                          // must
                                                                                          // outlive
                                                                                          // *out
void osh_device_peaks_free(osh_ctx *cx, osh_device_peaks *p);
/* Walks the run and makes its list. osh_device_peaks_at then works on this list until the next
 * walk. in->lent is not read. */
osh_status osh_device_peaks_walk(osh_ctx *cx, osh_device_peaks *p, const osh_exec_span *s,
                                 const osh_exec_brought *in);
/* *peak: highest number of bytes from the end of the arena, including the ids of the batch and gaps
 * between blocks. *left: bytes of the values that stay after the run. */
osh_status osh_device_peaks_at(osh_ctx *cx, size_t *peak, size_t *left, osh_device_peaks *p,
                               int64_t n_tokens);
int64_t osh_device_peaks_placed(const osh_device_peaks *p); // number of lists that were simulated
                                                            // so far
#endif
