/* steps.h - a list of the steps of a visit (the work on one subgraph), in the order in which the
 * run executes them. visit.h makes the list. Three users read the list: the run, the count of
 * memory, and the count of operations. */
#ifndef OSH_STEPS_H
#define OSH_STEPS_H
#include "schedule/range.h"

typedef enum osh_step_kind {
    OSH_STEP_OPEN,      // begin the statistics of the inputs in `values`
    OSH_STEP_LOAD,      // load the weights that osh_step_wants marks
    OSH_STEP_PASS,      // run nodes for all batches
    OSH_STEP_SOLVE,     // solve the Linears whose statistics were begun, and end these statistics
    /* Replace the weights of solved Linears in nodes [first, first + n) by their quantized weights
     * from the output. */
    OSH_STEP_RELOAD,
    OSH_STEP_RELEASE,   // free the weights of nodes [first, first + n)
    OSH_STEP_DROP,      // remove all values from the activation store except `values`
    OSH_STEP_FOLD_OPEN, // begin the statistics for the factors of folds in the range
    OSH_STEP_FOLD,      // compute the factors, fold them into the weights, end their statistics
    OSH_N_STEP_KINDS
} osh_step_kind;

/* A step. Its arrays are views. Arrays of values have an entry for each value of the graph. Arrays
 * of nodes have an entry for each of the nodes [first, first + n). */
typedef struct osh_step {
    osh_step_kind kind;
    int first, n;
    const bool *run;     // [nodes] true for nodes that run; NULL: no node runs
    /* [values] true for values that the step reads from the store, and for the token ids */
    const bool *in;
    const bool *out;     // [values] true for values that the step writes to the store
    /* [values] True for values of `in` whose rows the store may free after a batch has read
     * them. */
    const bool *consume;
    /* [values] For OPEN and DROP: see osh_step_kind. For LOAD: the inputs of Linears whose weights
     * are loaded, in addition to the weights of nodes that run. NULL: none. */
    const bool *values;
    bool observe;        // true if the step adds its values to the statistics
    /* True if the step runs only for the first look of two-pass observers (looks.h). */
    bool first_look;
    bool again; // true if the step belongs to the second pass over the range, with solved weights
    /* True if the step belongs to the pass that collects statistics for the factors of folds. */
    bool fold;
    bool keep;           // for SOLVE: true if the weights in memory stay unchanged
    /* [nodes] true for nodes that run only on the rows of their expert (graph/routed.h); NULL:
     * none. */
    const bool *routed;
} osh_step;

typedef struct osh_steps osh_steps;
osh_status osh_steps_new(osh_ctx *cx, osh_steps **out, const osh_graph *g);
void osh_steps_free(osh_ctx *cx, osh_steps *s);
int osh_steps_n(const osh_steps *s);
/* Returns step k (view). The step and its arrays are valid until the next call of osh_steps_at for
 * this list. */
const osh_step *osh_steps_at(osh_steps *s, int k);
const osh_step *osh_steps_first(osh_steps *s, osh_step_kind kind); // returns NULL if not found
const osh_range *osh_steps_range(const osh_steps *s); // range of the visit (view)
size_t osh_steps_bytes(const osh_steps *s); // bytes of memory that the list occupies
const char *osh_step_name(osh_step_kind kind);

/* Only visit.c calls these two functions. osh_steps_begin empties the list for a visit with range
 * r. osh_steps_add appends a copy of the step. It copies only those entries of the step's arrays
 * that belong to the range. */
void osh_steps_begin(osh_steps *s, const osh_range *r);
osh_status osh_steps_add(osh_ctx *cx, osh_steps *s, const osh_step *step);
/* Arrays that all visits share, because each has an entry for every value of the graph.
 * osh_steps_list and osh_steps_numbers return them as views to the caller that makes a list of
 * steps.
 * After osh_steps_begin, all bools are false and all numbers are -1. The caller must restore these
 * values. osh_steps_at uses the first N_SETS arrays of bools, too. */
enum { OSH_STEP_LISTS = 10 };
bool *osh_steps_list(osh_steps *s, int k); // k: 0 to OSH_STEP_LISTS - 1
int *osh_steps_numbers(osh_steps *s);

/* Sets want[w] to true for each weight w that a step loads: the weights of nodes that run. If
 * step->values is set, also the weights of the Linears to be solved that read one of these
 * values. */
void osh_step_wants(bool *want, const osh_schedule *p, const osh_range *r, const osh_step *step);
#endif
