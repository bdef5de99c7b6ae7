/* tune.h - tunes a quantized model to the predictions of the original: the codes and scales of its
 * Linears and the weights of its norms change so that the KL divergence from the original's
 * distribution of the next token falls.
 *
 *   new          loads all weights of the original, and makes the hidden values that the head reads
 *   take         adds a quantized Linear of the output: its weight becomes the decoded codes
 *   run          does steps of a few rows each; before and after them it measures the divergence
 *                on held-back rows
 *   codes, norm  return the values to write, for a caller who finds that the divergence fell
 *
 * A code is a real number v that the forward pass rounds. It begins at the original weight in units
 * of the scale, at most 0.4 away from the code, so that no code changes at first; solver/tune.c has
 * the step. Step t of n uses this part of the rate
 *
 *   (t + 1) / 4 for t < 4, then 0.05 + 0.95 (1 + cos(pi (t - 4) / (n - 4))) / 2
 *
 * for the mean over the tokens of `rows` rows. The rows are used in order, again and again. Rows go
 * through the model one by one, so the bits do not depend on batches, budgets or threads. */
#ifndef OSH_LEARN_TUNE_H
#define OSH_LEARN_TUNE_H
#include "graph/exec.h"
#include "solver/tune.h"
#include "quant/arith.h"
#include "data/dataset.h"

typedef struct osh_tune osh_tune;
/* g: graph of the original model only; ck: checkpoint with its weights. g, ck and data must outlive
 * the result. */
osh_status osh_tune_new(osh_ctx *cx, osh_tune **out, const osh_graph *g, const osh_checkpoint *ck,
                        const osh_dataset *data, const osh_tune_rule *rule);
void osh_tune_free(osh_ctx *cx, osh_tune *t);
/* Adds a quantized weight: copies codes [O, I] and params. Only for integers with scales by group
 * or by channel. */
osh_status osh_tune_take(osh_ctx *cx, osh_tune *t, int weight, const osh_q_args *q,
                         const int8_t *codes, const osh_qparams *params);
typedef struct osh_tune_result {
    double before, after; // KL divergence per token of the held-back rows
    int64_t n_changed, n_codes;
    double *curve;        // the caller's [steps]: KL divergence on the rows of each step; may be
                          // NULL
} osh_tune_result;
/* Runs all steps. Calls `step` with t before step t, and after the last step with the number of
 * steps; NULL: not called. The curve has the divergence before each step. */
osh_status osh_tune_run(osh_ctx *cx, osh_tune *t, osh_tune_result *r,
                        void (*step)(osh_ctx *cx, void *user, int64_t t), void *user);
/* Writes the tuned codes [O, I] and scales of a weight that osh_tune_take has added. params has the
 * shape that was given to osh_tune_take. */
void osh_tune_codes_of(const osh_tune *t, int weight, int8_t *codes, osh_qparams *params);
/* Returns the tuned weight of a norm as a view; NULL if the weight is not a norm's. */
const osh_tensor *osh_tune_norm_of(const osh_tune *t, int weight);

void osh_tune_norms(bool *wants, const osh_graph *g); // sets wants [weights] for weights of norms
bool osh_tune_can(const osh_q_args *q); // true if codes of this kind can be tuned
/* Returns the number of rows at the end of d that are held back. 0: there are too few rows to
 * tune. */
int64_t osh_tune_held(const osh_dataset *d);
/* Checks that the model can be tuned. Fails with OSH_E_UNSUPPORTED and the name of a module whose
 * op has no gradient. linear [weights]: true for the weights that osh_tune_take will add. */
osh_status osh_tune_check(osh_ctx *cx, const osh_graph *g, const bool *linear);
typedef struct osh_tune_memory { // gross host bytes, upper bounds
    size_t kept, row; // kept: allocated until osh_tune_free; row: in addition during osh_tune_new
                      // and osh_tune_run
} osh_tune_memory;
/* n_scales [weights]: number of scales of each weight that osh_tune_take will add; 0 for other
 * weights. */
osh_status osh_tune_bytes(osh_ctx *cx, osh_tune_memory *m, const osh_graph *g,
                          const osh_checkpoint *ck, const osh_dataset *data,
                          const int64_t *n_scales);
#endif
