/* tune.h - tunes a quantized model to the predictions of the original model. Tuning changes the
 * codes and scales of Linears, and the weights of norms, so that the KL divergence from the
 * original next-token distribution falls.
 *
 *   new          loads all weights of the original model and computes the inputs of the output head
 *   take         adds a quantized Linear: the weight becomes the decoded codes
 *   run          does steps of a few rows each; measures the divergence before and after all steps
 *                on validation rows, which are not used for learning
 *   codes, norm  return the tuned values; the caller uses them if the divergence fell
 *
 * A code is a real number v that the forward pass rounds. At the start v is the original weight
 * divided by the scale, clamped so that v differs from the code by at most 0.4. So no code changes
 * at first.
 * solver/tune.c has the formulas of a step. Step t of n multiplies the learning rates by
 *
 *   (t + 1) / 4 for t < 4, then 0.05 + 0.95 (1 + cos(pi (t - 4) / (n - 4))) / 2
 *
 * The gradient of a step is the mean over the tokens of rule.rows rows (samples of the data). If
 * only some tokens count (osh_dataset.counted), the gradient is the mean over the predictions of
 * the counted tokens. The rows are used in order; after the last row the first row is used again.
 * Rows are run one by one, so the bytes do not depend on batches, budgets or threads. */
#ifndef OSH_LEARN_TUNE_H
#define OSH_LEARN_TUNE_H
#include "graph/exec.h"
#include "solver/tune.h"
#include "quant/arith.h"
#include "data/dataset.h"

typedef struct osh_tune osh_tune;
typedef struct osh_tune_model { // a model to tune, and its device; all pointers are views
    const osh_graph *g;       // graph of the original model
    const osh_checkpoint *ck; // checkpoint with the weights of g
    const osh_dataset *data;
    /* True if the model is tuned on a device. The arena of the device then has the weights, the
     * arrays that tuning needs for each tuned weight, and the values of a row. The hidden values of
     * the original model are in host memory. */
    bool on_device;
    osh_device *device;       // this device; NULL if only memory is predicted
} osh_tune_model;
/* Makes the state of tuning (*out, own). The objects of m must outlive *out. */
osh_status osh_tune_new(osh_ctx *cx, osh_tune **out, const osh_tune_model *m,
                        const osh_tune_rule *rule);
void osh_tune_free(osh_ctx *cx, osh_tune *t);
/* Adds a quantized weight: copies codes [O, I] and params. The codes must be integers, with scales
 * by group or by channel. */
osh_status osh_tune_take(osh_ctx *cx, osh_tune *t, int weight, const osh_q_args *q,
                         const int8_t *codes, const osh_qparams *params);
typedef struct osh_tune_result {
    double before, after; // KL divergence per token of the validation rows, before and after tuning
    int64_t n_changed, n_codes;
    /* Result: for each step, the KL divergence per token of the step's rows, computed before the
     * step. NULL: the caller does not need it. */
    double *curve;        // view [steps]
} osh_tune_result;
/* Runs all steps. If `step` is not NULL, calls it before each step with the index of the step, and
 * after the last step with the number of steps. */
osh_status osh_tune_run(osh_ctx *cx, osh_tune *t, osh_tune_result *r,
                        void (*step)(osh_ctx *cx, void *user, int64_t t), void *user);
/* Writes the tuned codes [O, I] and scales of a weight that osh_tune_take has added. The scales of
 * params must have the shape that was given to osh_tune_take. */
osh_status osh_tune_codes_of(osh_ctx *cx, const osh_tune *t, int weight, int8_t *codes,
                             osh_qparams *params);
/* Sets *out to a copy of the tuned weight of a norm in host memory (own). Sets *out to NULL if the
 * weight does not belong to a norm. */
osh_status osh_tune_norm_of(osh_ctx *cx, osh_tensor **out, const osh_tune *t, int weight);

/* Sets wants[w] to true for each weight w of a norm. */
void osh_tune_norms(bool *wants, const osh_graph *g);
bool osh_tune_can(const osh_q_args *q); // true if codes with these arguments can be tuned
/* The last rows of the data `d` are used for validation. Returns the number of these rows, or 0 if
 * d has too few rows for tuning. */
int64_t osh_tune_held(const osh_dataset *d);
/* True if the loss of the validation rows counts at least one prediction. */
bool osh_tune_can_judge(const osh_dataset *d);
/* Checks that the model can be tuned. Fails with OSH_E_UNSUPPORTED and the name of a module whose
 * op has no gradient. linear [weights]: true for the weights that the caller will pass to
 * osh_tune_take. on_device: as in osh_tune_model. */
osh_status osh_tune_check(osh_ctx *cx, const osh_graph *g, const bool *linear, bool on_device);
typedef struct osh_tune_memory { // upper bounds of bytes, with the allocator's overhead
    /* Host memory.
     * kept: bytes that are allocated from osh_tune_new to osh_tune_free.
     * row: bytes that are allocated in addition while a row is run.
     * copy: bytes of copies of one weight; 0 without a device. osh_tune_take, osh_tune_codes_of and
     * osh_tune_norm_of need them in addition to `kept`. */
    size_t kept, row, copy;
    /* The arena of a device; 0 without a device. The members have the same meaning. */
    size_t device_kept, device_row;
} osh_tune_memory;
/* Computes the memory of tuning. n_scales [weights]: for each weight that the caller will pass to
 * osh_tune_take, the number of its scales; 0 for other weights. */
osh_status osh_tune_bytes(osh_ctx *cx, osh_tune_memory *memory, const osh_tune_model *m,
                          const int64_t *n_scales);
#endif
