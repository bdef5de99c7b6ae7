/* block.h - learns the codes of all Linears of a block of the model (a decoder layer, say) from the
 * outputs of the whole block.
 *
 *   x of the quantized model ──► block with rounded weights ──► y      loss = mean (y - y0)^2
 *   x of the original model  ──► block as it was            ──► y0     (made before, by the caller)
 *
 * A step uses some samples; all their elements have the same weight in the loss. The gradient goes
 * back through the block to the weights (graph/back.h), and their codes follow it (solver/ada.h).
 * The last codes are kept, because the loss of a step depends more on its samples than on the step.
 * With rule.selective the codes of rounding to nearest are kept unless the loss of all samples
 * fell. Samples are drawn without replacement by a counter RNG; when fewer are left than a step
 * needs, all are shuffled anew. With rule.share each step draws the elements of the inputs that
 * come from the original model; the loss of all samples is always that of the quantized model.
 * Samples go through the block together up to TOKENS tokens. That number and the order of all sums
 * are fixed, so the result does not depend on threads, batches or budgets. */
#ifndef OSH_LEARN_BLOCK_H
#define OSH_LEARN_BLOCK_H
#include "graph/exec.h"
#include "solver/ada.h"
#include "data/dataset.h"

typedef struct osh_block_weight { // a weight whose codes are optimized
    int weight;                // index of the weight in the graph
    osh_ada_args args;         // arguments for osh_ada_learner_new; args.w is the original weight
    double bias_rate;          // Adam's rate for the bias of the Linear; 0: the bias does not
                               // learn, or there is none
    int bias;                  // index of the bias in the graph's weights
} osh_block_weight;

typedef struct osh_block {
    const osh_graph *g;
    const osh_dataset *data;
    osh_weights *w;          // the weights that learn change in each step and are final at the end
    int first, n;            // nodes [first, first + n)
    const bool *run;         // [n]: true for the nodes of the block
    const int *in, *out;     // [n_in]: values that the block reads; [n_out]: values that are
                             // compared
    int n_in, n_out;
    const bool *differs;     // [n_in]: true if the input can differ from the original model's
                             // value; NULL: unknown for all inputs
    /* Copies rows of a sample, in the compute dtype, to `to`. k < n_in: the value in[k]. Then k -
     * n_in < n_out: the target of out[k - n_in]. Else the original model's value in[k - n_in -
     * n_out]. */
    osh_status (*rows)(osh_ctx *cx, void *user, int k, int64_t sample, osh_tensor *to);
    void (*step)(osh_ctx *cx, void *user, int64_t t); // called after t steps; may be NULL
    void *user;
    osh_block_rule rule;
    osh_block_weight *learns; // [n_learns]
    int n_learns;
    double *curve;           // the caller's [osh_ada_points]: loss with AdaRound's term; may be
                             // NULL
    double begun, ended;     // results: loss of the first step and loss of the last step, each over
                             // the samples of the step
    int64_t n_steps;         // result: number of steps
    /* Results, with rule.selective: losses of all samples, rounded to nearest and learned. */
    double nearest, learned;
    bool kept;               // result: the learned codes are kept
    bool diverged; // result: the loss grew (osh_ada_diverged), so the learned codes are not kept
} osh_block;
osh_status osh_block_learn(osh_ctx *cx, osh_block *b);
/* Checks that every op through which a gradient passes has a gradient. Fails with OSH_E_UNSUPPORTED
 * and the name of a module whose op has none. */
osh_status osh_block_check(osh_ctx *cx, const osh_block *b);
/* Computes the host bytes (gross, an upper bound) that osh_block_learn needs besides the weights.
 * Reads only O, I, group and rule.kind of args. */
osh_status osh_block_bytes(osh_ctx *cx, size_t *n_bytes, const osh_block *b);
#endif
