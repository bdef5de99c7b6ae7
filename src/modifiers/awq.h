/* awq.h - the interface between awq.c and awq_search.c. This header is only for src/modifiers. */
#ifndef OSH_AWQ_H
#define OSH_AWQ_H
#include "modifiers/modifier.h"

/* A point of the grid: `ratio` is the exponent r of awq_search.c; `duo` selects duo scaling. With
 * ratio 0 and without duo scaling all factors are 1. */
typedef struct osh_awq_point { double ratio; bool duo; } osh_awq_point;
osh_status osh_awq_search(osh_ctx *cx, float *s, osh_search *j, const osh_awq_point *grid,
                          int n_grid, osh_arithmetic arithmetic);
/* Returns the bytes that the search needs, with the allocator's overhead. */
size_t osh_awq_search_bytes(const osh_search *j, int n_grid, int n_threads);
#endif
