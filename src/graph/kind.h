/* kind.h - finds the kind of a weight from its name and shape, and from the presence of a bias.
 * This is used for architectures without a template. */
#ifndef OSH_KIND_H
#define OSH_KIND_H
#include "io/checkpoint.h"

typedef enum osh_kind {
    OSH_KIND_LINEAR,    // certainly a Linear of a decoder block
    /* Perhaps a Linear (see `why` of osh_kind_of). The target `Linear` does not match such a
     * module. A target that is the module's name matches it. */
    OSH_KIND_DOUBT,
    OSH_KIND_EMBEDDING, // the embedding table of tokens
    /* A table of positions. Weights of this kind and of all kinds below are never quantized. */
    OSH_KIND_POSITIONS,
    OSH_KIND_ROUTER,
    /* A Conv1D of GPT-2. Its weight is stored transposed, with one column for each output. */
    OSH_KIND_CONV1D,
    OSH_KIND_NORM,
} osh_kind;

typedef struct osh_kinds { // properties of one checkpoint that decide the kinds of its weights
    const osh_checkpoint *ck; // view
    const char *doubt; // view: member "doubt" in the record of the text model; NULL: it has none
    int64_t n_layers;         // number of decoder blocks; < 0: unknown
} osh_kinds;

/* Sets *k from the config of `ck`, which must outlive *k. */
void osh_kinds_init(osh_kinds *k, const osh_checkpoint *ck);
/* Returns the kind of the module `name` (n bytes) with a weight [O, I]. Sets *why (a view) to the
 * reason why the module may not be a Linear. Sets *why to NULL if the module certainly is a
 * Linear. */
osh_kind osh_kind_of(const osh_kinds *k, const char *name, size_t n, int64_t O, int64_t I,
                     const char **why);
/* True if the record of the model_type lists a Linear with this name (n bytes, catalogue.c). */
bool osh_catalogue_has(const osh_hf_config *c, const char *name, size_t n);
/* A module outside of decoder blocks may have different names in transformers and in the
 * checkpoint. Returns a part that both names have, and sets *n to its length. Callers make a regex
 * of this part. The part is "lm_head" for any head, and "vision_tower" for a module of a vision
 * tower. For any other module it is the last two parts of the name. Returns NULL for modules in
 * decoder blocks, whose names are equal. */
const char *osh_kind_lasting_name(const char *name, size_t *n);
/* True if the name contains the number of a decoder block, such as "model.layers.3.mlp.gate".
 * Modules of towers (for images or sound) do not count. */
bool osh_in_decoder_block(const char *name);
/* True if the name contains the number of a block after the model's last block. An example is a
 * block for multi-token prediction. transformers does not load such blocks. */
bool osh_after_blocks(const osh_kinds *k, const char *name);
bool osh_in_tower(const char *name); // true if the module is in a tower for images or sound
#endif
