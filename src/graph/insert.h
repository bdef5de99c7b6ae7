/* insert.h - inserts nodes into a graph: rotations that run with the model. */
#ifndef OSH_INSERT_H
#define OSH_INSERT_H
#include "graph/graph.h"

typedef struct osh_insertion { // on an input of a node, before it; or on its first output, after it
    int node, in; // in: index of the input
    bool behind;
    const osh_op *op;
    void *attr;  // own: NULL after the graph has taken it
    int weight;  // weight of the graph; -1: none
    int same_as; // before: an earlier insertion whose output the node reads; -1: its own
} osh_insertion;
/* Inserts the nodes. list: in order of `node`. Indices of values and weights stay valid; indices of
 * nodes do not. The output of a node inserted before another one is read only by that one and by
 * the nodes of insertions with same_as. */
osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n);
/* Adds a weight [n, n] to the graph: `tensor` of the checkpoint. */
osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck,
                                int64_t tensor);
#endif
