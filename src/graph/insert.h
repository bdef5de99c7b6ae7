/* insert.h - inserts nodes into a graph, for rotations that are computed in each forward pass. */
#ifndef OSH_INSERT_H
#define OSH_INSERT_H
#include "graph/graph.h"

/* A new node; it is inserted before node `node`, on one input of that node, or after that node, on
 * its first output. */
typedef struct osh_insertion {
    int node, in; // node: index of the node; in: index of its input
    bool behind;
    const osh_op *op;
    void *attr;  // own: attributes of the new node; NULL after the graph has taken them
    int weight;  // index of a weight of the graph; -1: none
    int same_as; // before a node: index of an earlier insertion whose output the node reads, so
                 // that no new node is made; -1: none
} osh_insertion;
/* Inserts the nodes. `list` is sorted by the member `node`. Indices of values and weights stay
 * valid; indices of nodes do not. The output of a node that is inserted before node n is read only
 * by n and by the nodes whose insertions name it in same_as. */
osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n);
/* Adds tensor `tensor` of the checkpoint to the graph as a weight [n, n]. */
osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck,
                                int64_t tensor);
#endif
