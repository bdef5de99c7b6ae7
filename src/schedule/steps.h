/* steps.h - a list of the steps of a visit, in the order in which the run executes them. visit.h
 * makes the list. The run, the count of bytes and the count of operations read the list. */
#ifndef OSH_STEPS_H
#define OSH_STEPS_H
#include "schedule/range.h"

typedef enum osh_step_kind {
    OSH_STEP_OPEN,      // begin the statistics of the inputs in `values`
    OSH_STEP_LOAD,      // load the weights that osh_step_wants marks
    OSH_STEP_PASS,      // run nodes for all batches
    OSH_STEP_SOLVE,     // solve the Linears whose statistics are open, and end these statistics
    /* Replace the weights of solved Linears in nodes [first, first + n) by the quantized weights of
     * the output. */
    OSH_STEP_RELOAD,
    OSH_STEP_RELEASE,   // free the weights of nodes [first, first + n)
    OSH_STEP_DROP,      // remove all values from the store that are not in `values`
    OSH_STEP_FOLD_OPEN, // begin the statistics for the factors of the range
    OSH_STEP_FOLD,      // compute the factors, fold them into the weights, end the statistics
    OSH_N_STEP_KINDS
} osh_step_kind;

/* Arrays are views, and have an entry for each value of the graph, or for each node [first, first +
 * n) */
typedef struct osh_step {
    osh_step_kind kind;
    int first, n;
    const bool *run;     // [nodes] true for nodes that run; NULL for kinds that run none
    const bool *in; // true for values that the step reads from the store, and for the token ids
    const bool *out;     // true for values that the step writes to the store
    /* True for values of `in` whose rows the store may free after the batch has read them. */
    const bool *consume;
    /* A set of values, for the kinds of steps that mention it. LOAD: inputs of the Linears whose
     * weights are loaded; NULL: none. */
    const bool *values;
    bool observe;        // true if values of the step are added to the statistics
    /* True if only two-pass observers (looks.h) get the values of the step, for their first
     * pass. */
    bool first_look;
    bool again;          // true if the step belongs to the second pass, with the solved weights
    /* True if the step belongs to the pass that collects statistics for the factors of folds. */
    bool fold;
    bool keep;           // SOLVE: true if the weights in memory must stay unchanged
    /* [nodes] true for nodes that run only on the rows routed to their expert (graph/routed.h);
     * NULL: none. */
    const bool *routed;
} osh_step;

typedef struct osh_steps osh_steps;
osh_status osh_steps_new(osh_ctx *cx, osh_steps **out, const osh_graph *g);
void osh_steps_free(osh_ctx *cx, osh_steps *s);
int osh_steps_n(const osh_steps *s);
/* Returns step k (view). The step and its arrays stay valid until the next call for this list. */
const osh_step *osh_steps_at(osh_steps *s, int k);
const osh_step *osh_steps_first(osh_steps *s, osh_step_kind kind); // NULL: there is none
const osh_range *osh_steps_range(const osh_steps *s); // range of the visit (view)
size_t osh_steps_bytes(const osh_steps *s); // bytes of the list; grows with the longest visit
const char *osh_step_name(osh_step_kind kind);

/* For visit.c. begin: empties the list for a visit with range r. add: appends a copy of the step;
 * of its arrays, only entries inside of the range are copied. */
void osh_steps_begin(osh_steps *s, const osh_range *r);
osh_status osh_steps_add(osh_ctx *cx, osh_steps *s, const osh_step *step);
/* Arrays for the caller that makes a list of steps (views): lists of bools and one list of numbers.
 * Each has an entry for every value of the graph, so they are long, and all visits share them.
 * After osh_steps_begin the lists are all false and the numbers all -1. The caller must set them
 * back to these values. osh_steps_at uses the first lists, too. */
enum { OSH_STEP_LISTS = 10 };
bool *osh_steps_list(osh_steps *s, int k); // k: 0 to OSH_STEP_LISTS - 1
int *osh_steps_numbers(osh_steps *s);

/* Sets want[w] to true for the weights that a step loads: weights of nodes that run, and, if
 * step->values is set, weights of the Linears to be solved that read one of these values. */
void osh_step_wants(bool *want, const osh_schedule *p, const osh_range *r, const osh_step *step);
#endif
