/* online.h - rotations that act while the model runs: which nodes of a graph they stand before and behind, by
 * transform_config (quant/transform.h), of a recipe that is planned as of an output that is evaluated. */
#ifndef OSH_ONLINE_H
#define OSH_ONLINE_H
#include "graph/graph.h"
#include "quant/transform.h"

typedef struct osh_online_matrix { // of a group, a place and a size; modules share it
    int group;
    osh_q_place at;
    char *name;       // own: tensor that has it, of the first module: "model.layers.0.mlp.down_proj.R4_input.weight"
    osh_rotation r;   // own; r.n 0: what the tensor says
    int64_t n, tensor; // tensor: of the checkpoint, -1: there is none, or nobody needs it
} osh_online_matrix;
typedef struct osh_online_turn { // a node of which an input, or the output, is rotated
    int node, in, matrix; // in: 0, of an attention 0 (queries) or 1 (keys)
    bool output, transposed;
} osh_online_turn;
typedef struct osh_online {
    osh_online_matrix *matrices; // own
    osh_online_turn *turns;      // own, by node, inputs first
    int n_matrices, n_turns;
} osh_online;

/* Matches targets with the Linears of the graph, and with its attentions. Matrices of random-hadamard come of seed, or
 * with seed NULL of the checkpoint's tensors. */
osh_status osh_online_find(osh_ctx *cx, osh_online *o, const osh_graph *g, const osh_checkpoint *ck,
                           const osh_q_transforms *t, const int64_t *seed);
osh_status osh_online_insert(osh_ctx *cx, const osh_online *o, osh_graph *g, const osh_checkpoint *ck);
void osh_online_deinit(osh_ctx *cx, osh_online *o);
#endif
