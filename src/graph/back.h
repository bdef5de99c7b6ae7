/* back.h - computes the gradients of a loss by a range of nodes, backwards, for one ragged batch
 * that has the values of all nodes. */
#ifndef OSH_BACK_H
#define OSH_BACK_H
#include "graph/exec.h"

typedef struct osh_back {
    const osh_graph *g;
    int first, n;        // nodes [first, first + n)
    const bool *run;     // [n] true for nodes that ran; NULL: all
    const bool *weights; // [graph weights] true if the gradient of the weight is wanted
    /* [graph values] true if the gradient of this value is wanted; the range reads the value and
     * does not make it. */
    const bool *in;
    bool on_device;      // the batch is on a GPU: each op needs a gradient for GPUs
    bool rough;          // gradients may be rounded to the compute dtype before a product
    /* [graph weights] true if the caller has storage for the gradient; NULL: it has none. `place`
     * returns that storage, F32 of the weight's shape, the first time a gradient of this weight is
     * made, and NULL after that. The gradient is written there, and `weight` gets the same tensor
     * as dw. */
    const bool *placed;
    osh_tensor *(*place)(void *user, int weight);
    /* [graph values] true if `value` is called with the gradient of this value, which the range
     * makes; NULL: never. */
    const bool *seen;
    /* Called for each wanted weight of each node. dw is the part of the gradient from this node:
     * F32, the weight's shape, on the device of the batch; a view that is valid during the call.
     * NULL: no weight is wanted. */
    osh_status (*weight)(osh_ctx *cx, void *user, int weight, const osh_tensor *dw);
    /* dv: the complete gradient, F32 [tokens, width]; a view that is valid during the call. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *dv);
    void *user;
} osh_back;

/* Returns OSH_E_UNSUPPORTED, with the name of the first module, if a gradient must pass through an
 * op that has no gradient. Planners call it; osh_back_run fails at such an op. */
osh_status osh_back_check(osh_ctx *cx, const osh_back *k);
/* b has all values that the nodes read and made (osh_exec_run with keep NULL). dv [graph values],
 * own, each F32 [tokens, width] or NULL: on entry, the gradients of the values of the range that
 * later nodes use; on return, the gradients of the values in k->in on which the loss depends. The
 * values that the nodes made are freed, and their gradients too. */
osh_status osh_back_run(osh_ctx *cx, const osh_back *k, const osh_weights *w, osh_batch *b,
                        osh_tensor **dv);
/* Computes an upper bound of the gross host bytes of the values of the batch and of osh_back_run,
 * for n_tokens tokens in one sample or in several. leaves [graph values]: true for values with a
 * gradient on entry. */
osh_status osh_back_peak(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                         int64_t n_tokens, int n_threads);
/* Does the same as osh_back_peak for the short-lived end of a device's arena. Includes the forward
 * pass (osh_exec_run with keep NULL) and the gaps between blocks. */
osh_status osh_back_peak_on_device(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                                   int64_t n_tokens);
#endif
