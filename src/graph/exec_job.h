/* exec_job.h - declares the state in which a range of nodes runs. exec.c and exec_experts.c share
 * it. */
#ifndef OSH_EXEC_JOB_H
#define OSH_EXEC_JOB_H
#include "graph/exec.h"
#include "graph/exec_walk.h"
#include "graph/routed.h"
#include "ops/op.h"

typedef struct osh_device_routes { // on a device: the rows that the router sends to each expert
    int route;         // index of the router's output value in the graph
    osh_tensor *lists; // own: I32 [E + E N] for E experts and N tokens; NULL: not computed yet
    int32_t *n;        // own [E]: number of rows that each expert gets
} osh_device_routes;

typedef struct osh_exec_job {
    const osh_graph *g;
    const osh_weights *w;
    osh_batch *b;
    /* Hooks for values of the whole batch. NULL if there are no hooks, or if this struct runs one
     * sample. */
    const osh_exec_hooks *hooks; // view
    osh_lanes *lanes;  // view
    bool check;
    int first, n;      // nodes [first, first + n)
    osh_expert_rows routed; // own: lists of the rows of the current expert, in host memory
    osh_device_routes gpu;      // own
    /* For each output of the nodes, the index of its first non-finite element: I64 [n,
     * OSH_OP_MAX_OUT] on the device. NULL if nodes run on the host. */
    osh_tensor *found; // own
    bool again;        // true while the nodes run again to find the first non-finite value
} osh_exec_job;

/* exec.c defines the next functions. osh_exec_finding returns the address in j->found for output k
 * of a node, or NULL if nodes run on the host. */
int64_t *osh_exec_finding(const osh_exec_job *j, int node, int k);
/* Checks output k of a node for non-finite elements. On the host, a non-finite element is an error.
 * On a device, a kernel writes the index of the first one to j->found, and the host does not wait.
 * The kernel checks only the rows a->rows; if a->rows is NULL, it checks all rows. */
osh_status osh_exec_check_finite(osh_ctx *cx, const osh_walk *walk, int node, int k,
                                 const osh_op_args *a);
/* Allocates the tensor of value v with `rows` rows. If an earlier execution kept a tensor of v,
 * frees that tensor first. */
osh_status osh_exec_make_value(osh_ctx *cx, const osh_exec_job *j, int v, int64_t rows);
/* Calls the hook for value v of an expert. x: the tensor of v. rows: the rows of the expert in x.
 * tokens [rows->n]: the number of each row's token, in device memory. */
osh_status osh_exec_tell_rows(osh_ctx *cx, const osh_exec_job *j, int v, const osh_tensor *x,
                              const osh_op_rows *rows, const int32_t *tokens);

/* exec_experts.c defines the next functions. The first three are members of osh_walk_acts. */
osh_status osh_exec_routes(osh_ctx *cx, osh_walk *w, int route);
osh_status osh_exec_mixture(osh_ctx *cx, osh_walk *w, int first, int end);
osh_status osh_exec_observed(osh_ctx *cx, osh_walk *w, int first, int end);
/* Returns the list (in device memory) of the rows that are routed to an expert. from: index of the
 * node that selects the expert (moe_combine or routed_rows). */
osh_op_rows osh_exec_expert_rows(const osh_exec_job *j, int from);
void osh_exec_drop_routes(osh_ctx *cx, osh_device_routes *r);
#endif
