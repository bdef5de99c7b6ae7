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

/* Every module of the Hugging Face tree that the template names, parents before children. */
typedef struct osh_module {
    char *name; // own: "model.layers.0.self_attn.q_proj"
    char *cls;  // own: "Linear"
    int parent; // index, -1: root
    int node;   // the node that runs it, -1: a container
} osh_module;

typedef struct osh_value {
    char *name; // own: "model.layers.0.a"
    int64_t width;
    osh_dtype dtype;         // of [N, width]: the compute dtype, or F32 (f32_out of its op); of the ids I32 [N]
    int producer;            // node; -1: graph input
    int first_use, last_use; // nodes; -1: none
    int original;  // what it is in the original model, a value beside it (osh_graph_add_original); -1: the same
    int quantized; // of such a value: the one that it is beside; -1: it is none
} osh_value;

typedef struct osh_weight {
    char *name; // own: tensor name; of a tied head: that of the embedding
    int ndim;
    osh_dtype dtype; // that a load gives it; OSH_DTYPE_NONE: there is no tensor
    int64_t shape[2];
    int64_t tensor;  // index into the checkpoint's tensors; -1: none of this name (compressed)
    osh_dtype by_rows; // its stored dtype, where single rows can be read; OSH_DTYPE_NONE: it has none, or is made
    bool compressed; // codes and scales stand for it: the caller fills osh_weights
    osh_st_entry *part; // own: what of the tensor it is; NULL: all of it
} osh_weight;

typedef struct osh_node {
    const osh_op *op;
    int module;            // index into modules
    int in[OSH_OP_MAX_IN]; // values; -1: absent
    int out[OSH_OP_MAX_OUT];
    int w[OSH_OP_MAX_IN]; // weights; -1: absent
    void *attr;           // own; of a node of the original model: view, the next node's
    bool original;        // makes values of the original model alone
} osh_node;
static inline bool osh_node_is(const osh_node *n, const char *op) { return !strcmp(n->op->name, op); }

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
    osh_logits_rule logits; // what the model does to them then
    int64_t n_vocab, n_layers;
    int64_t max_positions; // that a sample may have (rope dynamic: times its factor)
    osh_dtype dtype;       // compute dtype
    char *layer_class;     // own: default sequential target, "LlamaDecoderLayer"
    bool wrapped;          // the text model of one that sees or hears
    bool headless; // neither a tensor of the head nor one that it is tied to: its weight is none
    char *inner, *outer;   // own: what names of its layers and of its head begin with in the checkpoint
    char *loaded;          // own: what the former begin with in transformers; NULL: the same
    int *joined;           // own [nodes]: the last node that must be in the same part; NULL: none. Set by the caller
} osh_graph;

/* models_dir NULL: the embedded templates. Unknown architecture: OSH_E_UNSUPPORTED naming the known
 * ones. Checks every weight's presence, shape and dtype. */
osh_status osh_graph_new(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                         const char *models_dir);
/* The same, where experts see only the tokens that the router sends to them: routed_rows before each. */
osh_status osh_graph_new_by_route(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck, const char *models_dir);
/* The value is such rows, or what is made of them row by row: its other rows are zeros. */
bool osh_is_by_route(const osh_graph *g, int value);
/* The same for who writes a template: tensors that are missing, or of another shape or dtype than wanted, are listed,
 * and the graph is made all the same. */
typedef struct osh_graph_faults {
    osh_buf text; // own: a line for each
    int64_t n;
} osh_graph_faults;
osh_status osh_graph_check(osh_ctx *cx, osh_graph **out, osh_graph_faults *faults, const osh_checkpoint *ck,
                           const char *models_dir);
void osh_graph_free(osh_ctx *cx, osh_graph *g);
void osh_graph_link_uses(osh_graph *g); // first and last use of every value, from the nodes
bool osh_graph_knows(osh_ctx *cx, const char *architecture, const char *models_dir);
/* Whether loaders want the experts of a dense model in one tensor: "stacked" of the text model's template. */
osh_status osh_graph_is_stacked(osh_ctx *cx, bool *yes, const osh_checkpoint *ck, const char *models_dir);
/* own: what transformers calls a module that the checkpoint calls name:
 * language_model.model.layers.0 is model.language_model.layers.0, layers.0 model.layers.0,
 * language_model.lm_head lm_head. NULL: the same, or no memory. */
char *osh_graph_loaded_name(osh_ctx *cx, const osh_graph *g, const char *name);
static inline size_t osh_value_bytes(const osh_graph *g, int v) // of a token
{
    return (size_t)g->values[v].width * osh_dtype_bytes(g->values[v].dtype);
}
static inline size_t osh_value_gross(const osh_graph *g, int v, int64_t n_tokens)
{
    return osh_tensor_gross((size_t)n_tokens * osh_value_bytes(g, v));
}
int osh_graph_host_only(const osh_graph *g); // the first node whose op is not for a card; -1: none
/* An error unless the head has a weight. why: what needs it. */
osh_status osh_graph_need_head(osh_ctx *cx, const osh_graph *g, const osh_checkpoint *ck,
                               const char *why);
bool osh_node_routes(const osh_node *n); // its output says which experts a token goes to
const osh_st_entry *osh_weight_entry(const osh_graph *g, const osh_checkpoint *ck, int weight); // what is read. parts.c
int osh_graph_module(const osh_graph *g, const char *name); // -1: none
/* A model and what is made of it, side by side: changed[i] tells that the weights of node i are going to be others.
 * What depends on one of these nodes is there twice from here on: before each node that makes it stands one of the
 * original model, with the same weights, that reads and makes the originals. moved [nodes]: where each node is now;
 * other numbers of nodes and values that a caller has are no longer true. */
osh_status osh_graph_add_original(osh_ctx *cx, osh_graph *g, const bool *changed, int *moved);
/* Graphviz text; own. p NULL: not cut. */
osh_status osh_graph_dot(osh_ctx *cx, char **out, const osh_graph *g, const osh_partition *p);

typedef struct osh_subgraph {
    int first, n_nodes; // nodes [first, first + n_nodes) of the graph: disjoint and in order
    int n_targets;
    char *name; // own: the first target's module ("model.embed_tokens" for a head without target)
    int *live_in;
    int n_live_in; // values from earlier subgraphs that are read here
    int *live_out;
    int n_live_out; // values made here or before that later subgraphs read
} osh_subgraph;
struct osh_partition {
    osh_subgraph *parts;
    int n;
};

/* targets: class, name, re:; n 0: the decoder layer. A target that matches nothing is an error that
 * names it. Linears that share an input stay together and count as one target; where they do not stand next to each
 * other, so does all of the smallest module that they are in; of experts each one's gate and up. */
osh_status osh_partition_new(osh_ctx *cx, osh_partition **out, const osh_graph *g,
                             const char *const *targets, size_t n, int64_t per_subgraph);
void osh_partition_free(osh_ctx *cx, osh_partition *p);
#endif
