/* graph.h - declares the op graph of a model: modules, values (edges), nodes (ops) and weights. The
 * graph is built from a template models/<name>.json and from config.json. */
#ifndef OSH_GRAPH_H
#define OSH_GRAPH_H
#include <string.h>

#include "base/buf.h"
#include "io/checkpoint.h"
#include "ops/op.h"
#include "text/match.h"

typedef struct osh_partition osh_partition;

/* A module of the Hugging Face model. The graph has only the modules that the template names.
 * Parents come before children. */
typedef struct osh_module {
    char *name; // own: full name, such as "model.layers.0.self_attn.q_proj"
    char *cls;  // own: class, such as "Linear"
    int parent; // index of the module that contains this module; -1: this module is the root
    int node;   // index of the module's node; -1: the module only contains other modules
} osh_module;

typedef struct osh_value {
    char *name; // own: name, such as "model.layers.0.a"
    int64_t width;
    /* dtype of the value, whose shape is [N, width] for N tokens. It is the compute dtype, or F32
     * if the op has OSH_OP_F32_OUT (ops/op.h). The token ids are I32 [N]. */
    osh_dtype dtype;
    int producer;            // node that makes the value; -1: the value is the input of the graph
    int first_use, last_use; // first and last node that read the value; -1: no node reads it
    /* Index of the counterpart in the original model (osh_graph_add_original), if this is a value
     * of the quantized model. -1: the value has no counterpart, because both models share it. */
    int original;
    /* Index of the counterpart in the quantized model, if this is a value of the original model
     * alone. Otherwise -1. */
    int quantized;
} osh_value;

typedef struct osh_weight {
    char *name; // own: name of the tensor; if the head is tied, its weight has the embedding's name
    int ndim;
    /* dtype after loading; OSH_DTYPE_NONE: the checkpoint has no tensor of the weight */
    osh_dtype dtype;
    int64_t shape[2];
    /* Index of the weight's tensor in the checkpoint. -1: no tensor has the weight's name, because
     * the weight is compressed or is a part of a tensor. */
    int64_t tensor;
    /* dtype in the file, if single rows of the weight can be read; otherwise OSH_DTYPE_NONE */
    osh_dtype by_rows;
    /* True if the checkpoint has codes and scales of the weight. The caller must then decode the
     * weight and set its tensor in osh_weights. */
    bool compressed;
    /* If the weight is a table in several tensors: indices of these tensors, in the order of the
     * rows. For all other weights, n_shards is 0. */
    int64_t *shards; // own [n_shards]
    int64_t n_shards;
    /* own: the part of a tensor that is the weight; NULL: the weight is a whole tensor */
    osh_entry *part;
} osh_weight;

typedef struct osh_node {
    const osh_op *op;
    int module;            // index of the module that contains the node
    int in[OSH_OP_MAX_IN]; // indices of values; -1: no input
    int out[OSH_OP_MAX_OUT];
    int w[OSH_OP_MAX_IN]; // indices of weights; -1: no weight
    void *attr; // own; in a node of the original model, a view of the next node's attr
    bool original;        // true if the node exists only in the original model
} osh_node;
static inline bool osh_node_is(const osh_node *n, unsigned traits) // traits: OSH_OP_* bits
{
    return osh_op_is(n->op, traits);
}

/* describes the norm that the node computes, if its op is a norm */
static inline osh_op_norm osh_node_norm(const osh_node *n)
{
    return n->op->norm ? n->op->norm(n->attr) : (osh_op_norm){0};
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
    int input_ids; // index of the value of the token ids
    int hidden;    // index of the value that the head reads (after the final norm)
    int head;      // node of the output head, whose logits are the output of the graph
    osh_logits_rule logits; // division and cap of the logits after the head
    int64_t n_vocab, n_layers;
    /* number of tokens of the longest sample that the model accepts; with dynamic rope, multiplied
     * by the factor of the rope */
    int64_t max_positions;
    bool sparse_limit; // true if max_positions is a limit of sparse attention
    osh_dtype dtype;       // compute dtype
    char *layer_class; // own: class of the default sequential target, such as "LlamaDecoderLayer"
    bool wrapped;          // true if the text model is inside a model for images or sound
    /* true if the output head has no weight: the checkpoint has no tensor for the head, and
     * config.json does not tie the head to the embedding */
    bool headless;
    /* own: prefixes that layers (inner) and the head (outer) have in the checkpoint */
    char *inner, *outer;
    char *loaded; // own: prefix that layers have in transformers; NULL: equal to `inner`
    /* [nodes]: joined[i] is the index of the last node that must be in the same subgraph as node i.
     * A caller may set this array. NULL: any two nodes may be in different subgraphs. */
    int *joined; // own
} osh_graph;

/* Returns a remark for messages about max_positions, or "". */
static inline const char *osh_positions_why(const osh_graph *g)
{
    return g->sparse_limit ? " (its sparse attention skips tokens of longer samples, and the "
                             "program does not compute that)"
                           : "";
}
/* Returns the weight of the output head (view). */
static inline const osh_weight *osh_graph_head(const osh_graph *g)
{
    return &g->weights[g->nodes[g->head].w[0]];
}
/* Returns the bias of the output head (view), or NULL if it has none. */
static inline const osh_weight *osh_graph_head_bias(const osh_graph *g)
{
    int w = g->nodes[g->head].w[1];
    return w >= 0 ? &g->weights[w] : NULL;
}

/* Builds the graph and checks presence, shape and dtype of every weight. If models_dir is NULL,
 * uses the embedded templates. Returns OSH_E_UNSUPPORTED if the architecture is unknown. */
