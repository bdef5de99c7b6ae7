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
/* Those that are missing, but for tables of lookups (picked.h); a non-finite element fails naming tensor and index. */
osh_status osh_weights_load(osh_ctx *cx, osh_weights *w, const osh_graph *g,
                            const osh_checkpoint *ck, int first_node, int n_nodes);
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
} osh_batch;
osh_status osh_batch_new(osh_ctx *cx, osh_batch **out, const osh_graph *g, const int32_t *ids,
                         const int64_t *offsets, int64_t n_samples); // ids: stay while it lives
osh_status osh_batch_new_on(osh_ctx *cx, osh_batch **out, osh_device *d, const osh_graph *g, const int32_t *ids,
                            const int64_t *offsets, int64_t n_samples);
void osh_batch_free(osh_ctx *cx, osh_batch *b);

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
    const bool *routed; // [n] nodes that run on the rows alone that go to their expert, on the host; NULL: none
} osh_exec_hooks;

/* Runs those nodes of [first, first + n) for which run[i - first] is true (run NULL: all).
 * Afterwards exactly the values with keep[v] that exist are live (keep NULL: all). A non-finite
 * output fails naming module and sample when check is set; on a device behind the last node. */
osh_status osh_exec_run(osh_ctx *cx, const osh_graph *g, int first, int n, const bool *run,
                        const osh_weights *w, osh_batch *b, const bool *keep,
                        const osh_exec_hooks *hooks, bool check);
/* The first that is set from `from` on; n: none. Of many few are, so that a loop over those takes next to nothing. */
int osh_next_set(const bool *set, int from, int n);
/* Which nodes of the subgraph must run so that the values with want[v] exist. run: [n_nodes]. */
void osh_exec_needed(bool *run, const osh_graph *g, int first, int n, const bool *want);
/* What osh_exec_run takes (bytes gross, an upper bound) for a batch of n_tokens tokens: in[v]: the caller brings it;
 * lent[v] (or NULL): that is a view of memory that is counted elsewhere; keep and run as there; hook[v] (or NULL): what
 * the hook takes when v appears. *left: of the values that stay. */
size_t osh_exec_peak(const osh_graph *g, int first, int n, const bool *run, const bool *in, const bool *lent,
                     const bool *keep, const size_t *hook, int64_t n_tokens, int n_threads, size_t *left);
/* The same of the short-lived end of a device's arena, the batch's ids and the gaps between blocks included. */
osh_status osh_exec_peak_on_device(osh_ctx *cx, size_t *peak, size_t *left, const osh_graph *g, int first, int n,
                                   const bool *run, const bool *in, const bool *keep, const size_t *hook,
                                   int64_t n_tokens);
#endif
