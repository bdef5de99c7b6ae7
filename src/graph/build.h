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
    osh_map *modules, *weights; // own: name -> index
    osh_binding *bound;         // own
    int n_bound;
    const char *root;          // view: name of the module that is the text model, such as "model"
    char *plain;               // own: the root with a dot: "model."
    /* views: prefixes in the checkpoint, of names that begin with "model." and of other names. */
    const char *inner, *outer;
    const char *prefix;        // prefix of the names of the current entries: "", "model.layers.3."
                               // or "model.layers.3.mlp.experts.7."
    const char *layer;         // prefix of the current layer: "model.layers.3.", or ""
    osh_graph_faults *faults;  // view: list to which missing or wrong tensors are added; NULL: they
                               // are errors
} osh_builder;

/* Returns `p`, with memory for one more item after n items. NULL: no memory. Arrays grow at powers
 * of two. */
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

/* build_names.c: names of a text model inside another model. Returns the checkpoint's name (own)
 * of a module of the text model: model.layers.3 may be model.language_model.layers.3. NULL: no
 * memory. */
char *osh_build_wrapped_name(osh_ctx *cx, const osh_builder *b, const char *name);
/* Returns the full checkpoint name (own) of an entry. NULL: no memory. */
char *osh_build_full_name(osh_ctx *cx, const osh_builder *b, const char *name);
/* Sets the prefixes to the first pair with which the checkpoint has the embedding. It tries the
 * pairs of the wrapper's "names" or of the template's own {"root", "embedding", "pairs"}; then the
 * names of the template; then the pairs without "model.", as in models that were saved from a class
 * without head. If none fits, the names of the template are used. */
osh_status osh_build_prefixes(osh_ctx *cx, osh_builder *b);

/* build_weights.c: finds every weight and checks its shape and dtype. osh_wanted_weight is a weight
 * <module>.<leaf>; if the checkpoint does not have it, the weight of the module `tied` is used. All
 * pointers are views. */
typedef struct osh_wanted_weight {
    const char *module, *leaf, *tied; // tied NULL: the weight is not tied
    int ndim;
    const int64_t *shape;
} osh_wanted_weight;
osh_status osh_build_weight(osh_ctx *cx, osh_builder *b, int *index, const osh_wanted_weight *x);
/* Adds the k-th weight of a node whose entry has "part": json. */
osh_status osh_build_part(osh_ctx *cx, osh_builder *b, int *index, const cJSON *json, int k,
                          const osh_weight *shape);
#endif
