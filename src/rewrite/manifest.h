/* manifest.h - the tensors of the output (name, dtype, shape, file and offset of each) and what
 * happens to every tensor of the source. */
#ifndef OSH_MANIFEST_H
#define OSH_MANIFEST_H
#include "rewrite/rewrites.h"

typedef struct osh_out_tensor {
    int64_t source;   // source tensor of which the output tensor is a copy; -1: it is not a copy
    int linear, leaf; // if not a copy: the Linear, and the index of the tensor in the Linear's
                      // format
    int shard;
} osh_out_tensor;

typedef struct osh_shard {
    char *name;            // own: name of the file
    char *header;          // own
    size_t header_bytes;
    int64_t n_bytes;       // size of the file
} osh_shard;

typedef struct osh_manifest {
    const osh_inputs *in;         // view
    const osh_matching *match;    // view
    const osh_rewrites *rewrites; // view
    osh_st_entry *out;         // own: entries of all output tensors, with their names
    osh_out_tensor *out_info;  // own
    int64_t n_out;
    osh_shard *shards;         // own
    int n_shards;
    int64_t total_bytes;       // sum over all tensors
    int64_t dense_bytes;       // sum over the tensors that are copied
    char *config_text;         // own: text of the written config.json
    bool untie;
    bool *tuned;               // own [tensors of the source]: true for norms that tuning has
                               // changed; NULL: none, or not yet known
} osh_manifest;

/* Sets `out`, the shards and config.json, and the output tensors of each Linear. */
osh_status osh_plan_manifest(osh_ctx *cx, osh_manifest *p, osh_matching *match);
/* Frees the lists of output tensors. */
void osh_plan_drop_output(osh_ctx *cx, osh_manifest *p, osh_matching *match);
static inline bool osh_is_tuned(const osh_manifest *p, int64_t tensor)
{
    return p->tuned && p->tuned[tensor];
}
typedef enum { OSH_FATE_NONE, OSH_FATE_COPIED, OSH_FATE_CHANGED, OSH_FATE_QUANTIZED } osh_fate;
/* Finds what happens to each source tensor. Fails if nothing, or more than one thing, happens to a
 * tensor. *out: own [ck->n_tensors]. */
osh_status osh_plan_fates(osh_ctx *cx, osh_fate **out, const osh_manifest *p);
#endif
