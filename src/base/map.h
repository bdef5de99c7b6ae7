/* map.h - hash map from strings (with length, NUL allowed) to int64. Keys are copied, except in a
 * map of views. */
#ifndef OSH_MAP_H
#define OSH_MAP_H
#include "base/base.h"

typedef struct osh_map osh_map;
osh_status osh_map_new(osh_ctx *cx, osh_map **out, size_t n_expected);
/* The keys must outlive the map. */
osh_status osh_map_new_views(osh_ctx *cx, osh_map **out, size_t n_expected);
void osh_map_free(osh_ctx *cx, osh_map *m);
/* Replaces an existing value. */
osh_status osh_map_put(osh_ctx *cx, osh_map *m, const char *key, size_t len, int64_t value);
/* false: no such key. */
bool osh_map_get(const osh_map *m, const char *key, size_t len, int64_t *value);
size_t osh_map_count(const osh_map *m);
#endif
