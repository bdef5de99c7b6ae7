/* safetensors.h - declares the container kind safetensors. */
#ifndef OSH_SAFETENSORS_H
#define OSH_SAFETENSORS_H
#include "io/container.h"

#define OSH_SAFETENSORS_SINGLE "model.safetensors" // name of a checkpoint's only file
#define OSH_SAFETENSORS_INDEX "model.safetensors.index.json"

osh_status osh_safetensors_read(osh_ctx *cx, osh_container *c);
/* Sorts the list of entries as the safetensors library does: by dtype, then by bytes of the name.
 * Sets *header to the 8-byte length, the JSON and the padding. */
osh_status osh_safetensors_layout(osh_ctx *cx, char **header, size_t *header_bytes,
                                  osh_entry **list, int64_t n);
/* Works like osh_safetensors_layout, but takes an array of entries and sorts this array. */
osh_status osh_safetensors_layout_array(osh_ctx *cx, char **header, size_t *header_bytes,
                                        osh_entry *entries, int64_t n);
#endif
