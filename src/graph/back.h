/* back.h - computes the gradients of a loss backwards through a range of nodes, for one ragged
 * batch that has the values of all nodes. */
#ifndef OSH_BACK_H
#define OSH_BACK_H
#include "graph/exec.h"

typedef struct osh_back {
    const osh_graph *g;
    int first, n;        // the range of nodes, [first, first + n)
    const bool *run;     // [n] true for nodes that ran; NULL: all nodes ran
    const bool *weights; // [weights of g] true if the caller wants the gradient of the weight
    /* [values of g] true if the caller wants the gradient of the value. Such a value is an input of
     * the range: nodes of the range read it, and no node of the range makes it. */
    const bool *in;
    bool on_device;      // true if the batch is on a GPU; each op then needs a gradient for GPUs
    bool rough; // true if gradients may be rounded to the compute dtype before they are multiplied
    /* [weights of g] true if the caller has storage for the gradient of the weight; NULL: for no
     * weight. `place` returns this storage (F32, shape of the weight) when the first gradient of
     * the weight is computed. This gradient is written there, and the callback `weight` gets the
     * same tensor as dw. For later gradients of the weight, `place` returns NULL. */
    const bool *placed;
    osh_tensor *(*place)(void *user, int weight);
    /* [values of g] true if the callback `value` is called with the gradient of this value, an
     * output of a node of the range; NULL: for no value. */
    const bool *seen;
    /* Callback for each wanted weight of each node. dw is the part of the gradient from this node:
     * F32, shape of the weight, on the device of the batch. dw is a view that is valid during the
     * call. NULL: no weight is wanted. */
    osh_status (*weight)(osh_ctx *cx, void *user, int weight, const osh_tensor *dw);
    /* Callback for each value v with seen[v]. dv is the complete gradient, F32 [tokens, width], a
     * view that is valid during the call. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *dv);
    void *user;
} osh_back;

/* Checks that every op on the path of a wanted gradient has a function for gradients. If not,
 * returns OSH_E_UNSUPPORTED with the name of the first such module. A plan calls this function, so
 * that the error comes before the run. */
osh_status osh_back_check(osh_ctx *cx, const osh_back *k);
/* Runs the backward pass of a batch. `b` has all values that the nodes read and made (osh_exec_run
 * with `keep` NULL). The values that the nodes made are freed. dv [values of g], own, each F32
 * [tokens, width] or NULL. On entry dv has the gradients of values that nodes of the range made and
 * that nodes after the range read. On return dv has the gradients of the values in k->in. A
 * gradient is NULL if the loss does not depend on the value. */
osh_status osh_back_run(osh_ctx *cx, const osh_back *k, const osh_weights *w, osh_batch *b,
                        osh_tensor **dv);
/* Computes an upper bound of the host bytes (with the allocator's overhead) of osh_back_run and of
 * the values of the batch, for n_tokens tokens in any number of samples. leaves [values of g] is
 * true for values that have a gradient on entry. */
osh_status osh_back_peak(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                         int64_t n_tokens, int n_threads);
/* Computes an upper bound of the bytes that the forward pass (osh_exec_run with `keep` NULL) and
 * osh_back_run need at the short-lived end of a device's arena (tensor/device.h), including the
 * gaps between blocks. `leaves` is as in osh_back_peak. */
osh_status osh_back_peak_on_device(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                                   int64_t n_tokens);
#endif
