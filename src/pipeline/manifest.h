/* manifest.h - oneshot-manifest.json: what the output is made of and what became of every tensor. */
#ifndef OSH_MANIFEST_H
#define OSH_MANIFEST_H
#include "base/buf.h"
#include "pipeline/emit.h"
#include "pipeline/identity.h"

/* What became of a tensor of the source. */
typedef enum { OSH_FATE_NONE, OSH_FATE_COPIED, OSH_FATE_QUANTIZED } osh_fate;
/* Every source tensor has exactly one fate, or it is a plan error. own [ck->n_tensors] */
osh_status osh_plan_fates(osh_ctx *cx, osh_fate **out, const osh_plan *p);

/* dir: the finished files, whose checksums are listed. A line per tensor. */
osh_status osh_manifest_text(osh_ctx *cx, osh_buf *b, const osh_plan *p, const osh_identity *id, const uint64_t *sums,
                             const osh_result *results, const char *dir);
osh_status osh_sum_of_file(osh_ctx *cx, uint64_t *sum, int64_t *n_bytes, const char *path); // XXH3
/* "tensors" of the plan's JSON. */
osh_status osh_manifest_list(osh_ctx *cx, cJSON *list, const osh_plan *p);
#endif
