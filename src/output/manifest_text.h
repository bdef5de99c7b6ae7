/* manifest_text.h - writes and reads oneshot-manifest.json, which lists the sources of the output
 * and what happened to every tensor. */
#ifndef OSH_MANIFEST_TEXT_H
#define OSH_MANIFEST_TEXT_H
#include "base/buf.h"
#include "output/emit.h"
#include "plan/identity.h"
#include "rewrite/manifest.h"

/* Writes the manifest to `path`, with the checksums of the tensors and files of e. Each tensor has
 * one line. */
osh_status osh_manifest_write(osh_ctx *cx, const char *path, const osh_emitter *e,
                              const osh_result *results);
/* Reads the manifest in `dir`. *rest (own) gets all members except the long lists "modules",
 * "tensors" and "folds"; `rest` may be NULL. `list` names one of these lists, and has a callback
 * for each of its items; `list` may be NULL. */
osh_status osh_manifest_read(osh_ctx *cx, cJSON **rest, const char *dir, const osh_json_taken *list,
                             void *user);
/* The last member of a manifest is the checksum of the text before it. Sets *sum to the real
 * checksum of this text, and *said to the value of the member. *has becomes true if the manifest
 * ends with this member, in the form that osh_manifest_write writes. */
osh_status osh_manifest_sum(osh_ctx *cx, uint64_t *sum, uint64_t *said, bool *has, const char *dir);
/* Appends an item for each output tensor to `list`, which is the list "tensors" in the plan's
 * JSON. */
osh_status osh_manifest_list(osh_ctx *cx, cJSON *list, const osh_manifest *p);
#endif
