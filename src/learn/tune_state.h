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
    /* own: memory of all float arrays of `c` (Linear) or of `n` (norm), on the device if there is
     * one */
    float *room;
    int8_t *zero;      // own: zero points of `c`, on the device if there is one
    int8_t *start;     // own: codes before tuning, in host memory
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
    osh_tensor **hidden; // own [rows]: hidden values of the original model, in host memory
    osh_device *device;  // view: device on which the model is tuned; NULL: the host
    /* own: memory on the device for the hidden values of one row; NULL: there is no device */
    osh_tensor *teacher;
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
/* Makes a copy of x in host memory. The caller owns *out. (The functions from here to osh_tune_here
 * are in tune_take.c.) */
osh_status osh_tune_fetch(osh_ctx *cx, osh_tensor **out, const osh_tensor *x);
/* Makes the learner of the weight of a norm. offset: osh_tune_norm.offset. Does nothing if the
 * learner exists already: an earlier node may have the same weight. */
osh_status osh_tune_take_norm(osh_ctx *cx, osh_tune *t, int weight, float offset);
void osh_tune_learner_deinit(osh_ctx *cx, osh_device *d, osh_tune_learner *l);
/* Adds the bytes of the arrays of a learner to the memory of tuning. n_scales: 0 for a norm.
 * Returns the number of bytes of a copy of the learner's values (osh_tune_here) in host memory. */
size_t osh_tune_learner_count(osh_tune_memory *m, const osh_weight *w, int64_t n_scales,
                              bool on_device);
/* Copies to host memory the values v, s0 and d, which decide the codes and scales of a Linear. Sets
 * *c to these values. If they are in host memory already, they are not copied, and *own becomes
 * NULL. Otherwise the caller frees *own. */
osh_status osh_tune_here(osh_ctx *cx, osh_tune_codes *c, float **own, const osh_tune_learner *l);
/* Sets m->row, and m->device_row with a device, to the largest number of bytes that are allocated
 * at a time while a row of n_tokens tokens is run. The peak is in the forward pass (with all
 * values), in the KL divergence and its gradient, or in the backward pass. */
osh_status osh_tune_row_bytes(osh_ctx *cx, osh_tune_memory *m, const osh_tune_model *of,
                              const bool *wants, int64_t n_tokens);
#endif
