/* model_types.h - finds the record of a model type. The type is model_type of config.json. The
 * records are the members of "model_types" in the files of models/. A record has the facts that the
 * reader of a checkpoint needs before a graph is built. Its keys are in
 * docs/internals/adding-a-model.md. */
#ifndef OSH_MODEL_TYPES_H
#define OSH_MODEL_TYPES_H
#include "text/json.h"

enum { OSH_FUSION_PARTS = 6 }; // largest number of parts of a layer in "fusions"
typedef struct osh_embedded_type { // a record that cmake/embed.cmake embeds
    const char *name;         // model_type
    /* Architecture of the type's text model if the template is for text models, else "". */
    const char *architecture;
    const char *text;         // n bytes of JSON
    size_t n;
} osh_embedded_type;
extern const osh_embedded_type osh_embedded_types[];
extern const size_t osh_n_embedded_types;

/* Sets *out (own) to the record of the model_type `type`. If `type` is NULL, sets *out to the first
 * record of `architecture`. If there is no such record, or if both names are NULL, sets *out to
 * NULL. If models_dir is not NULL, the files of this directory have precedence. */
osh_status osh_model_type_find(osh_ctx *cx, cJSON **out, const char *type, const char *architecture,
                               const char *models_dir);
/* Checks "model_types" of the template `json`. Fails if the value of a key has the wrong JSON type.
 * `name` is the file's name for messages. */
osh_status osh_model_types_check(osh_ctx *cx, const cJSON *json, const char *name);
#endif
