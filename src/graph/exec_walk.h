/* exec_walk.h - defines the order of events while nodes run. A value has three events: it is made,
 * the hook is called for it (it is told), and it is freed (it is gone). exec.c runs the nodes in
 * this order, and exec_peak.c counts bytes in this order. So the prediction agrees with the run.
 * For example, the caller passes in `a`, and the nodes are:
 *
 *   q = linear(a); k = linear(a); s = attention(q, k)
 *
 * Then the events are:
 *
 *   before the nodes   `a` is told
 *   node q             q is made, q is told
 *   node k             k is made, k is told, `a` is gone
 *   node s             s is made, s is told, q and k are gone */
#ifndef OSH_EXEC_WALK_H
#define OSH_EXEC_WALK_H
#include "graph/exec.h"

typedef struct osh_walk osh_walk;
typedef struct osh_walk_acts {
    /* The caller of osh_exec_run passed in some values. Returns the first of them with an index of
     * at least `from`, or s.of.v1 if there is none. */
    int (*brought)(const osh_walk *w, int from);
    /* Calls the hook for a value that exists and that nodes will read. */
    osh_status (*told)(osh_ctx *cx, osh_walk *w, int value);
    /* Allocates a value for the whole batch, before nodes fill it sample by sample. */
    osh_status (*made)(osh_ctx *cx, osh_walk *w, int value);
    /* Allocates the outputs of one node and runs the node. */
    osh_status (*node)(osh_ctx *cx, osh_walk *w, int node);
    /* Runs two Linears and their glu as one kernel, which makes only the output of the glu. first:
     * index of the first Linear. Sets *done to false if the nodes must run one by one. */
    osh_status (*gated)(osh_ctx *cx, osh_walk *w, int first, bool *done);
    /* Runs the nodes [first, end) sample by sample. Calls osh_walk_lane for each sample. */
    osh_status (*lanes)(osh_ctx *cx, osh_walk *w, int first, int end);
    /* Frees a value that no later node reads. Does nothing if the value does not exist. */
    void (*gone)(osh_ctx *cx, osh_walk *w, int value);
    /* Finishes the run after all nodes have run. May be NULL. */
    osh_status (*over)(osh_ctx *cx, osh_walk *w);
    /* On a device, frees the lists of the rows of each expert. Then makes new lists from the
     * router's output. route: index of this output value; -1: make no new lists. */
    osh_status (*routes)(osh_ctx *cx, osh_walk *w, int route);
    /* Runs the experts of the nodes [first, end) together, and makes only the sum of their
     * outputs. */
    osh_status (*mixture)(osh_ctx *cx, osh_walk *w, int first, int end);
    /* The nodes [first, end) are several experts. On a device, computes the activations of all of
     * them together. Calls the hook for the input and for the activations of each expert. */
    osh_status (*observed)(osh_ctx *cx, osh_walk *w, int first, int end);
} osh_walk_acts;

struct osh_walk {
    const osh_walk_acts *acts;
    void *user;        // view: data for the callbacks
    osh_exec_span s;   // nodes to run; the caller also sets s.of
    bool by_sample;    // true if nodes may run sample by sample
    const bool *seen;  // view: as in osh_exec_hooks
    /* [values] True for values that are made sample by sample and that later nodes read. Before the
     * run, all entries are false. */
    bool *outer;       // view
    bool tells;        // true if finish_node may call the hook for outputs of nodes
    /* True if the nodes run on a device. Then outputs do not reuse the memory of inputs, and the
     * values that the caller passed in exist until all nodes have run. */
    bool on_device;
    /* True if the walk runs one sample. The values v for which s.keep[v] is true then exist for the
     * whole batch. */
    bool lane;
    int route; // on a device: router output whose lists of rows exist; -1: none
    int *last;         // own [values of s.of]: last node of the walk that reads the value; -1: none
};
/* Walks over the nodes of w->s that must run, and calls the callbacks. The caller must set the
 * members acts, user, s, by_sample, seen and outer. */
osh_status osh_walk_run(osh_ctx *cx, osh_walk *w);
/* Walks over the nodes [first, end) for one sample. user: data for the callbacks of this sample. */
osh_status osh_walk_lane(osh_ctx *cx, const osh_walk *w, int first, int end, void *user);
static inline bool osh_walk_runs(const osh_walk *w, int node)
{
    return !w->s.run || w->s.run[node - w->s.first];
}
/* True if the node runs only on the rows of its expert (osh_exec_span.routed). */
bool osh_walk_is_routed(const osh_walk *w, int node);
/* If the node computes only the rows of an expert on a device, returns the node that selects the
 * expert (moe_combine or routed_rows). Otherwise returns -1. A routed_rows node and the nodes after
 * it compute only these rows if no later node and no hook reads other rows. The result does not
 * depend on which values are kept, so it does not depend on the budget. */
int osh_walk_rows_of(const osh_walk *w, int node);
bool osh_walk_keeps(const osh_walk *w, int v); // true if the value must exist after the last node
/* Three consecutive nodes that can run as one kernel: the Linears `gate` and `up`, and their glu at
 * offset OSH_GATED_GLU. */
enum { OSH_GATED_NODES = 3, OSH_GATED_GLU = 2 };
/* osh_walk_out returns the storage of output k of a node.
 * OF_BATCH: the rows of the sample in a value of the whole batch.
 * OF_INPUT: the tensor of input 0, if the walk made this tensor and no later node reads it. (A
 * tensor that the caller passed in may be a view, or may be read later.)
 * NEW: a new tensor. */
typedef enum { OSH_OUT_OF_BATCH, OSH_OUT_OF_INPUT, OSH_OUT_NEW } osh_out;
osh_out osh_walk_out(const osh_walk *w, int node, int k);
#endif
