/* graph.h - the op graph of a model: modules, values (edges), nodes (ops), weights. Built from
 * models/<name>.json and config.json. */
#ifndef OSH_GRAPH_H
#define OSH_GRAPH_H
#include <string.h>

#include "base/buf.h"
#include "io/checkpoint.h"
#include "ops/op.h"
#include "text/match.h"

typedef struct osh_partition osh_partition;

/* A module of the Hugging Face tree that the template names; parents come before children. */
typedef struct osh_module {
    char *name; // own: "model.layers.0.self_attn.q_proj"
    char *cls;  // own: "Linear"
    int parent; // index; -1: root
    int node;   // the node that runs it; -1: a container
} osh_module;

typedef struct osh_value {
    char *name; // own: "model.layers.0.a"
    int64_t width;
    /* dtype of [N, width]: the compute dtype, or F32 (f32_out of its op); the ids are I32 [N] */
    osh_dtype dtype;
    int producer;            // node; -1: graph input
    int first_use, last_use; // nodes; -1: none
    /* the value of the original model beside it (osh_graph_add_original); -1: same value */
    int original;
    /* for a value of the original model: the value that it is beside; -1: it is not one */
    int quantized;
} osh_value;

typedef struct osh_weight {
    char *name; // own: tensor name; of a tied head: the name of the embedding
    int ndim;
    osh_dtype dtype; // dtype after loading; OSH_DTYPE_NONE: there is no tensor
    int64_t shape[2];
    int64_t tensor;  // index into the checkpoint's tensors; -1: no tensor of this name (compressed)
    /* stored dtype, if single rows can be read; OSH_DTYPE_NONE: no rows are stored */
    osh_dtype by_rows;
    bool compressed; // stored as codes and scales: the caller fills osh_weights
    osh_st_entry *part; // own: the part of the tensor; NULL: all of it
} osh_weight;

typedef struct osh_node {
    const osh_op *op;
    int module;            // index into modules
    int in[OSH_OP_MAX_IN]; // values; -1: absent
    int out[OSH_OP_MAX_OUT];
    int w[OSH_OP_MAX_IN]; // weights; -1: absent
    void *attr;           // own; in a node of the original model: view of the next node's
    bool original;        // makes only values of the original model
} osh_node;
static inline bool osh_node_is(const osh_node *n, const char *op)
{
    return !strcmp(n->op->name, op);
}

typedef struct osh_graph {
    osh_module *modules;
    int n_modules;
    osh_value *values;
    int n_values;
    osh_node *nodes;
    int n_nodes; // in execution order
    osh_weight *weights;
    int n_weights;
    int input_ids; // value
    int hidden;    // value that the head reads (after the final norm)
    int head;      // node of lm_head (its logits are the graph's output)
    osh_logits_rule logits; // how the model changes its logits after that
    int64_t n_vocab, n_layers;
    int64_t max_positions; // longest sample in tokens (rope dynamic: times its factor)
    osh_dtype dtype;       // compute dtype
    char *layer_class;     // own: default sequential target, "LlamaDecoderLayer"
    bool wrapped;          // a text model inside a model for images or sound
    /* there is no tensor of the head, nor one that it is tied to: the head has no weight */
    bool headless;
    char *inner, *outer;   // own: prefixes of its layers and of its head in the checkpoint
    char *loaded;          // own: the prefix of its layers in transformers; NULL: the same
    /* own [nodes]: last node that must be in the same part; NULL: none. The caller sets it */
    int *joined;
} osh_graph;

/* Builds the graph and checks presence, shape and dtype of every weight. models_dir NULL: the
 * embedded templates. An unknown architecture is OSH_E_UNSUPPORTED; the message lists the known
 * ones. */
osh_status osh_graph_new(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                         const char *models_dir);
/* Works like osh_graph_new, but experts see only the tokens that the router sends to them: there is
 * a routed_rows before each. */
osh_status osh_graph_new_by_route(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                                  const char *models_dir);
/* True if the value is an output of routed_rows, or is made from one row by row: all other rows are
 * zeros. */