osh_status osh_graph_new(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                         const char *models_dir);
/* Builds the graph like osh_graph_new, but from the template `text` of n bytes. The architectures
 * that the template lists are ignored. */
osh_status osh_graph_new_from(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                              const char *text, size_t n);
/* Builds the graph like osh_graph_new, but with a routed_rows node before each expert. The expert
 * then gets only the tokens that the router sends to it. */
osh_status osh_graph_new_by_route(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                                  const char *models_dir);
/* True if the value is an output of a routed_rows node, or is computed row by row from such an
 * output. The value has zeros in the rows of tokens that are not routed to the expert. */
bool osh_is_by_route(const osh_graph *g, int value);
/* Result of osh_graph_check, for authors of templates. osh_graph_check builds the graph like
 * osh_graph_new. But a tensor that is missing, or that has a wrong shape or dtype, is no error: it
 * is listed in *faults. */
typedef struct osh_graph_faults {
    osh_buf text; // own: one line for each fault
    int64_t n;
} osh_graph_faults;
osh_status osh_graph_check(osh_ctx *cx, osh_graph **out, osh_graph_faults *faults,
                           const osh_checkpoint *ck, const char *models_dir);
/* Frees the graph. Accepts NULL. */
void osh_graph_free(osh_ctx *cx, osh_graph *g);
void osh_graph_link_uses(osh_graph *g); // sets first_use and last_use of every value
/* True if there is a template for the architecture. */
bool osh_graph_knows(osh_ctx *cx, const char *architecture, const char *models_dir);
/* Sets *yes to true if loaders read all experts of an unquantized layer from one tensor. This is so
 * if the text model's template has the key "stacked". */
osh_status osh_graph_is_stacked(osh_ctx *cx, bool *yes, const osh_checkpoint *ck,
                                const char *models_dir);
/* Returns the name (own) that transformers gives to a module. name: its name in the checkpoint.
 * Returns NULL if the two names are equal, or if out of memory. For example,
 * language_model.model.layers.0 becomes model.language_model.layers.0, layers.0 becomes
 * model.layers.0, and language_model.lm_head becomes lm_head. */
char *osh_graph_loaded_name(osh_ctx *cx, const osh_graph *g, const char *name);
/* Returns the number of bytes that a value has for one token. */
static inline size_t osh_value_bytes(const osh_graph *g, int v)
{
    return (size_t)g->values[v].width * osh_dtype_bytes(g->values[v].dtype);
}
static inline size_t osh_value_gross(const osh_graph *g, int v, int64_t n_tokens)
{
    return osh_tensor_gross((size_t)n_tokens * osh_value_bytes(g, v));
}
/* Returns the first node whose op has no kernel for a GPU, or -1 if there is none. */
int osh_graph_host_only(const osh_graph *g);
/* Fails if the head has no weight. why: the command or modifier that needs the head (a word for the
 * message). */
osh_status osh_graph_need_head(osh_ctx *cx, const osh_graph *g, const osh_checkpoint *ck,
                               const char *why);
/* True if the node is a router: its output assigns tokens to experts. */
bool osh_node_routes(const osh_node *n);
/* Returns the description of the tensor from which the weight is read. If the weight is a part of a
 * tensor (parts.c), returns the description of the part. */
const osh_entry *osh_weight_entry(const osh_graph *g, const osh_checkpoint *ck, int weight);
/* Returns the index of the module with this name, or -1 if no module has the name. */
int osh_graph_module(const osh_graph *g, const char *name);
/* Adds the original model to a graph whose weights will change. changed[i]: true if the weights of
 * node i will change. Each node that is changed, or that depends on a changed node, then exists
 * twice. Its copy for the original model is inserted before it. The copy has the same weights, but
 * reads and makes values of the original model. moved [nodes]: set to the new index of each node.
 * Old indices of nodes and values become invalid. */
osh_status osh_graph_add_original(osh_ctx *cx, osh_graph *g, const bool *changed, int *moved);
/* Sets *out (own) to the graph as text for Graphviz. If the partition `p` is NULL, the text has no
 * subgraphs. */
osh_status osh_graph_dot(osh_ctx *cx, char **out, const osh_graph *g, const osh_partition *p);

typedef struct osh_subgraph {
    /* The subgraph has the nodes [first, first + n_nodes) of the graph. Subgraphs do not overlap,
     * and they are in the order of their nodes. */
    int first, n_nodes;
    int n_targets;
    /* Name of the module of the first target. If the subgraph has no target, the name of the module
     * of the first node, such as "model.embed_tokens". */
    char *name; // own
    int *live_in;
    int n_live_in; // values of earlier subgraphs that this subgraph reads
    int *live_out;
    int n_live_out; // values of this or earlier subgraphs that later subgraphs read
} osh_subgraph;
struct osh_partition {
    osh_subgraph *parts;
    int n;
};

/* Cuts the graph into subgraphs at the sequential targets, such as decoder layers. A target is a
 * class, a name or a regex (re:). If n is 0, the decoder layers are the targets. Fails if a target
 * matches no module; the message names the target.
 * Linears that read the same value are in one subgraph, and count as one target. If other nodes are
 * between these Linears, all nodes of the smallest module that contains them are in one subgraph.
 * Experts are an exception. All experts of a layer read one value, but only gate and up of each
 * expert stay together. */
osh_status osh_partition_new(osh_ctx *cx, osh_partition **out, const osh_graph *g,
                             const char *const *targets, size_t n, int64_t per_subgraph);
void osh_partition_free(osh_ctx *cx, osh_partition *p);
#endif
