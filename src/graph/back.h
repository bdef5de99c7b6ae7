/* back.h - the gradient of a loss goes back through a range of nodes, on one ragged batch whose values are there. */
#ifndef OSH_BACK_H
#define OSH_BACK_H
#include "graph/exec.h"

typedef struct osh_back {
    const osh_graph *g;
    int first, n;        // nodes [first, first + n)
    const bool *run;     // [n]: those that ran; NULL: all
    const bool *weights; // [graph weights]: whose gradient is wanted
    const bool *in;      // [graph values]: that the range reads and does not make, whose gradient is wanted
    bool on_device;      // the batch lies on a card: ops need their gradient there
    bool rough;          // gradients may be rounded to the compute dtype for a product
    /* [graph weights]: whose gradient has a place of its own, if it is asked for once; NULL: none. place: that, F32 of
     * the weight's shape; NULL: it has something by now. What is there becomes the gradient, and dw of weight is it. */
    const bool *placed;
    osh_tensor *(*place)(void *user, int weight);
    const bool *seen;    // [graph values]: made in the range, whose gradient is shown to value; NULL: none
    /* dw: F32, of the weight's shape, from one node, where the batch lies; view for the time of the call. NULL: no
     * weight is wanted. */
    osh_status (*weight)(osh_ctx *cx, void *user, int weight, const osh_tensor *dw);
    /* dv: F32 [tokens, width], complete; view for the time of the call. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *dv);
    void *user;
} osh_back;

/* Whether every op that a gradient has to go through has one: OSH_E_UNSUPPORTED with the first module whose op has not.
 * For who plans; osh_back_run would fail there. */
osh_status osh_back_check(osh_ctx *cx, const osh_back *k);
/* b: what the nodes read and made (osh_exec_run with keep NULL). dv [graph values], own, F32 [tokens, width]: on entry
 * of values that leave the range, NULL: none; then of those in `in` that the loss depends on. What the nodes made is
 * gone from b, and its gradients with it. */
osh_status osh_back_run(osh_ctx *cx, const osh_back *k, const osh_weights *w, osh_batch *b, osh_tensor **dv);
/* Bytes (gross, an upper bound) of b's values and of osh_back_run, in host memory, for one sample of n_tokens tokens,
 * or several with so many. leaves [graph values]: those with a gradient on entry. */
osh_status osh_back_peak(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves, int64_t n_tokens,
                         int n_threads);
/* The same of the short-lived end of a device's arena, the forward pass (osh_exec_run with keep NULL) and the gaps
 * between blocks included. */
osh_status osh_back_peak_on_device(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves, int64_t n_tokens);
#endif
