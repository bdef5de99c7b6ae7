/* heads.h - describes the output head of a checkpoint that has no tensor for the head. transformers
 * creates a Linear for such a head. If the model ties the head to the embedding table, the table is
 * the weight of this Linear. Otherwise the weight is random. A quantized checkpoint must name such
 * a head in `ignore`, because loaders would otherwise search for quantized tensors of the head. */
#ifndef OSH_HEADS_H
#define OSH_HEADS_H
#include "io/checkpoint.h"

typedef struct osh_missing_head {
    /* End of the head's name in transformers, such as "lm_head". This is a view of the config, or a
     * static string. */
    const char *name;
    int64_t embedding; // index of the tensor that is the embedding table
    bool tied;         // true if the head uses the embedding table as its weight
    /* True if the head may have another prefix in transformers than in the checkpoint. */
    bool renamed;
} osh_missing_head;

/* Describes the missing head of a checkpoint. Returns false if the checkpoint has a head, or if it
 * has no embedding table. */
bool osh_head_missing(osh_missing_head *out, const osh_checkpoint *ck);
/* True if the tensor is the weight of the output head, or belongs to its compressed weight. The
 * tensor is recognized by its name or by its shape (osh_head_has_shape). */
bool osh_head_is(const osh_hf_config *c, const osh_entry *tensor);
/* True if the shape [O, I] of a weight and its name fit an output head. O must be vocab_size of
 * config.json. The module must be outside of decoder blocks and towers, and must not have the name
 * of an embedding table. name (n bytes): name of the module, or of one of its tensors. */
bool osh_head_has_shape(const osh_hf_config *c, const char *name, size_t n, int64_t O, int64_t I);
/* True if the tensor is the embedding table, or belongs to the compressed table. */
bool osh_head_is_table(const char *tensor);
#endif
