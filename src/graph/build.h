/* build.h - the state of a graph while it is built from a template; build.c, build_names.c and
 * build_weights.c share it. */
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
    osh_map *modules, *weights; // own: map names to indices
    osh_binding *bound;         // own
    int n_bound;
    const char *root;          // view: name of the text model's module, such as "model"
    char *plain;               // own: the root with a dot: "model."
    /* Views: prefixes of names in the checkpoint.
     * inner: prefix that replaces `plain` ("model.").
     * outer: prefix of names that do not begin with `plain`. */
    const char *inner, *outer;
    /* Prefix of the names of the current template entries: "", "model.layers.3." or
     * "model.layers.3.mlp.experts.7.". */
    const char *prefix;
    const char *layer;         // prefix of the current layer: "model.layers.3.", or ""
    /* List to which missing or wrong tensors are added; NULL: they are errors. */
    osh_graph_faults *faults;  // view
} osh_builder;

/* Returns the array p of n items with memory for one more item; NULL: no memory. The allocation
 * doubles when n is a power of two. */
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

/* Functions of build_names.c. osh_build_wrapped_name returns the name (own) that a module of the
 * text model has in the checkpoint. For example, model.layers.3 may be called
 * model.language_model.layers.3. NULL: no memory. */
char *osh_build_wrapped_name(osh_ctx *cx, const osh_builder *b, const char *name);
/* Sets *out (own) to the text with the value of each expression in braces: layers.{i} becomes
 * layers.3 in layer 3. */
osh_status osh_build_filled(osh_ctx *cx, const osh_builder *b, char **out, const char *text);
/* Returns the full name (own) that the module of a template entry has in the checkpoint. NULL: no
 * memory. */
char *osh_build_full_name(osh_ctx *cx, const osh_builder *b, const char *name);
/* Sets b->inner and b->outer to the first prefixes with which the checkpoint has the embedding
 * table. Tries these prefixes in order:
 *   - the pairs in "names" of the template, or of the template that wraps this text model
 *   - b->plain
 *   - the pairs without b->plain, and the empty prefix: names of models that were saved without a
 *     head
 * If nothing fits, the prefix is b->plain. */
osh_status osh_build_prefixes(osh_ctx *cx, osh_builder *b);

/* Functions of build_weights.c, which finds every weight and checks its shape and dtype. An
 * osh_wanted_weight names the tensor <module>.<leaf>. If the checkpoint does not have it, the
 * weight of the module `tied` is used. All pointers are views. */
typedef struct osh_wanted_weight {
    const char *module, *leaf, *tied; // tied: NULL if the weight is not tied
    int ndim;
    const int64_t *shape;
    bool whole_numbers; // the tensor contains whole numbers, I32 or I64
} osh_wanted_weight;
osh_status osh_build_weight(osh_ctx *cx, osh_builder *b, int *index, const osh_wanted_weight *x);
/* Adds a table [V, width] whose rows are in the tensors <module>.<leaf>, where the numbers 0, 1, 2
 * ... replace {s} in `leaf`. V is the sum of the rows of the tensors that the checkpoint has. */
osh_status osh_build_table(osh_ctx *cx, osh_builder *b, int *index, const char *module,
                           const char *leaf, int64_t width);
/* True if the tensor that contains the weight is split in the checkpoint: the tensor is missing,
 * and the module has a weight of its own. `json` is the value of "part" in the template entry and
 * names the tensor. Returns false if there is no memory. */
bool osh_build_is_apart(osh_ctx *cx, const osh_builder *b, const char *module, const cJSON *json);
/* True if the current layer has the module that "apart" of the template names. Returns false if
 * there is no memory. */
bool osh_build_layer_is_apart(osh_ctx *cx, const osh_builder *b);
/* Adds weight k of a node. `json` is the value of "part" in the node's template entry. */
osh_status osh_build_part(osh_ctx *cx, osh_builder *b, int *index, const cJSON *json, int k,
                          const osh_weight *shape);
#endif
