/* exec_walk.h - defines the order of a run of nodes: when values are made, when the hook is called
 * for them, and when they are freed. exec.c runs the nodes and exec_peak.c counts bytes in this
 * order, so a prediction agrees with the run.
 *
 *   q = linear(a); k = linear(a); s = attention(q, k)
 *   brought a: told         node k: made, told, a goes
 *   node q: made, told      node s: made, told, q and k go */
#ifndef OSH_EXEC_WALK_H
#define OSH_EXEC_WALK_H
#include "graph/exec.h"

typedef struct osh_walk osh_walk;
typedef struct osh_walk_acts {
    /* Returns the first value >= `from` that exists before the first node, or s.of.v1 if there is
     * none. */
    int (*brought)(const osh_walk *w, int from);
    /* Calls the hook: the value exists and is about to be used. */
    osh_status (*told)(osh_ctx *cx, osh_walk *w, int value);
    /* Makes the value for the whole batch, before samples fill it. */
    osh_status (*made)(osh_ctx *cx, osh_walk *w, int value);
    osh_status (*node)(osh_ctx *cx, osh_walk *w, int node);  // makes the outputs of the node and
                                                             // runs it
    /* Runs two linears and their glu as one and makes the output. *done false: the nodes must run
     * one by one. */
    osh_status (*gated)(osh_ctx *cx, osh_walk *w, int first, bool *done);
    /* Runs the samples: osh_walk_lane for each. */
    osh_status (*lanes)(osh_ctx *cx, osh_walk *w, int first, int end);
    /* Frees the value, which no later node reads. It may not exist. */
    void (*gone)(osh_ctx *cx, osh_walk *w, int value);
    osh_status (*over)(osh_ctx *cx, osh_walk *w); // called after all nodes have run; NULL: nothing
                                                  // to do
    /* On a device: lists the rows of each expert from the output `route` of a router. First frees
     * the previous lists. route -1: only frees. */
    osh_status (*routes)(osh_ctx *cx, osh_walk *w, int route);
    /* Runs all experts of a mixture at once and makes the sum of their outputs. */
    osh_status (*mixture)(osh_ctx *cx, osh_walk *w, int first, int end);
} osh_walk_acts;

struct osh_walk {
    const osh_walk_acts *acts;
    void *user;        // view: for the callbacks
    osh_exec_span s;   // the caller sets `of`
    bool by_sample;    // nodes may run sample by sample
    const bool *seen;  // view: see osh_exec_hooks
    /* view [values]: true if nodes that run by sample make the value and later nodes read it; all
     * false at first. */
    bool *outer;
    bool tells;        // nodes call the hook for the values that they make
    bool on_device;    // outputs do not reuse inputs, and brought values stay until all nodes have
                       // run
    bool lane;         // true for the walk of one sample: values in s.keep exist for the whole
                       // batch
    int route; // on a device: router output for which the rows of each expert are listed; -1: none
    int *last;         // own [values of s.of]: last node of the run that reads the value; -1: none
};
/* Walks the run. The caller sets acts, user, s, by_sample, seen and outer. */
osh_status osh_walk_run(osh_ctx *cx, osh_walk *w);
/* Walks nodes [first, end) for one sample. `user` is passed to the callbacks of this sample. */
osh_status osh_walk_lane(osh_ctx *cx, const osh_walk *w, int first, int end, void *user);
static inline bool osh_walk_runs(const osh_walk *w, int node)
{
    return !w->s.run || w->s.run[node - w->s.first];
}
/* True if the node runs only on the rows of its expert. */
bool osh_walk_is_routed(const osh_walk *w, int node);
/* True if the OSH_GATED_NODES nodes of the walk from `first` on run as one. */
enum { OSH_GATED_NODES = 3, OSH_GATED_GLU = 2 };
/* Returns which storage output k of a node gets. OF_BATCH: the rows of the sample in a value of the
 * whole batch. OF_INPUT: the tensor of input 0, if this walk made it and no later node reads it (a
 * value that the caller brought may be a view, or may be read later). NEW: a new tensor. */
typedef enum { OSH_OUT_OF_BATCH, OSH_OUT_OF_INPUT, OSH_OUT_NEW } osh_out;
osh_out osh_walk_out(const osh_walk *w, int node, int k);
#endif
