/* build.h - declares the state of a graph while the graph is built from a template. build.c,
 * build_names.c, build_nodes.c and build_weights.c share this state. */
#ifndef OSH_BUILD_H
#define OSH_BUILD_H
#include "base/map.h"
#include "graph/template.h"

typedef struct osh_binding {
    const char *name; // view: string of the template
    int value;
} osh_binding;

typedef struct osh_builder {
    osh_graph *g;
    const osh_checkpoint *ck;
    osh_scope scope;
    osh_map *modules, *weights; // own: maps from names to indices in the graph
    osh_binding *bound;         // own
    int n_bound;
    const char *root;          // view: name of the text model's module, such as "model"
    char *plain;               // own: the name `root` with a dot, such as "model."
    /* Prefixes of names in the checkpoint (views). If a name of the template begins with `plain`,
     * `inner` takes the place of `plain`. `outer` is put before all other names. */
    const char *inner, *outer;
    /* Prefix of the names of the current template entries, such as "", "model.layers.3." or
     * "model.layers.3.mlp.experts.7.". */
    const char *prefix;
    /* prefix of the current layer, such as "model.layers.3."; "": outside of layers */
    const char *layer;
    /* List that gets a fault for each tensor that is missing or wrong. NULL: such a tensor is an
     * error. */
    osh_graph_faults *faults;  // view
} osh_builder;

/* Returns the array p of n items with memory for one more item, or NULL if out of memory. If n is a
 * power of two, doubles the allocation. */
static inline void *osh_build_grown(osh_ctx *cx, void *p, int n, size_t size)
{
    if (n > 0 && (n & (n - 1))) return p;
    return osh_realloc(cx, p, (size_t)(n > 0 ? 2 * n : 1) * size);
}

static inline const char *osh_build_text(const cJSON *entry, const char *key)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(entry, key);
    return cJSON_IsString(o) ? o->valuestring : NULL;
}

/* The next functions are in build_names.c. osh_build_wrapped_name returns the name (own) that a
 * module of the text model has in the checkpoint, or NULL if out of memory. For example, the
 * checkpoint may have "model.language_model.layers.3" for the module "model.layers.3". */
char *osh_build_wrapped_name(osh_ctx *cx, const osh_builder *b, const char *name);
/* Sets *out (own) to the text in which each expression in braces is replaced by its value. For
 * example, layers.{i} becomes layers.3 in layer 3. */
osh_status osh_build_filled(osh_ctx *cx, const osh_builder *b, char **out, const char *text);
/* Returns the full name (own) that the module of a template entry has in the checkpoint, or NULL if
 * out of memory. name: the name in the entry. */
char *osh_build_full_name(osh_ctx *cx, const osh_builder *b, const char *name);
/* Finds the prefixes of names in the checkpoint, and sets b->inner and b->outer to them. Tries
 * these prefixes in order, until the checkpoint has the embedding table with the prefix:
 *   - the pairs in "names" of the template, or of the template that wraps this text model
 *   - b->plain
 *   - for models that were saved without a head: the same pairs, but b->plain is removed from the
 *     inner prefix
 *   - for these models: the empty prefix
 * If no prefix fits, sets both members to b->plain. */
osh_status osh_build_prefixes(osh_ctx *cx, osh_builder *b);

/* The next functions are in build_nodes.c. osh_build_module adds a module. cls: its class. */
osh_status osh_build_module(osh_ctx *cx, osh_builder *b, int *index, const char *name,
                            const char *cls);
/* Adds a value. producer: index of the node that makes the value, or -1. */
osh_status osh_build_value(osh_ctx *cx, osh_builder *b, int *index, const char *name,
                           int64_t width, int producer);
/* Gives a value the name `name`. In later template entries, `name` means this value, even if it
 * meant another value before. */
osh_status osh_build_bind(osh_ctx *cx, osh_builder *b, const char *name, int value);
/* Adds a node of a module, with its weights and its output value. */
osh_status osh_build_node(osh_ctx *cx, osh_builder *b, int module, const char *op_name,
                          const cJSON *entry);

/* The next functions are in build_weights.c, which finds every weight and checks its shape and
 * dtype. This struct describes a weight, which is the tensor <module>.<leaf>. If the checkpoint
 * does not have this tensor, the weight of the module `tied` is used. All pointers are views. */
typedef struct osh_wanted_weight {
    const char *module, *leaf, *tied; // tied: NULL if the weight of another module may not be used
    int ndim;
    const int64_t *shape;
    bool whole_numbers; // true if the elements of the tensor are whole numbers (I32 or I64)
} osh_wanted_weight;
/* Finds a weight and adds it to the graph. Sets *index to its index. Fails if it is missing or has
 * another shape or dtype. */
osh_status osh_build_weight(osh_ctx *cx, osh_builder *b, int *index, const osh_wanted_weight *x);
/* Adds a table [V, width] whose rows are in several tensors <module>.<leaf>. In `leaf`, the number
 * of the tensor (0, 1, 2 ...) replaces {s}. V is the number of rows of all these tensors. */
osh_status osh_build_table(osh_ctx *cx, osh_builder *b, int *index, const char *module,
                           const char *leaf, int64_t width);
/* True if the weight of the module is a tensor of its own. The checkpoint then does not have the
 * larger tensor that should contain the weight. json: value of "part" in the template entry, which
 * names the larger tensor. Returns false if out of memory. */
bool osh_build_is_apart(osh_ctx *cx, const osh_builder *b, const char *module, const cJSON *json);
/* True if the checkpoint has the module that the key "apart" of the template names for the current
 * layer. Returns false if out of memory. */
bool osh_build_layer_is_apart(osh_ctx *cx, const osh_builder *b);
/* Adds weight k of a node to the graph. The weight is a part of a larger tensor. json: value of
 * "part" in the node's template entry. */
osh_status osh_build_part(osh_ctx *cx, osh_builder *b, int *index, const cJSON *json, int k,
                          const osh_weight *shape);
#endif
