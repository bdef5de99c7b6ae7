/* block.h - optimizes the codes of all Linears of a block, such as a decoder layer. The outputs of
 * the block should stay close to those of the original model.
 *
 *   x of the quantized model ──► block with rounded weights ──► y      loss = mean (y - y0)^2
 *   x of the original model  ──► original block             ──► y0     (computed by the caller)
 *
 * A step uses some samples. The loss of a step is a mean over all elements of its samples' outputs.
 * Only tokens that count are included (osh_dataset.counted). The gradients of the weights are
 * computed by a backward pass (graph/back.h), and solver/ada.h changes the codes. The result is the
 * codes after the last step, and not the codes of the step with the smallest loss: the loss of a
 * step depends more on its samples than on the codes. With rule.selective, the result is the
 * weights rounded to nearest if learning has not lowered the loss of all samples. Samples are drawn
 * without replacement by a counter RNG. If fewer samples remain than a step needs, all samples are
 * shuffled anew. With rule.share, random elements of the inputs of a step are taken from the
 * original model. The loss of all samples never uses inputs of the original model. A batch has up
 * to TOKENS tokens. This number and the order of all sums are fixed, so the result does not depend
 * on threads, batches or budgets. */
#ifndef OSH_LEARN_BLOCK_H
#define OSH_LEARN_BLOCK_H
#include "graph/exec.h"
#include "solver/ada.h"
#include "data/dataset.h"

typedef struct osh_block_weight { // a weight whose codes are optimized
    int weight;                // index of the weight in the graph
    /* Arguments for osh_ada_learner_new; args.w is the original weight, in host memory. */
    osh_ada_args args;
    osh_dtype dtype;           // dtype of the weight
    /* Learning rate of Adam for the bias of the Linear; 0: the bias is not optimized, or there is
     * no bias. */
    double bias_rate;
    int bias;                  // index of the bias in the graph
} osh_block_weight;

typedef struct osh_block {
    const osh_graph *g;
    const osh_dataset *data;
    /* The weights of the model. osh_block_learn changes the optimized weights in each step. When it
     * returns, they have the resulting values. */
    osh_weights *w;
    bool on_device;          // true if the block learns on the device of w
    int first, n;            // a range of nodes: [first, first + n)
    const bool *run;         // [n]: true for the nodes of the range that belong to the block
    /* in [n_in]: values that the block reads; out [n_out]: outputs that the loss compares. */
    const int *in, *out;
    int n_in, n_out;
    /* For each input, true if its values can differ from those in the original model. NULL: inputs
     * are not mixed with those of the original model. */
    const bool *differs;     // [n_in]
    /* Copies rows of a sample to the tensor `to`, in the compute dtype. If the block learns on a
     * device, `to` is in the memory of the device. k selects the rows:
     *   k in [0, n_in)               value `in[k]` of the quantized model
     *   k in [n_in, n_in + n_out)    the target of `out[k - n_in]`
     *   k >= n_in + n_out            value `in[k - n_in - n_out]` of the original model */
    osh_status (*rows)(osh_ctx *cx, void *user, int k, int64_t sample, osh_tensor *to);
    /* Called after each step with the number of steps that are done. If learning stops early, the
     * last call gets rule.steps instead. May be NULL. */
    void (*step)(osh_ctx *cx, void *user, int64_t t);
    void *user;
    osh_block_rule rule;
    osh_block_weight *learns; // [n_learns]
    int n_learns;
    /* Result: the loss of every rule.period-th step (for AdaRound, with the rounding term). NULL:
     * the caller does not need these losses. */
    double *curve;           // view, [osh_ada_points]
    /* Results: loss of the first step and of the last step, each computed from the samples of that
     * step only. */
    double begun, ended;
    int64_t n_steps;         // result: number of steps that were done
    /* Results if rule.selective is true: losses of all samples.
     * nearest: with weights that are rounded to nearest.
     * learned: with learned weights. */
    double nearest, learned;
    /* Result: true if the codes are the learned ones, false if they are rounded to nearest. */
    bool kept;
    /* Result: true if learning diverged (osh_ada_diverged), so the learned codes are not kept. */
    bool diverged;
} osh_block;
osh_status osh_block_learn(osh_ctx *cx, osh_block *b);
/* Checks that every op of the backward pass has a gradient function. Fails with OSH_E_UNSUPPORTED
 * if an op has none; the message names a module with such an op. */
osh_status osh_block_check(osh_ctx *cx, const osh_block *b);
/* Computes upper bounds of the bytes that osh_block_learn needs besides the weights. *host: bytes
 * of host memory with the allocator's overhead. *device: bytes in the arena of the device, 0
 * without one. Reads only the members O, I, group and rule.kind of the weights' `args`. */
osh_status osh_block_bytes(osh_ctx *cx, size_t *host, size_t *device, const osh_block *b);
#endif
