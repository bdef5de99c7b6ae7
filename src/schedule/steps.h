/* steps.h - declares the list of the steps of a visit. A visit is the work on one subgraph. The run
 * executes the steps in the order of the list. visit.h makes the list. The run, the count of memory
 * and the count of operations read it. */
#ifndef OSH_STEPS_H
#define OSH_STEPS_H
#include "schedule/range.h"

typedef enum osh_step_kind {
    /* begin the statistics of the values in `values`: inputs of Linears, or values of which a
     * measurement collects statistics */
    OSH_STEP_OPEN,
    OSH_STEP_LOAD,      // load the weights that osh_step_wants marks
    OSH_STEP_PASS,      // run nodes for all batches
    /* Solve the Linears whose statistics were begun by OPEN, and end these statistics. A
     * measurement uses its statistics instead. */
    OSH_STEP_SOLVE,
    /* load the quantized weights of all solved Linears in nodes [first, first + n) from the output;
     * they replace the original weights in memory */
    OSH_STEP_RELOAD,
    OSH_STEP_RELEASE,   // free the weights of nodes [first, first + n)
    OSH_STEP_DROP,      // remove all values from the activation store except those in `values`
    /* begin the statistics from which the factors of the range's folds are computed */
    OSH_STEP_FOLD_OPEN,
    OSH_STEP_FOLD, // compute factors from these statistics, fold them into weights, end statistics
    OSH_N_STEP_KINDS
} osh_step_kind;

/* A step. Its arrays are views. [values] stands for an array with an entry for each value of the
 * graph, [nodes] for an array with an entry for each of the nodes [first, first + n). */
typedef struct osh_step {
    osh_step_kind kind;
    int first, n;
    const bool *run;     // [nodes] true for nodes that run; NULL: no node runs
    /* [values] true for values that the step reads from the activation store, and for the token
     * ids */
    const bool *in;
    const bool *out;     // [values] true for values that the step writes to the activation store
    /* [values] True for values of `in` that no later step reads. The store may free the rows of
     * such a value as soon as a batch has read them. */
    const bool *consume;
    /* [values] For OPEN and DROP: see osh_step_kind. For LOAD: inputs of Linears. The weights of
     * these Linears are loaded in addition to the weights of the nodes that run. NULL: no
     * values. */
    const bool *values;
    bool observe;        // true if statistics are collected from the values of the step
    /* True if the step serves only the first look of two-pass observers (looks.h). */
    bool first_look;
    /* true if the step belongs to the second pass over the range, which runs with solved weights */
    bool again;
    /* True if the step belongs to the fold pass, which collects statistics for the factors of
     * folds. */
    bool fold;
    bool keep;           // only for SOLVE: true if the weights in memory keep their old elements
    /* [nodes] true for nodes that run only on the rows of their expert (graph/routed.h); NULL:
     * there are none */
    const bool *routed;
} osh_step;

typedef struct osh_steps osh_steps;
osh_status osh_steps_new(osh_ctx *cx, osh_steps **out, const osh_graph *g);
void osh_steps_free(osh_ctx *cx, osh_steps *s);
int osh_steps_n(const osh_steps *s);
/* Returns step k of the list (view). The step and its arrays are valid until the next call of
 * osh_steps_at for this list. */
const osh_step *osh_steps_at(osh_steps *s, int k);
/* returns NULL if the list has no step of this kind */
const osh_step *osh_steps_first(osh_steps *s, osh_step_kind kind);
/* range of the visit whose steps are listed (view) */
const osh_range *osh_steps_range(const osh_steps *s);
size_t osh_steps_bytes(const osh_steps *s); // bytes of memory that the list occupies
const char *osh_step_name(osh_step_kind kind);

/* Only visit.c and visit_walk.c call the next two functions. osh_steps_begin empties the list for a
 * visit with range r. osh_steps_add appends a copy of the step. It copies only the entries of the
 * step's arrays that belong to the range. */
void osh_steps_begin(osh_steps *s, const osh_range *r);
osh_status osh_steps_add(osh_ctx *cx, osh_steps *s, const osh_step *step);
/* Working memory for the caller that makes a list of steps. osh_steps_list returns one of several
 * arrays of bools, and osh_steps_numbers returns an array of numbers. The arrays are views, and
 * have an entry for every value of the graph. All visits share these arrays.
 * After osh_steps_begin, all bools are false and all numbers are -1. The caller must restore this
 * state at the end. osh_steps_at also uses some of the arrays of bools. */
enum { OSH_STEP_LISTS = 10 };
bool *osh_steps_list(osh_steps *s, int k); // k: 0 to OSH_STEP_LISTS - 1
int *osh_steps_numbers(osh_steps *s);

/* Sets want[w] to true for each weight w that a step loads. These are the weights of nodes that
 * run. If step->values is not NULL, the step also loads weights of Linears: those that read one of
 * these values and that will be solved. */
void osh_step_wants(bool *want, const osh_schedule *p, const osh_range *r, const osh_step *step);
#endif
