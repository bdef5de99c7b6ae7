/* mappings.h - the key "mappings" of modifiers that move factors between layers: a list of pairs
 * [[balance layers], smooth layer], or of {smooth_layer: ..., balance_layers: [...]}. Only for this
 * directory. */
#ifndef OSH_MAPPINGS_H
#define OSH_MAPPINGS_H
#include "modifiers/modifier.h"

/* Reads the list; the caller owns *out. If the value is null, *out stays NULL. */
osh_status osh_mappings_read(osh_ctx *cx, osh_mapping **out, size_t *n, const osh_yaml *v,
                             const char *what);
void osh_mappings_free(osh_ctx *cx, osh_mapping *m, size_t n);
#endif
