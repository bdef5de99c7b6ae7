/* manifest.h - lists the tensors of the output with name, dtype, shape, file and offset. Also finds
 * the fate of every source tensor: quantized, copied or changed. */
#ifndef OSH_MANIFEST_H
#define OSH_MANIFEST_H
#include "rewrite/rewrites.h"

typedef struct osh_out_tensor {
    /* index of the source tensor that is copied; -1: the tensor is made for a Linear */
    int64_t source;
    /* The next two indices are valid only if `source` is -1.
     * linear: index of the Linear.
     * leaf: index among the output tensors of this Linear. */
    int linear, leaf;
    int shard;
} osh_out_tensor;

typedef struct osh_shard {
    char *name;            // own: file name of the shard
    char *header;          // own
    size_t header_bytes;
    int64_t n_bytes;       // bytes of the file
} osh_shard;

typedef struct osh_manifest {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    osh_entry *out; // own [n_out]: entries of all output tensors; the entries own their names
    osh_out_tensor *out_info;  // own
    int64_t n_out;
    osh_shard *shards;         // own
    int n_shards;
    int64_t total_bytes;       // bytes of all output tensors
    int64_t dense_bytes;       // bytes of the output tensors that are copied
    char *config_text;         // own: text of the output's config.json
    bool untie;
    /* True for the weights of norms that tuning changes. NULL: no tuning, or not decided yet. */
    bool *tuned;               // own [source tensors]
} osh_manifest;

/* Sets all members of *p. Also sets the member `out` of each Linear in `match`. */
osh_status osh_plan_manifest(osh_ctx *cx, osh_manifest *p, osh_matching *match);
/* Frees the lists of output tensors. Called for a survey, which writes no output. */
void osh_plan_drop_output(osh_ctx *cx, osh_manifest *p, osh_matching *match);
static inline bool osh_is_tuned(const osh_manifest *p, int64_t tensor)
{
    return p->tuned && p->tuned[tensor];
}
typedef enum { OSH_FATE_NONE, OSH_FATE_COPIED, OSH_FATE_CHANGED, OSH_FATE_QUANTIZED } osh_fate;
/* Sets *out (own [ck->n_tensors]) to the fate of each source tensor. Fails if a tensor has no fate,
 * or if it has more than one. */
osh_status osh_plan_fates(osh_ctx *cx, osh_fate **out, const osh_manifest *p);
#endif
