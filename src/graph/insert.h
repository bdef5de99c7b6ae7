/* insert.h - inserts nodes into a graph, for rotations that are computed in each forward pass. */
#ifndef OSH_INSERT_H
#define OSH_INSERT_H
#include "graph/graph.h"

/* A new node. It is inserted before the node `node`, on one of its inputs, or after it, on its
 * first output. */
typedef struct osh_insertion {
    int node, in; // node: index of the node; in: index of its input
    bool behind;
    const osh_op *op;
    void *attr;  // own: attributes of the new node; NULL after the graph has taken them
    int weight;  // index of a weight of the graph; -1: none
    /* Only for a node before another: index of an earlier insertion. No new node is made, and the
     * node `node` reads the output of that insertion. -1: none. */
    int same_as;
} osh_insertion;
/* Inserts the nodes. `list` is sorted by the member `node`. Indices of values and weights stay
 * valid; indices of nodes do not. If a node is inserted before node n, its output is read by n, and
 * by the nodes of insertions whose same_as is this insertion. */
osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n);
/* Adds tensor `tensor` of the checkpoint to the graph as a weight [n, n]. */
osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck,
                                int64_t tensor);
#endif
