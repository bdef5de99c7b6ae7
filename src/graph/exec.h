/* exec.h - runs nodes of a graph on one ragged batch. The caller owns what is live between
 * calls. */
#ifndef OSH_EXEC_H
#define OSH_EXEC_H
#include "graph/graph.h"
#include "tensor/device.h"

/* Weights by graph weight index; NULL: not loaded. Stored dtype, or the compute dtype after a
 * modifier wrote back. */
typedef struct osh_weights {
    osh_tensor **w;     // where the ops read them: on the device, if there is one
    osh_tensor **host;  // own: with a device, the copies that a solve and the output still need; else all NULL
    int n;
    osh_device *device; // view; NULL: host memory. Set by the caller
    const osh_checkpoint *rows; // view: has the rows of lookups' tables (picked.h); NULL: w has the whole
} osh_weights;
osh_status osh_weights_new(osh_ctx *cx, osh_weights **out, const osh_graph *g);
void osh_weights_free(osh_ctx *cx, osh_weights *w);
static inline size_t osh_weights_lists(const osh_graph *g) // gross: of none that is loaded
{
    return osh_mem_gross(sizeof(osh_weights)) + 2 * osh_mem_gross((size_t)g->n_weights * sizeof(osh_tensor *));
}
/* Those that are missing, but for tables of lookups (picked.h); a non-finite element fails naming tensor and index. */
osh_status osh_weights_load(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int first_node, int n_nodes);
/* It is a range of a file, as it is loaded. */
bool osh_weight_is_stored(const osh_graph *g, const osh_checkpoint *ck, int weight);
/* The file in which bytes [begin, end) of *e are the weight's as they are, and nobody asks for their checksum; else
 * NULL: it is made while it is read. */
const osh_st *osh_weight_stored(const osh_st_entry **e, const osh_graph *g, const osh_checkpoint *ck, int weight);
osh_status osh_weight_load(osh_ctx *cx, osh_tensor **out, const osh_graph *g, const osh_checkpoint *ck, int weight);
size_t osh_weight_bytes(const osh_graph *g, const osh_checkpoint *ck, int weight); // loaded, gross
/* host[weight], read where it is missing, goes to the device; without one it becomes w[weight] itself. */
osh_status osh_weight_place(osh_ctx *cx, osh_weights *w, const osh_graph *g, const osh_checkpoint *ck, int weight);
void osh_weights_release(osh_ctx *cx, osh_weights *w, const osh_graph *g, int first_node,
                         int n_nodes);

typedef struct osh_batch {
    osh_tensor **values; // [graph n_values]; own; NULL: not live
    int n_values;
    int64_t *offsets; // own [n_samples + 1]
    osh_seqs seqs;    // view of offsets
    int64_t n_tokens, first_sample;
    osh_device *device; // view: where its values lie and its nodes run; NULL: host
    const int32_t *ids; // view of the caller's [n_tokens]
    osh_tensor **into;  // view [n_values]: where a value is made that is given a place, which it takes; NULL: nowhere
} osh_batch;
osh_status osh_batch_new(osh_ctx *cx, osh_batch **out, const osh_graph *g, const int32_t *ids,
                         const int64_t *offsets, int64_t n_samples); // ids: stay while it lives
typedef struct osh_exec_values { int v0, v1; } osh_exec_values; // [v0, v1)
typedef struct osh_batch_rows { // views
    const int32_t *ids;     // of all samples
    const int64_t *offsets; // [n + 1] where the batch's begin
    int64_t n;
} osh_batch_rows;
osh_status osh_batch_new_on(osh_ctx *cx, osh_batch **out, osh_device *d, const osh_graph *g,
                            const osh_batch_rows *rows);
/* What it has goes, which is those values alone: its lists stay. b may be NULL. */
void osh_batch_clear(osh_ctx *cx, osh_batch *b, const osh_graph *g, osh_exec_values of);
/* Another batch in the lists of one before, which is cleared. Lists as long as the model has values are made once for
 * many batches and ranges. On failure it is still for osh_batch_free. */
osh_status osh_batch_again(osh_ctx *cx, osh_batch *b, const osh_graph *g, const osh_batch_rows *rows,
                           osh_exec_values of);
void osh_batch_free(osh_ctx *cx, osh_batch *b);
static inline size_t osh_batch_lists(const osh_graph *g, int64_t n_offsets) // gross: its values and offsets
{
    return osh_mem_gross((size_t)g->n_values * sizeof(void *)) + osh_mem_gross((size_t)n_offsets * sizeof(int64_t));
}

