/* forward.h - runs a whole model over a dataset, with the weights of one subgraph in memory at a
 * time. The pass ends with the values that the head reads. */
#ifndef OSH_FORWARD_H
#define OSH_FORWARD_H
#include "graph/exec.h"
#include "rewrite/online.h"
#include "quant/source.h"
#include "data/dataset.h"

typedef struct osh_forward {
    osh_source *source;  // own
    osh_graph *graph;    // own
    osh_online online;   // own: rotations that act while the model runs
    osh_partition *parts; // own
    osh_batch **batches; // own; after osh_forward_run each holds graph->hidden
    int64_t n_batches;
    osh_tensor *head;    // own: weight of lm_head
    bool *stay;          // own [values]: kept in the batches after the last reader; NULL: none
    /* own [values]: scales of queries, keys and values that a kv_cache_scheme rounds; NULL: none */
    osh_tensor **cache;
    osh_tensor **cache_zero; // own [values]: their zero points; NULL: none
} osh_forward;

osh_status osh_forward_open(osh_ctx *cx, osh_forward **out, const char *model,
                            const char *models_dir);
/* Rounds the input x of a Linear's node as its scheme says. x may be on a device. *rounded is false
 * if the scheme does not round inputs; else *copy (own, host memory) is the rounded x, and the old
 * *copy is freed. */
osh_status osh_forward_round_input(osh_ctx *cx, osh_tensor **copy, bool *rounded,
                                   const osh_forward *f, int node, const osh_tensor *x);
/* The activations that the model's scheme rounds: the user of osh_forward_hooks. */
typedef struct osh_forward_rounding {
    const osh_forward *f;
    osh_tensor *copy; // own: the last rounded input
    int first;        // first node of the subgraph that runs; earlier outputs are already rounded
} osh_forward_rounding;
/* Returns the hooks that round inputs and outputs of Linears, keys and values; r must outlive
 * them. */
osh_exec_hooks osh_forward_hooks(osh_forward_rounding *r);
/* True if the model was quantized, so that a run may need the hooks. */
bool osh_forward_may_round(const osh_forward *f);
bool osh_forward_rounds_inputs(const osh_forward *f); // true if the input of any Linear is rounded
/* Runs the model over all samples of d and loads the head. pr->work_done grows by the work that
 * osh_forward_work returns. */
osh_status osh_forward_run(osh_ctx *cx, osh_forward *f, const osh_dataset *d, int64_t batch_size,
                           bool quantize_activations, osh_progress *pr);
/* *out (own), I32 [tokens]: for each token of samples [first, first + n) of d the next token; -1
 * for the last token of a sample. */
osh_status osh_next_tokens(osh_ctx *cx, osh_tensor **out, const osh_dataset *d, int64_t first,
                           int64_t n);
/* run [n_nodes of the subgraph]: nodes of subgraph `index` that run. keep [values]: values that
 * live after it. */
void osh_forward_choose(const osh_forward *f, int index, bool *run, bool *keep);
typedef struct osh_forward_part { // a subgraph of the pass, as osh_forward_choose fills it
    int index;
    const osh_subgraph *s;
    bool *run, *keep; // views
    bool *routed; // view [s->n_nodes]: nodes that run on their expert's rows alone (graph/routed.h)
} osh_forward_part;
osh_exec_span osh_forward_span(const osh_forward *f, const osh_forward_part *p);
typedef osh_status osh_forward_visit(osh_ctx *cx, void *user, const osh_forward_part *p);
/* Calls `visit` for all subgraphs in order: to run them, or to count their memory or work. */
osh_status osh_forward_walk(osh_ctx *cx, const osh_forward *f, osh_forward_visit *visit,
                            void *user);
/* *work: the work of osh_forward_run (units: budget/cost.h); with_head adds that of the scores. */
osh_status osh_forward_work(osh_ctx *cx, double *work, const osh_forward *f, const osh_dataset *d,
                            bool with_head);
typedef struct osh_forward_memory {
    int64_t peak, left; // gross bytes, upper bounds: during the run; held until osh_forward_close
} osh_forward_memory;
/* Predicts the host memory of osh_forward_run over the first n samples of d. */
osh_status osh_forward_bytes(osh_ctx *cx, osh_forward_memory *m, const osh_forward *f,
                             const osh_dataset *d, int64_t n, int64_t batch_size);
/* Returns the bytes of value v in all batches of `size` samples; v -1: the bytes of the batches
 * without values. *most is raised to the tokens of the largest batch. */
int64_t osh_forward_values_bytes(const osh_graph *g, const osh_dataset *d, int64_t n, int64_t size,
                                 int v, int64_t *most);
/* Returns the bytes of the weights of the nodes that run. *width is raised to the width of the
 * widest input of a node with weights. */
int64_t osh_forward_weight_bytes(const osh_forward *f, const osh_subgraph *s, const bool *run,
                                 int64_t *width);
void osh_forward_close(osh_ctx *cx, osh_forward *f);
#endif
