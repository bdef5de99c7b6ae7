/* back.h - runs the gradient of a loss back through a range of nodes, on one ragged batch whose
 * values are all live. */
#ifndef OSH_BACK_H
#define OSH_BACK_H
#include "graph/exec.h"

typedef struct osh_back {
    const osh_graph *g;
    int first, n;        // nodes [first, first + n)
    const bool *run;     // [n]: nodes that ran; NULL: all
    const bool *weights; // [graph weights]: its gradient is wanted
    /* [graph values]: the range reads it and does not make it; its gradient is wanted */
    const bool *in;
    bool on_device;      // the batch is on a GPU: the ops need their gradient there
    bool rough;          // gradients may be rounded to the compute dtype for a product
    /* [graph weights]: the caller has storage for the gradient; NULL: for none. `place` returns
     * that storage, F32 of the weight's shape, the first time a gradient of this weight is made,
     * and NULL after that. The gradient is written there, and `weight` gets the same tensor as
     * dw. */
    const bool *placed;
    osh_tensor *(*place)(void *user, int weight);
    /* [graph values]: made in the range; `value` is called with its gradient; NULL: none */
    const bool *seen;
    /* Called for each wanted weight of each node. dw: F32, of the weight's shape, the part of this
     * node, on the device of the batch; view, valid during the call. NULL: no weight is wanted. */
    osh_status (*weight)(osh_ctx *cx, void *user, int weight, const osh_tensor *dw);
    /* dv: F32 [tokens, width], complete; view, valid during the call. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *dv);
    void *user;
} osh_back;

/* Returns OSH_E_UNSUPPORTED, naming the first module, if an op that a gradient has to pass has no
 * gradient. Planners call it; osh_back_run fails at such an op. */
osh_status osh_back_check(osh_ctx *cx, const osh_back *k);
/* b: has all values that the nodes read and made (osh_exec_run with keep NULL). dv [graph values],
 * own, F32 [tokens, width]: on entry, gradients of values that leave the range, NULL: none; on
 * return, gradients of the values in `in` that the loss depends on. The values that the nodes made
 * are freed, and their gradients too. */
osh_status osh_back_run(osh_ctx *cx, const osh_back *k, const osh_weights *w, osh_batch *b,
                        osh_tensor **dv);
/* Host bytes (gross, an upper bound) of the values of the batch and of osh_back_run, for n_tokens
 * tokens in one sample or in several. leaves [graph values]: values with a gradient on entry. */
osh_status osh_back_peak(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                         int64_t n_tokens, int n_threads);
/* Does what osh_back_peak does for the short-lived end of a device's arena. The forward pass
 * (osh_exec_run with keep NULL) and the gaps between blocks are included. */
osh_status osh_back_peak_on_device(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                                   int64_t n_tokens);
#endif
