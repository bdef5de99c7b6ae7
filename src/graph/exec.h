/* exec.h - runs nodes of a graph on one ragged batch: samples of different lengths without padding.
 * Between two calls, the values of the batch belong to the caller. */
#ifndef OSH_EXEC_H
#define OSH_EXEC_H
#include "graph/graph.h"
#include "tensor/device.h"

/* The weights of a graph. The arrays `w` and `host` have an entry for each weight of the graph. An
 * entry is NULL if the weight is not loaded. Weights that a modifier has written have the compute
 * dtype. All other weights have the dtype of the file. */
typedef struct osh_weights {
    osh_tensor **w;     // own: tensors that the ops read, on the device if there is one
    /* own: if there is a device, copies in host memory for the solver and the output; otherwise all
     * NULL */
    osh_tensor **host;
    int n;
    osh_device *device; // view, set by the caller; NULL: all weights are in host memory
    /* view: checkpoint from which lookup ops read single rows of their tables (picked.h); NULL: `w`
     * has the whole tables */
    const osh_checkpoint *rows;
} osh_weights;
/* Makes an object without loaded weights. The caller frees *out with osh_weights_free. */
osh_status osh_weights_new(osh_ctx *cx, osh_weights **out, const osh_graph *g);
void osh_weights_free(osh_ctx *cx, osh_weights *w);
/* Returns the number of bytes of the arrays `w` and `host` without the tensors, with the
 * allocator's overhead. */
static inline size_t osh_weights_lists(const osh_graph *g)
{
    return osh_mem_gross(sizeof(osh_weights)) +
           2 * osh_mem_gross((size_t)g->n_weights * sizeof(osh_tensor *));
}
/* Loads the weights of a range of nodes, to the device if there is one. With a device, host memory
 * has no copies of these weights. Skips weights that are loaded already, and the tables of lookup
 * ops (picked.h). A non-finite element is an error that names the tensor and the index. */
osh_status osh_weights_load(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int first_node, int n_nodes);
typedef struct osh_weight_set { // the graph's weights i in [first, end) for which want[i] is true
    const bool *want; // view [graph weights]
    int first, end;
} osh_weight_set;
/* Reads the weights of the set to w->host. Skips weights that are in memory already, and weights
 * for which osh_weight_is_stored is false (osh_weight_place loads them). Reads on all threads.
 * Mapping pages of memory takes as long as reading the bytes, and threads do both in parallel. */
osh_status osh_weights_read(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, const osh_weight_set *s);
/* True if the loaded weight has the same bytes as one contiguous part of a file. */
bool osh_weight_is_stored(const osh_graph *g, const osh_checkpoint *ck, int weight);
/* Returns the file that contains the bytes of the loaded weight. Sets *e to their entry, whose
 * `begin` and `end` are positions in this file. Returns NULL if the weight is computed when it is
 * read, or if its checksum must be recorded. */
const osh_container *osh_weight_stored(const osh_entry **e, const osh_graph *g,
                                       const osh_checkpoint *ck, int weight);
/* Reads or computes a weight. The caller owns *out, which is in host memory. */
osh_status osh_weight_load(osh_ctx *cx, osh_tensor **out, const osh_graph *g,
                           const osh_checkpoint *ck, int weight);
/* Returns the number of bytes of the weight after loading, with the allocator's overhead. */
size_t osh_weight_bytes(const osh_graph *g, const osh_checkpoint *ck, int weight);
/* Copies host[weight] to the device and sets w[weight] to the copy. If host[weight] is NULL, loads
 * the weight from the checkpoint first. Without a device, w[weight] becomes the loaded tensor. */
osh_status osh_weight_place(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int weight);
/* Frees the weights of n_nodes nodes from first_node on, on the device and in host memory. */
void osh_weights_release(osh_ctx *cx, osh_weights *w, const osh_graph *g, int first_node,
                         int n_nodes);

typedef struct osh_batch {
    osh_tensor **values; // own [n_values]; NULL: the value does not exist now
    int n_values;
    /* Index of the first token of each sample; the last element is the number of tokens of the
     * batch. */
    int64_t *offsets; // own [n_samples + 1]
    osh_seqs seqs;    // view of offsets
    int64_t n_tokens, first_sample;
    osh_device *device; // view: device that runs the nodes and has the values; NULL: host
    const int32_t *ids; // view of the caller's token ids [n_tokens]
    /* Rows of an expert, while a hook is called on a device for a value of this expert
     * (osh_routed_from). The hook may read no other rows. NULL at all other times. */
    const osh_op_rows *rows; // view
    /* If `rows` is set: the number of each row's token in the batch. */
    const int32_t *tokens; // view [rows->n], in device memory
    /* [n_values] or NULL. If into[v] is not NULL, the node that makes value v writes it to the
     * tensor into[v]. The tensor then moves to values[v]. */
    osh_tensor **into; // view
    /* [nodes] State of each node after the earlier tokens of a sample. The batch then has only the
     * next tokens of this sample. NULL: the batch has whole samples. States are allowed only on the
     * host, with osh_exec_hooks.lanes NULL and osh_exec_span.joins false. */
    const osh_op_past *pasts; // view
} osh_batch;
osh_status osh_batch_new(osh_ctx *cx, osh_batch **out, const osh_graph *g, const int32_t *ids,
                         const int64_t *offsets, int64_t n_samples); // ids must outlive the batch
