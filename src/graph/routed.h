/* routed.h - lets an expert run only on the rows that the router sends to it. On a device,
 * consecutive experts of a layer run together; such experts are called a mixture.
 *
 * For example, if rows 3 and 8 of the router's output [N, E] have a weight for expert 5, the nodes
 * gate, up, glu and down of this expert run on rows 3 and 8. The op moe_combine reads only these
 * rows of the output of down. */
#ifndef OSH_ROUTED_H
#define OSH_ROUTED_H
#include "graph/graph.h"

/* Returns the moe_combine node that reads the output of `node`, directly or through nodes that work
 * row by row. Returns -1 if there is no such node, or if other nodes also read the output. */
int osh_routed_to(const osh_graph *g, int node);

/* Returns the routed_rows node that makes the value. If other nodes compute the value row by row,
 * returns the routed_rows node that makes their input. Returns -1 if there is no such node, or if
 * one of the other nodes is a Linear with a bias, because the bias makes zero rows non-zero. */
int osh_routed_from(const osh_graph *g, int value);

/* Returns the index of the router's output. from: a moe_combine or routed_rows node, which takes
 * the rows of its expert from this output. */
int osh_routed_route(const osh_graph *g, int from);

/* Finds which of the nodes [first, first + n) can run on only the rows of their expert. Sets
 * routed[i] to true if node first + i can. The moe_combine node of the expert (osh_routed_to) must
 * run, too. */
void osh_routed_choose(bool *routed, const osh_graph *g, int first, int n, const bool *run);

/* osh_mixture_end returns the end of the mixture that begins at node `first`, but at most `end`. It
 * returns `first` if no mixture begins there. A mixture has five nodes for each expert: `gate`,
 * `up`, `glu`, `down` and `combine`. The node `combine` adds the expert's output to the sum of the
 * previous experts. If the graph has routed_rows nodes, each expert also has a routed_rows node
 * before these five nodes. The input of the mixture is then the input of the routed_rows node. */
enum { OSH_EXPERT_GATE, OSH_EXPERT_UP, OSH_EXPERT_GLU, OSH_EXPERT_DOWN, OSH_EXPERT_COMBINE,
       OSH_EXPERT_NODES };
/* Returns the gate node of the expert that begins at node `first`. This is first + 1 if node
 * `first` is a routed_rows node, and otherwise first. */
int osh_expert_first(const osh_graph *g, int first);
int osh_mixture_end(const osh_graph *g, int first, int end);

typedef struct osh_expert_rows { // the rows of a batch that are routed to an expert
    int combine;      // index of the expert's moe_combine node
    int32_t *rows;    // own [n]: positions of the rows in the batch, ascending
    int64_t n;
    int64_t *offsets; // own [samples + 1]: position in `rows` of the first row of each sample
    osh_seqs seqs;    // view of offsets
    /* value[k]: index of the value from which the rows x[k] were gathered; k: input of a node */
    int value[OSH_OP_MAX_IN];
    /* own: gathered rows [n, width] of an input; NULL: none gathered yet */
    osh_tensor *x[OSH_OP_MAX_IN];
} osh_expert_rows;
/* Lists the rows of the expert of the moe_combine node `combine`. route [N, E]: router weights for
 * the N tokens of the batch and E experts. First frees the old lists in *r, so the caller must
 * initialize *r to {0}. */
osh_status osh_routed_begin(osh_ctx *cx, osh_expert_rows *r, const osh_graph *g, int combine,
                            const osh_tensor *route, const osh_seqs *seqs);
/* Frees the lists and the copies of rows. */
void osh_routed_deinit(osh_ctx *cx, osh_expert_rows *r);
/* Copies the rows r->rows of x to r->x[k]. value: index of the value x. */
osh_status osh_routed_gather(osh_ctx *cx, osh_expert_rows *r, int k, int value,
                             const osh_tensor *x);
/* Copies `rows`, the rows of an expert, to their positions in `to` [N, D]. Other rows of `to` do
 * not change. */
void osh_routed_scatter(const osh_expert_rows *r, osh_tensor *to, const osh_tensor *rows);
/* Returns an upper bound of the bytes that a node of an expert needs in addition to its inputs and
 * outputs. The bytes include the allocator's overhead. n_tokens: number of tokens of the batch. */
size_t osh_routed_bytes(const osh_graph *g, int node, int64_t n_tokens);
#endif
