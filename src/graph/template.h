/* template.h - finds the template of an architecture and evaluates its names against config.json.
 *
 * A name stands for, in this order: the layer's window ("window"), whether the layer is one with a
 * window ("sliding") or with experts ("sparse"), its number ("i"), that of the repeated module ("e"), by what yarn
 * scales the scores of latent attention ("rope_mscale"), a row of "flags", which the layer has or not,
 * a row of "dims", a key of config.json, a row of "defaults" (the key is absent) or of "nulls" (it is
 * null: transformers' configuration classes tell the two apart). */
#ifndef OSH_TEMPLATE_H
#define OSH_TEMPLATE_H
#include "graph/graph.h"

typedef struct osh_template {
    char *name;  // own: for messages, "llama.json"
    cJSON *json; // own
    bool by_route; // experts see the tokens that are routed to them, no others
    const cJSON *wrap; // view: what the template of the model around this one says of names; NULL: there is none
} osh_template;

/* models_dir NULL: the embedded templates; else its files win over those. *out NULL: no template
 * has this architecture, and known (own, may be NULL) lists those that exist. */
osh_status osh_template_find(osh_ctx *cx, osh_template **out, char **known,
                             const char *architecture, const char *models_dir);
osh_status osh_template_parse(osh_ctx *cx, osh_template **out, const char *name, const char *text,
                              size_t n);
void osh_template_free(osh_ctx *cx, osh_template *t);
osh_status osh_graph_from_template(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                                   const osh_template *tpl, osh_graph_faults *faults); // build.c

typedef struct osh_scope {
    const osh_template *tpl;
    const osh_hf_config *config;
    int64_t layer;  // that is being built
    int64_t window; // of the layer; 0: none
    bool sliding;   // its type is sliding_attention, whatever its window
    bool sparse;    // it has experts
    int64_t e;      // of the module that is repeated inside it
    int64_t max_position; // max_position_embeddings
} osh_scope;

typedef struct osh_entry_shape { // "weight" and "bias" of an entry
    int ndim;
    int64_t dims[2];
    bool bias;
} osh_entry_shape;
/* The attributes of an entry's node: own; NULL: the op has none. (attributes.c) */
osh_status osh_scope_attr(osh_ctx *cx, void **attr, const osh_scope *s, const osh_op *op, const cJSON *entry,
                          const osh_entry_shape *w);

/* A weight's name, tensor and part, where its ndim and shape are given: what `json` says of that tensor. (parts.c) */
osh_status osh_part_new(osh_ctx *cx, osh_weight *w, const osh_scope *s, const osh_checkpoint *ck, const char *tensor,
                        const cJSON *json);

osh_status osh_scope_num(osh_ctx *cx, double *out, const osh_scope *s,
                         const cJSON *expr); // number, bool, "a*b/2+sqrt(c)"
osh_status osh_scope_name(osh_ctx *cx, double *out, const osh_scope *s, const char *name);
osh_status osh_scope_int(osh_ctx *cx, int64_t *out, const osh_scope *s, const cJSON *expr,
                         int64_t min); // whole, min..2^40
osh_status osh_scope_str(osh_ctx *cx, const char **out, const osh_scope *s,
                         const char *key); // view of config or template
/* The window of layer i after the template's "window" row {"size", "when", "layers", "from", "every"}; 0:
 * full attention. */
osh_status osh_scope_window(osh_ctx *cx, int64_t *out, bool *sliding, const osh_scope *s, int64_t layer);
/* Whether layer i has experts after the template's "sparse" row {"when", "every", "from", "except", "only"}; no row:
 * false. */
osh_status osh_scope_sparse(osh_ctx *cx, bool *out, const osh_scope *s, int64_t layer);
#endif