typedef struct osh_exec_values { int v0, v1; } osh_exec_values; // the values v with v0 <= v < v1
typedef struct osh_batch_rows { // views of the token ids of a batch
    const int32_t *ids;     // ids of all samples of the data set
    const int64_t *offsets; // [n + 1]: offsets in `ids` at which the samples of the batch begin
    int64_t n;
} osh_batch_rows;
/* Makes a batch with the ids of `rows` on the device d (NULL: host). The ids must outlive the
 * batch. The caller frees *out with osh_batch_free. */
osh_status osh_batch_new_on(osh_ctx *cx, osh_batch **out, osh_device *d, const osh_graph *g,
                            const osh_batch_rows *rows);
/* Frees those values of the batch that are in the range `of`. Also frees the batch's ids and
 * offsets. Keeps the arrays of pointers. b may be NULL. */
void osh_batch_clear(osh_ctx *cx, osh_batch *b, const osh_graph *g, osh_exec_values of);
/* Clears a batch and fills it with the ids of `rows`. So one object can serve many batches, and its
 * arrays are allocated only once. The caller must call osh_batch_free, even after a failure. */
osh_status osh_batch_again(osh_ctx *cx, osh_batch *b, const osh_graph *g,
                           const osh_batch_rows *rows, osh_exec_values of);
void osh_batch_free(osh_ctx *cx, osh_batch *b);
/* Returns the number of bytes of the arrays `values` and `offsets` of a batch, with the allocator's
 * overhead. */
static inline size_t osh_batch_lists(const osh_graph *g, int64_t n_offsets)
{
    return osh_mem_gross((size_t)g->n_values * sizeof(void *)) +
           osh_mem_gross((size_t)n_offsets * sizeof(int64_t));
}

/* Memory for nodes that run sample by sample: one batch of one sample for each thread. One object
 * serves many calls of osh_exec_run, one after the other. */
typedef struct osh_lanes osh_lanes;
/* Makes one lane for each thread of cx. A lane is the memory of one thread. The caller frees *out
 * with osh_lanes_free. */
osh_status osh_lanes_new(osh_ctx *cx, osh_lanes **out, const osh_graph *g);
void osh_lanes_free(osh_ctx *cx, osh_lanes *l);
/* Returns the number of bytes of lanes without values, with the allocator's overhead. */
size_t osh_lanes_bytes(const osh_graph *g, int n_threads);

typedef struct osh_exec_hooks {
    /* Callback for statistics; may be NULL. Each osh_exec_run calls it once for each value, after
     * the value is made and before nodes read the value. For values that the caller passes in, the
     * call is before the first node runs. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                        const osh_batch *b);
    /* Callback for activation quantization; may be NULL. It is called just before a Linear runs,
     * with the input *x of the node. The callback may set *x to another tensor, which `user`
     * owns. */
    osh_status (*linear_input)(osh_ctx *cx, void *user, int node, const osh_tensor **x,
                               const osh_batch *b);
    void *user;
    /* lanes (view): memory for nodes that run sample by sample, one sample per thread
     * (osh_exec_by_sample). NULL: nodes run on the whole batch.
     * seen (view) [values]: used if nodes run sample by sample. `value` is then called for outputs
     * of routers and for values v for which seen[v] is true. It may also be called for other
     * values. NULL: false for all values. */
    osh_lanes *lanes;
    const bool *seen;
} osh_exec_hooks;

