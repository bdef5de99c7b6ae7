/* forward.h - runs a whole model over a dataset. The weights of one subgraph are in memory at a
 * time. The pass ends with the inputs of the head. */
#ifndef OSH_FORWARD_H
#define OSH_FORWARD_H
#include "graph/exec.h"
#include "rewrite/online.h"
#include "quant/source.h"
#include "data/dataset.h"
#include "ranks/ranks.h"

typedef struct osh_forward {
    osh_source *source;  // own
    osh_graph *graph;    // own
    osh_online online;   // own: rotations of transform_config that act while the model runs
    osh_partition *parts; // own
    /* Batch b belongs to rank b modulo their number; NULL: this process runs all batches. */
    osh_ranks *ranks;    // view
    /* The batches of this process; after osh_forward_run, each has the value graph->hidden (input
     * of the head). */
    osh_batch **batches; // own
    int64_t n_batches;
    osh_tensor *head;    // own: weight of the head
    osh_tensor *head_bias; // own: bias of the head, [V]; NULL: none
    /* Input ids of the model; NULL: those of the data set. */
    int32_t *ids;        // own [tokens of the data set]
    /* True for values that batches keep after the last reader; NULL: none. */
    bool *stay;          // own [graph values]
    /* Time at which the job of osh_forward_run began, for the rate; 0: this run is the job. */
    double begun;
    /* own [graph values]: scales of queries, keys and values that are quantized; NULL: none */
    osh_tensor **cache;
    osh_tensor **cache_zero; // own [graph values]: zero points of `cache`; NULL: none
} osh_forward;

osh_status osh_forward_open(osh_ctx *cx, osh_forward **out, const char *model,
                            const char *adapter, const char *models_dir);
/* Opens a model like osh_forward_open, with the graph of the template `text` [n]. */
osh_status osh_forward_open_by(osh_ctx *cx, osh_forward **out, const char *model, const char *text,
                               size_t n);
/* Rounds the input x of a Linear by the scheme of the Linear. x may be on a device. If the scheme
 * rounds inputs, sets *rounded to true and *copy (own, host memory) to the rounded x, after freeing
 * the old *copy. Otherwise sets *rounded to false. */
osh_status osh_forward_round_input(osh_ctx *cx, osh_tensor **copy, bool *rounded,
                                   const osh_forward *f, int node, const osh_tensor *x);
/* State of osh_forward_hooks, which round the activations. */
typedef struct osh_forward_rounding {
    const osh_forward *f;
    osh_tensor *copy; // own: last rounded input
    /* Index of the first node of the subgraph that runs; outputs of earlier nodes are rounded
     * already. */
    int first;
} osh_forward_rounding;
/* Returns the hooks that round inputs and outputs of Linears, and keys, values and queries. r must
 * outlive the hooks. */
osh_exec_hooks osh_forward_hooks(osh_forward_rounding *r);
/* True if the model is quantized, so that activations may have to be rounded. */
bool osh_forward_may_round(const osh_forward *f);
/* True if some scheme rounds the input of a Linear. */
bool osh_forward_rounds_inputs(const osh_forward *f);
/* Returns the number of batches of `size` samples that this process runs, if d has n samples. */
int64_t osh_forward_n_batches(const osh_forward *f, int64_t n, int64_t size);
/* Runs the model over the samples of d, then loads the head. Adds the work that osh_forward_work
 * returns to pr->work_done. */
osh_status osh_forward_run(osh_ctx *cx, osh_forward *f, const osh_dataset *d, int64_t batch_size,
                           bool quantize_activations, osh_progress *pr);
/* Sets pr->tokens_per_s: the tokens of the data, divided by the seconds that the whole job takes at
 * the speed since `begun`. */
void osh_forward_rate(osh_progress *pr, double tokens, double begun);
/* Loads the weight and the bias (NULL: none) of the head of f. The caller owns both. */
osh_status osh_forward_load_head(osh_ctx *cx, osh_tensor **weight, osh_tensor **bias,
                                 const osh_forward *f);
/* Returns the attributes of nll and kl for the logits of f and `ref` (NULL: f for both). The biases
 * are f->head_bias and ref->head_bias. */
osh_vocab_attr osh_forward_rules(const osh_forward *f, const osh_forward *ref);
/* *out (own), I32 [tokens of samples first to first + n - 1 of d]: the token that follows each
 * token; -1 for the last token of a sample. */
osh_status osh_next_tokens(osh_ctx *cx, osh_tensor **out, const osh_dataset *d, int64_t first,
                           int64_t n);
/* run [n_nodes of the subgraph]: set to true for nodes of subgraph `index` that run. keep [graph
 * values]: set to true for values that are needed after the subgraph. */
void osh_forward_choose(const osh_forward *f, int index, bool *run, bool *keep);
/* A subgraph of the pass, and the nodes and values that osh_forward_choose chose for it. */
typedef struct osh_forward_part {
    int index;
    const osh_subgraph *s;
    bool *run, *keep; // views: results of osh_forward_choose
    /* True for nodes that run only on the rows of their expert (graph/routed.h). */
    bool *routed; // view [s->n_nodes]
} osh_forward_part;
osh_exec_span osh_forward_span(const osh_forward *f, const osh_forward_part *p);
typedef osh_status osh_forward_visit(osh_ctx *cx, void *user, const osh_forward_part *p);
/* Calls `visit` for all subgraphs in order. The callbacks run the subgraphs, or count memory or
 * work. */
osh_status osh_forward_walk(osh_ctx *cx, const osh_forward *f, osh_forward_visit *visit,
                            void *user);
/* *work: set to the work of osh_forward_run, in the estimated seconds of budget/cost.h. with_head:
 * true if the scores of the head are included. */
osh_status osh_forward_work(osh_ctx *cx, double *work, const osh_forward *f, const osh_dataset *d,
                            bool with_head);
typedef struct osh_forward_memory {
    /* Upper bounds of bytes, with the allocator's overhead.
     * peak: during the run.
     * left: kept until osh_forward_close. */
    int64_t peak, left;
} osh_forward_memory;
/* Returns the bytes of the head's weight and bias in memory. */
int64_t osh_forward_head_bytes(const osh_forward *f);
/* Predicts the host memory of osh_forward_run for the first n samples of d. */
osh_status osh_forward_bytes(osh_ctx *cx, osh_forward_memory *m, const osh_forward *f,
                             const osh_dataset *d, int64_t n, int64_t batch_size);
/* Returns the bytes of value v in the batches of `size` samples of this process, for the first n
 * samples. v -1: bytes of the batches without values. Raises *most to the tokens of the largest
 * batch. */
int64_t osh_forward_values_bytes(const osh_forward *f, const osh_dataset *d, int64_t n,
                                 int64_t size, int v, int64_t *most);
/* Returns the bytes of the weights of the nodes that run. Raises *width to the width of the widest
 * input of a node with weights. */
int64_t osh_forward_weight_bytes(const osh_forward *f, const osh_subgraph *s, const bool *run,
                                 int64_t *width);
void osh_forward_close(osh_ctx *cx, osh_forward *f);
#endif
