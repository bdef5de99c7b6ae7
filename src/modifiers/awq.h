/* awq.h - declares functions and types that awq.c and awq_search.c share. This header is only for
 * src/modifiers. */
#ifndef OSH_AWQ_H
#define OSH_AWQ_H
#include "modifiers/modifier.h"

/* A point of the grid that AWQ searches. ratio: exponent r of awq_search.c. duo: true with duo
 * scaling. With ratio 0 and without duo scaling all factors are 1. */
typedef struct osh_awq_point { double ratio; bool duo; } osh_awq_point;
/* Finds the point of the grid that has the smallest error. Sets s [j->n] to the factors of this
 * point. */
osh_status osh_awq_search(osh_ctx *cx, float *s, osh_search *j, const osh_awq_point *grid,
                          int n_grid, osh_arithmetic arithmetic);
/* Returns the number of bytes that AWQ's search needs, with the overhead of the allocator. */
size_t osh_awq_search_bytes(const osh_search *j, int n_grid, int n_threads);
#endif