bool osh_is_by_route(const osh_graph *g, int value);
/* Works like osh_graph_new, for authors of templates: tensors that are missing or have a wrong
 * shape or dtype are listed, and the graph is built. */
typedef struct osh_graph_faults {
    osh_buf text; // own: one line for each
    int64_t n;
} osh_graph_faults;
osh_status osh_graph_check(osh_ctx *cx, osh_graph **out, osh_graph_faults *faults,
                           const osh_checkpoint *ck, const char *models_dir);
void osh_graph_free(osh_ctx *cx, osh_graph *g);
void osh_graph_link_uses(osh_graph *g); // sets first and last use of every value
bool osh_graph_knows(osh_ctx *cx, const char *architecture, const char *models_dir);
/* *yes: loaders want the experts of a dense model in one tensor ("stacked" of the text model's
 * template). */
osh_status osh_graph_is_stacked(osh_ctx *cx, bool *yes, const osh_checkpoint *ck,
                                const char *models_dir);
/* Returns, own, the name in transformers of a module that the checkpoint calls `name`:
 * language_model.model.layers.0 is model.language_model.layers.0, layers.0 is model.layers.0,
 * language_model.lm_head is lm_head. NULL: the same name, or no memory. */
char *osh_graph_loaded_name(osh_ctx *cx, const osh_graph *g, const char *name);
static inline size_t osh_value_bytes(const osh_graph *g, int v) // bytes of one token
{
    return (size_t)g->values[v].width * osh_dtype_bytes(g->values[v].dtype);
}
static inline size_t osh_value_gross(const osh_graph *g, int v, int64_t n_tokens)
{
    return osh_tensor_gross((size_t)n_tokens * osh_value_bytes(g, v));
}
int osh_graph_host_only(const osh_graph *g); // first node whose op has no GPU version; -1: none
/* Fails if the head has no weight. why: the command or modifier that needs it, for the message. */
osh_status osh_graph_need_head(osh_ctx *cx, const osh_graph *g, const osh_checkpoint *ck,
                               const char *why);
bool osh_node_routes(const osh_node *n); // its output assigns tokens to experts
/* Returns the entry to read (parts.c). */
const osh_st_entry *osh_weight_entry(const osh_graph *g, const osh_checkpoint *ck, int weight);
int osh_graph_module(const osh_graph *g, const char *name); // -1: none
/* Puts the original model beside the model that is changed. changed[i]: the weights of node i will
 * change. Every node that depends on a changed node is doubled: a node of the original model is
 * inserted before it, with the same weights, which reads and makes the original values. moved
 * [nodes]: the new index of each node. Other indices of nodes and values that the caller has become
 * invalid. */
osh_status osh_graph_add_original(osh_ctx *cx, osh_graph *g, const bool *changed, int *moved);
/* Returns Graphviz text, own. p NULL: without subgraphs. */
osh_status osh_graph_dot(osh_ctx *cx, char **out, const osh_graph *g, const osh_partition *p);

typedef struct osh_subgraph {
    int first, n_nodes; // nodes [first, first + n_nodes) of the graph: disjoint and in order
    int n_targets;
    char *name; // own: module of the first target ("model.embed_tokens" if there is none)
    int *live_in;
    int n_live_in; // values of earlier subgraphs that this one reads
    int *live_out;
    int n_live_out; // values made here or before that later subgraphs read
} osh_subgraph;
struct osh_partition {
    osh_subgraph *parts;
    int n;
};

/* Cuts the graph. targets: class, name or re:; n 0: the decoder layer. A target that matches
 * nothing is an error that names it. Linears that share an input stay together and count as one
 * target. If they are not next to each other, the smallest module that contains them stays
 * together; of experts, gate and up of each one stay together. */
osh_status osh_partition_new(osh_ctx *cx, osh_partition **out, const osh_graph *g,
                             const char *const *targets, size_t n, int64_t per_subgraph);
void osh_partition_free(osh_ctx *cx, osh_partition *p);
#endif
