/* learning.h - declares the state of the learning of a block. block.c learns, and block_bytes.c
 * checks the ops and computes the bytes. */
#ifndef OSH_LEARNING_H
#define OSH_LEARNING_H
#include "graph/back.h"
#include "learn/block.h"

/* Number of arrays in the memory of a bias: x, grad, mean, square, first and room. */
enum { OSH_BIAS_ARRAYS = 6 };

typedef struct osh_block_bias { // an optimized bias of a Linear, in f32
    /* One allocation has all arrays of v, then `first` and `room`; v.x (own) is the address of the
     * allocation. */
    osh_ada_vector v;
    float *first;     // view: the bias before learning
    float *room;      // view: scratch for the bias in its dtype, or for a gradient
} osh_block_bias;

typedef struct osh_learning {
    osh_block *b;
    /* State of the optimization of each bias. `biases` also owns v.x of each element. */
    osh_block_bias *biases;   // own [n_learns]
    /* State of the optimization of each weight. `of` also owns each learner. */
    osh_ada_learner **of; // own [n_learns]
    /* For each weight of the graph: its index in `of`, or for a bias its index in `biases`; -1: not
     * optimized. */
    int *which;           // own [weights]
    /* wants [weights]: true for optimized weights and biases.
     * none [values]: all elements are false. */
    bool *wants, *none; // own
    /* For each weight: true if the backward pass writes the gradient of the weight directly into
     * the memory of the learner. */
    bool *placed;         // own [weights]
    osh_tensor **dv;      // own [values]: gradients of values during a backward pass
    int64_t *order;       // own [samples]: order in which the samples are drawn
    /* next: index in `order` of the next sample to draw.
     * drawn: number of shuffles so far. */
    int64_t next, drawn;
    int32_t *ids;         // own: token ids of the current batch
    /* own: for each token of the current batch, 1 if the loss counts the token, else 0. */
    uint8_t *counted;
    int64_t *offsets;     // own [1 + samples of a step]: first token of each sample in `ids`
    /* Memory on the device.
     * target: the targets of a batch, or inputs of the original model.
     * sums: a sum for each row. */
    void *target;         // own
    double *sums;         // own
    uint8_t *counted_there; // own: copy of `counted` on the device; NULL: all tokens count
    bool judging;         // true while the loss is computed without gradients
    int64_t step;         // index of the current step, from 0
} osh_learning;

/* Makes the lists of *l that depend only on the graph and on the weights. The caller must call
 * osh_learning_end, even after a failure. */
osh_status osh_learning_lists_new(osh_ctx *cx, osh_learning *l);
void osh_learning_end(osh_ctx *cx, osh_learning *l);
/* Returns the arguments of the backward pass of a batch. */
osh_back osh_learning_back(const osh_learning *l);
/* Returns the largest number of tokens of a batch. */
int64_t osh_block_most_tokens(const osh_block *b);
/* Returns the number of bytes of a target of the largest batch, for the widest target. With
 * rule.share, the same memory holds inputs of the original model. */
size_t osh_block_target_bytes(const osh_block *b);
#endif
