/* manifest_text.h - oneshot-manifest.json: what the output is made of and what became of every tensor. */
#ifndef OSH_MANIFEST_TEXT_H
#define OSH_MANIFEST_TEXT_H
#include "base/buf.h"
#include "output/emit.h"
#include "plan/identity.h"
#include "plan/manifest.h"

/* To path, with checksums of e's files, which are finished. A line per tensor. */
osh_status osh_manifest_write(osh_ctx *cx, const char *path, const osh_emitter *e, const osh_result *results);
/* Reads the one of dir. *rest, own, or NULL for nobody: all but its long lists "modules", "tensors" and "folds"; the
 * items of `list`, one of these, are handed over. list NULL: nobody's. */
osh_status osh_manifest_read(osh_ctx *cx, cJSON **rest, const char *dir, const osh_json_taken *list, void *user);
/* "tensors" of the plan's JSON. */
osh_status osh_manifest_list(osh_ctx *cx, cJSON *list, const osh_plan *p);
#endif
