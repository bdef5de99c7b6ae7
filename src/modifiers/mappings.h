/* mappings.h - reads the key "mappings" of SmoothQuant and AWQ. A mapping names a smooth layer and
 * balance layers. The output of the smooth layer is divided by factors. The balance layers are the
 * Linears that read this output, and their weights are multiplied by the factors. The value of the
 * key is a list of pairs [[balance layers], smooth layer], or of {smooth_layer: ...,
 * balance_layers: [...]}. This header is only for src/modifiers. */
#ifndef OSH_MAPPINGS_H
#define OSH_MAPPINGS_H
#include "modifiers/modifier.h"

/* Reads the value v of the key "mappings". The caller owns *out. If v is null, *out does not
 * change. */
osh_status osh_mappings_read(osh_ctx *cx, osh_mapping **out, size_t *n, const osh_yaml *v,
                             const char *what);
/* Frees the list and its n mappings. */
void osh_mappings_free(osh_ctx *cx, osh_mapping *m, size_t n);
#endif
