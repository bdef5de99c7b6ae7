/* exec_walk.h - defines the order in which nodes run: when values are made, when the hook is
 * called for a value (told), and when values are freed (gone). exec.c runs the nodes and
 * exec_peak.c counts bytes in this order, so a prediction agrees with the run.
 *
 *   q = linear(a); k = linear(a); s = attention(q, k)
 *   brought a: told         node k: made, told, a gone
 *   node q: made, told      node s: made, told, q and k gone */
#ifndef OSH_EXEC_WALK_H
#define OSH_EXEC_WALK_H
#include "graph/exec.h"

typedef struct osh_walk osh_walk;
typedef struct osh_walk_acts {
    /* Returns the first value >= `from` that exists before the first node, or s.of.v1 if there is
     * none. */
    int (*brought)(const osh_walk *w, int from);
    /* Calls the hook for a value that exists and will be read next. */
    osh_status (*told)(osh_ctx *cx, osh_walk *w, int value);
    /* Allocates the value for the whole batch, before nodes fill it sample by sample. */
    osh_status (*made)(osh_ctx *cx, osh_walk *w, int value);
    osh_status (*node)(osh_ctx *cx, osh_walk *w, int node);  // allocates the outputs of the node
                                                             // and runs the node
    /* Runs two linear nodes and their glu as one kernel and makes the output of the glu. *done is
     * false if the nodes must run one by one. */
    osh_status (*gated)(osh_ctx *cx, osh_walk *w, int first, bool *done);
    /* Runs nodes [first, end) sample by sample, with osh_walk_lane for each sample. */
    osh_status (*lanes)(osh_ctx *cx, osh_walk *w, int first, int end);
    /* Frees a value that no later node reads. Does nothing if the value does not exist. */
    void (*gone)(osh_ctx *cx, osh_walk *w, int value);
    osh_status (*over)(osh_ctx *cx, osh_walk *w); // called after all nodes have run; NULL: nothing
                                                  // to do
    /* On a device, lists the rows of each expert from the value `route`, the output of a router.
     * First frees the previous lists. If `route` is -1, only frees the lists. */
    osh_status (*routes)(osh_ctx *cx, osh_walk *w, int route);
    /* Runs the experts of nodes [first, end) at once and makes the sum of their outputs. */
    osh_status (*mixture)(osh_ctx *cx, osh_walk *w, int first, int end);
} osh_walk_acts;

struct osh_walk {
    const osh_walk_acts *acts;
    void *user;        // view: data for the callbacks
    osh_exec_span s;   // nodes to run; the caller also sets s.of
    bool by_sample;    // true if nodes may run sample by sample
    const bool *seen;  // view: as in osh_exec_hooks
    /* view [values]: true if nodes that run sample by sample make the value and later nodes read
     * it. All are false before the run. */
    bool *outer;
    bool tells;        // true if the hook is called for the outputs of nodes
    bool on_device;    // true if outputs do not reuse the memory of inputs, and brought values
                       // exist until all nodes have run
    bool lane;         // true if the walk is for one sample, and the values in s.keep exist for the
                       // whole batch
    int route; // on a device: router output for which the rows of each expert are listed; -1: none
    int *last;         // own [values of s.of]: last node that runs and reads the value; -1: none
};
/* Walks over the nodes of w->s that run, and calls the callbacks. The caller sets acts, user, s,
 * by_sample, seen and outer. */
osh_status osh_walk_run(osh_ctx *cx, osh_walk *w);
/* Walks nodes [first, end) for one sample. `user` is passed to the callbacks of this sample. */
osh_status osh_walk_lane(osh_ctx *cx, const osh_walk *w, int first, int end, void *user);
static inline bool osh_walk_runs(const osh_walk *w, int node)
{
    return !w->s.run || w->s.run[node - w->s.first];
}
/* True if the node runs only on the rows of its expert. */
bool osh_walk_is_routed(const osh_walk *w, int node);
/* Numbers for nodes that run as one kernel: two Linears, and the glu at first + OSH_GATED_GLU. */
enum { OSH_GATED_NODES = 3, OSH_GATED_GLU = 2 };
/* Returns the storage of output k of a node. OF_BATCH is the rows of the sample in a value of the
 * whole batch. OF_INPUT is the tensor of input 0, if the walk made this tensor and no later node
 * reads it. (A value that the caller brought may be a view, or may be read later.) NEW is a new
 * tensor. */
typedef enum { OSH_OUT_OF_BATCH, OSH_OUT_OF_INPUT, OSH_OUT_NEW } osh_out;
osh_out osh_walk_out(const osh_walk *w, int node, int k);
#endif
