/* manifest_text.h - writes and reads oneshot-manifest.json, which lists the sources of the output
 * and the fate of every tensor. */
#ifndef OSH_MANIFEST_TEXT_H
#define OSH_MANIFEST_TEXT_H
#include "base/buf.h"
#include "output/emit.h"
#include "plan/identity.h"
#include "rewrite/manifest.h"

/* Writes the manifest to path, with checksums of e's finished files. Each tensor has one line. */
osh_status osh_manifest_write(osh_ctx *cx, const char *path, const osh_emitter *e,
                              const osh_result *results);
/* Reads the manifest in dir. *rest (own) gets all but the long lists "modules", "tensors" and
 * "folds"; rest may be NULL. list: names one of these lists and a callback for its items; NULL:
 * none. */
osh_status osh_manifest_read(osh_ctx *cx, cJSON **rest, const char *dir, const osh_json_taken *list,
                             void *user);
/* Appends an item for each output tensor: the list "tensors" of the plan's JSON. */
osh_status osh_manifest_list(osh_ctx *cx, cJSON *list, const osh_plan *p);
#endif
