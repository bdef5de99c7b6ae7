/* insert.h - inserts nodes for rotations that run with the model into a graph. */
#ifndef OSH_INSERT_H
#define OSH_INSERT_H
#include "graph/graph.h"

typedef struct osh_insertion { // a new node: before an existing node, on one of its inputs, or
                               // after it, on its first output
    int node, in; // in: index of the input
    bool behind;
    const osh_op *op;
    void *attr;  // own: attributes; NULL after the graph has taken them
    int weight;  // index of a weight of the graph; -1: none
    int same_as; // if before a node: earlier insertion whose output the existing node reads instead
                 // of a new one; -1: none
} osh_insertion;
/* Inserts the nodes. `list` is in the order of the member node. Indices of values and weights stay
 * valid; indices of nodes do not. The output of a node that is inserted before another one is read
 * only by that node and by the nodes of insertions whose same_as refers to it. */
osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n);
/* Adds tensor `tensor` of the checkpoint to the graph as a weight [n, n]. */
osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck,
                                int64_t tensor);
#endif
