/* heads.h - describes the output head of a checkpoint that has no tensor for the head. transformers
 * then creates a Linear for the head. If the model ties the head to the embedding table, the table
 * is the weight of this Linear; otherwise the weight is random. A quantized checkpoint must name
 * such a head in `ignore`, because loaders would otherwise search for quantized tensors of the
 * head. */
#ifndef OSH_HEADS_H
#define OSH_HEADS_H
#include "io/checkpoint.h"

typedef struct osh_missing_head {
    /* The end of the head's name in transformers, such as "lm_head". View of the config, or static
     * string. */
    const char *name;
    int64_t embedding; // index of the tensor that is the embedding table
    bool tied;         // true if the head uses the embedding table as its weight
    /* True if the head's name in transformers may have another prefix than in the checkpoint. */
    bool renamed;
} osh_missing_head;

/* Describes the missing head of a checkpoint. Returns false if the checkpoint has a head, or no
 * embedding table. */
bool osh_head_missing(osh_missing_head *out, const osh_checkpoint *ck);
/* True if a tensor is the weight of the output head, or a tensor of its compressed weight. The name
 * or the shape of the tensor decides (osh_head_has_shape). */
bool osh_head_is(const osh_hf_config *c, const osh_entry *tensor);
/* True if the shape of a weight [O, I] is that of an output head. Then O is vocab_size
 * (config.json), the module is outside of decoder blocks and towers, and its name is not that of an
 * embedding table. name (n bytes): name of the module, or of one of its tensors. */
bool osh_head_has_shape(const osh_hf_config *c, const char *name, size_t n, int64_t O, int64_t I);
/* True if the tensor is the embedding table, or a tensor of the compressed table. */
bool osh_head_is_table(const char *tensor);
#endif
