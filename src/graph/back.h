/* back.h - computes the gradients of a loss, from the last node of a range of nodes back to the
 * first. The gradients are for one ragged batch (samples without padding). All values of the batch
 * must exist. */
#ifndef OSH_BACK_H
#define OSH_BACK_H
#include "graph/exec.h"

typedef struct osh_back {
    const osh_graph *g;
    int first, n;        // the range has the nodes [first, first + n)
    const bool *run;     // [n] true for nodes that ran in the forward pass; NULL: all nodes ran
    const bool *weights; // [weights of g] true if the caller wants the gradient of the weight
    /* [values of g] true if the caller wants the gradient of the value. Only inputs of the range
     * may be true. An input is a value that a node of the range reads and that no node of the range
     * makes. */
    const bool *in;
    bool on_device; // true if the batch is on a GPU; each op then needs a gradient kernel for GPUs
    bool rough; // true if gradients may be rounded to the compute dtype before matrix products
    /* [weights of g] true if the caller has storage for the gradient of the weight. NULL: false for
     * all weights. The callback `place` returns this storage (F32, shape of the weight) for the
     * first gradient of the weight. The gradient is written to the storage, and the callback
     * `weight` gets the storage as dw. For later gradients of the weight, `place` returns NULL. */
    const bool *placed;
    osh_tensor *(*place)(void *user, int weight);
    /* [values of g] true if the caller wants to see the gradient of the value in the callback
     * `value`. Only outputs of nodes of the range may be true. NULL: false for all values. */
    const bool *seen;
    /* Callback for each node with a weight whose gradient is wanted. dw: the gradient that comes
     * from this node. It is F32, has the shape of the weight, and is on the device of the batch. It
     * is a view that is valid during the call. The callback may be NULL if no gradient of a weight
     * is wanted. */
    osh_status (*weight)(osh_ctx *cx, void *user, int weight, const osh_tensor *dw);
    /* Callback for each value v for which seen[v] is true. dv: the complete gradient of the value,
     * F32 [tokens, width], a view that is valid during the call. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *dv);
    void *user;
} osh_back;

/* Checks that each op between a wanted gradient and the loss can compute gradients. If not, returns
 * OSH_E_UNSUPPORTED with the name of the first module that cannot. A plan calls this function, so
 * that the error comes before the run. */
osh_status osh_back_check(osh_ctx *cx, const osh_back *k);
/* Runs the backward pass of a batch. `b` must have all values of the forward pass (osh_exec_run
 * with `keep` NULL): the inputs of the nodes and their outputs. The function frees the outputs.
 * dv [values of g]: own gradients, F32 [tokens, width], or NULL. On entry, the caller passes the
 * gradients of the outputs of the range. An output is a value that a node of the range made and
 * that later nodes read. On return, dv has the gradients of the values v for which k->in[v] is
 * true. dv[v] is NULL if the loss does not depend on v. */
osh_status osh_back_run(osh_ctx *cx, const osh_back *k, const osh_weights *w, osh_batch *b,
                        osh_tensor **dv);
/* Computes an upper bound of the host bytes of osh_back_run, including the values of its batch and
 * the allocator's overhead. The batch has n_tokens tokens in any number of samples. leaves [values
 * of g]: true for values whose gradients the caller passes to osh_back_run. */
osh_status osh_back_peak(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                         int64_t n_tokens, int n_threads);
/* Computes an upper bound of the bytes that a forward pass and a backward pass need for short-lived
 * blocks in a device's arena (OSH_LIFE_SHORT of tensor/device.h). The forward pass is osh_exec_run
 * with `keep` NULL, and the backward pass is osh_back_run. The bytes include the gaps between
 * blocks. leaves: as in osh_back_peak. */
osh_status osh_back_peak_on_device(osh_ctx *cx, size_t *peak, const osh_back *k, const bool *leaves,
                                   int64_t n_tokens);
#endif
