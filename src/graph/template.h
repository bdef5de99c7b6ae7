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

#define OSH_TEMPLATE_MOST 1099511627776.0 // largest number in a template or config.json: 2^40

typedef struct osh_template {
    char *name;  // own: name for messages, such as "llama.json"
    cJSON *json; // own
    bool by_route; // true if experts get only the tokens routed to them
    /* Member "wraps" of the template that contains this text model. NULL: no template contains
     * it. */
    const cJSON *wrap; // view
} osh_template;

/* Finds the template of an architecture. The files of models_dir have precedence over the embedded
 * templates. If models_dir is NULL, searches only the embedded templates. Sets *out to NULL if no
 * template is for this architecture. */
osh_status osh_template_find(osh_ctx *cx, osh_template **out, const char *architecture,
                             const char *models_dir);
osh_status osh_template_parse(osh_ctx *cx, osh_template **out, const char *name, const char *text,
                              size_t n);
/* Completes a template with the key "extends": replaces its content by the extended template, with
 * the changes of this template. */
osh_status osh_template_complete(osh_ctx *cx, osh_template *t, const char *models_dir);
void osh_template_free(osh_ctx *cx, osh_template *t);
osh_status osh_graph_from_template(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                                   const osh_template *tpl, osh_graph_faults *faults); // in build.c

typedef struct osh_scope {
    const osh_template *tpl;
    const osh_hf_config *config;
    int64_t layer;  // number of the current layer
    int64_t window; // window of the layer in tokens; 0: no window
    bool sliding;   // true if the layer has sliding attention, even if `window` is 0
    bool sparse;    // true if the layer has experts
    bool apart;     // true if the layer has the module that "apart" of the template names
    int64_t e;      // number of the repeated module inside the layer
    int64_t max_position; // max_position_embeddings in config.json
} osh_scope;

typedef struct osh_entry_shape { // shapes in the keys "weight" and "bias" of a template entry
    int ndim;
    int64_t dims[2];
    bool bias;
} osh_entry_shape;
/* Makes the attributes (own) of the node of a template entry. Sets *attr to NULL if the op has no
 * attributes. (In attributes.c.) */
osh_status osh_scope_attr(osh_ctx *cx, void **attr, const osh_scope *s, const osh_op *op,
                          const cJSON *entry, const osh_entry_shape *w);

/* Sets the members `name`, `tensor` and `part` of the weight w. json: value of "part" in the
 * template entry (parts.c). The caller must set w->ndim and w->shape. */
osh_status osh_part_new(osh_ctx *cx, osh_weight *w, const osh_scope *s, const osh_checkpoint *ck,
                        const char *tensor, const cJSON *json);

osh_status osh_scope_num(osh_ctx *cx, double *out, const osh_scope *s,
                         const cJSON *expr); // number, bool or "a*b/2+sqrt(c)"
osh_status osh_scope_name(osh_ctx *cx, double *out, const osh_scope *s, const char *name);
osh_status osh_scope_int(osh_ctx *cx, int64_t *out, const osh_scope *s, const cJSON *expr,
                         int64_t min); // *out: whole number, `min` to 2^40
osh_status osh_scope_str(osh_ctx *cx, const char **out, const osh_scope *s,
                         const char *key); // *out: view of config.json or of the template
/* Returns a member of config.json, or NULL if there is none. `name` may have dots:
 * "attn_config.clip_qkv" is a member of the object attn_config. If another template wraps the text
 * model, its "sets" have precedence over config.json. */
const cJSON *osh_scope_member(const osh_scope *s, const char *name);
/* Evaluates an expression like osh_scope_num. depth: number of expressions around this
 * expression. */
osh_status osh_scope_num_at(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *expr,
                            int depth);
/* Evaluates {"count", "is", "before"} and {"find", "is", "number"} (layer_rules.c). */
osh_status osh_scope_words(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                           int depth);
/* Sets *out to the value of a row of "flags" for the layer of `s` (layer_rules.c). */
osh_status osh_scope_flag(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                          int depth);
/* Sets *out to the window of a layer in tokens, or to 0 for full attention. Sets *sliding to true
 * if the layer has sliding attention. The template's row "window" decides; it has the keys "size",
 * "when", "layers", "from" and "every". */
osh_status osh_scope_window(osh_ctx *cx, int64_t *out, bool *sliding, const osh_scope *s,
                            int64_t layer);
/* Sets *out to true if the layer has experts. The template's row "sparse" decides; it has the keys
 * "when", "every", "from", "to", "except" and "only". Without this row, *out is false. */
osh_status osh_scope_sparse(osh_ctx *cx, bool *out, const osh_scope *s, int64_t layer);
#endif
