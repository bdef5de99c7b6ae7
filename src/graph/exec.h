/* exec.h - runs nodes of a graph on one ragged batch: samples of different lengths without padding.
 * The caller owns the values that exist between calls. */
#ifndef OSH_EXEC_H
#define OSH_EXEC_H
#include "graph/graph.h"
#include "tensor/device.h"

/* The weights, by index in the graph; NULL: not loaded. A weight that a modifier has written has
 * the compute dtype. All other weights have the dtype of the file. */
typedef struct osh_weights {
    osh_tensor **w;     // own: tensors that the ops read; on the device, if there is one
    /* own: if there is a device, copies in host memory for the solver and the output; else all
     * NULL. */
    osh_tensor **host;
    int n;
    osh_device *device; // view, set by the caller; NULL: the weights are in host memory
    /* view: checkpoint from which lookup ops read single rows of their tables (picked.h); NULL: the
     * whole tables are in `w` */
    const osh_checkpoint *rows;
} osh_weights;
osh_status osh_weights_new(osh_ctx *cx, osh_weights **out, const osh_graph *g);
void osh_weights_free(osh_ctx *cx, osh_weights *w);
/* Returns the bytes of the arrays `w` and `host` without the tensors, with the allocator's
 * overhead. */
static inline size_t osh_weights_lists(const osh_graph *g)
{
    return osh_mem_gross(sizeof(osh_weights)) +
           2 * osh_mem_gross((size_t)g->n_weights * sizeof(osh_tensor *));
}
/* Loads the weights of the nodes that are not loaded yet. Does not load the embedding tables of
 * lookup ops (picked.h). A non-finite element is an error that names the tensor and the index. */
osh_status osh_weights_load(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int first_node, int n_nodes);
typedef struct osh_weight_set { // weights [first, end) of the graph for which `want` is true
    const bool *want; // view [graph weights]
    int first, end;
} osh_weight_set;
/* Reads the weights of the set to w->host, except weights that are in memory already, and weights
 * for which osh_weight_is_stored is false; osh_weight_place loads the latter. Reads on all threads:
 * mapping pages of memory takes as long as reading the bytes, and both run in parallel. */
osh_status osh_weights_read(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, const osh_weight_set *s);
/* True if the weight in memory has the same bytes as a range of a file. */
bool osh_weight_is_stored(const osh_graph *g, const osh_checkpoint *ck, int weight);
/* Returns the file that contains the bytes of the weight as bytes [begin, end) of *e. Returns NULL
 * if the weight is computed when it is read, or if its checksum must be recorded. */
const osh_container *osh_weight_stored(const osh_entry **e, const osh_graph *g,
                                       const osh_checkpoint *ck, int weight);
osh_status osh_weight_load(osh_ctx *cx, osh_tensor **out, const osh_graph *g,
                           const osh_checkpoint *ck, int weight);
/* Returns the bytes of the loaded weight, with the allocator's overhead. */
size_t osh_weight_bytes(const osh_graph *g, const osh_checkpoint *ck, int weight);
/* Copies host[weight] to the device and sets w[weight]. If host[weight] is NULL, loads the weight
 * from the checkpoint first. Without a device, the loaded tensor becomes w[weight]. */
osh_status osh_weight_place(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int weight);
void osh_weights_release(osh_ctx *cx, osh_weights *w, const osh_graph *g, int first_node,
                         int n_nodes);

typedef struct osh_batch {
    osh_tensor **values; // own [graph n_values]; NULL: the value does not exist now
    int n_values;
    /* Index of the first token of each sample, then the number of tokens. */
    int64_t *offsets; // own [n_samples + 1]
    osh_seqs seqs;    // view of offsets
    int64_t n_tokens, first_sample;
    osh_device *device; // view: device that has the values and runs the nodes; NULL: host
    const int32_t *ids; // view of the caller's token ids [n_tokens]
    /* View [n_values]: storage for outputs. A node that makes the value moves the tensor from here
     * to `values`. NULL: no storage. */
    osh_tensor **into;
    /* View [nodes]: state of the earlier tokens, if the batch has only the next tokens of one
     * sample. NULL: the batch has whole samples. A state is allowed only on the host, if
     * osh_exec_hooks.lanes is NULL and osh_exec_span.joins is false. */
    const osh_op_past *pasts;
} osh_batch;
osh_status osh_batch_new(osh_ctx *cx, osh_batch **out, const osh_graph *g, const int32_t *ids,
                         const int64_t *offsets, int64_t n_samples); // ids: must outlive the batch
