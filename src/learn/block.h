/* block.h - codes that learn from what a whole block of the model puts out: a decoder layer, say.
 *
 *   x of the quantized model ──► block with rounded weights ──► y      loss = mean (y - y0)^2
 *   x of the original model  ──► block as it was            ──► y0     (made before, by the caller)
 *
 * A step takes some samples, all of its elements weigh the same, and the gradient goes back through the block to the
 * weights (graph/back.h), whose codes follow it (solver/ada.h). What is kept are the codes in the end: which step lost
 * least depends more on its samples than on the step. With rule.selective they are those of rounding to nearest where
 * the loss of all samples is no less then. Samples are drawn without replacement, by a counter RNG, until
 * fewer than a step wants are left; then anew from all. With rule.share each step draws anew which elements of what
 * comes in are the original's; a loss of all samples is of the quantized model's alone. Samples go through together as
 * far as TOKENS of them reach: that is fixed, as are the sums over them, so neither threads nor batches nor budgets
 * show. */
#ifndef OSH_LEARN_BLOCK_H
#define OSH_LEARN_BLOCK_H
#include "graph/exec.h"
#include "solver/ada.h"
#include "data/dataset.h"

typedef struct osh_block_weight { // one that learns
    int weight;                // of the graph
    osh_ada_args args;         // of osh_ada_learner_new, whose w is the weight as it was
    double bias_rate;          // Adam's, of its bias; 0: that stays, or there is none
    int bias;                  // of the graph
} osh_block_weight;

typedef struct osh_block {
    const osh_graph *g;
    const osh_dataset *data;
    osh_weights *w;          // of what learns, they become others, and the last step's in the end
    int first, n;            // nodes
    const bool *run;         // [n]: those of the block
    const int *in, *out;     // values that come in, and that are compared
    int n_in, n_out;
    const bool *differs;     // [n_in]: it is another one in the original model; NULL: none is known to be
    /* Rows of a sample: of value in[k], or what out[k - n_in] has to come near to, or in[k - n_in - n_out] in the
     * original model; in the compute dtype. */
    osh_status (*rows)(osh_ctx *cx, void *user, int k, int64_t sample, osh_tensor *to);
    void (*step)(osh_ctx *cx, void *user, int64_t t); // NULL: not; t steps are done
    void *user;
    osh_block_rule rule;
    osh_block_weight *learns;
    int n_learns;
    double *curve;           // the caller's [osh_ada_points]: loss, with AdaRound's term, at these steps; NULL
    double begun, ended;     // out: loss of the first step and of the last, each on its samples
    int64_t n_steps;         // out: that were taken
    double nearest, learned; // out: with rule.selective, loss of all samples, rounded to nearest and learned
    bool kept;               // out: what was learned is
} osh_block;
osh_status osh_block_learn(osh_ctx *cx, osh_block *b);
/* Whether every op that a gradient goes through has one: OSH_E_UNSUPPORTED with the module whose op has none. */
osh_status osh_block_check(osh_ctx *cx, const osh_block *b);
/* Host bytes (gross, an upper bound) beside the weights, of args O, I, group and rule.kind are read. */
osh_status osh_block_bytes(osh_ctx *cx, size_t *n_bytes, const osh_block *b);
#endif
