/* routed.h - an expert's work on the rows alone that the router sends to it: on the host, and what a device does at
 * once.
 *
 *   route [N, E]    expert 5 has weights in rows 3 and 8
 *   gate, up, glu, down run on rows 3 and 8; what down makes goes back there, and moe_combine reads no other */
#ifndef OSH_ROUTED_H
#define OSH_ROUTED_H
#include "graph/graph.h"

/* The moe_combine that alone reads what the node makes, or what is made of it row by row; -1: there is none. */
int osh_routed_to(const osh_graph *g, int node);

/* Nodes of [first, first + n) that run, and of whose outputs a combine that runs, too, is the only end: routed [n]. */
void osh_routed_choose(bool *routed, const osh_graph *g, int first, int n, const bool *run);

/* A mixture, as a device runs it at once: for each expert, one behind the other, gate, up, glu, down and combine, which
 * goes on with the sum of the one before. Returns what follows its last node, at most end; first: none begins there. */
enum { OSH_EXPERT_GATE, OSH_EXPERT_UP, OSH_EXPERT_GLU, OSH_EXPERT_DOWN, OSH_EXPERT_COMBINE, OSH_EXPERT_NODES };
int osh_mixture_end(const osh_graph *g, int first, int end);

typedef struct osh_expert_rows { // of a batch and an expert
    int combine;      // node; the rows are for what goes there
    int32_t *rows;    // own [n], ascending
    int64_t n;
    int64_t *offsets; // own: of each sample's rows
    osh_seqs seqs;    // view of offsets
    int value[OSH_OP_MAX_IN];     // that x is gathered from, for a node's input k
    osh_tensor *x[OSH_OP_MAX_IN]; // own: [n, width]; NULL: none is
} osh_expert_rows;
/* route: [N, E], of the batch with these samples. What r was is freed; {0} is nothing. */
osh_status osh_routed_begin(osh_ctx *cx, osh_expert_rows *r, const osh_graph *g, int combine, const osh_tensor *route,
                            const osh_seqs *seqs);
void osh_routed_deinit(osh_ctx *cx, osh_expert_rows *r);
osh_status osh_routed_gather(osh_ctx *cx, osh_expert_rows *r, int k, int value, const osh_tensor *x); // its rows: x[k]
void osh_routed_scatter(const osh_expert_rows *r, osh_tensor *to, const osh_tensor *rows);
/* What one node takes beside its input and output for n_tokens tokens, gross, an upper bound. */
size_t osh_routed_bytes(const osh_graph *g, int node, int64_t n_tokens);
#endif
