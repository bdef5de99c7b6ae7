/* heads.h - describes the output head of a checkpoint that has no tensor for the head. In that case
 * transformers creates a Linear. Its weight is the embedding table if the model ties head and
 * table; if not, it is random. A quantized checkpoint must name such a head in `ignore`, because
 * loaders would otherwise search for quantized tensors of the head. */
#ifndef OSH_HEADS_H
#define OSH_HEADS_H
#include "io/checkpoint.h"

typedef struct osh_missing_head {
    /* View of the config, or static string: the end of the head's name in transformers, such as
     * "lm_head". */
    const char *name;
    int64_t embedding; // index of the tensor that is the embedding table
    bool tied;         // true if head and embedding share a weight
    /* True if the head's name in transformers may have another prefix than in the checkpoint. */
    bool renamed;
} osh_missing_head;

/* Describes the missing head of a checkpoint. Returns false if the checkpoint has a head, or no
 * embedding table. */
bool osh_head_missing(osh_missing_head *out, const osh_checkpoint *ck);
/* True if the name or shape (osh_head_has_shape) of a tensor shows that it is the weight of the
 * output head, or one of the tensors of the head's compressed weight. */
bool osh_head_is(const osh_hf_config *c, const osh_entry *tensor);
/* True if a weight [O, I] has vocab_size rows (config.json), and its module is outside of decoder
 * blocks and towers and does not have the name of an embedding table. `name` (n bytes) is the name
 * of the module, or of one of its tensors. */
bool osh_head_has_shape(const osh_hf_config *c, const char *name, size_t n, int64_t O, int64_t I);
/* True if the tensor is the embedding table, or one of the tensors of the compressed table. */
bool osh_head_is_table(const char *tensor);
#endif
