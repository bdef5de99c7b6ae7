/* emit.h - writes the planned files: each tensor once, at its planned offset, in a directory beside
 * the final name, which gets that name when everything has been re-read and agrees. */
#ifndef OSH_EMIT_H
#define OSH_EMIT_H
#include "pipeline/plan.h"

typedef struct osh_emitter osh_emitter;
/* Refuses an output directory that is neither empty nor made by this program (that one only with
 * overwrite), and a disk without room. */
osh_status osh_emitter_new(osh_ctx *cx, osh_emitter **out, const osh_plan *p);
void osh_emitter_free(osh_ctx *cx, osh_emitter *e); // not sealed: the partial directory is removed
/* Packs and writes what replaces one Linear. in_scale, in_zero: of a static input, or NULL. */
osh_status osh_emit_linear(osh_ctx *cx, osh_emitter *e, int linear, const osh_linear_job *job,
                           const osh_tensor *in_scale, const osh_tensor *in_zero);
osh_status osh_emit_copies(osh_ctx *cx, osh_emitter *e); // every tensor that is copied bit for bit
osh_status osh_emit_check(osh_ctx *cx, osh_emitter *e);  // fsync; every shard is read again and compared
/* After osh_emit_check: side files, config.json, recipe.yaml, index, reports; rename. */
osh_status osh_emit_seal(osh_ctx *cx, osh_emitter *e, const char *report_json, const char *report_html);
const char *osh_emit_dir(const osh_emitter *e); // view: where the output is being built
#endif
