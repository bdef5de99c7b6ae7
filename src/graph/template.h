/* template.h - finds the template of an architecture. Also evaluates the names in a template with
 * the values of config.json.
 *
 * A name stands for the first of these that exists:
 *   "window"        the layer's window in tokens
 *   "sliding"       1 if the layer has sliding attention
 *   "sparse"        1 if the layer has experts
 *   "apart"         1 if the checkpoint has the module that the template's key "apart" names;
 *                   each expert then has its own tensor
 *   "e"             number of the expert or other repeated module
 *   "i"             number of the layer
 *   "rope_mscale"   the factor of yarn for the scores of latent attention
 *   "no_rope"       1 if rope_theta is null in config.json
 *   a row of "flags", which is 1 or 0 for the layer
 *   a row of "dims"
 *   a key of config.json
 *   a row of "defaults" if config.json lacks the key, or a row of "nulls" if the key is null
 *   (the configuration classes of transformers distinguish these cases) */
#ifndef OSH_TEMPLATE_H
#define OSH_TEMPLATE_H
#include "graph/graph.h"

/* largest number that a template or config.json may have: 2^40 */
#define OSH_TEMPLATE_MOST 1099511627776.0

typedef struct osh_template {
    char *name;  // own: name for messages, such as "llama.json"
    cJSON *json; // own
    bool by_route; // true if each expert gets only the tokens that are routed to it
    /* Member "wraps" of the template that contains this text model. NULL: no template contains
     * it. */
    const cJSON *wrap; // view
} osh_template;

/* Finds the template of an architecture. The files of models_dir have precedence over the embedded
 * templates; models_dir may be NULL. Sets *out to NULL if no template is for this architecture. */
osh_status osh_template_find(osh_ctx *cx, osh_template **out, const char *architecture,
                             const char *models_dir);
/* Parses the JSON text [n] of a template. The caller frees *out with osh_template_free. */
osh_status osh_template_parse(osh_ctx *cx, osh_template **out, const char *name, const char *text,
                              size_t n);
/* Completes a template with the key "extends". Replaces its content by the content of the other
 * template, with the changes that this template describes. */
osh_status osh_template_complete(osh_ctx *cx, osh_template *t, const char *models_dir);
/* Frees a template. Accepts NULL. */
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
    bool apart;     // true if the checkpoint has the module that the template's key "apart" names
    int64_t e;      // number of the current expert or other repeated module
    int64_t max_position; // max_position_embeddings in config.json
} osh_scope;

/* shapes that a template entry gives in its keys "weight" and "bias" */
typedef struct osh_entry_shape {
    int ndim;
    int64_t dims[2];
    bool bias;
} osh_entry_shape;
/* Makes the attributes (own) of the node that a template entry describes. Sets *attr to NULL if the
 * op has no attributes. (The function is in attributes.c.) */
osh_status osh_scope_attr(osh_ctx *cx, void **attr, const osh_scope *s, const osh_op *op,
                          const cJSON *entry, const osh_entry_shape *w);

/* Sets the members `name`, `tensor` and `part` of the weight w, which is a part of the tensor named
 * `tensor`. json: value of "part" in the template entry (parts.c). The caller must set w->ndim and
 * w->shape. */
osh_status osh_part_new(osh_ctx *cx, osh_weight *w, const osh_scope *s, const osh_checkpoint *ck,
                        const char *tensor, const cJSON *json);

osh_status osh_scope_num(osh_ctx *cx, double *out, const osh_scope *s,
                         const cJSON *expr); // expr: number, bool or text such as "a*b/2+sqrt(c)"
/* Sets *out to the value of a name of the template. Fails if the name is unknown. */
osh_status osh_scope_name(osh_ctx *cx, double *out, const osh_scope *s, const char *name);
osh_status osh_scope_int(osh_ctx *cx, int64_t *out, const osh_scope *s, const cJSON *expr,
                         int64_t min); // *out: whole number from `min` to 2^40
osh_status osh_scope_str(osh_ctx *cx, const char **out, const osh_scope *s,
                         const char *key); // *out: view of config.json or of the template
/* Returns a member of config.json, or NULL if there is none. `name` may have dots:
 * "attn_config.clip_qkv" is a member of the object attn_config. If another template wraps the text
 * model, the "sets" of that template have precedence over config.json. */
const cJSON *osh_scope_member(const osh_scope *s, const char *name);
/* Evaluates an expression like osh_scope_num. depth: number of expressions that contain this
 * expression. */
osh_status osh_scope_num_at(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *expr,
                            int depth);
/* Evaluates {"count", "is", "before"} and {"find", "is", "number"} (layer_rules.c). */
osh_status osh_scope_words(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                           int depth);
/* Sets *out to the value that a row of "flags" has for the layer s->layer (layer_rules.c). */
osh_status osh_scope_flag(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                          int depth);
/* Sets *out to the window of a layer in tokens, or to 0 for full attention. Sets *sliding to true
 * if the layer has sliding attention. The row "window" of the template decides. It has the keys
 * "size", "when", "layers", "from" and "every". */
osh_status osh_scope_window(osh_ctx *cx, int64_t *out, bool *sliding, const osh_scope *s,
                            int64_t layer);
/* Sets *out to true if the layer has experts. The row "sparse" of the template decides. It has the
 * keys "when", "every", "from", "to", "except" and "only". Without this row, *out is false. */
osh_status osh_scope_sparse(osh_ctx *cx, bool *out, const osh_scope *s, int64_t layer);
#endif
