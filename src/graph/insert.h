/* insert.h - inserts nodes into a graph, for rotations that are computed in each forward pass. */
#ifndef OSH_INSERT_H
#define OSH_INSERT_H
#include "graph/graph.h"

/* A new node. It is inserted before an existing node, on one of its inputs, or after an existing
 * node, on its first output. */
typedef struct osh_insertion {
    int node, in; // node: index of the existing node; in: index of its input
    bool behind;
    const osh_op *op;
    void *attr;  // own: attributes of the new node; NULL after the graph has taken them
    int weight;  // index of a weight of the graph; -1: none
    /* Only for an insertion before a node: index of an earlier insertion. The existing node then
     * reads the output of that insertion, and no new node is made. -1: a new node is made. */
    int same_as;
} osh_insertion;
/* Inserts the nodes. `list` is sorted by the member `node`. Indices of values and weights stay
 * valid; indices of nodes do not. The output of a node that is inserted before node n is read by n
 * and by the nodes of all insertions whose same_as is this insertion. */
osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n);
/* Adds tensor `tensor` of the checkpoint to the graph as a weight [n, n]. */
osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck,
                                int64_t tensor);
#endif
