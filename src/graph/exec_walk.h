/* exec_walk.h - the order of a run of nodes: which values come, are told of and go, and when. exec.c does what the walk
 * says, exec_peak.c counts it, so that what is predicted is what is done.
 *
 *   q = linear(a); k = linear(a); s = attention(q, k)
 *   brought a: told   node q: made, told   node k: made, told, a goes   node s: made, told, q and k go */
#ifndef OSH_EXEC_WALK_H
#define OSH_EXEC_WALK_H
#include "graph/exec.h"

typedef struct osh_walk osh_walk;
typedef struct osh_walk_acts {
    int (*brought)(const osh_walk *w, int from); // the first value >= from that is there at the start; of.v1: none
    osh_status (*told)(osh_ctx *cx, osh_walk *w, int value); // it is there and about to be used
    osh_status (*made)(osh_ctx *cx, osh_walk *w, int value); // for the whole batch, before samples fill it
    osh_status (*node)(osh_ctx *cx, osh_walk *w, int node);  // its outputs are made, it runs
    /* Two linears and the glu of both run as one, whose output is made. *done false: they are to run one by one. */
    osh_status (*gated)(osh_ctx *cx, osh_walk *w, int first, bool *done);
    osh_status (*lanes)(osh_ctx *cx, osh_walk *w, int first, int end); // samples run it: osh_walk_lane for each
    void (*gone)(osh_ctx *cx, osh_walk *w, int value);       // nobody reads it from here on; it need not be there
    osh_status (*over)(osh_ctx *cx, osh_walk *w);            // all have run; NULL: nothing is done
    /* On a device: the rows of each expert, by a router's output; what was there before goes. -1: nobody wants them. */
    osh_status (*routes)(osh_ctx *cx, osh_walk *w, int route);
    osh_status (*mixture)(osh_ctx *cx, osh_walk *w, int first, int end); // the sum behind its last expert is made
} osh_walk_acts;

struct osh_walk {
    const osh_walk_acts *acts;
    void *user;        // view: of the acts
    osh_exec_span s;   // `of` is given
    bool by_sample;    // nodes run sample by sample where they may
    const bool *seen;  // view, as in the hooks
    bool *outer;       // view [values]: by sample: made by nodes that run so, for who comes later; at first none
    bool tells;        // those who make values tell of them
    bool on_device;    // nothing lies in the place of an input; what was brought stays until all have run
    bool lane;         // of one sample: what s.keep has is there for the whole batch
    int route;         // on a device: whose rows are known; -1: nobody's
    int *last;         // own [values of these] the last node of this run that reads it; -1: none
};
/* acts, user, s, by_sample, seen and outer are given. */
osh_status osh_walk_run(osh_ctx *cx, osh_walk *w);
/* One sample's way through [first, end) of a walk; user: of its acts. */
osh_status osh_walk_lane(osh_ctx *cx, const osh_walk *w, int first, int end, void *user);
static inline bool osh_walk_runs(const osh_walk *w, int node) { return !w->s.run || w->s.run[node - w->s.first]; }
/* The node runs on the rows alone that go to its expert. */
bool osh_walk_is_routed(const osh_walk *w, int node);
/* Nodes [first, first + OSH_GATED_NODES) of the walk run as one. */
enum { OSH_GATED_NODES = 3, OSH_GATED_GLU = 2 };
bool osh_walk_is_gated(const osh_walk *w, int first);
/* Where output [k] of a node lies: in a sample's rows of what is there for the batch; in the place of input [0], which
 * this walk made and nothing else reads from here on (what the caller brought may be lent, and others read it later);
 * or in memory of its own. */
typedef enum { OSH_OUT_OF_BATCH, OSH_OUT_OF_INPUT, OSH_OUT_NEW } osh_out;
osh_out osh_walk_out(const osh_walk *w, int node, int k);
#endif
