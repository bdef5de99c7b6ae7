/* template.h - finds the template of an architecture and evaluates the names in it with the values
 * of config.json.
 *
 * A name stands for the first of these that exists:
 *   "window"        the layer's window in tokens
 *   "sliding"       1 if the layer has sliding attention
 *   "sparse"        1 if the layer has experts
 *   "apart"         1 if the checkpoint has the module that "apart" of the template names, which
 *                   means that tensors with all experts are split
 *   "e"             number of the repeated module, such as the expert
 *   "i"             number of the layer
 *   "rope_mscale"   the factor of yarn for the scores of latent attention
 *   "no_rope"       1 if rope_theta is null in config.json
 *   a row of "flags", which is on or off for the layer
 *   a row of "dims"
 *   a key of config.json
 *   a row of "defaults" if the key is absent, or of "nulls" if it is null (the configuration
 *   classes of transformers distinguish the two) */
#ifndef OSH_TEMPLATE_H
#define OSH_TEMPLATE_H
#include "graph/graph.h"

#define OSH_TEMPLATE_MOST 1099511627776.0 // largest number of a template or of config.json: 2^40

typedef struct osh_template {
    char *name;  // own: name for messages, such as "llama.json"
    cJSON *json; // own
    bool by_route; // true if experts get only the tokens that are routed to them
    /* The member "wraps" of the template that contains this text model; NULL: none. */
    const cJSON *wrap; // view
} osh_template;

/* Finds the template of an architecture. If models_dir is NULL, searches only embedded templates;
 * else the files of models_dir have precedence. *out is NULL if no template has this
 * architecture. */
osh_status osh_template_find(osh_ctx *cx, osh_template **out, const char *architecture,
                             const char *models_dir);
osh_status osh_template_parse(osh_ctx *cx, osh_template **out, const char *name, const char *text,
                              size_t n);
/* Replaces the content of a template with the key "extends" by the complete template: the extended
 * template with the changes of this one. */
osh_status osh_template_complete(osh_ctx *cx, osh_template *t, const char *models_dir);
void osh_template_free(osh_ctx *cx, osh_template *t);
osh_status osh_graph_from_template(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                                   const osh_template *tpl, osh_graph_faults *faults); // defined in
                                                                                       // build.c

typedef struct osh_scope {
    const osh_template *tpl;
    const osh_hf_config *config;
    int64_t layer;  // number of the current layer
    int64_t window; // window of the layer in tokens; 0: no window
    bool sliding;   // true if the layer has sliding attention, also if `window` is 0
    bool sparse;    // true if the layer has experts
    bool apart;     // true if the checkpoint has the layer's module "apart"
    int64_t e;      // number of the repeated module inside the layer
    int64_t max_position; // max_position_embeddings of config.json
} osh_scope;

typedef struct osh_entry_shape { // values of the keys "weight" and "bias" of a template entry
    int ndim;
    int64_t dims[2];
    bool bias;
} osh_entry_shape;
/* Makes the attributes (own) of a template entry's node (attributes.c). Sets *attr to NULL if the
 * op has no attributes. */
osh_status osh_scope_attr(osh_ctx *cx, void **attr, const osh_scope *s, const osh_op *op,
                          const cJSON *entry, const osh_entry_shape *w);

/* Sets name, tensor and part of the weight w from `json`, the value of "part" (parts.c). The caller
 * sets w->ndim and w->shape. */
osh_status osh_part_new(osh_ctx *cx, osh_weight *w, const osh_scope *s, const osh_checkpoint *ck,
                        const char *tensor, const cJSON *json);

osh_status osh_scope_num(osh_ctx *cx, double *out, const osh_scope *s,
                         const cJSON *expr); // expr: a number, a bool or an expression such as
                                             // "a*b/2+sqrt(c)"
osh_status osh_scope_name(osh_ctx *cx, double *out, const osh_scope *s, const char *name);
osh_status osh_scope_int(osh_ctx *cx, int64_t *out, const osh_scope *s, const cJSON *expr,
                         int64_t min); // *out: a whole number from `min` to 2^40
osh_status osh_scope_str(osh_ctx *cx, const char **out, const osh_scope *s,
                         const char *key); // *out: view of config.json or of the template
/* Returns a member of config.json. `name` may have dots: "attn_config.clip_qkv" is a member of the
 * object attn_config. Returns NULL if there is none. If another template wraps the text model, its
 * "sets" have precedence over config.json. */
const cJSON *osh_scope_member(const osh_scope *s, const char *name);
/* Evaluates an expression like osh_scope_num. `depth` is the number of expressions around it. */
osh_status osh_scope_num_at(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *expr,
                            int depth);
/* Evaluates {"count", "is", "before"} and {"find", "is", "number"} (layer_rules.c). */
osh_status osh_scope_words(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                           int depth);
/* Sets *out to the value of a row of "flags" for the layer of `s` (layer_rules.c). */
osh_status osh_scope_flag(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                          int depth);
/* Sets *out to the window of a layer in tokens, from the template's "window" row {"size", "when",
 * "layers", "from", "every"}, or to 0 for full attention. Sets *sliding to true if the layer has
 * sliding attention. */
osh_status osh_scope_window(osh_ctx *cx, int64_t *out, bool *sliding, const osh_scope *s,
                            int64_t layer);
/* Sets *out to true if the layer has experts according to the template's "sparse" row {"when",
 * "every", "from", "to", "except", "only"}. Without such a row *out is false. */
osh_status osh_scope_sparse(osh_ctx *cx, bool *out, const osh_scope *s, int64_t layer);
#endif