typedef struct osh_exec_values { int v0, v1; } osh_exec_values; // the values v with v0 <= v < v1
typedef struct osh_batch_rows { // token ids of a batch; the pointers are views
    const int32_t *ids;     // ids of all samples of the data set
    const int64_t *offsets; // [n + 1] offsets in `ids` of the n samples of the batch
    int64_t n;
} osh_batch_rows;
osh_status osh_batch_new_on(osh_ctx *cx, osh_batch **out, osh_device *d, const osh_graph *g,
                            const osh_batch_rows *rows);
/* Frees the values in the range `of`, the ids and the offsets, but not the lists that hold them. b
 * may be NULL. */
void osh_batch_clear(osh_ctx *cx, osh_batch *b, const osh_graph *g, osh_exec_values of);
/* Clears a batch and fills it with the ids of `rows`. So one object serves many batches, and its
 * lists are allocated only once. After a failure the caller still calls osh_batch_free. */
osh_status osh_batch_again(osh_ctx *cx, osh_batch *b, const osh_graph *g,
                           const osh_batch_rows *rows, osh_exec_values of);
void osh_batch_free(osh_ctx *cx, osh_batch *b);
/* Returns the bytes of the arrays of values and offsets, with the allocator's overhead. */
static inline size_t osh_batch_lists(const osh_graph *g, int64_t n_offsets)
{
    return osh_mem_gross((size_t)g->n_values * sizeof(void *)) +
           osh_mem_gross((size_t)n_offsets * sizeof(int64_t));
}

/* Memory for nodes that run sample by sample: a batch of one sample for each thread. One object
 * serves many calls of osh_exec_run, one after the other. */
typedef struct osh_lanes osh_lanes;
osh_status osh_lanes_new(osh_ctx *cx, osh_lanes **out, const osh_graph *g);
void osh_lanes_free(osh_ctx *cx, osh_lanes *l);
size_t osh_lanes_bytes(const osh_graph *g, int n_threads);

typedef struct osh_exec_hooks {
    /* Callback for statistics; may be NULL. It is called once for each value in each osh_exec_run,
     * after the value is made and before nodes read it. For values that the caller passes in, it is
     * called before the first node runs. */
    osh_status (*value)(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                        const osh_batch *b);
    /* Callback for activation quantization. It is called with the input of a linear node just
     * before the node runs. The callback may set *x to another tensor, which `user` owns. */
    osh_status (*linear_input)(osh_ctx *cx, void *user, int node, const osh_tensor **x,
                               const osh_batch *b);
    void *user;
    /* View: memory for runs sample by sample, one sample per thread (osh_exec_by_sample). NULL:
     * nodes run on the whole batch. If nodes run sample by sample, `value` is called for outputs of
     * routers and for values with seen[v]; it need not be called for other values. `seen` NULL:
     * false for all values. */
    osh_lanes *lanes;
    const bool *seen;
} osh_exec_hooks;

/* Nodes to run: the nodes i in [first, first + n) for which run[i - first] is true. */
typedef struct osh_exec_span {
    const osh_graph *g;
    int first, n;
    const bool *run;  // view: true for nodes that run; NULL: all nodes run
    /* [values] true for values that exist after the last node; NULL: all values are kept. */
    const bool *keep; // view
    /* Range that contains all values that the caller brings, and all values that the nodes read or
     * make; {0, 0}: all values of the graph. */
    osh_exec_values of;
    /* [n] true for nodes that run only on the rows of their expert; NULL: none. */
    const bool *routed; // view
    /* True if the Linears gate and up may run as one kernel with their glu, the only reader of
     * their outputs (ops/gated.h). The hook `value` is then called for an output v of the two
     * Linears only if seen[v] is true, and linear_input is not called. */
    bool joins;
} osh_exec_span;
osh_exec_values osh_exec_values_of(const osh_exec_span *s);
/* Runs the nodes. Afterwards, only values with keep[v] exist. If `check` is true, a non-finite
 * output is an error that names module and sample; on a device this error is returned after the
 * last node. */
