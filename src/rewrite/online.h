/* online.h - finds the nodes of a graph whose inputs or outputs are rotated while the model runs,
 * from transform_config (quant/transform.h). Used for the recipe of a plan, and for an output that
 * is evaluated. */
#ifndef OSH_ONLINE_H
#define OSH_ONLINE_H
#include "graph/graph.h"
#include "quant/transform.h"

typedef struct osh_online_matrix { // matrix that all modules with the same group, position and size
                                   // share
    int group;
    osh_q_place at;
    char *name;       // own: name of the tensor with the matrix, which belongs to the first of the
                      // modules: "model.layers.0.mlp.down_proj.R4_input.weight"
    osh_rotation r;   // own; r.n is 0 if a tensor has the matrix
    int64_t n, tensor; // tensor: index in the checkpoint; -1: none, or not needed
} osh_online_matrix;
typedef struct osh_online_turn { // a node whose input or output is rotated
    int node, in, matrix; // in: index of the input: 0; for an attention 0 (queries) or 1 (keys)
    bool output, transposed;
} osh_online_turn;
typedef struct osh_online {
    osh_online_matrix *matrices; // own
    osh_online_turn *turns;      // own, in the order of nodes, inputs first
    int n_matrices, n_turns;
} osh_online;

/* Matches targets with the Linears and attentions of the graph. Random-hadamard matrices are
 * computed from *seed, or read from the checkpoint's tensors if `seed` is NULL. */
osh_status osh_online_find(osh_ctx *cx, osh_online *o, const osh_graph *g, const osh_checkpoint *ck,
                           const osh_q_transforms *t, const int64_t *seed);
/* Inserts the rotations into the graph. Matrices that are tensors of ck become weights. */
osh_status osh_online_insert(osh_ctx *cx, const osh_online *o, osh_graph *g,
                             const osh_checkpoint *ck);
void osh_online_deinit(osh_ctx *cx, osh_online *o);
#endif
