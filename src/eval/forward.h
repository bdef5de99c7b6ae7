/* forward.h - runs a whole model over a dataset. The weights of one subgraph are in memory at a
 * time. The pass ends with the inputs of the head. Evaluations, generations and measurements
 * execute the steps of a schedule (schedule/plain.h) with a visitor, which runs or counts each
 * pass. */
#ifndef OSH_FORWARD_H
#define OSH_FORWARD_H
#include "data/dataset.h"
#include "quant/source.h"
#include "ranks/ranks.h"
#include "rewrite/online.h"
#include "schedule/plain.h"
#include "schedule/steps.h"

typedef struct osh_forward {
    osh_source *source;  // own
    osh_graph *graph;    // own
    osh_online online;   // own: rotations of transform_config that are applied while the model runs
    /* own: subgraphs; their lists live_out also have the values of osh_forward_keep. */
    osh_partition *parts;
    osh_plain *plain;    // own: schedule of the passes through `parts`
    osh_steps *steps;    // own: steps of the subgraph that a walk has reached
    bool *keep; // own [graph values]: member `keep` of the osh_forward_part that a walk has reached
    bool *want;          // own [graph weights]: true for weights that osh_forward_weights returns
    /* Batch b belongs to rank b modulo the number of ranks; NULL: this process runs all batches. */
    osh_ranks *ranks;    // view
    /* The batches of this process. After osh_forward_run, each batch has the value graph->hidden,
     * which is the input of the head. */
    osh_batch **batches; // own
    int64_t n_batches;
    osh_tensor *head;    // own: weight of the head
    osh_tensor *head_bias; // own: bias of the head, [V]; NULL: none
    /* Input ids of the model; NULL: those of the data set. */
    int32_t *ids;        // own [tokens of the data set]
    /* Time at which the whole job began. The rate in tokens per second is computed from it. 0: the
     * job is one call of osh_forward_run, which then sets the time. */
    double begun;
    /* own [graph values]: scales of queries, keys and values that are quantized; NULL: none */
    osh_tensor **cache;
    /* own [graph values]: zero points that belong to the scales in `cache`; NULL: none. */
    osh_tensor **cache_zero;
} osh_forward;

/* Opens the model in the directory `model`, and merges the LoRA adapter in the directory `adapter`
 * into it. adapter, models_dir: may be NULL. The caller frees *out with osh_forward_close. */
osh_status osh_forward_open(osh_ctx *cx, osh_forward **out, const char *model,
                            const char *adapter, const char *models_dir);
/* Opens a model like osh_forward_open, with the graph of the template `text` [n]. */
osh_status osh_forward_open_by(osh_ctx *cx, osh_forward **out, const char *model, const char *text,
                               size_t n);
/* Rounds the input x of a Linear by the scheme of the Linear. x may be on a device. If the scheme
 * rounds inputs, sets *rounded to true, frees the old *copy, and sets *copy (own, host memory) to
 * the rounded x. Otherwise sets *rounded to false. */
osh_status osh_forward_round_input(osh_ctx *cx, osh_tensor **copy, bool *rounded,
                                   const osh_forward *f, int node, const osh_tensor *x);
/* State of osh_forward_hooks, which round the activations. */
typedef struct osh_forward_rounding {
    const osh_forward *f;
    osh_tensor *copy; // own: last rounded input, or copy of a value on a device
    /* Index of the first node of the subgraph that runs; outputs of earlier nodes are rounded
     * already. */
    int first;
} osh_forward_rounding;
/* Returns the hooks that round inputs and outputs of Linears, and keys, values and queries. r must
 * outlive the hooks. */
osh_exec_hooks osh_forward_hooks(osh_forward_rounding *r);
/* Rounds x, the value with index `value`, in place. Does nothing if the scheme does not round this
 * value. If x is on a device, a->copy becomes the rounded copy in host memory. */
osh_status osh_forward_round_value(osh_ctx *cx, osh_forward_rounding *a, int value, osh_tensor *x);
/* True if osh_forward_round_value may round the value. */
bool osh_forward_rounds_value(const osh_forward *f, int value);
/* True if the model is quantized, so that activations may have to be rounded. */
bool osh_forward_may_round(const osh_forward *f);
/* True if some scheme rounds the input of a Linear. */
bool osh_forward_rounds_inputs(const osh_forward *f);
/* Returns the number of batches that this process runs for n samples, with `size` samples in each
 * batch. */
int64_t osh_forward_n_batches(const osh_forward *f, int64_t n, int64_t size);
/* Runs the model over the samples of d, then loads the head. Increases pr->work_done by the work of
 * this run, which osh_forward_work estimates. */
osh_status osh_forward_run(osh_ctx *cx, osh_forward *f, const osh_dataset *d, int64_t batch_size,
                           bool quantize_activations, osh_progress *pr);
/* Sets pr->tokens_per_s to the number of tokens of the data, divided by the expected seconds of the
 * whole job. The expected seconds follow from the speed since the time `begun`. */
void osh_forward_rate(osh_progress *pr, double tokens, double begun);
/* Loads the weight and the bias (NULL: none) of the head of f. The caller owns both. */
osh_status osh_forward_load_head(osh_ctx *cx, osh_tensor **weight, osh_tensor **bias,
                                 const osh_forward *f);
