/* back.h - computes the gradients of a loss backwards through a range of nodes. The gradients are
 * for one ragged batch, whose values all exist. */
#ifndef OSH_BACK_H
#define OSH_BACK_H
#include "graph/exec.h"

typedef struct osh_back {
    const osh_graph *g;
    int first, n;        // the nodes are [first, first + n)
    const bool *run;     // [n] true for nodes that ran; NULL: all nodes ran
    const bool *weights; // [weights of g] true if the caller wants the gradient of the weight
    /* [values of g] true if the caller wants the gradient of the value. Only inputs of the range
     * are allowed: values that its nodes read and that none of its nodes makes. */
    const bool *in;
    bool on_device;      // true if the batch is on a GPU; each op then needs a gradient for GPUs
    bool rough; // true if gradients may be rounded to the compute dtype before products
    /* [weights of g] true if the caller has storage for the gradient of the weight. NULL: false
     * for all weights. `place` is called when the first gradient of the weight is computed, and
     * returns this storage (F32, shape of the weight). The gradient is written there, and the
     * callback `weight` gets the same tensor as dw. For later gradients of the weight, `place`
     * returns NULL. */
    const bool *placed;
    osh_tensor *(*place)(void *user, int weight);
    /* [values of g] true if the callback `value` is called with the gradient of this value, which
     * must be an output of a node of the range. NULL: false for all values. */
    const bool *seen;
    /* Callback for each node that has a weight whose gradient is wanted. dw is the gradient that
     * comes from this node: F32, shape of the weight, on the device of the batch. dw is a view that
     * is valid during the call. NULL if no weight is wanted. */
    osh_status (*weight)(osh_ctx *cx, void *user, int weight, const osh_tensor *dw);
    /* Callback for each value v with seen[v]. dv is the complete gradient, F32 [tokens, width], a
     * view that is valid during the call. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *dv);
    void *user;
} osh_back;

/* Checks that gradients can be computed by every op between a wanted gradient and the loss. If not,
 * returns OSH_E_UNSUPPORTED with the name of the first such module. A plan calls this function, so
 * that the error comes before the run. */
osh_status osh_back_check(osh_ctx *cx, const osh_back *k);
/* Runs the backward pass of a batch. `b` must have all values that the nodes read and made
 * (osh_exec_run with `keep` NULL). The function frees the values that the nodes made.
 * dv [values of g]: own gradients, F32 [tokens, width], or NULL. On entry, dv has the gradients of
 * values that nodes of the range made and that later nodes read. On return, dv has the gradients of
 * the values in k->in. A gradient is NULL if the loss does not depend on the value. */
osh_status osh_back_run(osh_ctx *cx, const osh_back *k, const osh_weights *w, osh_batch *b,
                        osh_tensor **dv);
/* Computes an upper bound of the host bytes of osh_back_run and of the values of the batch, with
 * the allocator's overhead. The batch has n_tokens tokens in any number of samples. leaves [values
 * of g]: true for values that have a gradient on entry of osh_back_run. */
osh_status osh_back_peak(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                         int64_t n_tokens, int n_threads);
/* Computes an upper bound of the bytes that a forward and a backward pass need at the short-lived
 * end of a device's arena (tensor/device.h). The passes are osh_exec_run with `keep` NULL and
 * osh_back_run. The bytes include the gaps between blocks. leaves: as in osh_back_peak. */
osh_status osh_back_peak_on_device(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                                   int64_t n_tokens);
#endif
