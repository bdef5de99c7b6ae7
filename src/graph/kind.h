/* kind.h - what a weight is by its name, its shape and its bias, where no template of the architecture says it. */
#ifndef OSH_KIND_H
#define OSH_KIND_H
#include "io/checkpoint.h"

typedef enum osh_kind {
    OSH_KIND_LINEAR,    // certainly a Linear of a decoder block
    OSH_KIND_DOUBT,     // perhaps one: a name in the targets reaches it, the class Linear does not
    OSH_KIND_EMBEDDING, // of tokens
    OSH_KIND_POSITIONS, // this one and those that follow never carry codes
    OSH_KIND_ROUTER,
    OSH_KIND_CONV1D,    // transposed: columns are outputs
    OSH_KIND_NORM,
} osh_kind;

typedef struct osh_kinds { // of one checkpoint
    const osh_checkpoint *ck; // view
    const char *model_type;   // view of its config; "" where it has none: of the text model
    const char *family;       // and of the whole
    int64_t n_layers;         // < 0: not known
} osh_kinds;

void osh_kinds_init(osh_kinds *k, const osh_checkpoint *ck);
/* Of the module with the first n bytes of name, whose weight has the shape [O, I]. *why, static: what else than
 * certainly a Linear it is. */
osh_kind osh_kind_of(const osh_kinds *k, const char *name, size_t n, int64_t O, int64_t I, const char **why);
/* Whether transformers' classes of the family have a Linear of that name. (catalogue.c) */
bool osh_catalogue_has(const char *family, const char *name, size_t n);
/* transformers may hold a module under another name than the file: what of it stays, n bytes, for a regex. "lm_head" of
 * any head, "vision_tower" of what is in one, else the last two parts; NULL: the name itself, as in decoder blocks. */
const char *osh_kind_lasting_name(const char *name, size_t *n);
/* Whether a name has the number of a decoder block: "model.layers.3.mlp.gate". Not in towers for images and sound. */
bool osh_in_decoder_block(const char *name);
bool osh_in_tower(const char *name); // it is a part of a tower for images or sound
#endif