/* Returns the attributes of the ops `nll` and `kl`, which compare the logits of the model f with
 * those of `ref`. If `ref` is NULL, f is used instead. The biases are f->head_bias and
 * ref->head_bias. */
osh_vocab_attr osh_forward_rules(const osh_forward *f, const osh_forward *ref);
/* Sets *out (own) to an I32 vector with an element for each token of samples [first, first + n) of
 * d. The element is the id of the next token, or -1 for the last token of a sample. */
osh_status osh_next_tokens(osh_ctx *cx, osh_tensor **out, const osh_dataset *d, int64_t first,
                           int64_t n);
/* From now on, each pass keeps the value until the end of the pass. */
osh_status osh_forward_keep(osh_ctx *cx, osh_forward *f, int value);
/* A subgraph of a pass. `run`, `routed` and `keep` are views that are valid until the next
 * subgraph. */
typedef struct osh_forward_part {
    const osh_forward *f; // view
    int index;
    const osh_subgraph *s;
    const bool *run;  // [s->n_nodes]: true for nodes that run in the last LOAD or PASS
    /* True for nodes that run only on the rows of their expert (graph/routed.h); NULL: none. */
    const bool *routed; // [s->n_nodes]
    bool *keep;         // [graph values]: true for values that are needed after the pass
    osh_weights *w;     // own: weights of the nodes that run; NULL: not loaded
} osh_forward_part;
/* Sets *p to the part for subgraph `index`. Loads no weights. */
osh_status osh_forward_at(osh_ctx *cx, osh_forward_part *p, const osh_forward *f, int index);
/* Returns the nodes of the part, for osh_exec_run. */
osh_exec_span osh_forward_span(const osh_forward_part *p);
/* Returns the weights of the nodes that run. The list is a view of f->want. */
osh_weight_set osh_forward_weights(const osh_forward_part *p);
/* Loads the weights of the nodes that run, except those that p->w has already. */
osh_status osh_forward_load(osh_ctx *cx, osh_forward_part *p);
typedef struct osh_forward_batches { // how osh_forward_pass runs the batches of this process
    const osh_exec_hooks *hooks; // view; NULL: no hooks
    /* view: groups of the samples. Each round then runs the batches of one group. NULL: one round
     * runs all batches. */
    const osh_groups *groups;
    osh_ranks *ranks; // view: ranks that run the job; NULL: this process alone
    void (*done)(osh_ctx *cx, void *user, int64_t batch); // called after each batch
    /* Called after each round; NULL: not called. Adds the sums that the ranks have collected. */
    osh_status (*merge)(osh_ctx *cx, void *user, int64_t round);
    void *user;
} osh_forward_batches;
/* Runs the nodes of the part for the batches of this process. */
osh_status osh_forward_pass(osh_ctx *cx, const osh_forward_part *p, const osh_forward_batches *k);
typedef struct osh_forward_visitor {
    osh_status (*pass)(osh_ctx *cx, void *user, osh_forward_part *p); // runs or counts a pass
    void *user;
    bool loads; // true if p->w has the weights during `pass`
    /* Used by a measurement, otherwise NULL. `open` begins the statistics of `values` [graph
     * values], and `solve` uses the complete statistics and ends them. */
    osh_status (*open)(osh_ctx *cx, void *user, osh_forward_part *p, const bool *values);
    osh_status (*solve)(osh_ctx *cx, void *user, osh_forward_part *p);
} osh_forward_visitor;
/* osh_forward_visit executes the steps of one subgraph. osh_forward_walk executes the steps of all
 * subgraphs in order. */
osh_status osh_forward_visit(osh_ctx *cx, const osh_forward *f, int index,
                             const osh_forward_visitor *v);
osh_status osh_forward_walk(osh_ctx *cx, const osh_forward *f, const osh_forward_visitor *v);
/* Sets *work to the work of osh_forward_run, in the estimated seconds of budget/cost.h. with_head:
 * true if the scores of the head are included. */
osh_status osh_forward_work(osh_ctx *cx, double *work, const osh_forward *f, const osh_dataset *d,
                            bool with_head);
typedef struct osh_forward_memory {
    /* Upper bounds of bytes, with the allocator's overhead.
     * peak: during the run.
     * left: kept until osh_forward_close. */
    int64_t peak, left;
} osh_forward_memory;
/* Returns the number of bytes of the head's weight and bias in memory. */
int64_t osh_forward_head_bytes(const osh_forward *f);
/* Predicts the host memory of osh_forward_run for the first n samples of d. Also sets the peaks of
 * f->plain->schedule.visits. */
osh_status osh_forward_bytes(osh_ctx *cx, osh_forward_memory *m, const osh_forward *f,
                             const osh_dataset *d, int64_t n, int64_t batch_size);
/* Predicts the host memory of each subgraph, if n_tokens tokens of one sample run, after `past`
 * earlier tokens of the sample. Sets the peaks of f->plain->schedule.visits. */
osh_status osh_forward_count_piece(osh_ctx *cx, const osh_forward *f, int64_t n_tokens,
                                   int64_t past);
/* Returns the number of bytes of value v in the batches of this process. A batch has `size`
 * samples; only the first n samples count. If v is -1, returns the number of bytes of the batches
 * without their values. */
int64_t osh_forward_values_bytes(const osh_forward *f, const osh_dataset *d, int64_t n,
                                 int64_t size, int v);
void osh_forward_close(osh_ctx *cx, osh_forward *f);
#endif
