/* routed.h - lets an expert run only on the rows that the router sends to it. On a device,
 * consecutive experts of a layer run at once. They are called a mixture.
 *
 *   route [N, E]    expert 5 has weights in rows 3 and 8
 *   gate, up, glu and down run on rows 3 and 8; moe_combine reads only these rows of down */
#ifndef OSH_ROUTED_H
#define OSH_ROUTED_H
#include "graph/graph.h"

/* Returns the moe_combine node that reads the node's output, directly or through nodes that work
 * row by row. Returns -1 if there is none, or if other nodes also read the output. */
int osh_routed_to(const osh_graph *g, int node);

/* Returns the routed_rows node whose output is the value, or from whose output the value is
 * computed row by row. Returns -1 if there is none. A Linear with a bias ends such a chain, because
 * the bias makes zero rows non-zero. */
int osh_routed_from(const osh_graph *g, int value);

/* Returns the router's output, from which the moe_combine or routed_rows node `from` takes the rows
 * of its expert. */
int osh_routed_route(const osh_graph *g, int from);

/* Sets routed[i] to true for each node first + i that can run on only the rows of its expert. Such
 * a node has a moe_combine node (osh_routed_to) that runs, too. routed [n]: for the nodes [first,
 * first + n). */
void osh_routed_choose(bool *routed, const osh_graph *g, int first, int n, const bool *run);

/* osh_mixture_end returns the end of the mixture that begins at node `first`. The result is at most
 * `end`. It is `first` if no mixture begins there. A mixture has five nodes for each expert: gate,
 * up, glu, down, and combine. The node combine adds the expert's output to the sum of the previous
 * experts. If the graph has routed_rows nodes, each expert has such a node before these five. The
 * mixture then reads the input of this node. */
enum { OSH_EXPERT_GATE, OSH_EXPERT_UP, OSH_EXPERT_GLU, OSH_EXPERT_DOWN, OSH_EXPERT_COMBINE,
       OSH_EXPERT_NODES };
/* Returns the gate of the expert that begins at node `first`: first, or first + 1 if node `first`
 * is a routed_rows node. */
int osh_expert_first(const osh_graph *g, int first);
int osh_mixture_end(const osh_graph *g, int first, int end);

typedef struct osh_expert_rows { // the rows of a batch that are routed to an expert
    int combine;      // index of the expert's moe_combine node
    int32_t *rows;    // own [n]: indices of the rows in the batch, ascending
    int64_t n;
    int64_t *offsets; // own [samples + 1]: index in `rows` of each sample's first row
    osh_seqs seqs;    // view of offsets
    /* value[k]: index of the value whose rows x[k] has; k: input of a node */
    int value[OSH_OP_MAX_IN];
    osh_tensor *x[OSH_OP_MAX_IN]; // own: [n, width] gathered rows; NULL: not gathered
} osh_expert_rows;
/* Lists the rows of an expert. route [N, E]: router weights of the N tokens of the batch for E
 * experts. First frees the lists in *r, so the caller must initialize *r to {0}. */
osh_status osh_routed_begin(osh_ctx *cx, osh_expert_rows *r, const osh_graph *g, int combine,
                            const osh_tensor *route, const osh_seqs *seqs);
void osh_routed_deinit(osh_ctx *cx, osh_expert_rows *r);
/* Copies the rows r->rows of x to r->x[k]. */
osh_status osh_routed_gather(osh_ctx *cx, osh_expert_rows *r, int k, int value,
                             const osh_tensor *x);
void osh_routed_scatter(const osh_expert_rows *r, osh_tensor *to, const osh_tensor *rows);
/* Returns an upper bound of the bytes that a node of an expert needs in addition to its inputs and
 * outputs, for a batch of n_tokens tokens. Includes the allocator's overhead. */
size_t osh_routed_bytes(const osh_graph *g, int node, int64_t n_tokens);
#endif
