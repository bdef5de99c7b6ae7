/* online.h - finds the nodes of a graph whose inputs or outputs are rotated while the model runs.
 * transform_config (quant/transform.h) describes these rotations. A plan finds the rotations of its
 * recipe, and the evaluation finds the rotations of an output. */
#ifndef OSH_ONLINE_H
#define OSH_ONLINE_H
#include "graph/graph.h"
#include "quant/transform.h"

/* A rotation matrix. All modules with the same group, position (`at`) and size share it. */
typedef struct osh_online_matrix {
    int group;
    osh_q_place at;
    /* Name of the tensor that has the matrix. It begins with the name of the first module that uses
     * the matrix. An example is "model.layers.0.mlp.down_proj.R4_input.weight". */
    char *name;       // own
    /* The computed matrix. If r.n is 0, the matrix is a tensor of the checkpoint instead. */
    osh_rotation r;   // own
    /* n: number of rows and of columns.
     * tensor: index of the matrix in the checkpoint; -1: the checkpoint does not have it, or it is
     * not needed. */
    int64_t n, tensor;
} osh_online_matrix;
typedef struct osh_online_turn { // a rotation of one input or of the output of a node
    /* node: index of the node.
     * in: index of the rotated input: 0, or 1 for the keys of an attention. Ignored if `output` is
     * true.
     * matrix: index in osh_online.matrices. */
    int node, in, matrix;
    bool output, transposed;
} osh_online_turn;
typedef struct osh_online {
    osh_online_matrix *matrices; // own
    /* The rotations, sorted by node. The rotations of a node's inputs come before the rotation of
     * its output. */
    osh_online_turn *turns;      // own
    int n_matrices, n_turns;
} osh_online;

/* Finds the Linears and attentions of the graph that are targets of the transforms `t`. If `seed`
 * is not NULL, matrices of type random-hadamard are computed from *seed. If it is NULL, these
 * matrices are tensors of ck. */
osh_status osh_online_find(osh_ctx *cx, osh_online *o, const osh_graph *g, const osh_checkpoint *ck,
                           const osh_q_transforms *t, const int64_t *seed);
/* Inserts nodes for the rotations into the graph g. Matrices that are tensors of ck become weights
 * of the graph. */
osh_status osh_online_insert(osh_ctx *cx, const osh_online *o, osh_graph *g,
                             const osh_checkpoint *ck);
void osh_online_deinit(osh_ctx *cx, osh_online *o);
#endif
