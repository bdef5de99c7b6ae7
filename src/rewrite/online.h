/* online.h - rotations that act while the model runs: the nodes of a graph before and after which
 * they are inserted, by transform_config (quant/transform.h). Used for a recipe that is planned and
 * for an output that is evaluated. */
#ifndef OSH_ONLINE_H
#define OSH_ONLINE_H
#include "graph/graph.h"
#include "quant/transform.h"

typedef struct osh_online_matrix { // one for a group, a position and a size; modules share it
    int group;
    osh_q_place at;
    char *name;       // own: tensor with the matrix, of the first module:
                      // "model.layers.0.mlp.down_proj.R4_input.weight"
    osh_rotation r;   // own; r.n 0: the tensor has the matrix
    int64_t n, tensor; // tensor: of the checkpoint; -1: none, or not needed
} osh_online_matrix;
typedef struct osh_online_turn { // a node with a rotated input or output
    int node, in, matrix; // in: 0; of an attention 0 (queries) or 1 (keys)
    bool output, transposed;
} osh_online_turn;
typedef struct osh_online {
    osh_online_matrix *matrices; // own
    osh_online_turn *turns;      // own, by node, inputs first
    int n_matrices, n_turns;
} osh_online;

/* Matches targets with the Linears and attentions of the graph. Random-hadamard matrices come from
 * seed, or from the checkpoint's tensors if seed is NULL. */
osh_status osh_online_find(osh_ctx *cx, osh_online *o, const osh_graph *g, const osh_checkpoint *ck,
                           const osh_q_transforms *t, const int64_t *seed);
/* Inserts the rotations into the graph, with weights for matrices that are tensors of ck. */
osh_status osh_online_insert(osh_ctx *cx, const osh_online *o, osh_graph *g,
                             const osh_checkpoint *ck);
void osh_online_deinit(osh_ctx *cx, osh_online *o);
#endif
