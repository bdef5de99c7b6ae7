/* plan_json.h - declares the interface between plan_print.c and plan_json.c. */
#ifndef OSH_PLAN_JSON_H
#define OSH_PLAN_JSON_H
#include "plan/plan.h"
#include "schedule/range.h"

/* plan_json.c: prints the plan to *out (own). */
osh_status osh_plan_print_json(osh_ctx *cx, char **out, const osh_plan *p);
/* plan_print.c: osh_visit_way_text returns a description of a visit, such as "statistics in several
 * rounds". */
const char *osh_visit_way_text(const osh_visit *v);
int osh_range_n_linears(const osh_plan *p, const osh_range *r); // number of quantized Linears
/* Returns how many bytes the weights of range r take in the source. */
int64_t osh_range_weight_bytes(const osh_plan *p, const osh_range *r);
const char *osh_range_passes_text(const osh_range *r);
#endif