osh_status osh_exec_run(osh_ctx *cx, const osh_exec_span *s, const osh_weights *w, osh_batch *b,
                        const osh_exec_hooks *hooks, bool check);
/* Returns the first i >= from with set[i] true, or n if there is none. Fast if few items are
 * true. */
int osh_next_set(const bool *set, int from, int n);
/* Sets run [n] to true for the nodes of [first, first + n) that must run to make the values with
 * want[v]. */
void osh_exec_needed(bool *run, const osh_graph *g, int first, int n, const bool *want);
/* True if nodes of a batch on the host run sample by sample when osh_exec_hooks.lanes is set. Each
 * thread then runs all nodes on its own sample, and does not wait for other threads after each
 * node. The results do not depend on this choice. */
bool osh_exec_by_sample(int64_t n_samples, int n_threads);
/* osh_exec_together returns the end e of the nodes [node, e) that run together, sample by sample.
 * If e is node + 1, the node runs on the whole batch. `seen` is as in osh_exec_hooks. `run` and
 * `routed` are as in osh_exec_span, for nodes [first, end). */
typedef struct osh_exec_cut {
    const osh_graph *g;
    int first, end;
    const bool *run, *seen, *routed; // views
} osh_exec_cut;
int osh_exec_together(const osh_exec_cut *c, int node);
/* Lists of flags for osh_exec_peak, own [values]. The lists are long, so the caller allocates them
 * once for many calls. Between calls all flags are false. */
typedef struct osh_exec_marks { bool *here, *outer, *lane; } osh_exec_marks;
/* Allocates the lists. After a failure the caller still calls osh_exec_marks_deinit. */
osh_status osh_exec_marks_init(osh_ctx *cx, osh_exec_marks *m, const osh_graph *g);
void osh_exec_marks_deinit(osh_ctx *cx, osh_exec_marks *m);
typedef struct osh_exec_batch { // properties of the batch for which a peak is predicted
    int64_t n_tokens;
    int n_threads;
    /* If samples run in parallel: sum of the tokens of the n_threads longest samples. 0: nodes run
     * on the whole batch. */
    int64_t at_once;
    int64_t longest;  // number of tokens of the longest sample
    /* Number of earlier tokens of the sample, if the batch has only the next tokens of one
     * sample. */
    int64_t past;
    const bool *seen;          // view: as in osh_exec_hooks
    /* Lists that the call may use; NULL: the call allocates its own lists. */
    const osh_exec_marks *marks; // view
} osh_exec_batch;
/* Lists, views [values], that describe the values that the caller of osh_exec_run passes in. These
 * values exist before the first node. */
typedef struct osh_exec_brought {
    const bool *in;     // true for values that the caller passes in
    /* True if the value is a view of memory that the caller counts; NULL: false for all values. */
    const bool *lent;
    /* Number of bytes that the hook `value` allocates when it is called for the value; NULL: 0
     * bytes. */
    const size_t *hook;
} osh_exec_brought;
/* Predicts an upper bound of the bytes (with the allocator's overhead) that osh_exec_run needs
 * besides the lists of the batch. *left is the number of bytes of the values v with keep[v]; `left`
 * may be NULL. s->keep must not be NULL. */
osh_status osh_exec_peak(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                         const osh_exec_brought *in, const osh_exec_batch *b);
/* Returns the bytes per token of the largest copy that a hook linear_input makes: of the widest
 * input among the nodes that run and have weights. */
size_t osh_exec_input_bytes(const osh_exec_span *s);
/* Predicts, like osh_exec_peak, the bytes at the short-lived end of a device's arena. The result
 * includes the ids of the batch and the gaps between blocks. */
osh_status osh_exec_peak_on_device(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                                   const osh_exec_brought *in, int64_t n_tokens);
#endif
