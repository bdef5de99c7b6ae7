/* block.h - learns the codes of all Linears of a block of the model (a decoder layer, say) from the
 * outputs of the whole block.
 *
 *   x of the quantized model ──► block with rounded weights ──► y      loss = mean (y - y0)^2
 *   x of the original model  ──► block as it was            ──► y0     (made before, by the caller)
 *
 * A step takes some samples; all their elements have the same weight in the loss. The gradient goes
 * back through the block to the weights (graph/back.h), and their codes follow it (solver/ada.h).
 * The last codes are kept: which step had the least loss depends more on its samples than on the
 * step. With rule.selective the codes of rounding to nearest are kept unless the loss of all
 * samples fell. Samples are drawn without replacement by a counter RNG; when fewer than a step
 * needs are left, all are drawn anew. With rule.share each step draws anew which elements of the
 * inputs come from the original model; the loss of all samples is always that of the quantized
 * model. Samples go through the block together up to TOKENS tokens. That number and the order of
 * all sums are fixed, so the result does not depend on threads, batches or budgets. */
#ifndef OSH_LEARN_BLOCK_H
#define OSH_LEARN_BLOCK_H
#include "graph/exec.h"
#include "solver/ada.h"
#include "data/dataset.h"

typedef struct osh_block_weight { // a weight that learns
    int weight;                // weight of the graph
    osh_ada_args args;         // for osh_ada_learner_new; args.w is the original weight
    double bias_rate;          // Adam's rate for its bias; 0: the bias is fixed, or there is none
    int bias;                  // weight of the graph
} osh_block_weight;

typedef struct osh_block {
    const osh_graph *g;
    const osh_dataset *data;
    osh_weights *w;          // weights that learn change at each step; in the end they are final
    int first, n;            // nodes [first, first + n)
    const bool *run;         // [n]: the nodes of the block
    const int *in, *out;     // [n_in], [n_out]: values that the block reads, and that are compared
    int n_in, n_out;
    const bool *differs;     // [n_in]: differs from the original model's; NULL: none is known to
    /* Copies rows of a sample, in the compute dtype, to `to`: for k < n_in the value in[k]; then
     * for k - n_in < n_out the target of out[k - n_in]; then the original model's in[k - n_in -
     * n_out]. */
    osh_status (*rows)(osh_ctx *cx, void *user, int k, int64_t sample, osh_tensor *to);
    void (*step)(osh_ctx *cx, void *user, int64_t t); // NULL, or called after t steps
    void *user;
    osh_block_rule rule;
    osh_block_weight *learns; // [n_learns]
    int n_learns;
    double *curve;           // NULL, or the caller's [osh_ada_points]: loss with AdaRound's term
    double begun, ended;     // out: loss of the first and the last step, each on its samples
    int64_t n_steps;         // out: steps taken
    /* out, with rule.selective: loss of all samples, rounded to nearest and learned */
    double nearest, learned;
    bool kept;               // out: the learned codes are kept
    bool diverged;           // out: the loss grew (osh_ada_diverged), so they are not kept
} osh_block;
osh_status osh_block_learn(osh_ctx *cx, osh_block *b);
/* Checks that every op on the way of a gradient has one. Fails with OSH_E_UNSUPPORTED and names the
 * module whose op has none. */
osh_status osh_block_check(osh_ctx *cx, const osh_block *b);
/* Host bytes (gross, an upper bound) that osh_block_learn takes beside the weights. It reads O, I,
 * group and rule.kind of args. */
osh_status osh_block_bytes(osh_ctx *cx, size_t *n_bytes, const osh_block *b);
#endif
