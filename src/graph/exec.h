/* exec.h - runs nodes of a graph on one ragged batch. The caller owns the values that are live
 * between calls. */
#ifndef OSH_EXEC_H
#define OSH_EXEC_H
#include "graph/graph.h"
#include "tensor/device.h"

/* Weights by index of the graph; NULL: not loaded. They have the stored dtype, or the compute dtype
 * after a modifier has written them. */
typedef struct osh_weights {
    osh_tensor **w;     // own: what the ops read; on the device, if there is one
    /* own: with a device, the host copies that the solver and the output still need; else all
     * NULL */
    osh_tensor **host;
    int n;
    osh_device *device; // view; NULL: host memory. The caller sets it
    /* view: the source of table rows of lookups (picked.h); NULL: w has the whole tables */
    const osh_checkpoint *rows;
} osh_weights;
osh_status osh_weights_new(osh_ctx *cx, osh_weights **out, const osh_graph *g);
void osh_weights_free(osh_ctx *cx, osh_weights *w);
static inline size_t osh_weights_lists(const osh_graph *g) // gross bytes of the lists alone
{
    return osh_mem_gross(sizeof(osh_weights)) +
           2 * osh_mem_gross((size_t)g->n_weights * sizeof(osh_tensor *));
}
/* Loads the weights of the nodes that are not loaded yet, except tables of lookups (picked.h). A
 * non-finite element is an error that names tensor and index. */
osh_status osh_weights_load(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int first_node, int n_nodes);
/* True if the weight, as it is loaded, is a range of a file. */
bool osh_weight_is_stored(const osh_graph *g, const osh_checkpoint *ck, int weight);
/* Returns the file that has the weight, unchanged, as bytes [begin, end) of *e. Returns NULL if the
 * weight is computed while it is read, or if checksums are wanted. */
const osh_st *osh_weight_stored(const osh_st_entry **e, const osh_graph *g,
                                const osh_checkpoint *ck, int weight);
osh_status osh_weight_load(osh_ctx *cx, osh_tensor **out, const osh_graph *g,
                           const osh_checkpoint *ck, int weight);
/* Returns the gross bytes of the weight when it is loaded. */
size_t osh_weight_bytes(const osh_graph *g, const osh_checkpoint *ck, int weight);
/* Copies host[weight] to the device, loading it if it is missing. Without a device it becomes
 * w[weight] itself. */
osh_status osh_weight_place(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int weight);
void osh_weights_release(osh_ctx *cx, osh_weights *w, const osh_graph *g, int first_node,
                         int n_nodes);

typedef struct osh_batch {
    osh_tensor **values; // [graph n_values], own; NULL: not live
    int n_values;
    int64_t *offsets; // own [n_samples + 1]
    osh_seqs seqs;    // view of offsets
    int64_t n_tokens, first_sample;
    osh_device *device; // view: has the values and runs the nodes; NULL: host
    const int32_t *ids; // view of the caller's [n_tokens]
    /* view [n_values]: storage for outputs, moved to `values` when they are made; NULL: none */
    osh_tensor **into;
    /* view [nodes]: the batch is the next piece of one sample; NULL: it has whole samples. Host
     * only, without lanes and joins */
    const osh_op_past *pasts;
} osh_batch;
osh_status osh_batch_new(osh_ctx *cx, osh_batch **out, const osh_graph *g, const int32_t *ids,
                         const int64_t *offsets, int64_t n_samples); // ids: must outlive the batch
typedef struct osh_exec_values { int v0, v1; } osh_exec_values; // [v0, v1)
typedef struct osh_batch_rows { // views
    const int32_t *ids;     // ids of all samples
    const int64_t *offsets; // [n + 1] offsets of the batch's samples
    int64_t n;
} osh_batch_rows;
osh_status osh_batch_new_on(osh_ctx *cx, osh_batch **out, osh_device *d, const osh_graph *g,
                            const osh_batch_rows *rows);
/* Frees the values `of`, the ids and the offsets; the lists stay. b may be NULL. */
void osh_batch_clear(osh_ctx *cx, osh_batch *b, const osh_graph *g, osh_exec_values of);
/* Clears a batch and fills it with other rows. So the lists, as long as the model has values, are
 * allocated once for many batches and ranges. On failure the caller still calls osh_batch_free. */
osh_status osh_batch_again(osh_ctx *cx, osh_batch *b, const osh_graph *g,
                           const osh_batch_rows *rows, osh_exec_values of);
void osh_batch_free(osh_ctx *cx, osh_batch *b);
/* Returns the gross bytes of the lists of values and offsets. */
static inline size_t osh_batch_lists(const osh_graph *g, int64_t n_offsets)
{
    return osh_mem_gross((size_t)g->n_values * sizeof(void *)) +
           osh_mem_gross((size_t)n_offsets * sizeof(int64_t));
}

/* The samples of threads, for nodes that run sample by sample. One object serves many runs, one
 * after the other. */