/* What threads have of samples while nodes run sample by sample; one for many runs, none of which is at work. */
typedef struct osh_lanes osh_lanes;
osh_status osh_lanes_new(osh_ctx *cx, osh_lanes **out, const osh_graph *g);
void osh_lanes_free(osh_ctx *cx, osh_lanes *l);
size_t osh_lanes_bytes(const osh_graph *g, int n_threads);

typedef struct osh_exec_hooks {
    /* A value exists and is about to be used: statistics. Called once per value and run, before its
     * consumers; for what the caller brought, when the run starts. NULL: none. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                        const osh_batch *b);
    /* Input of a linear node just before it runs, for activation quantization: may return another
     * tensor in *x (view of user's). */
    osh_status (*linear_input)(osh_ctx *cx, void *user, int node, const osh_tensor **x,
                               const osh_batch *b);
    void *user;
    /* view: nodes may run sample by sample, a thread each (osh_exec_by_sample), and `value` is told for certain of
     * routers' outputs and of seen [values] (NULL: none) alone. NULL: they do not. */
    osh_lanes *lanes;
    const bool *seen;
} osh_exec_hooks;

/* Those nodes of [first, first + n) for which run[i - first] is true. */
typedef struct osh_exec_span {
    const osh_graph *g;
    int first, n;
    const bool *run;  // view; NULL: all
    const bool *keep; // view: [values] that stay; NULL: all
    osh_exec_values of; // no other value is brought, read or made, so none is looked at; {0, 0}: any of the graph's
    const bool *routed; // view: [n] nodes that run on the rows alone that go to their expert; NULL: none
    bool joins; // a gate, an up and the glu that alone reads both may run as one (ops/gated.h): the hooks
                // are told of the two values only where seen has them, and have no linear_input
} osh_exec_span;
osh_exec_values osh_exec_values_of(const osh_exec_span *s);
/* Runs them. Afterwards exactly the values with keep[v] that exist are live. A non-finite output fails naming module
 * and sample when check is set; on a device behind the last node. */
osh_status osh_exec_run(osh_ctx *cx, const osh_exec_span *s, const osh_weights *w, osh_batch *b,
                        const osh_exec_hooks *hooks, bool check);
/* The first that is set from `from` on; n: none. Of many few are, so that a loop over those takes next to nothing. */
int osh_next_set(const bool *set, int from, int n);
/* Which nodes of the subgraph must run so that the values with want[v] exist. run: [n_nodes]. */
void osh_exec_needed(bool *run, const osh_graph *g, int first, int n, const bool *want);
/* Whether nodes of a batch on the host run sample by sample, where the hooks let them: a thread takes a sample through
 * all of them, and none waits for the others between two. Of no influence on what comes out. */
bool osh_exec_by_sample(int64_t n_samples, int n_threads);
/* Such nodes: [node, end of them), of those that run; one alone runs on the whole batch. seen as in the
 * hooks, run and routed as in osh_exec_run, of [first, end). */
typedef struct osh_exec_cut {
    const osh_graph *g;
    int first, end;
    const bool *run, *seen, *routed; // views
} osh_exec_cut;
int osh_exec_together(const osh_exec_cut *c, int node);
/* What a peak marks values in, for many of them one after the other: a model of many ranges must not have lists as long
 * as the model made for each pass of each. Own [values]; between peaks none is set. */
typedef struct osh_exec_marks { bool *here, *outer, *lane; } osh_exec_marks;
osh_status osh_exec_marks_init(osh_ctx *cx, osh_exec_marks *m, const osh_graph *g); // on failure for deinit, too
void osh_exec_marks_deinit(osh_ctx *cx, osh_exec_marks *m);
typedef struct osh_exec_batch { // that a peak is of
    int64_t n_tokens;
    int n_threads;
    int64_t at_once;  // by sample: tokens of the n_threads longest samples; 0: never by sample
    int64_t longest;  // tokens of the longest sample
    const bool *seen;          // view, as in the hooks
    const osh_exec_marks *marks; // view; NULL: made for this peak
} osh_exec_batch;
typedef struct osh_exec_brought { // views of [values]
    const bool *in;     // the caller brings it
    const bool *lent;   // or NULL: that is a view of memory that is counted elsewhere
    const size_t *hook; // or NULL: what the hook takes when it appears
} osh_exec_brought;
/* What osh_exec_run takes (bytes gross, an upper bound), beside the batch's lists. *left: of the values that stay, or
 * NULL. keep is given. */
osh_status osh_exec_peak(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s, const osh_exec_brought *in,
                         const osh_exec_batch *b);
/* The same of the short-lived end of a device's arena, the batch's ids and the gaps between blocks included. */
osh_status osh_exec_peak_on_device(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                                   const osh_exec_brought *in, int64_t n_tokens);
#endif