/* Nodes to run: the nodes i in [first, first + n) for which run[i - first] is true. */
typedef struct osh_exec_span {
    const osh_graph *g;
    int first, n;
    const bool *run;  // view [n]: true for nodes that run; NULL: all nodes run
    /* [values] true for values that must exist after the last node; NULL: all values are kept */
    const bool *keep; // view
    /* Range that contains all values that the caller passes in, and all values that the nodes read
     * or make. {0, 0} stands for all values of the graph. */
    osh_exec_values of;
    /* [n] true for nodes that run only on the rows of their expert; NULL: there are no such
     * nodes */
    const bool *routed; // view
    /* True if one kernel may run three nodes: the Linears `gate` and `up`, and their glu
     * (ops/gated.h). The glu must be the only reader of the outputs of `gate` and `up`. The hook
     * `value` is called for such an output v only if seen[v] is true. The hook linear_input is not
     * called for `gate` and `up`. */
    bool joins;
} osh_exec_span;
/* Returns s->of, or the range of all values of the graph if s->of is {0, 0}. */
osh_exec_values osh_exec_values_of(const osh_exec_span *s);
/* Runs the nodes of `s` on the batch. After that, only values v exist for which s->keep[v] is true.
 * If `check` is true, a non-finite output is an error that names the module and the sample. On a
 * device, this error is returned after the last node. */
osh_status osh_exec_run(osh_ctx *cx, const osh_exec_span *s, const osh_weights *w, osh_batch *b,
                        const osh_exec_hooks *hooks, bool check);
/* Returns the first i with from <= i < n and set[i] true, or n if there is none. The search is fast
 * if few entries are true. */
int osh_next_set(const bool *set, int from, int n);
/* Finds the nodes that must run to make the values v for which want[v] is true. Sets run[i] to true
 * for each such node first + i. run [n]: for the nodes [first, first + n). */
void osh_exec_needed(bool *run, const osh_graph *g, int first, int n, const bool *want);
/* True if a batch on the host is run sample by sample. This needs osh_exec_hooks.lanes. Each thread
 * then runs all nodes on its own sample, and does not wait for other threads after each node. The
 * results do not depend on this choice. */
bool osh_exec_by_sample(int64_t n_samples, int n_threads);
/* osh_exec_together returns the end e of the nodes [node, e) that run together, sample by sample.
 * If e is node + 1, the node runs on the whole batch. `seen` is that of osh_exec_hooks. `run` and
 * `routed` are those of osh_exec_span, for the nodes [first, end). */
typedef struct osh_exec_cut {
    const osh_graph *g;
    int first, end;
    const bool *run, *seen, *routed; // views
} osh_exec_cut;
int osh_exec_together(const osh_exec_cut *c, int node);
/* Own [values]: lists of flags for osh_exec_peak. Allocating these long lists takes time, so the
 * caller can pass the same lists to many calls. Between the calls, all flags are false. */
typedef struct osh_exec_marks { bool *here, *outer, *lane; } osh_exec_marks;
/* Allocates the lists of *m. The caller must call osh_exec_marks_deinit, even after a failure. */
osh_status osh_exec_marks_init(osh_ctx *cx, osh_exec_marks *m, const osh_graph *g);
void osh_exec_marks_deinit(osh_ctx *cx, osh_exec_marks *m);
typedef struct osh_exec_batch { // the batch for which a peak is predicted
    int64_t n_tokens;
    int n_threads;
    /* If samples run in parallel: total number of tokens of the n_threads longest samples. 0: nodes
     * run on the whole batch. */
    int64_t at_once;
    int64_t longest;  // number of tokens of the longest sample
    /* Number of earlier tokens of the sample, if the batch has only the next tokens of one sample.
     * Otherwise 0. */
    int64_t past;
    const bool *seen;          // view: as in osh_exec_hooks
    /* Lists that the call uses. NULL: the call allocates its own lists. */
    const osh_exec_marks *marks; // view
} osh_exec_batch;
/* Describes the values that the caller of osh_exec_run passes in. They exist before the first node
 * runs. The arrays are views [values]. */
typedef struct osh_exec_brought {
    const bool *in;     // true for values that the caller passes in
    /* True if the value is a view of memory that is counted elsewhere. NULL: false for all
     * values. */
    const bool *lent;
    /* Bytes that the hook `value` allocates during its call for the value. NULL: 0 for all
     * values. */
    const size_t *hook;
} osh_exec_brought;
/* Predicts an upper bound of the bytes that osh_exec_run needs, with the allocator's overhead. Does
 * not count the lists of the batch. *left: set to the bytes of the values v for which s->keep[v] is
 * true; `left` may be NULL. s->keep must not be NULL. */
osh_status osh_exec_peak(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                         const osh_exec_brought *in, const osh_exec_batch *b);
/* Returns the bytes per token of the widest input of all nodes with a weight. The hook
 * `linear_input` may copy this input. */
size_t osh_exec_input_bytes(const osh_exec_span *s);
/* Predicts the bytes that osh_exec_run needs for short-lived blocks in a device's arena. Counts the
 * ids of the batch and the gaps between blocks. *left: as in osh_exec_peak. */
osh_status osh_exec_peak_on_device(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                                   const osh_exec_brought *in, int64_t n_tokens);
#endif
