/* insert.h - inserts nodes into a graph. Such nodes rotate values in each forward pass. */
#ifndef OSH_INSERT_H
#define OSH_INSERT_H
#include "graph/graph.h"

/* A new node. It is inserted before an existing node, and changes one of its inputs; or it is
 * inserted after an existing node, and changes its first output. */
typedef struct osh_insertion {
    int node, in; // node: index of the existing node. in: index of its changed input.
    bool behind;
    const osh_op *op;
    void *attr;  // own: attributes of the new node; NULL after the graph has taken them
    int weight;  // index of a weight of the graph; -1: none
    /* Only for an insertion before a node: index of an earlier insertion in the list, whose output
     * the existing node then reads. No new node is made. -1: a new node is made. */
    int same_as;
} osh_insertion;
/* Inserts the nodes. `list` must be sorted by the member `node`. Indices of values and weights stay
 * valid, but indices of nodes do not. If a node is inserted before node n, its output is read by n,
 * and by the nodes of all insertions whose same_as is this insertion. */
osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n);
/* Adds the tensor with index `tensor` of the checkpoint, a square matrix, to the graph as a
 * weight. */
osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck,
                                int64_t tensor);
#endif
