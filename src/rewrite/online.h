/* online.h - finds the nodes of a graph whose inputs or outputs are rotated while the model runs,
 * from transform_config (quant/transform.h). The plan uses these functions for a recipe, and the
 * evaluation uses them for an output. */
#ifndef OSH_ONLINE_H
#define OSH_ONLINE_H
#include "graph/graph.h"
#include "quant/transform.h"

/* A rotation matrix, shared by all modules with the same group, position and size. */
typedef struct osh_online_matrix {
    int group;
    osh_q_place at;
    /* Name of the tensor with the matrix. It begins with the first module that uses the matrix,
     * such as "model.layers.0.mlp.down_proj.R4_input.weight". */
    char *name;       // own
    /* The computed matrix; r.n is 0 if the matrix is a tensor of the checkpoint. */
    osh_rotation r;   // own
    /* n: number of rows and of columns.
     * tensor: index of the matrix in the checkpoint; -1: there is none, or it is not needed. */
    int64_t n, tensor;
} osh_online_matrix;
typedef struct osh_online_turn { // a rotation of an input or output of a node
    /* node, matrix: indices.
     * in: index of the rotated input of the node (0, or 1 for the keys of an attention). */
    int node, in, matrix;
    bool output, transposed;
} osh_online_turn;
typedef struct osh_online {
    osh_online_matrix *matrices; // own
    /* The rotations, sorted by node; rotations of a node's inputs are before the rotation of its
     * output. */
    osh_online_turn *turns;      // own
    int n_matrices, n_turns;
} osh_online;

/* Finds the Linears and attentions of the graph that are targets of `t`. Random-hadamard matrices
 * are computed from *seed. If `seed` is NULL, these matrices are tensors of ck. */
osh_status osh_online_find(osh_ctx *cx, osh_online *o, const osh_graph *g, const osh_checkpoint *ck,
                           const osh_q_transforms *t, const int64_t *seed);
/* Inserts nodes for the rotations into the graph. Matrices that are tensors of ck become weights of
 * the graph. */
osh_status osh_online_insert(osh_ctx *cx, const osh_online *o, osh_graph *g,
                             const osh_checkpoint *ck);
void osh_online_deinit(osh_ctx *cx, osh_online *o);
#endif
