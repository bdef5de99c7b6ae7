/* forward.h - a whole model over a dataset by the sequential engine: one subgraph's weights at a
 * time. Ends with the values that the head reads. */
#ifndef OSH_FORWARD_H
#define OSH_FORWARD_H
#include "graph/exec.h"
#include "plan/online.h"
#include "quant/source.h"
#include "data/dataset.h"

typedef struct osh_forward {
    osh_source *source;  // own
    osh_graph *graph;    // own
    osh_online online;   // own: rotations that act while it runs
    osh_partition *parts; // own
    osh_batch **batches; // own; after osh_forward_run each holds graph->hidden
    int64_t n_batches;
    osh_tensor *head;    // own: weight of lm_head
    bool *stay;          // own [values]: that stay in the batches whoever reads them; NULL: none
    osh_tensor **cache;  // own [values]: scales of keys and values that a kv_cache_scheme rounds; NULL: it has none
    osh_tensor **cache_zero; // own [values]: their zero points; NULL: none
} osh_forward;

osh_status osh_forward_open(osh_ctx *cx, osh_forward **out, const char *model, const char *models_dir);
/* Where the scheme of a Linear's node rounds its input: *rounded, and *copy, in host memory, is x (on a device, or not)
 * rounded; what *copy was before is freed. */
osh_status osh_forward_round_input(osh_ctx *cx, osh_tensor **copy, bool *rounded, const osh_forward *f, int node,
                                   const osh_tensor *x);
bool osh_forward_rounds_inputs(const osh_forward *f); // of any Linear
/* pr: its work_done grows by osh_forward_work, whatever else the caller counts in it. */
osh_status osh_forward_run(osh_ctx *cx, osh_forward *f, const osh_dataset *d, int64_t batch_size,
                           bool quantize_activations, osh_progress *pr);
/* For each token of samples [first, first + n) of d the one behind it, I32 [tokens]; -1: the last of its sample. own */
osh_status osh_next_tokens(osh_ctx *cx, osh_tensor **out, const osh_dataset *d, int64_t first, int64_t n);
/* Nodes of subgraph `index` that run [its n_nodes], and the values that live behind it [values]. */
void osh_forward_choose(const osh_forward *f, int index, bool *run, bool *keep);
typedef struct osh_forward_part { // of the way through the model, as osh_forward_choose says
    int index;
    const osh_subgraph *s;
    bool *run, *keep; // views
    bool *routed;     // view [s->n_nodes]: nodes that run on the rows alone that go to their expert (graph/routed.h)
} osh_forward_part;
typedef osh_status osh_forward_visit(osh_ctx *cx, void *user, const osh_forward_part *p);
/* All subgraphs in their order: they are run so, and what that takes is counted so. */
osh_status osh_forward_walk(osh_ctx *cx, const osh_forward *f, osh_forward_visit *visit, void *user);
/* Of osh_forward_run and, with_head, of the scores behind it. */
osh_status osh_forward_work(osh_ctx *cx, double *work, const osh_forward *f, const osh_dataset *d, bool with_head);
typedef struct osh_forward_memory {
    int64_t peak, left; // bytes, gross, an upper bound: while it runs; that stay until osh_forward_close
} osh_forward_memory;
/* Of osh_forward_run over the first n samples of d. */
osh_status osh_forward_bytes(osh_ctx *cx, osh_forward_memory *m, const osh_forward *f, const osh_dataset *d, int64_t n,
                             int64_t batch_size);
/* Parts of that: values v of all batches (v -1: what a batch is besides), *most becomes at least the tokens of the
 * largest; weights of the nodes that run, *width at least that of the widest value that goes into one of these. */
int64_t osh_forward_values_bytes(const osh_graph *g, const osh_dataset *d, int64_t n, int64_t size, int v,
                                 int64_t *most);
int64_t osh_forward_weight_bytes(const osh_forward *f, const osh_subgraph *s, const bool *run, int64_t *width);
void osh_forward_close(osh_ctx *cx, osh_forward *f);
#endif
