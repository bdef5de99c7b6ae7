/* tune_state.h - declares the state of tuning, which tune.c and tune_steps.c share. A row is one
 * sample of the data. Hidden values are the inputs of the output head. */
#ifndef OSH_TUNE_STATE_H
#define OSH_TUNE_STATE_H
#include "learn/tune.h"

typedef enum { OSH_TUNE_FIXED, OSH_TUNE_LINEAR, OSH_TUNE_NORM } osh_tune_role;

typedef struct osh_tune_learner { // the learning state of one weight
    osh_tune_role role;
    osh_tune_codes c;
    osh_tune_norm n;
    float *room;       // own: memory of all float arrays of `c` (Linear) or of `n` (norm)
    int8_t *zero;      // own: zero points of `c`
    int8_t *start;     // own: codes before tuning
} osh_tune_learner;

struct osh_tune {
    const osh_graph *g;
    const osh_checkpoint *ck;
    const osh_dataset *data;
    osh_tune_rule rule;
    osh_weights *w;      // own
    osh_tune_learner *of; // own [weights]
    /* wants: own [weights], true for tuned weights.
     * in: own [values], osh_back.in; all elements are false. */
    bool *wants, *in;
    osh_tensor **hidden; // own [rows]: hidden values of the original model
    /* Weight and bias (NULL: none) of the output head. Both are equal in the original and the
     * quantized model. */
    osh_tensor *head, *head_bias; // views
    int64_t n_train;     // number of rows for learning; all other rows are for validation
    osh_tensor **dv;     // own [values]: gradients during a backward pass
};

/* Runs a row forward through the model, up to the output head. keep [values]: true for values that
 * remain in the batch *b. If `keep` is NULL, all values remain. (This function and the next one are
 * in tune_steps.c.) */
osh_status osh_tune_forward(osh_ctx *cx, osh_batch **b, osh_tune *t, int64_t row,
                            const bool *keep);
/* Sets *peak to the largest number of bytes that are allocated at a time while a row of n_tokens
 * tokens is run. The peak is in the forward pass (with all values), in the KL divergence and its
 * gradient, or in the backward pass. */
osh_status osh_tune_row_bytes(osh_ctx *cx, size_t *peak, const osh_graph *g, const bool *wants,
                              int64_t n_tokens);
#endif
