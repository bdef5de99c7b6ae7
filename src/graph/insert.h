/* insert.h - inserts nodes into a graph, for example nodes that rotate values in each forward
 * pass. */
#ifndef OSH_INSERT_H
#define OSH_INSERT_H
#include "graph/graph.h"

/* Describes a new node, which is inserted next to an existing node. Before the existing node, the
 * new node changes one input of the existing node. After the existing node, the new node changes
 * the first output of the existing node. */
typedef struct osh_insertion {
    int node, in; // node: index of the existing node. in: index of the input that changes.
    bool after;
    const osh_op *op;
    void *attr;  // own: attributes of the new node; NULL after the graph has taken them
    int weight;  // index of the weight of the new node; -1: none
    /* Only for a node that is inserted before another node. If not -1, no new node is made: the
     * other node reads the output of the earlier insertion with index `same_as` in the list. */
    int same_as;
} osh_insertion;
/* Inserts the nodes of `list`, which must be sorted by the member `node`. Indices of values and
 * weights stay valid, but indices of nodes do not. If a new node is inserted before node n, node n
 * reads the output of the new node. */
osh_status osh_graph_insert(osh_ctx *cx, osh_graph *g, osh_insertion *list, int n);
/* Adds a weight to the graph. The weight is tensor number `tensor` of the checkpoint, and must be a
 * square matrix. Sets *index to the weight's index in the graph. */
osh_status osh_graph_add_weight(osh_ctx *cx, osh_graph *g, int *index, const osh_checkpoint *ck,
                                int64_t tensor);
#endif
