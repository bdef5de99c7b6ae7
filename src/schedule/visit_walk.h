/* visit_walk.h - declares the state while the list of the steps of a visit is made. visit.c and
 * visit_walk.c share it. */
#ifndef OSH_VISIT_WALK_H
#define OSH_VISIT_WALK_H
#include "rewrite/passthrough.h"
#include "schedule/visit.h"

typedef struct osh_visit_walk {
    const osh_schedule *p;
    const osh_graph *g;
    const osh_visit_state *done;
    osh_steps *to; // view: the list of steps that is made
    osh_range r;
    bool plain;   // true if the second pass over the range also uses the original weights
    /* True if the first pass also computes the outputs of the original model, so that the pass with
     * solved weights need not compute them. */
    bool carries;
    bool *run;    // own [r.n_nodes]: true for nodes that run in the current step
    /* True for nodes that run only on the rows of their expert. Used for the pass with solved
     * weights. */
    bool *routed; // own [r.n_nodes]
    /* [graph values] Index of the node of the first Linear that needs statistics of the value; -1:
     * none. */
    int *wanted;
    int *last; // own [r.v1 - r.v0]: index of the last node that runs and reads the value; -1: none
    /* Each of these arrays has an entry for each value of the graph.
     * want: true if the pass computes the value.
     * stats: true if statistics of the value are collected.
     * shift: true if the value is compared with its counterpart in the original model.
     * keep: true if the activation store keeps the value.
     * in, out, consume: as in osh_step. */
    bool *want, *stats, *shift, *in, *out, *consume, *keep;
    /* [graph values] True for values at which two-pass observers take their first look. */
    bool *look;
    bool *target; // [graph values] true for targets of the block (blocks.h)
    /* [graph values] true for values of the original model that are mixed with inputs of the
     * block */
    bool *mixed;
} osh_visit_walk;

osh_status osh_visit_init(osh_ctx *cx, osh_visit_walk *w);
/* Clears the shared lists for the next visit. Only entries of values of the range can be set, so
 * only these are cleared. */
void osh_visit_deinit(osh_ctx *cx, osh_visit_walk *w);

static inline bool osh_visit_is_original(const osh_visit_walk *w, int v)
{
    return w->g->values[v].quantized >= 0;
}

static inline int osh_visit_observed(const osh_visit_walk *w, int v)
{
    return osh_observed(w->g, w->r.same, v);
}

void osh_visit_clear(const osh_visit_walk *w, bool *values); // sets values of the range to false
bool osh_visit_has(const int *list, int n, int v); // true if the list of n numbers contains v
bool osh_visit_runs(const osh_visit_walk *w, int node); // node: index in the graph
/* If a GPU computes value v only for the rows that are routed to its expert, returns the router's
 * output that lists these rows. Otherwise returns -1. */
int osh_visit_route_of(const osh_visit_walk *w, int v);

/* Sets w->run to the nodes that compute the values in w->want. */
void osh_visit_choose_nodes(osh_visit_walk *w);
/* Sets w->last of each value to the last node that runs and reads the value. Must be called after
 * osh_visit_choose_nodes, which chooses the nodes that run. */
void osh_visit_find_last(osh_visit_walk *w);
/* True if a node of the range reads v. The node must run, and must not be before node `first`. */
bool osh_visit_reads_from(const osh_visit_walk *w, int first, int v);
/* Sets values[v] to true for each value v that must be observed for the statistics in `stats`. */
void osh_visit_add_observed(const osh_visit_walk *w, bool *values, const bool *stats);
/* Sets w->want for the outputs of all routers of the range, because a run counts the tokens of each
 * expert (run/coverage.h) while it collects statistics. */
void osh_visit_want_routes(osh_visit_walk *w);

/* Tells for which model a pass computes the outputs of a subgraph. OSH_VISIT_BOTH: the original and
 * the quantized model have the same outputs, or one pass computes the outputs of both. */
typedef enum { OSH_VISIT_BOTH, OSH_VISIT_ORIGINAL, OSH_VISIT_QUANTIZED } osh_visit_model;
/* Sets w->want for those outputs of the subgraph that belong to the model `which`. */
void osh_visit_want_live_out(osh_visit_walk *w, osh_visit_model which);

/* Returns a step with nodes [first, first + n). Sets w->in, the inputs of the step. They are the
 * values that the nodes and the statistics of the step need, and that are made outside of the
 * step. */
osh_step osh_visit_make_step(osh_visit_walk *w, int first, int n, const bool *stats);
/* For the pass with solved weights: chooses the nodes that run only on the rows that are routed to
 * their expert. A node is chosen only if all nodes that read its output belong to the same expert,
 * and if the node `moe_combine` of the expert, which comes last, runs, too. */
void osh_visit_choose_routed(osh_visit_walk *w);
/* Sets s->routed for the nodes that osh_visit_choose_routed chose. These nodes also read the output
 * of the router, which selects their rows. So this output is added to the inputs of the step. */
void osh_visit_take_routed(osh_visit_walk *w, osh_step *s);

/* Appends a step of kind `kind` to the list. */
osh_status osh_visit_add(osh_ctx *cx, osh_visit_walk *w, osh_step_kind kind, const osh_step *s,
                         const bool *values);
/* Appends a step of kind `kind` for nodes [first, first + n), without values. */
osh_status osh_visit_add_nodes(osh_ctx *cx, osh_visit_walk *w, osh_step_kind kind, int first,
                               int n);
/* True if an earlier run has solved each Linear of the range that reads one of `values`. NULL
 * stands for all values. */
bool osh_visit_solved(const osh_visit_walk *w, const bool *values);
#endif
