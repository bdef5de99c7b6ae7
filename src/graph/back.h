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
    /* [graph values] true if the gradient of this value is wanted. Such a value is an input of the
     * range: nodes of the range read it, but none makes it. */
    const bool *in;
    bool on_device;      // the batch is on a GPU: each op needs a gradient for GPUs
    bool rough;          // gradients may be rounded to the compute dtype before they are multiplied
    /* [graph weights] true if the caller has storage for the gradient of the weight; NULL: for no
     * weight. The first time a gradient of this weight is computed, `place` returns the storage
     * (F32, the weight's shape), the gradient is written there, and the callback `weight` gets the
     * same tensor as dw. After that `place` returns NULL. */
    const bool *placed;
    osh_tensor *(*place)(void *user, int weight);
    /* [graph values] true if the callback `value` is called with the gradient of this value, which
     * is an output of a node of the range; NULL: never. */
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
 * values that the nodes made are freed together with their gradients. */
osh_status osh_back_run(osh_ctx *cx, const osh_back *k, const osh_weights *w, osh_batch *b,
                        osh_tensor **dv);
/* Computes an upper bound of the gross host bytes of the values of the batch and of osh_back_run,
 * for n_tokens tokens in one sample or in several. leaves [graph values]: true for values that have
 * a gradient on entry. */
osh_status osh_back_peak(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                         int64_t n_tokens, int n_threads);
/* Does the same as osh_back_peak for the short-lived end of a device's arena. Includes the forward
 * pass (osh_exec_run with keep NULL) and the gaps between blocks. */
osh_status osh_back_peak_on_device(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                                   int64_t n_tokens);
#endif
