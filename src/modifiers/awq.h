/* awq.h - the two halves of AWQModifier. Private to this folder. */
#ifndef OSH_AWQ_H
#define OSH_AWQ_H
#include "modifiers/modifier.h"

typedef struct osh_awq_point { double ratio; bool duo; } osh_awq_point; // of the grid; ratio 0 without duo: no factors
osh_status osh_awq_search(osh_ctx *cx, float *s, osh_search *j, const osh_awq_point *grid, int n_grid,
                          osh_arithmetic arithmetic);
size_t osh_awq_search_bytes(const osh_search *j, int n_grid, int n_threads); // gross
#endif
