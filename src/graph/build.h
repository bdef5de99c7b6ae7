/* build.h - a graph while it is built from a template: build.c, with names and weights in files of their own. */
#ifndef OSH_BUILD_H
#define OSH_BUILD_H
#include "base/map.h"
#include "graph/template.h"

typedef struct osh_binding {
    const char *name; // view of the template
    int value;
} osh_binding;

typedef struct osh_builder {
    osh_graph *g;
    const osh_checkpoint *ck;
    osh_scope scope;
    osh_map *modules, *weights; // own: name -> index
    osh_binding *bound;         // own
    int n_bound;
    const char *root;          // view: the text model's module, "model"
    char *plain;               // own: "model."
    const char *inner, *outer; // view: what stands for "model." in names, and before other names
    const char *prefix;        // "model.layers.3." or "" or "model.layers.3.mlp.experts.7."
    const char *layer;         // "model.layers.3.", or ""
    osh_graph_faults *faults;  // view: where tensors that are missing or another are listed; NULL: they fail
} osh_builder;

/* Room for one more behind n items: NULL where there is no memory. Arrays grow at powers of two. */
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

/* build_names.c: names of a model around the text model. */
/* own: what the checkpoint calls a module of the text model: model.language_model.layers.3 is model.layers.3. NULL: no
 * memory. */
char *osh_build_wrapped_name(osh_ctx *cx, const osh_builder *b, const char *name);
/* own: the whole name of an entry. */
char *osh_build_full_name(osh_ctx *cx, const osh_builder *b, const char *name);
/* The first pair of prefixes under which the checkpoint has the embedding: the wrapper's
 * "names", or the template's own {"root", "embedding", "pairs"}; then the template's names; then
 * these without "model.", as models are saved that were loaded without their head. Where nothing
 * fits, names are the template's. */
osh_status osh_build_prefixes(osh_ctx *cx, osh_builder *b);

/* build_weights.c: every weight is found, and its shape and dtype checked. */
/* A weight <module>.<leaf>, or that of the tied module where the checkpoint has none; views. */
typedef struct osh_wanted_weight {
    const char *module, *leaf, *tied; // tied NULL: it is not
    int ndim;
    const int64_t *shape;
} osh_wanted_weight;
osh_status osh_build_weight(osh_ctx *cx, osh_builder *b, int *index, const osh_wanted_weight *x);
/* The k-th weight of a node whose entry has "part": json. */
osh_status osh_build_part(osh_ctx *cx, osh_builder *b, int *index, const cJSON *json, int k, const osh_weight *shape);
#endif
