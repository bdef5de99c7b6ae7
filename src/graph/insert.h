/* insert.h - nodes between those of a graph: rotations that act while the model runs. */
#ifndef OSH_INSERT_H
#define OSH_INSERT_H
#include "graph/graph.h"

typedef struct osh_insertion { // before a node, of one of its inputs; or behind it, of its first output
    int node, in; // in: which input
    bool behind;
    const osh_op *op;
    void *attr;  // own: NULL when the graph has taken it
    int weight;  // of the graph; -1: none
    int same_as; // before: an insertion ahead of this one that makes what the node is to read; -1: it does itself
} osh_insertion;
/* list: by node. Numbers of values and weights stay as they are, those of nodes do not. What an op before a node makes
 * is read by that node, and by those of same_as, alone. */
osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n);
/* A weight [n, n] of the graph that is tensor of the checkpoint. */
osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck, int64_t tensor);
#endif
