/* routed.h - lets an expert run only on the rows that the router sends to it. On a device,
 * consecutive experts of a layer run at once; this file calls them a mixture.
 *
 *   route [N, E]    expert 5 has weights in rows 3 and 8
 *   gate, up, glu and down run on rows 3 and 8; moe_combine reads only these rows of down */
#ifndef OSH_ROUTED_H
#define OSH_ROUTED_H
#include "graph/graph.h"

/* Returns the moe_combine node that reads the node's output, directly or through nodes that work
 * row by row. -1: there is none, or other nodes also read the output. */
int osh_routed_to(const osh_graph *g, int node);

/* Sets routed [n] to true for the nodes of [first, first + n) that need to run only on the rows of
 * their expert. These are the nodes that run together with their moe_combine (osh_routed_to). */
void osh_routed_choose(bool *routed, const osh_graph *g, int first, int n, const bool *run);

/* osh_mixture_end returns the end of the mixture that begins at `first`, at most `end`, or `first`
 * if no mixture begins there. The nodes of a mixture are, for each expert in order: gate, up, glu,
 * down, and combine, which adds the expert's output to the sum of the previous experts. */
enum { OSH_EXPERT_GATE, OSH_EXPERT_UP, OSH_EXPERT_GLU, OSH_EXPERT_DOWN, OSH_EXPERT_COMBINE,
       OSH_EXPERT_NODES };
int osh_mixture_end(const osh_graph *g, int first, int end);

typedef struct osh_expert_rows { // rows of an expert in a batch
    int combine;      // index of the expert's moe_combine node
    int32_t *rows;    // own [n]: indices of the rows in the batch, ascending
    int64_t n;
    int64_t *offsets; // own [samples + 1]: offsets of each sample's rows in `rows`
    osh_seqs seqs;    // view of offsets
    int value[OSH_OP_MAX_IN]; // for input k of a node: index of the value whose rows are in x[k]
    osh_tensor *x[OSH_OP_MAX_IN]; // own: [n, width] gathered rows; NULL: not gathered
} osh_expert_rows;
/* Lists the rows of the expert. `route` [N, E] has the weights of E experts for the N tokens of the
 * batch. First frees the lists in *r; the caller initializes *r to {0}. */
osh_status osh_routed_begin(osh_ctx *cx, osh_expert_rows *r, const osh_graph *g, int combine,
                            const osh_tensor *route, const osh_seqs *seqs);
void osh_routed_deinit(osh_ctx *cx, osh_expert_rows *r);
/* Copies the rows r->rows of x to r->x[k]. */
osh_status osh_routed_gather(osh_ctx *cx, osh_expert_rows *r, int k, int value,
                             const osh_tensor *x);
void osh_routed_scatter(const osh_expert_rows *r, osh_tensor *to, const osh_tensor *rows);
/* Returns an upper bound of the bytes (with the allocator's overhead) that a node of an expert
 * needs besides its inputs and outputs, for a batch of n_tokens tokens. */
size_t osh_routed_bytes(const osh_graph *g, int node, int64_t n_tokens);
#endif
