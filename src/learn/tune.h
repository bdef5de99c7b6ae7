/* tune.h - a quantized model learns from the original's predictions: the codes and scales of its Linears and the
 * weights of its norms move so that the KL divergence from the original's distribution of the next token falls.
 *
 *   new      all weights of the original, and for each row the hidden values that its head reads
 *   take     each quantized Linear, as it is in the output: its weight becomes what the codes stand for
 *   run      steps of a few rows each; before and behind them the divergence on rows that are held back
 *   code, norm   what there is to be written, if it became better there
 *
 * A code is a real number v that the forward pass rounds. It begins where the weight lies, no further than 0.4 from
 * the code, so that nothing changes at first; solver/tune.c has the step. Step t of n moves by this part of the rate
 *
 *   (t + 1) / 4 for t < 4, then 0.05 + 0.95 (1 + cos(pi (t - 4) / (n - 4))) / 2
 *
 * for the mean over the tokens of `rows` rows, the first ones first, over and over. Rows go through the model one by
 * one, so neither batch nor budget nor threads show in a bit. */
#ifndef OSH_LEARN_TUNE_H
#define OSH_LEARN_TUNE_H
#include "graph/exec.h"
#include "solver/tune.h"
#include "quant/arith.h"
#include "data/dataset.h"

typedef struct osh_tune osh_tune;
/* All views live as long as it: g of the original alone, ck its weights. */
osh_status osh_tune_new(osh_ctx *cx, osh_tune **out, const osh_graph *g, const osh_checkpoint *ck,
                        const osh_dataset *data, const osh_tune_rule *rule);
void osh_tune_free(osh_ctx *cx, osh_tune *t);
/* codes [O, I] and params are read, and need not stay. Integers by group or channel. */
osh_status osh_tune_take(osh_ctx *cx, osh_tune *t, int weight, const osh_q_args *q, const int8_t *codes,
                         const osh_qparams *params);
typedef struct osh_tune_result {
    double before, after; // KL divergence of a token of the rows that are held back
    int64_t n_changed, n_codes;
    double *curve;        // the caller's [steps], or NULL: the same on each step's rows, before it moves
} osh_tune_result;
/* step: called before each step, t = steps behind the last; NULL: not. */
osh_status osh_tune_run(osh_ctx *cx, osh_tune *t, osh_tune_result *r,
                        void (*step)(osh_ctx *cx, void *user, int64_t t), void *user);
/* Of a weight that was taken: codes [O, I], and params' scale, of the shape that was given, become what they are. */
void osh_tune_codes_of(const osh_tune *t, int weight, int8_t *codes, osh_qparams *params);
const osh_tensor *osh_tune_norm_of(const osh_tune *t, int weight); // view: as it is to be written; NULL: it is none

void osh_tune_norms(bool *wants, const osh_graph *g); // adds the weights of norms [weights]
bool osh_tune_can(const osh_q_args *q); // codes of this kind
int64_t osh_tune_held(const osh_dataset *d); // rows at the end of d that are held back; 0: too few to tune
/* Whether the model can: OSH_E_UNSUPPORTED naming the module whose op has none. linear [weights]: those taken. */
osh_status osh_tune_check(osh_ctx *cx, const osh_graph *g, const bool *linear);
typedef struct osh_tune_memory {
    size_t kept, row; // host bytes, gross, an upper bound: until it is freed; beside that in new and run
} osh_tune_memory;
/* n_scales [weights] of those taken, else 0. */
osh_status osh_tune_bytes(osh_ctx *cx, osh_tune_memory *m, const osh_graph *g, const osh_checkpoint *ck,
                          const osh_dataset *data, const int64_t *n_scales);
#endif
