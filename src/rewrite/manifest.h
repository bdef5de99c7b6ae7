/* manifest.h - the tensors of the output: the name, dtype, shape, file and offset of each, and the
 * fate of every tensor of the source. */
#ifndef OSH_MANIFEST_H
#define OSH_MANIFEST_H
#include "rewrite/rewrites.h"

typedef struct osh_out_tensor {
    int64_t source;   // tensor of the source that is copied; -1: none
    int linear, leaf; // otherwise: Linear, and the tensor of its format
    int shard;
} osh_out_tensor;

typedef struct osh_shard {
    char *name;            // own: file name
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
    int64_t total_bytes;       // all tensors
    int64_t dense_bytes;       // copied tensors
    char *config_text;         // own: config.json as it will be written
    bool untie;
    bool *tuned;               // own [tensors of the source]: norms that tuning changed; NULL: none,
                               // or not known yet
} osh_manifest;

/* Fills out, shards and config.json, and the output tensors of each Linear. */
osh_status osh_plan_manifest(osh_ctx *cx, osh_manifest *p, osh_matching *match);
/* Frees the lists of output tensors. */
void osh_plan_drop_output(osh_ctx *cx, osh_manifest *p, osh_matching *match);
static inline bool osh_is_tuned(const osh_manifest *p, int64_t tensor)
{
    return p->tuned && p->tuned[tensor];
}
typedef enum { OSH_FATE_NONE, OSH_FATE_COPIED, OSH_FATE_CHANGED, OSH_FATE_QUANTIZED } osh_fate;
/* Finds the fate of each source tensor; a tensor without exactly one is a plan error. *out: own
 * [ck->n_tensors]. */
osh_status osh_plan_fates(osh_ctx *cx, osh_fate **out, const osh_manifest *p);
#endif
