/* online.h - finds the nodes of a graph whose inputs or outputs are rotated while the model runs.
 * transform_config (quant/transform.h) describes these rotations. The plan uses the functions for a
 * recipe, and the evaluation uses them for an output. */
#ifndef OSH_ONLINE_H
#define OSH_ONLINE_H
#include "graph/graph.h"
#include "quant/transform.h"

/* A rotation matrix. All modules with the same group, position and size share it. */
typedef struct osh_online_matrix {
    int group;
    osh_q_place at;
    /* Name of the tensor that has the matrix. It begins with the name of the first module that uses
     * the matrix, such as "model.layers.0.mlp.down_proj.R4_input.weight". */
    char *name;       // own
    /* The computed matrix. r.n is 0 if the matrix is a tensor of the checkpoint instead. */
    osh_rotation r;   // own
    /* n: number of rows, and of columns.
     * tensor: index of the matrix in the checkpoint; -1: it is not there, or not needed. */
    int64_t n, tensor;
} osh_online_matrix;
typedef struct osh_online_turn { // a rotation of an input or output of a node
    /* node: index of the node.
     * in: index of the rotated input: 0, or 1 for the keys of an attention.
     * matrix: index in osh_online.matrices. */
    int node, in, matrix;
    bool output, transposed;
} osh_online_turn;
typedef struct osh_online {
    osh_online_matrix *matrices; // own
    /* The rotations, sorted by node. For each node, rotations of inputs come before a rotation of
     * the output. */
    osh_online_turn *turns;      // own
    int n_matrices, n_turns;
} osh_online;

/* Finds the Linears and attentions of the graph that are targets of `t`. seed: if not NULL,
 * matrices of type random-hadamard are computed from *seed. If NULL, they are tensors of ck. */
osh_status osh_online_find(osh_ctx *cx, osh_online *o, const osh_graph *g, const osh_checkpoint *ck,
                           const osh_q_transforms *t, const int64_t *seed);
/* Inserts nodes for the rotations into the graph. Matrices that are tensors of ck become weights of
 * the graph. */
osh_status osh_online_insert(osh_ctx *cx, const osh_online *o, osh_graph *g,
                             const osh_checkpoint *ck);
void osh_online_deinit(osh_ctx *cx, osh_online *o);
#endif