typedef struct osh_lanes osh_lanes;
osh_status osh_lanes_new(osh_ctx *cx, osh_lanes **out, const osh_graph *g);
void osh_lanes_free(osh_ctx *cx, osh_lanes *l);
size_t osh_lanes_bytes(const osh_graph *g, int n_threads);

typedef struct osh_exec_hooks {
    /* Called when a value exists and is about to be used, for statistics: once per value and run,
     * before the nodes that read it; for values that the caller brought, at the start of the run.
     * NULL: none. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                        const osh_batch *b);
    /* Called with the input of a linear node just before the node runs, for activation
     * quantization. It may set *x to another tensor, which user owns. */
    osh_status (*linear_input)(osh_ctx *cx, void *user, int node, const osh_tensor **x,
                               const osh_batch *b);
    void *user;
    /* view: nodes may run sample by sample, one per thread (osh_exec_by_sample). Then `value` is
     * called at least for outputs of routers and for the values in `seen` [values] (NULL: none).
     * NULL: nodes run on the whole batch. */
    osh_lanes *lanes;
    const bool *seen;
} osh_exec_hooks;

/* The nodes of [first, first + n) with run[i - first]. */
typedef struct osh_exec_span {
    const osh_graph *g;
    int first, n;
    const bool *run;  // view; NULL: all
    const bool *keep; // view: [values] that stay; NULL: all
    /* the run brings, reads and makes no other values; {0, 0}: it may use all of the graph */
    osh_exec_values of;
    const bool *routed; // view: [n] nodes that run only on the rows of their expert; NULL: none
    /* a gate, an up and the glu that alone reads both may run as one (ops/gated.h): the hooks are
     * told of the two values only where `seen` has them, and there is no linear_input */
    bool joins;
} osh_exec_span;
osh_exec_values osh_exec_values_of(const osh_exec_span *s);
/* Runs the nodes. Afterwards exactly the values with keep[v] that exist are live. With `check`, a
 * non-finite output is an error that names module and sample; on a device it comes after the last
 * node. */
osh_status osh_exec_run(osh_ctx *cx, const osh_exec_span *s, const osh_weights *w, osh_batch *b,
                        const osh_exec_hooks *hooks, bool check);
/* Returns the first index from `from` on that is set; n: none. It is fast for sparse sets. */
int osh_next_set(const bool *set, int from, int n);
/* Sets run [n_nodes]: the nodes that must run to make the values with want[v]. */
void osh_exec_needed(bool *run, const osh_graph *g, int first, int n, const bool *want);
/* True if nodes of a host batch run sample by sample, when the hooks allow it: a thread takes a
 * sample through all of the nodes and does not wait for other threads between two. The results do
 * not depend on it. */
bool osh_exec_by_sample(int64_t n_samples, int n_threads);
/* Returns the end of the nodes from `node` on that run together, sample by sample. A single node
 * runs on the whole batch. seen: as in the hooks; run, routed: as in osh_exec_span, for [first,
 * end). */
typedef struct osh_exec_cut {
    const osh_graph *g;
    int first, end;
    const bool *run, *seen, *routed; // views
} osh_exec_cut;
int osh_exec_together(const osh_exec_cut *c, int node);
/* Marks of values for osh_exec_peak, reused for many peaks: in a model with many ranges, allocating
 * lists as long as the model for each pass of each range would be slow. Own [values]; all false
 * between peaks. */
typedef struct osh_exec_marks { bool *here, *outer, *lane; } osh_exec_marks;
/* After a failure the caller still calls osh_exec_marks_deinit. */
osh_status osh_exec_marks_init(osh_ctx *cx, osh_exec_marks *m, const osh_graph *g);
void osh_exec_marks_deinit(osh_ctx *cx, osh_exec_marks *m);
typedef struct osh_exec_batch { // the batch of a peak
    int64_t n_tokens;
    int n_threads;
    /* with samples in parallel: tokens of the n_threads longest samples; 0: never by sample */
    int64_t at_once;
    int64_t longest;  // tokens of the longest sample
    int64_t past;     // tokens of the one sample before this piece of it
    const bool *seen;          // view, as in the hooks
    const osh_exec_marks *marks; // view; NULL: allocated for this peak
} osh_exec_batch;
typedef struct osh_exec_brought { // views of [values]
    const bool *in;     // the caller brings it
    const bool *lent;   // the value is a view of memory that is counted elsewhere; NULL: none is
    const size_t *hook; // bytes that the hook takes when the value appears; NULL: none
} osh_exec_brought;
/* Bytes (gross, an upper bound) that osh_exec_run takes besides the lists of the batch. *left:
 * bytes of the values that stay; left may be NULL. s->keep must be given. */
osh_status osh_exec_peak(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                         const osh_exec_brought *in, const osh_exec_batch *b);
/* Does what osh_exec_peak does for the short-lived end of a device's arena. The ids of the batch
 * and the gaps between blocks are included. */
osh_status osh_exec_peak_on_device(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                                   const osh_exec_brought *in, int64_t n_tokens);
#endif
