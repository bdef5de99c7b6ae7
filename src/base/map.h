/* map.h - declares a hash map from strings (with length, NUL allowed) to int64. Keys are copied,
 * except in a map of views. */
#ifndef OSH_MAP_H
#define OSH_MAP_H
#include "base/base.h"

typedef struct osh_map osh_map;
/* Makes an empty map with memory for n_expected keys; more may be added. The caller frees *out with
 * osh_map_free. */
osh_status osh_map_new(osh_ctx *cx, osh_map **out, size_t n_expected);
/* Makes a map that does not copy the keys. The keys must outlive the map. */
osh_status osh_map_new_views(osh_ctx *cx, osh_map **out, size_t n_expected);
/* Frees the map and its copies of keys. Accepts NULL. */
void osh_map_free(osh_ctx *cx, osh_map *m);
/* Sets the value of the key, and adds the key if it is missing. */
osh_status osh_map_put(osh_ctx *cx, osh_map *m, const char *key, size_t len, int64_t value);
/* Sets *value to the value of the key. Returns false if the key is missing. */
bool osh_map_get(const osh_map *m, const char *key, size_t len, int64_t *value);
/* Returns the number of keys. */
size_t osh_map_count(const osh_map *m);
#endif
